// SPDX-License-Identifier: Apache-2.0
// Executes a plan batch by batch. Owns every stream, every event, every record and every wait.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tandem/engine/buffer.hpp>
#include <tandem/engine/plan.hpp>
#include <tandem/engine/stream.hpp>
#include <vector>

namespace tandem {

class StageTimer;

enum class Schedule : std::uint8_t {
  serial,   ///< one stream; batch n passes through all stages before batch n + 1 starts
  overlap,  ///< a stream a stage; stage k works on batch n + 1 while stage k + 1 works on batch n
  graph,    ///< as overlap, but the stages behind the first run as one captured piece a tick
};
const char* name_of(Schedule schedule) noexcept;

/// An edge between neighbouring stages, for tests that show what happens without it.
struct Edge {
  enum Kind : std::uint8_t { none, ready, free } kind = none;
  int handover = 0;
};

struct SchedulerOptions {
  Schedule schedule = Schedule::overlap;
  bool share_memory = true;           ///< see plan_memory()
  bool side_lanes = false;            ///< see the scheduler; `serial` has none
  StageTimer* stage_timer = nullptr;  ///< told of every execution of a stage; null: nobody. It
                                      ///< looks inside a tick: with it nothing is captured
  Edge test_drop_edge;  ///< test hook: this wait is not made. Never set it in a program.
};

/// Streams that a plan is run with, side lanes among them.
int stream_count(const Plan& plan, const SchedulerOptions& options);

/// Called on the pushing thread, in step order, once the host knows that a batch has passed the
/// last stage. `results` is the start of the batch's copy of the plan's first result buffer, or
/// null if it has none; valid during the call. May throw: that ends the run as a failure does.
using OnResult = std::function<void(std::uint64_t step, const void* results)>;

/// The scheduler.
///
/// Hand-over h lies between stage h and stage h + 1 and has R slots; batch n uses slot n mod R.
/// Under `overlap`, for each batch n, with s = n mod R:
///
///   stage h      wait free[h][s]  (skipped on the first lap)   ... write slot s ... record
///   ready[h][s] stage h + 1  wait ready[h][s] ... read slot s ...          record free[h][s]
///
/// `ready` is recorded after the last writer, `free` after the last reader of the slot; both are
/// found from the declared accesses. Events are created once and belong to (hand-over, slot).
///
/// Under `graph` stage 0, the copies, has a stream of its own and takes part in the events of
/// hand-over 0 as above. Stages 1 .. K-1 of one tick lie between a fork and a join: each works on a
/// batch of its own, in slots that the others do not touch, so that they need no edge in between.
///
///   copy lane     wait free[0][s]   stage 0 of batch n       record ready[0][s]
///   launch lane   wait ready[0][s'] stages K-1 .. 1 of batches n-K+1 .. n-1  record free[0][s']
///
/// What lies between fork and join is the same from tick to tick but for its slots, which come back
/// after lcm(R, R + 2) ticks: that many graphs are captured, each the second time its turn comes,
/// and launched from then on. Fill and drain, and everything where the backend has no graphs or a
/// capture fails, issue the same list without one. Numbers that change are in the batch header; a
/// step that operations and NVTX ranges are told is that of the capture.
///
/// With `side_lanes` a stage's operations of Lane::update run on a stream of their own beside those
/// of Lane::main:
///
///   main     op  op  record fork   op   op    wait join   op that needs it ... wait join   (end)
///   update           wait fork   update   update   record join
///
/// An update starts behind everything that is before it in the stage's list. What is behind it in
/// the list waits for it only if both touch a buffer and one of them writes; so does the end of the
/// stage, and each record of an event of a hand-over.
///
/// The host waits in two places only. (1) Before it issues tick n it waits for the end of tick
/// n - (R + 2), and delivers that tick's result. (2) Whoever refills an input slot waits for the
/// copy event of its last use, input_free(). Neither is needed for the order on the device.
///
/// Not thread-safe, except input_free(). Nothing is allocated on the device after construction.
class Scheduler {
 public:
  /// Plans memory, allocates it (zero-filled), and creates streams and events. The backend must
  /// outlive the scheduler. Throws Error{usage} for an invalid plan, Error{out_of_memory}.
  Scheduler(Backend& backend, Plan plan, SchedulerOptions options, OnResult on_result = {});

  /// Waits for what is in flight.
  ~Scheduler();

  /// Feeds the batch that lies in input slot `input_slot` and issues one tick: under `overlap`
  /// stage k of batch n - k for every k, under `serial` all stages of batch n. Returns as soon as
  /// that is queued. `step` only labels errors and results.
  /// Throws what an operation, or on_result, threw; then nothing is in flight any more, batches
  /// that were are lost, and the next push starts from an empty pipeline.
  void push(int input_slot, std::uint64_t step);

  /// Issues what the batches in flight still need, waits for it and delivers the results.
  void drain();

  /// Blocks until input slot `input_slot` may be overwritten. May be called from any thread, but
  /// only after the push that used the slot has returned. Never throws a failure of an operation.
  void wait_input_free(int input_slot);

  /// Address of a buffer's copy (see Scope for which copies there are).
  void* address(BufferId buffer, int copy = 0) const;
  /// Copies a buffer's bytes to or from the host and waits. Only while nothing is in flight.
  void read(BufferId buffer, void* target, int copy = 0);
  void write(BufferId buffer, const void* source, int copy = 0);

  /// Runs one stage alone `repeats` times on slot 0 and waits; seconds of wall time for all. The
  /// stage's inputs are whatever the slot holds. For reports of t_A and t_B.
  double time_stage(int stage, int repeats);

  const Plan& plan() const noexcept;
  const MemoryPlan& memory() const noexcept;
  Schedule schedule() const noexcept;
  std::uint64_t pushed() const noexcept;  ///< batches since construction or the last failure

  int graphs() const noexcept;  ///< captured so far
  /// From the first push to the end of the last capture, with whatever the caller did in between;
  /// 0 while nothing is captured. Steady clock.
  double capture_seconds() const noexcept;
  /// Why `graph` issues its ticks without graphs; empty where it does not, or not yet.
  const std::string& no_graph_reason() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
