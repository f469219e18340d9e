// SPDX-License-Identifier: Apache-2.0
// Three stages made of callables, small enough to reason about: produce -> transform -> consume.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <tandem/engine/plan.hpp>
#include <tandem/engine/scheduler.hpp>
#include <vector>

namespace tandem::testing {

/// What the last stage hands back for each batch.
struct SyntheticResult {
  std::uint64_t step = 0;        ///< the step the consumer was called for
  std::uint64_t mismatches = 0;  ///< elements of the batch that were not this step's
  std::uint64_t state = 0;       ///< depends on every batch so far and on their order
  friend bool operator==(const SyntheticResult&, const SyntheticResult&) = default;
};

/// Every element of batch n is n after `produce` and 3 n + 1 after `transform`; `consume` counts
/// the elements that are not.
///
///   produce    fill   number, table        -> produced
///              label  number               -> tag
///   transform  map    produced             -> work (scratch)
///              pass   tag                  -> tag_out
///              scale  work                 -> transformed
///   consume    check  transformed, tag_out -> tally (scratch)
///              report tally, state         -> state, result
///
/// `number` is the input, `table` a weight that nothing may write, `state` persistent. The plan
/// refers to this object, which must outlive its use.
class SyntheticStages {
 public:
  static constexpr int kStages = 3;
  static constexpr int kElements = 64;
  enum StageIndex { kProduce = 0, kTransform = 1, kConsume = 2 };

  /// Called in the body of each stage's first operation (`before`) and last operation (`after`).
  /// May block or throw. Set them before the first batch.
  std::function<void(int stage, std::uint64_t step)> before, after;

  BufferId number = -1, table = -1, produced = -1, tag = -1, work = -1, transformed = -1,
           tag_out = -1, tally = -1, state = -1, result = -1;

  Plan plan(int slots, int input_slots = 8) {
    const TensorDesc one = byte_desc(sizeof(std::uint64_t));
    const TensorDesc many = byte_desc(kElements * sizeof(std::uint64_t));
    const TensorDesc outcome = byte_desc(sizeof(SyntheticResult));
    PlanBuilder plan(slots, input_slots);
    number = plan.add_buffer("number", one, Scope::input);
    table = plan.add_buffer("table", many, Scope::persistent);
    produced = plan.add_buffer("produced", many, Scope::handover, 0);
    tag = plan.add_buffer("tag", one, Scope::handover, 0);
    work = plan.add_buffer("work", many, Scope::scratch, kTransform);
    transformed = plan.add_buffer("transformed", many, Scope::handover, 1);
    tag_out = plan.add_buffer("tag_out", one, Scope::handover, 1);
    tally = plan.add_buffer("tally", one, Scope::scratch, kConsume);
    state = plan.add_buffer("state", one, Scope::persistent);
    result = plan.add_buffer("result", outcome, Scope::result);

    plan.begin_stage("produce");
    plan.add(callable<&SyntheticStages::fill>(
        "fill", {plan.read(number, one), plan.read(table, many), plan.write(produced, many)}));
    plan.add(
        callable<&SyntheticStages::label>("label", {plan.read(number, one), plan.write(tag, one)}));
    plan.begin_stage("transform");
    plan.add(callable<&SyntheticStages::map>("map",
                                             {plan.read(produced, many), plan.write(work, many)}));
    plan.add(
        callable<&SyntheticStages::pass>("pass", {plan.read(tag, one), plan.write(tag_out, one)}));
    plan.add(callable<&SyntheticStages::scale>(
        "scale", {plan.read(work, many), plan.write(transformed, many)}));
    plan.begin_stage("consume");
    plan.add(callable<&SyntheticStages::check>(
        "check", {plan.read(transformed, many), plan.read(tag_out, one), plan.write(tally, one)}));
    plan.add(callable<&SyntheticStages::report>(
        "report",
        {plan.read(tally, one), plan.read_write(state, one), plan.write(result, outcome)}));
    return std::move(plan).build();
  }

  /// Fills the next input slot with `step` and pushes it. On a backend that executes.
  void feed(Scheduler& scheduler, std::uint64_t step) const {
    const int slot = static_cast<int>(step % static_cast<unsigned>(scheduler.plan().input_slots));
    scheduler.wait_input_free(slot);
    std::memcpy(scheduler.address(number, slot), &step, sizeof(step));
    scheduler.push(slot, step);
  }

 private:
  using Pointers = void* const*;
  template <void (SyntheticStages::*Body)(Pointers, std::uint64_t)>
  Operation callable(const char* name, std::vector<Operand> operands) {
    Operation operation;
    operation.kind = OpKind::callable;
    operation.name = name;
    operation.operands = std::move(operands);
    operation.callable.user = this;
    operation.callable.function = [](void* self, Pointers p, const CallContext& context) {
      (static_cast<SyntheticStages*>(self)->*Body)(p, context.step);
    };
    return operation;
  }

  static std::uint64_t* at(Pointers p, int i) { return static_cast<std::uint64_t*>(p[i]); }
  void run_before(int stage, std::uint64_t step) const {
    if (before) before(stage, step);
  }
  void run_after(int stage, std::uint64_t step) const {
    if (after) after(stage, step);
  }

  void fill(Pointers p, std::uint64_t step) {
    run_before(kProduce, step);
    for (int i = 0; i < kElements; ++i) at(p, 2)[i] = at(p, 0)[0] + at(p, 1)[i];
  }
  void label(Pointers p, std::uint64_t step) {
    at(p, 1)[0] = at(p, 0)[0];
    run_after(kProduce, step);
  }
  void map(Pointers p, std::uint64_t step) {
    run_before(kTransform, step);
    for (int i = 0; i < kElements; ++i) at(p, 1)[i] = 3 * at(p, 0)[i];
  }
  void pass(Pointers p, std::uint64_t) { at(p, 1)[0] = at(p, 0)[0]; }
  void scale(Pointers p, std::uint64_t step) {
    for (int i = 0; i < kElements; ++i) at(p, 1)[i] = at(p, 0)[i] + 1;
    run_after(kTransform, step);
  }
  void check(Pointers p, std::uint64_t step) {
    run_before(kConsume, step);
    std::uint64_t wrong = at(p, 1)[0] != step;
    for (int i = 0; i < kElements; ++i) wrong += at(p, 0)[i] != 3 * step + 1;
    at(p, 2)[0] = wrong;
  }
  void report(Pointers p, std::uint64_t step) {
    std::uint64_t& folded = at(p, 1)[0];
    folded = folded * 6364136223846793005ULL + step + at(p, 0)[0] + 1;
    const SyntheticResult outcome{step, at(p, 0)[0], folded};
    std::memcpy(p[2], &outcome, sizeof(outcome));
    run_after(kConsume, step);
  }
};

}  // namespace tandem::testing
