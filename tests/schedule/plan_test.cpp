// SPDX-License-Identifier: Apache-2.0
// What a plan may not be, and its hash.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <tandem/engine/error.hpp>
#include <tandem/engine/plan.hpp>
#include <tandem/tests/support/synthetic_stages.hpp>
#include <vector>

namespace tandem::testing {
namespace {

/// The three synthetic stages, to break one thing of.
Plan good_plan() {
  SyntheticStages stages;
  return stages.plan(2, 4);
}
BufferId id_of(const Plan& plan, const std::string& name) {
  for (std::size_t b = 0; b < plan.buffers.size(); ++b)
    if (plan.buffers[b].name == name) return static_cast<BufferId>(b);
  ADD_FAILURE() << "no buffer " << name;
  return -1;
}
/// Adds an access of 8 bytes of `buffer` to an operation of `stage`.
Plan with_access(std::size_t stage, std::size_t operation, const std::string& buffer,
                 Access access) {
  Plan plan = good_plan();
  Operand operand;
  operand.buffer = id_of(plan, buffer);
  operand.desc = byte_desc(8);
  operand.access = access;
  operand.name = buffer;
  plan.stages[stage].operations[operation].operands.push_back(operand);
  return plan;
}

/// Expects Error{usage}, one line, that holds every part.
void expect_refused(const Plan& plan, const std::vector<std::string>& parts) {
  try {
    validate(plan);
    ADD_FAILURE() << "accepted; expected a refusal about " << parts.front();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is missing in: " << text;
  }
}

constexpr std::size_t kProduce = 0, kTransform = 1, kConsume = 2;

TEST(Validate, AcceptsTheSyntheticStages) { EXPECT_NO_THROW(validate(good_plan())); }

TEST(Validate, AHandOverIsWrittenByItsProducerOnly) {
  expect_refused(with_access(kTransform, 1, "produced", Access::write), {"pass", "produced"});
  expect_refused(with_access(kTransform, 1, "produced", Access::read_write), {"pass", "produced"});
  expect_refused(with_access(kConsume, 1, "produced", Access::write), {"report", "produced"});
  expect_refused(with_access(kProduce, 1, "transformed", Access::write), {"label", "transformed"});
}

TEST(Validate, AHandOverIsReadByItsProducerAndConsumerOnly) {
  EXPECT_NO_THROW(validate(with_access(kProduce, 1, "produced", Access::read)));
  expect_refused(with_access(kConsume, 1, "produced", Access::read), {"report", "produced"});
  expect_refused(with_access(kProduce, 1, "transformed", Access::read), {"label", "transformed"});
}

TEST(Validate, AnInputIsReadByTheFirstStageOnly) {
  expect_refused(with_access(kTransform, 1, "number", Access::read), {"pass", "number"});
  expect_refused(with_access(kConsume, 1, "number", Access::read), {"report", "number"});
  expect_refused(with_access(kProduce, 1, "number", Access::write), {"label", "number"});
}

TEST(Validate, AResultIsWrittenByTheLastStageOnly) {
  expect_refused(with_access(kProduce, 1, "result", Access::write), {"label", "result"});
  expect_refused(with_access(kTransform, 1, "result", Access::read), {"pass", "result"});
}

TEST(Validate, AScratchBufferBelongsToItsStage) {
  expect_refused(with_access(kProduce, 1, "work", Access::write), {"label", "work"});
  expect_refused(with_access(kConsume, 1, "work", Access::read), {"report", "work"});
}

TEST(Validate, AScratchBufferIsWrittenBeforeItIsRead) {
  Plan plan = good_plan();
  std::swap(plan.stages[kTransform].operations[0], plan.stages[kTransform].operations[2]);
  expect_refused(plan, {"scale", "work"});
  plan = good_plan();  // read and written by the same, first operation
  plan.stages[kTransform].operations[0].operands[1].access = Access::read_write;
  expect_refused(plan, {"map", "work"});
}

TEST(Validate, AHandOverIsWrittenBeforeItsProducerReadsIt) {
  Plan plan = good_plan();
  plan.stages[kProduce].operations.front().operands.push_back(
      {id_of(plan, "produced"), byte_desc(8), Access::read, "produced"});
  expect_refused(plan, {"produced", "read before it is written"});
}

TEST(Validate, APersistentBufferThatIsWrittenBelongsToOneStage) {
  const auto with_persistent = [](Access in_produce, Access in_consume) {
    Plan plan = good_plan();
    plan.buffers.push_back({"shared", 8, Scope::persistent, 0});
    const auto id = static_cast<BufferId>(plan.buffers.size()) - 1;
    plan.stages[kProduce].operations.back().operands.push_back(
        {id, byte_desc(8), in_produce, "shared"});
    plan.stages[kConsume].operations.back().operands.push_back(
        {id, byte_desc(8), in_consume, "shared"});
    return plan;
  };
  EXPECT_NO_THROW(validate(with_persistent(Access::read, Access::read)));
  expect_refused(with_persistent(Access::read, Access::write), {"shared", "two stages"});
  expect_refused(with_persistent(Access::write, Access::read), {"shared", "two stages"});
}

TEST(Validate, AnAccessStaysInsideItsBuffer) {
  Plan plan = good_plan();
  plan.stages[kProduce].operations[1].operands[1].desc = byte_desc(9);
  expect_refused(plan, {"label", "tag", "9", "8"});
  plan = good_plan();
  plan.buffers[static_cast<std::size_t>(id_of(plan, "produced"))].bytes -= 1;
  expect_refused(plan, {"fill", "produced", "512", "511"});
}

TEST(Validate, ABufferExists) {
  for (BufferId id : {-1, 10, 1000}) {
    Plan plan = good_plan();
    plan.stages[kProduce].operations[0].operands[0].buffer = id;
    expect_refused(plan, {"fill", std::to_string(id), "10"});
  }
}

TEST(Validate, AnOperationHasNoMoreOperandsThanABackendTakes) {
  Plan plan = good_plan();
  auto& operands = plan.stages[kProduce].operations[0].operands;
  while (operands.size() < kMaxOperands) operands.push_back(operands[1]);
  EXPECT_NO_THROW(validate(plan));
  operands.push_back(operands[1]);
  expect_refused(plan, {"fill", std::to_string(kMaxOperands + 1), std::to_string(kMaxOperands)});
}

TEST(Validate, SlotsStagesAndIndicesAreInRange) {
  Plan plan = good_plan();
  plan.slots = 0;
  expect_refused(plan, {"slots", "0", "1"});
  plan = good_plan();
  plan.input_slots = -1;
  expect_refused(plan, {"input_slots", "-1", "1"});
  plan = good_plan();
  plan.slots = 65537;
  expect_refused(plan, {"slots", "65537", "1 .. 65536"});
  plan = good_plan();
  plan.stages.clear();
  expect_refused(plan, {"stages"});
  plan = good_plan();
  plan.stages[kTransform].operations.clear();
  expect_refused(plan, {"transform"});
  for (int index : {-1, 2}) {
    plan = good_plan();
    plan.buffers[static_cast<std::size_t>(id_of(plan, "produced"))].index = index;
    expect_refused(plan, {"produced", std::to_string(index)});
  }
  plan = good_plan();
  plan.buffers[static_cast<std::size_t>(id_of(plan, "work"))].index = 3;
  expect_refused(plan, {"work", "3"});
}

TEST(PlanBuilder, ShorthandsNameTheBuffer) {
  PlanBuilder builder;
  const BufferId id = builder.add_buffer("weights", byte_desc(8), Scope::persistent);
  EXPECT_EQ(builder.stage(), -1);
  builder.begin_stage("first");
  EXPECT_EQ(builder.stage(), 0);
  const Operand operands[] = {builder.read(id, byte_desc(8)), builder.write(id, byte_desc(4)),
                              builder.read_write(id, byte_desc(8))};
  const Access expected[] = {Access::read, Access::write, Access::read_write};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(operands[i].buffer, id);
    EXPECT_EQ(operands[i].name, "weights");
    EXPECT_EQ(operands[i].access, expected[i]);
    EXPECT_EQ(operands[i].desc.bytes(), i == 1 ? 4u : 8u);
    EXPECT_FALSE(operands[i].workspace);
  }
}

TEST(Plan, RefusesTwoOperationsWithOneNameInAStage) {
  Plan plan = good_plan();
  Stage& stage = plan.stages[1];
  stage.operations.push_back(stage.operations.front());
  expect_refused(plan, {stage.operations.front().name, stage.name, "twice"});
  stage.operations.back().name += " again";
  EXPECT_NO_THROW(validate(plan));
}

TEST(PlanBuilder, RefusesAnOperationOutsideAStageAndAnInvalidPlan) {
  const auto code_of = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    ADD_FAILURE() << "accepted";
    return ErrorCode::run_failed;
  };
  Operation operation;
  operation.name = "stray";
  operation.callable.function = [](void*, void* const*, const CallContext&) {};
  EXPECT_EQ(code_of([&] { PlanBuilder().add(operation); }), ErrorCode::usage);
  EXPECT_EQ(code_of([] { PlanBuilder().build(); }), ErrorCode::usage);
  EXPECT_EQ(code_of([] { PlanBuilder().read(0, byte_desc(1)); }), ErrorCode::usage);
  PlanBuilder builder;
  const BufferId scratch = builder.add_buffer("s", byte_desc(8), Scope::scratch);
  builder.begin_stage("only");
  operation.operands = {builder.read(scratch, byte_desc(8))};
  builder.add(operation);
  EXPECT_EQ(code_of([&] { std::move(builder).build(); }), ErrorCode::usage);
}

TEST(PlanBuilder, AppendsAWorkspaceThatTheHazardCheckSees) {
  const TensorDesc x{DType::f32, Layout::nhwc, 2, 8, 8, 4}, y{DType::f32, Layout::nhwc, 2, 8, 8, 3},
      weight{DType::f32, Layout::nhwc, 3, 3, 3, 4};
  PlanBuilder builder;
  const BufferId in = builder.add_buffer("x", x, Scope::persistent),
                 filter = builder.add_buffer("w", weight, Scope::persistent),
                 out = builder.add_buffer("y", y, Scope::persistent);
  builder.begin_stage("only");
  Operation conv;
  conv.kind = OpKind::conv3x3_forward;
  conv.name = "conv";
  conv.operands = {builder.read(in, x), builder.read(filter, weight), builder.write(out, y)};
  builder.add(conv);
  const Plan plan = std::move(builder).build();
  const auto& operands = plan.stages[0].operations[0].operands;
  ASSERT_EQ(operands.size(), 4u);
  EXPECT_TRUE(operands[3].workspace);
  EXPECT_EQ(operands[3].access, Access::write);
  const Buffer& buffer = plan.buffers.at(static_cast<std::size_t>(operands[3].buffer));
  EXPECT_EQ(buffer.scope, Scope::scratch);
  EXPECT_GT(buffer.bytes, 0u);
  EXPECT_EQ(operands[3].desc.bytes(), buffer.bytes);
}

// A plan that was put together by hand, or to which a workspace was added, is asked again.
TEST(Plan, ABufferThatAnOperationWritesIsNotAnotherOperandOfIt) {
  Plan plan = good_plan();
  Operation copy;
  copy.kind = OpKind::copy;
  copy.name = "onto itself";
  copy.operands = {{2, byte_desc(1), Access::read, "src"}, {2, byte_desc(1), Access::write, "dst"}};
  plan.stages[1].operations.push_back(copy);
  try {
    validate(plan);
    FAIL() << "a copy of a buffer onto itself";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    for (const char* part : {"onto itself", "src", "dst", "same buffer"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(PlanHash, IsStableAndHasSixteenDigits) {
  const std::string hash = plan_hash(good_plan());
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_EQ(hash.find_first_not_of("0123456789abcdef"), std::string::npos) << hash;
  EXPECT_EQ(plan_hash(good_plan()), hash);  // another object, other addresses in the callables
  EXPECT_EQ(to_text(good_plan()), to_text(good_plan()));
}

TEST(PlanHash, ChangesWithEveryValue) {
  const std::vector<std::function<void(Plan&)>> changes{
      [](Plan& p) { p.slots = 3; },
      [](Plan& p) { p.input_slots = 5; },
      [](Plan& p) { p.input_memory = MemoryKind::device; },
      [](Plan& p) { p.buffers[2].name += "x"; },
      [](Plan& p) { p.buffers[2].bytes += 1; },
      [](Plan& p) { p.buffers[1].scope = Scope::scratch; },
      [](Plan& p) { p.buffers[4].index = 2; },
      [](Plan& p) { p.buffers.push_back(p.buffers.back()); },
      [](Plan& p) { p.stages[1].name += "x"; },
      [](Plan& p) { p.stages[1].operations.pop_back(); },
      [](Plan& p) { std::swap(p.stages[1].operations[0], p.stages[1].operations[1]); },
      [](Plan& p) { p.stages[1].operations[0].name += "x"; },
      [](Plan& p) { p.stages[1].operations[0].kind = OpKind::copy; },
      [](Plan& p) { p.stages[1].operations[0].lane = Lane::update; },
      [](Plan& p) { p.stages[1].operations[0].own_kernel = true; },
      [](Plan& p) { p.stages[1].operations[0].scale = 1.0000001f; },
      [](Plan& p) { p.stages[1].operations[0].ignore_label = 254; },
      [](Plan& p) { p.stages[1].operations[0].operands[0].buffer = 3; },
      [](Plan& p) { p.stages[1].operations[0].operands[0].access = Access::read_write; },
      [](Plan& p) { p.stages[1].operations[0].operands[0].workspace = true; },
      [](Plan& p) { p.stages[1].operations[0].operands[0].desc.dtype = DType::f32; },
      [](Plan& p) { p.stages[1].operations[0].operands[0].desc.layout = Layout::zorder; },
      [](Plan& p) { p.stages[1].operations[0].operands[0].desc.n += 1; },
      [](Plan& p) { p.stages[1].operations[0].operands[0].desc.h += 1; },
      [](Plan& p) { p.stages[1].operations[0].operands[0].desc.w += 1; },
      [](Plan& p) { p.stages[1].operations[0].operands[0].desc.c += 1; },
  };
  std::set<std::string> hashes{plan_hash(good_plan())};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Plan plan = good_plan();
    changes[i](plan);
    EXPECT_TRUE(hashes.insert(plan_hash(plan)).second) << "change " << i << " kept a hash";
  }
}

}  // namespace
}  // namespace tandem::testing
