// SPDX-License-Identifier: Apache-2.0
// Fused plans: what is replaced, what is left alone, and that training stays the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/backend_trace.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/fuse.hpp>
#include <tandem/engine/hazards.hpp>
#include <tandem/engine/registry.hpp>
#include <tandem/tests/support/gpu_classifier.hpp>
#include <tandem/tests/support/small_segmenter.hpp>
#include <tandem/tests/support/training_checks.hpp>

namespace tandem::test {
namespace {

EngineConfig config_of(const FuseOptions& fuse, Precision precision, bool momentum,
                       Schedule schedule = Schedule::overlap) {
  EngineConfig config = small_config(schedule);
  config.fuse = fuse;
  config.precision = precision;
  config.momentum = momentum;
  return config;
}

std::map<std::string, int> count_kinds(const Plan& plan) {
  std::map<std::string, int> kinds;
  for (const Stage& stage : plan.stages)
    for (const Operation& operation : stage.operations) ++kinds[op_info(operation.kind).name];
  return kinds;
}

// The small segmenter: encoder conv1x1 and 5 conv2x2, ReLU behind all but the last; decoder 5
// tconv2x2 with ReLU and a conv3x3.
TEST(Fuse, ReplacesWhatItSays) {
  const auto plain = count_kinds(plan_training(config_of({}, Precision::bf16, false)));
  EXPECT_EQ(plain.at("bias_forward"), 12);
  EXPECT_EQ(plain.at("relu_forward"), 10);
  EXPECT_EQ(plain.at("sgd"), 12);

  auto kinds =
      count_kinds(plan_training(config_of({true, false, false, false}, Precision::bf16, false)));
  EXPECT_EQ(kinds["bias_relu_forward"], 10);
  EXPECT_EQ(kinds["bias_forward"], 2);  // the last layer of each network
  EXPECT_EQ(kinds["relu_forward"], 0);
  EXPECT_EQ(kinds["relu_bias_backward"], 5);
  EXPECT_EQ(kinds["relu_backward"], 0);
  EXPECT_EQ(kinds["bias_backward"], 1);  // the head's
  EXPECT_EQ(kinds["sgd"], 12);

  kinds =
      count_kinds(plan_training(config_of({false, true, false, false}, Precision::bf16, false)));
  EXPECT_EQ(kinds["tconv2x2_update"], 5);
  EXPECT_EQ(kinds["tconv2x2_backward_weights"], 0);
  EXPECT_EQ(kinds["sgd"], 7);                      // biases, and the head's weight
  EXPECT_EQ(kinds["cast"], plain.at("cast") - 5);  // the updates write the copies

  kinds =
      count_kinds(plan_training(config_of({false, false, true, false}, Precision::bf16, false)));
  EXPECT_EQ(kinds["sgd"], 0);
  EXPECT_EQ(kinds["sgd_many"], 1);
  EXPECT_EQ(kinds["cast"], plain.at("cast") - 11);  // the head's bias needs no copy

  kinds =
      count_kinds(plan_training(config_of({false, false, false, true}, Precision::bf16, false)));
  EXPECT_EQ(kinds["conv3x3_loss"], 1);
  EXPECT_EQ(kinds["conv3x3_loss_backward"], 1);
  for (const char* gone : {"permute", "conv3x3_forward", "softmax_cross_entropy",
                           "conv3x3_backward_weights", "conv3x3_backward_data"})
    EXPECT_EQ(kinds[gone], 0) << gone;
  EXPECT_EQ(kinds["relu_backward"], 4);
  kinds =
      count_kinds(plan_training(config_of({false, false, false, true}, Precision::fp32, false)));
  EXPECT_EQ(kinds["conv3x3_loss"], 0) << "strict fp32 has no tensor cores";
  kinds =
      count_kinds(plan_training(config_of({false, false, false, true}, Precision::tf32, false)));
  EXPECT_EQ(kinds["conv3x3_loss"], 1);

  kinds = count_kinds(plan_training(config_of(kFuseAll, Precision::fp32, true)));
  EXPECT_EQ(kinds["tconv2x2_update"], 0) << "momentum needs the gradient";
  EXPECT_EQ(kinds["sgd_momentum"], 0);
  EXPECT_EQ(kinds["sgd_many"], 1);
}

TEST(Fuse, OwnKernelsAreAskedForByName) {
  const auto asked = [](const FuseOptions& options) {
    std::map<std::string, int> kinds;
    for (const Stage& stage : plan_training(config_of(options, Precision::bf16, false)).stages)
      for (const Operation& operation : stage.operations)
        if (operation.own_kernel) ++kinds[op_info(operation.kind).name];
    return kinds;
  };
  FuseOptions all_but = kFuseAll;
  all_but.products = false;
  EXPECT_TRUE(asked(all_but).empty());
  const std::map<std::string, int> expected{{"conv1x1_forward", 1}, {"tconv2x2_update", 5}};
  EXPECT_EQ(asked(kFuseAll), expected);
  EXPECT_NE(plan_hash(plan_training(config_of(kFuseAll, Precision::bf16, false))),
            plan_hash(plan_training(config_of(all_but, Precision::bf16, false))));
}

TEST(Fuse, AGradientThatNobodyWritesTakesNoMemory) {
  const Plan plain = plan_training(config_of({}, Precision::fp32, false));
  const Plan fused = plan_training(config_of(kFuseAll, Precision::fp32, false));
  ASSERT_EQ(plain.buffers.size(), fused.buffers.size());
  std::size_t saved = 0, weights = 0;
  for (std::size_t b = 0; b < plain.buffers.size(); ++b) {
    const Buffer &before = plain.buffers[b], &after = fused.buffers[b];
    if (before.bytes != after.bytes && before.scope == Scope::persistent) {
      EXPECT_EQ(after.bytes, 0u) << after.name;
      EXPECT_NE(after.name.find(".weight.gradient"), std::string::npos) << after.name;
      saved += before.bytes;
    }
    if (before.name.rfind("decoder.", 0) == 0 && before.name.find(".weight") != std::string::npos &&
        before.name.find("gradient") == std::string::npos && before.scope == Scope::persistent &&
        before.name != "decoder.10.weight")
      weights += before.bytes;
  }
  EXPECT_EQ(saved, weights);
  EXPECT_LT(plan_memory(fused).device_bytes, plan_memory(plain).device_bytes);
  EXPECT_NE(plan_hash(fused), plan_hash(plain));
}

TEST(Fuse, AnUpdateComesBehindTheLastReaderOfItsWeight) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const Plan plan = plan_training(config_of({false, true, false, false}, precision, false));
    const std::vector<Operation>& operations = plan.stages.back().operations;
    for (std::size_t u = 0; u < operations.size(); ++u) {
      if (operations[u].kind != OpKind::tconv2x2_update) continue;
      const BufferId w = operations[u].operands[3].buffer;
      EXPECT_EQ(operations[u].operands.size(), precision == Precision::bf16 ? 5u : 4u) << "a copy";
      for (std::size_t i = u + 1; i < operations.size(); ++i)
        for (const Operand& operand : operations[i].operands)
          EXPECT_NE(operand.buffer, w)
              << operations[i].name << " reads what " << operations[u].name << " has updated";
    }
  }
}

void add(PlanBuilder& builder, OpKind kind, const char* name, std::vector<Operand> operands) {
  Operation operation;
  operation.kind = kind;
  operation.name = name;
  operation.operands = std::move(operands);
  operation.callable.function = [](void*, void* const*, const CallContext&) {};
  builder.add(std::move(operation));
}

TEST(Fuse, LeavesAloneWhatSomethingElseTouches) {
  const TensorDesc x{DType::f32, Layout::zorder, 1, 2, 2, 3},
      y{DType::f32, Layout::zorder, 1, 1, 1, 4};
  const TensorDesc w{DType::f32, Layout::nhwc, 4, 2, 2, 3},
      header = byte_desc(batch_header_bytes(1));
  // What happens between the product and the update.
  enum class Between { nothing, reads_all, writes_x, writes_dy, writes_w, reads_dw };
  using B = Between;
  for (const B between :
       {B::nothing, B::reads_all, B::writes_x, B::writes_dy, B::writes_w, B::reads_dw}) {
    PlanBuilder builder;
    const BufferId hx = builder.add_buffer("x", x, Scope::scratch),
                   hy = builder.add_buffer("dy", y, Scope::scratch);
    const BufferId hw = builder.add_buffer("w", w, Scope::persistent),
                   hdw = builder.add_buffer("dw", w, Scope::persistent);
    const BufferId hh = builder.add_buffer("header", header, Scope::persistent);
    builder.begin_stage("train");
    add(builder, OpKind::callable, "make", {builder.write(hx, x), builder.write(hy, y)});
    add(builder, OpKind::conv2x2_backward_weights, "l.backward_weights",
        {builder.read(hx, x), builder.read(hy, y), builder.write(hdw, w)});
    if (between != B::nothing) {
      const auto touch = [&](BufferId buffer, const TensorDesc& desc, B writer) {
        return between == writer ? builder.read_write(buffer, desc) : builder.read(buffer, desc);
      };
      std::vector<Operand> operands{touch(hx, x, B::writes_x), touch(hy, y, B::writes_dy),
                                    touch(hw, w, B::writes_w)};
      if (between == B::reads_dw) operands.push_back(builder.read(hdw, w));
      add(builder, OpKind::callable, "between", operands);
    }
    add(builder, OpKind::sgd, "l.sgd",
        {builder.read(hh, header), builder.read(hdw, w), builder.read_write(hw, w)});
    const bool alone = between == B::nothing || between == B::reads_all;
    auto kinds = count_kinds(fuse(std::move(builder).build(), kFuseAll));
    EXPECT_EQ(kinds["conv2x2_update"], alone ? 1 : 0) << static_cast<int>(between);
    EXPECT_EQ(kinds["conv2x2_backward_weights"], alone ? 0 : 1) << static_cast<int>(between);
  }
}

// The neighbours have one buffer, and the second sees only a part of it.
TEST(Fuse, LeavesAloneWhatHasAnotherShape) {
  const TensorDesc whole{DType::f32, Layout::nhwc, 1, 2, 2, 4},
      part{DType::f32, Layout::nhwc, 1, 1, 2, 4}, b{DType::f32, Layout::nhwc, 1, 1, 1, 4};
  for (const TensorDesc& second : {whole, part}) {
    PlanBuilder builder;
    const BufferId hy = builder.add_buffer("y", whole, Scope::scratch),
                   hdy = builder.add_buffer("dy", whole, Scope::scratch);
    const BufferId hb = builder.add_buffer("b", b, Scope::persistent),
                   hdb = builder.add_buffer("db", b, Scope::persistent);
    builder.begin_stage("train");
    add(builder, OpKind::callable, "make", {builder.write(hy, whole), builder.write(hdy, whole)});
    add(builder, OpKind::bias_forward, "l.bias",
        {builder.read(hb, b), builder.read_write(hy, whole)});
    add(builder, OpKind::relu_forward, "l.relu", {builder.read_write(hy, second)});
    add(builder, OpKind::relu_backward, "l.relu_backward",
        {builder.read(hy, whole), builder.read_write(hdy, whole)});
    add(builder, OpKind::bias_backward, "l.bias_backward",
        {builder.read(hdy, second), builder.write(hdb, b)});
    auto kinds = count_kinds(fuse(std::move(builder).build(), kFuseAll));
    const int fused = second == whole ? 1 : 0;
    EXPECT_EQ(kinds["bias_relu_forward"], fused);
    EXPECT_EQ(kinds["relu_bias_backward"], fused);
    EXPECT_EQ(kinds["relu_forward"], 1 - fused);
    EXPECT_EQ(kinds["bias_backward"], 1 - fused);
  }
}

TEST(Fuse, FusedPlansHaveNoHazards) {
  for (const Schedule schedule : {Schedule::serial, Schedule::overlap, Schedule::graph})
    for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16})
      for (const bool momentum : {true, false}) {
        TraceBackend trace;
        SchedulerOptions options;
        options.schedule = schedule;
        Scheduler scheduler(trace, plan_training(config_of(kFuseAll, precision, momentum)),
                            options);
        trace.clear();
        for (int n = 0; n < 12; ++n) scheduler.push(n % 4, static_cast<std::uint64_t>(n));
        scheduler.drain();
        EXPECT_TRUE(find_hazards(trace.trace()).empty());
      }
}

struct Outcome {
  std::vector<double> losses;
  Parameters weights;
};

Outcome train(const EngineConfig& config, int steps) {
  const auto backend = make_host_backend();
  SmallSegmenter segmenter(*backend, config);
  segmenter.train(0, steps);
  return {segmenter.losses(), segmenter.trainer().trained()};
}

TEST(Fuse, PointwiseAndManyKeepTheBits) {
  for (const Precision precision : {Precision::fp32, Precision::bf16})
    for (const bool momentum : {true, false}) {
      const int steps = precision == Precision::fp32 ? 20 : 6;
      const Outcome plain = train(config_of({}, precision, momentum), steps);
      const Outcome fused =
          train(config_of({true, false, true, false}, precision, momentum), steps);
      EXPECT_EQ(plain.losses, fused.losses);
      EXPECT_TRUE(same_bits(plain.weights, fused.weights));
    }
}

TEST(Fuse, MovesTheWeightsAlike) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    // At this rate single ReLUs go the other way after some 40 steps, which is no error of an
    // update.
    const int steps = precision == Precision::bf16 ? 10 : 25;
    const auto backend = make_host_backend();
    const auto config = [&](const FuseOptions& fuse) {
      EngineConfig made = config_of(fuse, precision, false);
      made.batch = 3;  // a count that does not divide exactly: the roundings differ
      return made;
    };
    SmallSegmenter plain(*backend, config({})), fused(*backend, config(kFuseAll));
    plain.train(0, steps);
    fused.train(0, steps);
    const Parameters a = fused.trainer().trained(), b = plain.trainer().trained();
    expect_moved_alike(plain.trained_start(), b, a, fused_bound(precision));
    EXPECT_FALSE(same_bits(a, b)) << "nothing was fused";
    EXPECT_THROW(fused.trainer().gradients(), Error);
  }
}

class FuseHeavy : public ::testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, FuseHeavy, ::testing::Values(Precision::fp32, Precision::bf16),
                         [](const auto& tested) { return name_of(tested.param); });

// As a GPU runs it unless it is told otherwise, beside the plain plan in one stream.
TEST_P(FuseHeavy, TheClassifierMovesAlikeOverAThousandSteps) {
#if defined(TANDEM_THREAD_SANITIZER) || defined(TANDEM_ADDRESS_SANITIZER)
  constexpr int kSteps = 40;  // the others do the same
#else
  constexpr int kSteps = 1000;
#endif
  // Three pictures: a count that does not divide exactly, so that the roundings differ.
  const auto config = [](Schedule schedule) {
    EngineConfig made = still_classifier_config(32, 3, GetParam(), schedule);
    made.momentum = false;
    return made;
  };
  const Parameters start = make_parameters(classifier(32, kSmallClasses), 0, 0);
  const auto backend = make_host_backend();
  StillClassifier plain(*backend, config(Schedule::serial), start, StillClassifier::kSlowRate);
  plain.train(kSteps);
  EngineConfig as_on_a_gpu = config(Schedule::overlap);
  as_on_a_gpu.fuse = kFuseAll;
  as_on_a_gpu.scheduler.side_lanes = true;
  StillClassifier fused(*backend, as_on_a_gpu, start, StillClassifier::kSlowRate);
  fused.train(kSteps);
  const Parameters a = fused.trainer().trained(), b = plain.trainer().trained();
  const double worst = expect_moved_alike(start, b, a, fused_bound(GetParam()));
  RecordProperty("worst_update_error", std::to_string(worst));
  EXPECT_FALSE(same_bits(a, b)) << "nothing was fused";
}

TEST(Fuse, WeightDecayIsPartOfAnUpdate) {
  BatchHeader header;
  header.valid_count = 4;
  header.learning_rate = 0.5f;
  header.weight_decay = 0.125f;
  finish_header(header);
  EXPECT_EQ(header.keep, 1 - 0.5f * 0.125f);
  header.valid_count = 0;
  finish_header(header);
  EXPECT_EQ(header.keep, 1.0f) << "a batch without labels changes nothing";
}

}  // namespace
}  // namespace tandem::test
