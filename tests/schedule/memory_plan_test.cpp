// SPDX-License-Identifier: Apache-2.0
// Where buffers lie: what may share bytes does, what must not never does.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/plan.hpp>
#include <tandem/engine/scheduler.hpp>
#include <vector>

namespace tandem::testing {
namespace {

using Pointers = void* const*;

template <class Number>
std::string numbered(std::string name, Number i) {
  return name.append(std::to_string(i));
}

/// A plan written by hand: one line an operation, each a list of (buffer, access).
class HandPlan {
 public:
  explicit HandPlan(int slots = 2) {
    plan_.slots = slots;
    plan_.input_slots = 3;
  }
  BufferId buffer(const std::string& name, std::size_t bytes, Scope scope, int index = 0) {
    plan_.buffers.push_back({name, bytes, scope, index});
    return static_cast<BufferId>(plan_.buffers.size()) - 1;
  }
  void stage(const std::string& name) { plan_.stages.push_back({name, {}}); }
  Operation& op(const std::vector<std::pair<BufferId, Access>>& uses, Lane lane = Lane::main) {
    Operation operation;
    operation.name = numbered("op", plan_.stages.back().operations.size());
    operation.lane = lane;
    operation.callable.function = [](void*, Pointers, const CallContext&) {};
    for (const auto& [id, access] : uses) {
      const Buffer& b = plan_.buffers[static_cast<std::size_t>(id)];
      Operand operand;
      operand.buffer = id;
      operand.desc = byte_desc(b.bytes);
      operand.access = access;
      operand.name = b.name;
      operation.operands.push_back(operand);
    }
    plan_.stages.back().operations.push_back(operation);
    return plan_.stages.back().operations.back();
  }
  Plan& plan() { return plan_; }

 private:
  Plan plan_;
};

constexpr Access r = Access::read, w = Access::write;

struct Range {
  std::size_t begin, end;
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

Range range_of(const Plan& plan, const MemoryPlan& memory, BufferId id, int copy = 0) {
  const auto b = static_cast<std::size_t>(id);
  const std::size_t begin = memory.offset.at(b).at(static_cast<std::size_t>(copy));
  return {begin, begin + plan.buffers[b].bytes};
}
bool share_bytes(const Plan& plan, const MemoryPlan& memory, BufferId a, BufferId b) {
  return range_of(plan, memory, a).meets(range_of(plan, memory, b));
}

TEST(MemoryPlan, ScratchWhoseLifetimesDoNotMeetSharesMemory) {
  HandPlan hand;
  hand.stage("only");
  const BufferId a = hand.buffer("a", 1000, Scope::scratch),
                 b = hand.buffer("b", 1000, Scope::scratch),
                 c = hand.buffer("c", 1000, Scope::scratch),
                 d = hand.buffer("d", 1000, Scope::scratch);
  hand.op({{a, w}});
  hand.op({{a, r}, {b, w}});  // a and b meet here
  hand.op({{b, r}, {c, w}});
  hand.op({{c, r}, {d, w}});
  hand.op({{d, r}});
  const Plan& plan = hand.plan();
  const MemoryPlan memory = plan_memory(plan);
  EXPECT_FALSE(share_bytes(plan, memory, a, b));
  EXPECT_FALSE(share_bytes(plan, memory, b, c));
  EXPECT_FALSE(share_bytes(plan, memory, c, d));
  EXPECT_TRUE(share_bytes(plan, memory, a, c));
  EXPECT_TRUE(share_bytes(plan, memory, b, d));
  EXPECT_EQ(memory.device_bytes, 2 * 1024u);
  EXPECT_EQ(plan_memory(plan, false).device_bytes, 4 * 1024u);
}

TEST(MemoryPlan, ABufferOfASideLaneLivesToTheEndOfItsStage) {
  for (Lane lane : {Lane::main, Lane::update}) {
    HandPlan hand;
    hand.stage("only");
    const BufferId gradient = hand.buffer("gradient", 512, Scope::scratch),
                   later = hand.buffer("later", 512, Scope::scratch);
    hand.op({{gradient, w}});
    hand.op({{gradient, r}}, lane);
    hand.op({{later, w}});
    hand.op({{later, r}});
    const MemoryPlan memory = plan_memory(hand.plan());
    EXPECT_EQ(share_bytes(hand.plan(), memory, gradient, later), lane == Lane::main);
  }
}

TEST(MemoryPlan, ScratchOfDifferentStagesNeverShares) {
  HandPlan hand;
  const BufferId first = hand.buffer("first", 512, Scope::scratch, 0),
                 second = hand.buffer("second", 512, Scope::scratch, 1);
  hand.stage("one");
  hand.op({{first, w}});
  hand.stage("two");
  hand.op({{second, w}});
  EXPECT_FALSE(share_bytes(hand.plan(), plan_memory(hand.plan()), first, second));
}

TEST(MemoryPlan, CopiesFollowTheScope) {
  for (int slots : {1, 2, 3}) {
    HandPlan hand(slots);
    const BufferId persistent = hand.buffer("p", 8, Scope::persistent),
                   handover = hand.buffer("h", 8, Scope::handover),
                   scratch = hand.buffer("s", 8, Scope::scratch),
                   input = hand.buffer("i", 8, Scope::input),
                   result = hand.buffer("r", 8, Scope::result);
    hand.stage("one");
    hand.op({{input, r}, {persistent, r}, {scratch, w}, {handover, w}});
    hand.stage("two");
    hand.op({{handover, r}, {result, w}});
    Plan& plan = hand.plan();
    const auto count = [&](BufferId id) {
      return copies(plan, plan.buffers[static_cast<std::size_t>(id)]);
    };
    EXPECT_EQ(count(persistent), 1);
    EXPECT_EQ(count(handover), slots);
    EXPECT_EQ(count(scratch), 1);
    EXPECT_EQ(count(input), 3);
    EXPECT_EQ(count(result), slots + 2);

    const auto pinned = [&](BufferId id) {
      return is_pinned(plan, plan.buffers[static_cast<std::size_t>(id)]);
    };
    EXPECT_TRUE(pinned(input));
    EXPECT_TRUE(pinned(result));
    EXPECT_FALSE(pinned(persistent) || pinned(handover) || pinned(scratch));
    const unsigned s = static_cast<unsigned>(slots);
    EXPECT_EQ(plan_memory(plan).device_bytes, 256u * (1 + s + 1));
    EXPECT_EQ(plan_memory(plan).pinned_bytes, 256u * (3 + s + 2));

    plan.input_memory = MemoryKind::device;
    EXPECT_FALSE(pinned(input));
    EXPECT_EQ(plan_memory(plan).device_bytes, 256u * (1 + s + 1 + 3));
    EXPECT_EQ(plan_memory(plan).pinned_bytes, 256u * (s + 2));
  }
}

/// Random plans of two stages, checked with lifetimes worked out here from the operations.
TEST(MemoryPlan, RandomPlansShareOnlyWhatNeverMeets) {
  std::mt19937 random(7);
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  int shared_pairs = 0;
  for (int round = 0; round < 300; ++round) {
    HandPlan hand(1 + draw(3));
    const int scratches = 2 + draw(12), operations = 2 + draw(12);
    std::vector<BufferId> ids;
    std::vector<int> first, last;  // operations between which a scratch buffer holds something
    ids.push_back(
        hand.buffer("weights", 1 + static_cast<std::size_t>(draw(3000)), Scope::persistent));
    ids.push_back(
        hand.buffer("handover", 1 + static_cast<std::size_t>(draw(3000)), Scope::handover));
    for (int i = 0; i < scratches; ++i) {
      ids.push_back(hand.buffer(numbered("s", i), 1 + static_cast<std::size_t>(draw(3000)),
                                Scope::scratch, 0));
      first.push_back(draw(operations));
      last.push_back(first.back() + draw(operations - first.back()));
    }
    hand.stage("one");
    std::vector<bool> side(static_cast<std::size_t>(scratches), false);
    for (int op = 0; op < operations; ++op) {
      const Lane lane = draw(5) == 0 ? Lane::update : Lane::main;
      std::vector<std::pair<BufferId, Access>> uses{{ids[1], w}};
      for (std::size_t i = 0; i < first.size(); ++i) {
        if (op != first[i] && op != last[i]) continue;
        uses.push_back({ids[2 + i], op == first[i] ? w : r});
        if (lane == Lane::update) side[i] = true;
      }
      hand.op(uses, lane);
    }
    hand.stage("two");
    hand.op({{ids[1], r}});
    const Plan& plan = hand.plan();
    validate(plan);

    const MemoryPlan memory = plan_memory(plan), apart = plan_memory(plan, false);
    struct Place {
      std::size_t buffer;
      Range range;
    };
    for (const MemoryPlan* m : {&memory, &apart}) {
      std::vector<Place> places;
      for (std::size_t b = 0; b < ids.size(); ++b)
        for (int copy = 0; copy < copies(plan, plan.buffers[b]); ++copy) {
          places.push_back({b, range_of(plan, *m, ids[b], copy)});
          ASSERT_EQ(places.back().range.begin % 256, 0u);
          ASSERT_LE(places.back().range.end, m->device_bytes);
        }
      for (std::size_t i = 0; i < places.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) {
          if (!places[i].range.meets(places[j].range)) continue;
          ASSERT_EQ(m, &memory) << "shared although sharing is off";
          ASSERT_GE(places[i].buffer, 2u) << "only scratch shares";
          ASSERT_GE(places[j].buffer, 2u) << "only scratch shares";
          const std::size_t a = places[i].buffer - 2, b = places[j].buffer - 2;
          const int end_a = side[a] ? operations : last[a], end_b = side[b] ? operations : last[b];
          ASSERT_TRUE(end_a < first[b] || end_b < first[a])
              << "round " << round << ": s" << a << " and s" << b << " are alive together";
          ++shared_pairs;
        }
    }
    EXPECT_LE(memory.device_bytes, apart.device_bytes);
  }
  EXPECT_GT(shared_pairs, 100);  // the test saw sharing
}

// --- sharing changes no result ---

/// in -> a -> b -> c -> d -> result, each a scratch buffer of 40 numbers, next = 3 * last + i.
Plan chain_plan(std::vector<BufferId>* scratch) {
  const TensorDesc many = byte_desc(40 * sizeof(std::uint64_t));
  PlanBuilder builder(2, 4);
  BufferId last = builder.add_buffer("in", many, Scope::input);
  builder.begin_stage("only");
  const auto step = [](void*, Pointers p, const CallContext&) {
    const auto* x = static_cast<const std::uint64_t*>(p[0]);
    auto* y = static_cast<std::uint64_t*>(p[1]);
    for (unsigned i = 0; i < 40; ++i) y[i] = 3 * x[i] + x[(i + 7) % 40] + i;
  };
  for (int i = 0; i < 6; ++i) {
    const bool end = i == 5;
    const BufferId next = builder.add_buffer(end ? "out" : numbered("s", i), many,
                                             end ? Scope::result : Scope::scratch);
    if (!end) scratch->push_back(next);
    Operation operation;
    operation.name = numbered("step", i);
    operation.operands = {builder.read(last, many), builder.write(next, many)};
    operation.callable.function = step;
    builder.add(operation);
    last = next;
  }
  return std::move(builder).build();
}

std::vector<std::uint64_t> run_chain(bool share, int poison) {
  std::vector<BufferId> scratch;
  const Plan plan = chain_plan(&scratch);
  const auto backend = make_host_backend();
  SchedulerOptions options;
  options.share_memory = share;
  std::vector<std::uint64_t> out;
  Scheduler scheduler(*backend, plan, options, [&](std::uint64_t, const void* results) {
    const auto* values = static_cast<const std::uint64_t*>(results);
    out.insert(out.end(), values, values + 40);
  });
  for (std::uint64_t n = 0; n < 6; ++n) {
    const std::vector<unsigned char> bytes(
        40 * sizeof(std::uint64_t), static_cast<unsigned char>(poison + static_cast<int>(n)));
    if (poison != 0)
      for (BufferId buffer : scratch) scheduler.write(buffer, bytes.data());
    auto* in = static_cast<std::uint64_t*>(scheduler.address(0, static_cast<int>(n % 4)));
    for (unsigned i = 0; i < 40; ++i) in[i] = n * 1000 + i;
    scheduler.push(static_cast<int>(n % 4), n);
    scheduler.drain();
  }
  return out;
}

TEST(MemoryPlan, APoisonedArenaGivesTheSameResultsSharedOrNot) {
  std::vector<BufferId> scratch;
  const Plan plan = chain_plan(&scratch);
  ASSERT_LT(plan_memory(plan, true).device_bytes, plan_memory(plan, false).device_bytes);
  const std::vector<std::uint64_t> clean = run_chain(false, 0);
  ASSERT_EQ(clean.size(), 6u * 40);
  EXPECT_EQ(run_chain(true, 0), clean);
  EXPECT_EQ(run_chain(true, 0xA5), clean);
  EXPECT_EQ(run_chain(false, 0x5A), clean);
}

}  // namespace
}  // namespace tandem::testing
