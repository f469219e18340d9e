// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <numeric>
#include <optional>
#include <tandem/engine/error.hpp>
#include <tandem/engine/nvtx.hpp>
#include <tandem/engine/scheduler.hpp>
#include <tandem/engine/stage_timer.hpp>
#include <utility>

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

/// After which operation of a stage each event is recorded: an index into its operations, or the
/// last one where nothing touches the slot.
struct RecordPoints {
  std::size_t input_free = 0;  ///< first stage: last reader of an input
  std::size_t free = 0;        ///< last operation that touches the hand-over it consumes
  std::size_t ready = 0;       ///< last writer of the hand-over it produces
};

/// Whether two operations touch the same buffer and one of them writes it.
bool conflict(const Operation& a, const Operation& b) {
  for (const Operand& x : a.operands)
    for (const Operand& y : b.operands)
      if (x.buffer == y.buffer && (writes(x.access) || writes(y.access))) return true;
  return false;
}

bool is_side(const Operation& operation) { return operation.lane == Lane::update; }

/// Before which operations of the main lane it has to wait for the side lane.
std::vector<bool> joins_of(const Stage& stage) {
  std::vector<bool> joins;
  std::vector<const Operation*> unjoined;
  for (const Operation& operation : stage.operations) {
    if (is_side(operation)) unjoined.push_back(&operation);
    joins.push_back(!is_side(operation) &&
                    std::any_of(unjoined.begin(), unjoined.end(), [&](const Operation* other) {
                      return conflict(*other, operation);
                    }));
    if (joins.back()) unjoined.clear();
  }
  return joins;
}

template <class Uses>
std::size_t last_operation(const Stage& stage, Uses uses) {
  for (std::size_t i = stage.operations.size(); i-- > 0;) {
    for (const Operand& operand : stage.operations[i].operands)
      if (uses(operand)) return i;
  }
  return stage.operations.size() - 1;
}

RecordPoints record_points(const Plan& plan, int k) {
  const Stage& stage = plan.stages[static_cast<std::size_t>(k)];
  const auto in = [&](const Operand& operand, Scope scope, int index) {
    const Buffer& buffer = plan.buffers[static_cast<std::size_t>(operand.buffer)];
    return buffer.scope == scope && buffer.index == index;
  };
  RecordPoints points;
  points.input_free = last_operation(stage, [&](const Operand& o) {
    return plan.buffers[static_cast<std::size_t>(o.buffer)].scope == Scope::input;
  });
  points.free =
      last_operation(stage, [&](const Operand& o) { return in(o, Scope::handover, k - 1); });
  points.ready = last_operation(
      stage, [&](const Operand& o) { return in(o, Scope::handover, k) && writes(o.access); });
  return points;
}

}  // namespace

const char* name_of(Schedule schedule) noexcept {
  switch (schedule) {
    case Schedule::serial:
      return "serial";
    case Schedule::overlap:
      return "overlap";
    case Schedule::graph:
      break;
  }
  return "graph";
}

struct Scheduler::Impl {
  /// A batch on its way through the stages.
  struct Batch {
    std::uint64_t number = 0;  // slot = number mod R
    std::uint64_t step = 0;
    int input_slot = 0;
  };

  Impl(Backend& backend, Plan the_plan, SchedulerOptions the_options, OnResult the_on_result)
      : backend_(backend),
        plan_(std::move(the_plan)),
        options_(the_options),
        on_result_(std::move(the_on_result)),
        stages_(static_cast<int>(plan_.stages.size())),
        slots_(static_cast<std::uint64_t>(plan_.slots)),
        window_(static_cast<std::uint64_t>(plan_.window())) {
    validate(plan_);
    backend_.prepare(plan_);
    memory_ = plan_memory(plan_, options_.share_memory);
    device_ = Memory(backend_, memory_.device_bytes, MemoryKind::device, "the arena");
    pinned_ = Memory(backend_, memory_.pinned_bytes, MemoryKind::pinned, "inputs and results");

    if (parallel()) {
      for (const Stage& stage : plan_.stages) streams_.push_back(make_stream(backend_, stage.name));
    } else {
      streams_.push_back(make_stream(backend_, "serial"));
    }
    for (int k = 0; k < stages_; ++k) points_.push_back(record_points(plan_, k));
    for (const Stage& stage : plan_.stages) {
      SideLane& side = side_lanes_.emplace_back();
      if (!options_.side_lanes || !parallel() ||
          std::none_of(stage.operations.begin(), stage.operations.end(), is_side))
        continue;
      side.stream = make_stream(backend_, stage.name + " update");
      side.fork = make_event(backend_, stage.name + " update fork");
      side.join = make_event(backend_, stage.name + " update join");
      side.join_before = joins_of(stage);
    }
    if (parallel()) {
      for (int h = 0; h < (graph() ? std::min(1, last()) : last()); ++h) {
        ready_.push_back(make_events(fmt::format("ready {}", h), slots_));
        free_.push_back(make_events(fmt::format("free {}", h), slots_));
      }
    }
    input_free_ = make_events("input free", static_cast<std::uint64_t>(plan_.input_slots));
    done_ = make_events("done", window_);
    if (graph()) {
      fork_ = make_event(backend_, "fork");
      joins_ = make_events("join", static_cast<std::uint64_t>(stages_));
      graphs_.resize(std::lcm(slots_, window_));
      if (!backend_.has_graphs()) {
        no_graph_reason_ = fmt::format("the {} backend has no graphs", backend_.name());
      } else if (options_.stage_timer != nullptr) {
        no_graph_reason_ = "stages are timed";
      }
    }
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      if (plan_.buffers[b].scope != Scope::result) continue;
      result_ = static_cast<BufferId>(b);
      break;
    }
    restart();
  }

  ~Impl() { wait_for_all(); }

  // --- one tick
  // -----------------------------------------------------------------------------------

  void push(const Batch& fed) {
    if (!first_push_) first_push_ = Clock::now();
    Batch batch = fed;
    batch.number = pushed_++;
    waiting_[0].push_back(batch);
    tick();
  }

  /// Consumers first: each stage takes what the stage before it handed over in an earlier tick.
  ///
  ///   overlap, K = 3   tick 2: train 0 | encode 1 | copy 2
  ///                    tick 3: train 1 | encode 2 | copy 3
  ///   graph, K = 3     tick 3: {train 1 | encode 2} | copy 3
  ///   serial           tick 2: copy 2, encode 2, train 2
  void tick() {
    make_room();
    Tick record;
    switch (options_.schedule) {
      case Schedule::serial:
        for (int k = 0; k < stages_; ++k) advance(k, record);
        break;
      case Schedule::overlap:
        for (int k = last(); k >= 0; --k) advance(k, record);
        break;
      case Schedule::graph:
        if (last() > 0) advance_together(record);
        advance(0, record);
        break;
    }
    backend_.record(done_[ticks_ % window_].get(), stream(last()));
    ++ticks_;
    in_flight_.push_back(record);
  }

  void drain() {
    while (pipeline_holds_batches()) tick();
    while (!in_flight_.empty()) retire_oldest();
  }

 private:
  struct Tick {
    bool finished_batch = false;
    Batch batch;
  };

  bool parallel() const { return options_.schedule != Schedule::serial; }
  bool graph() const { return options_.schedule == Schedule::graph; }
  int last() const { return stages_ - 1; }
  StreamRef stream(int stage) const {
    return streams_[parallel() ? static_cast<std::size_t>(stage) : 0].get();
  }

  bool pipeline_holds_batches() const {
    for (const auto& queue : waiting_)
      if (!queue.empty()) return true;
    return false;
  }

  /// Issues stage k on the next batch that waits for it, if there is one.
  void advance(int k, Tick& tick) {
    auto& queue = waiting_[static_cast<std::size_t>(k)];
    if (queue.empty()) return;
    issue(k, queue.front());
    hand_on(k, tick);
  }

  /// Moves the batch that stage k was issued on to the next stage's queue.
  void hand_on(int k, Tick& tick) {
    auto& queue = waiting_[static_cast<std::size_t>(k)];
    const Batch batch = queue.front();
    queue.pop_front();
    if (k + 1 < stages_) {
      waiting_[static_cast<std::size_t>(k) + 1].push_back(batch);
    } else {
      tick.finished_batch = true;
      tick.batch = batch;
    }
  }

  /// Stage k on one batch: its waits, its operations, its records.
  ///
  ///   stream k   wait ready[k-1][s]   wait free[k][s]   op  op  op(r)  op  op(w)  op
  ///
  ///   after (r), the last reader of the slot it consumes:   record free[k-1][s]
  ///   after (w), the last writer of the slot it produces:   record ready[k][s]
  void issue(int k, const Batch& batch) {
    const StreamRef lane = stream(k);
    const auto in = static_cast<std::size_t>(k) - 1, out = static_cast<std::size_t>(k);
    const std::uint64_t slot = batch.number % slots_;
    // Between fork and join nothing has to wait.
    const bool consumes = options_.schedule == Schedule::overlap && k > 0;
    const bool produces = k < last() && (consumes || (parallel() && k == 0));
    const Stage& stage = plan_.stages[static_cast<std::size_t>(k)];
    const nvtx::Range range(nvtx::Category::stage, stage.name, batch.step);

    if (consumes && !dropped(Edge::ready, k - 1)) backend_.wait(lane, ready_[in][slot].get());
    // On the first lap the event was never recorded, and the wait does not wait.
    if (produces && !dropped(Edge::free, k)) backend_.wait(lane, free_[out][slot].get());

    const RecordPoints& points = points_[static_cast<std::size_t>(k)];
    if (options_.stage_timer != nullptr) options_.stage_timer->begin(k, lane);
    run_operations(k, batch, [&](std::size_t i, const auto& record) {
      if (k == 0 && i == points.input_free)
        record(input_free_[static_cast<std::size_t>(batch.input_slot)]);
      if (consumes && i == points.free) record(free_[in][slot]);
      if (produces && i == points.ready) record(ready_[out][slot]);
    });
    if (options_.stage_timer != nullptr) options_.stage_timer->end(k, lane);
  }

  /// A stage's operations on its streams. `behind(i, record)` records events behind operation i.
  template <class Behind>
  void run_operations(int k, const Batch& batch, const Behind& behind) {
    const StreamRef lane = stream(k);
    const Stage& stage = plan_.stages[static_cast<std::size_t>(k)];
    const SideLane& side = side_lanes_[static_cast<std::size_t>(k)];
    bool forked = false;    // the side lane has seen all of the main lane so far
    bool unjoined = false;  // the main lane has not seen all of the side lane
    const auto join = [&] {
      if (!std::exchange(unjoined, false)) return;
      backend_.record(side.join.get(), side.stream.get());
      backend_.wait(lane, side.join.get());
    };
    for (std::size_t i = 0; i < stage.operations.size(); ++i) {
      const Operation& operation = stage.operations[i];
      if (side.stream && is_side(operation)) {
        if (!forked) {
          backend_.record(side.fork.get(), lane);
          backend_.wait(side.stream.get(), side.fork.get());
          forked = true;
        }
        enqueue(side.stream.get(), stage, operation, batch);
        unjoined = true;
      } else {
        if (side.stream && side.join_before[i]) join();
        enqueue(lane, stage, operation, batch);
        forked = false;
      }
      behind(i, [&](const Event& event) {
        join();
        backend_.record(event.get(), lane);
      });
    }
    join();
  }

  /// Stages 1 .. K-1 of a tick under `graph`, on the batches that wait for them.
  void advance_together(Tick& tick) {
    const StreamRef lane = stream(last());
    const bool first_works = !waiting_[1].empty();
    const std::size_t slot = first_works ? waiting_[1].front().number % slots_ : 0;
    if (first_works && !dropped(Edge::ready, 0)) backend_.wait(lane, ready_[0][slot].get());
    bool all_work = true;
    for (int k = 1; k < stages_; ++k) all_work &= !waiting_[static_cast<std::size_t>(k)].empty();
    if (all_work) {
      launch_tick();
    } else {
      issue_between_fork_and_join();
    }
    if (first_works) backend_.record(free_[0][slot].get(), lane);
    for (int k = last(); k >= 1; --k)
      if (!waiting_[static_cast<std::size_t>(k)].empty()) hand_on(k, tick);
  }

  /// The tick as one piece: launched, or captured first, or issued without a graph.
  void launch_tick() {
    const Batch& oldest = waiting_[static_cast<std::size_t>(last())].front();
    TickGraph& turn = graphs_[oldest.number % graphs_.size()];
    if (!no_graph_reason_.empty() || !turn.issued_once) {
      turn.issued_once = true;  // everything that is loaded or chosen at first use now is
      return issue_between_fork_and_join();
    }
    // A failure of before would be taken for one of the capture, and never be reported.
    if (backend_.failed()) return issue_between_fork_and_join();
    if (!turn.graph) {
      try {
        turn.graph = capture();
        ++captured_;
        capture_seconds_ = std::chrono::duration<double>(Clock::now() - *first_push_).count();
      } catch (const Error& error) {
        no_graph_reason_ = error.what();
        return issue_between_fork_and_join();
      }
    }
    const nvtx::Range range(nvtx::Category::stage, "tick", oldest.step);
    backend_.launch(turn.graph.get(), stream(last()));
  }

  Graph capture() {
    const StreamRef lane = stream(last());
    backend_.begin_capture(lane);
    try {
      issue_between_fork_and_join();
    } catch (...) {
      // Ends the capture; throws the reason where this error is only a consequence of it.
      static_cast<void>(Graph::adopt(backend_.end_capture(lane)));
      throw;
    }
    return Graph::adopt(backend_.end_capture(lane));
  }

  ///   lane 1        wait fork     encode n-1              record join[1]
  ///   launch lane   record fork   train n-2   wait join[1]
  ///
  /// With one slot the stages of a tick share it: then they follow each other, consumers first.
  void issue_between_fork_and_join() {
    const StreamRef lane = stream(last());
    backend_.record(fork_.get(), lane);
    EventRef begin = fork_.get();
    for (int k = last(); k >= 1; --k) {
      const auto& queue = waiting_[static_cast<std::size_t>(k)];
      if (queue.empty()) continue;
      const EventRef join = joins_[static_cast<std::size_t>(k)].get();
      if (k < last()) backend_.wait(stream(k), begin);
      issue(k, queue.front());
      backend_.record(join, stream(k));
      if (slots_ == 1) begin = join;
    }
    for (int k = 1; k < last(); ++k)
      if (!waiting_[static_cast<std::size_t>(k)].empty())
        backend_.wait(lane, joins_[static_cast<std::size_t>(k)].get());
  }

  bool dropped(Edge::Kind kind, int handover) const {
    return options_.test_drop_edge.kind == kind && options_.test_drop_edge.handover == handover;
  }

  void enqueue(StreamRef lane, const Stage& stage, const Operation& operation, const Batch& batch) {
    BoundOperation bound;
    bound.operation = &operation;
    bound.stage = stage.name.c_str();
    bound.step = batch.step;
    for (std::size_t i = 0; i < operation.operands.size(); ++i) {
      const BufferId buffer = operation.operands[i].buffer;
      bound.pointers[i] = address(buffer, copy_for(buffer, batch));
    }
    backend_.enqueue(lane, bound);
  }

  int copy_for(BufferId buffer, const Batch& batch) const {
    switch (plan_.buffers[static_cast<std::size_t>(buffer)].scope) {
      case Scope::persistent:
      case Scope::scratch:
        return 0;
      case Scope::handover:
        return static_cast<int>(batch.number % slots_);
      case Scope::input:
        return batch.input_slot;
      case Scope::result:
        break;
    }
    return static_cast<int>(batch.number % window_);
  }

  /// The host's only wait in the steady state: for the tick R + 2 before the one to be issued.
  void make_room() {
    if (in_flight_.size() == window_) retire_oldest();
  }

  void retire_oldest() {
    const std::uint64_t tick = ticks_ - in_flight_.size();
    backend_.synchronise(done_[tick % window_].get());
    const Tick oldest = in_flight_.front();
    in_flight_.pop_front();
    if (!oldest.finished_batch || !on_result_) return;
    const void* results =
        result_ < 0 ? nullptr : address(result_, static_cast<int>(oldest.batch.number % window_));
    on_result_(oldest.batch.step, results);
  }

  std::vector<Event> make_events(const std::string& name, std::uint64_t count) {
    std::vector<Event> events;
    for (std::uint64_t i = 0; i < count; ++i)
      events.push_back(make_event(backend_, fmt::format("{} [{}]", name, i)));
    return events;
  }

 public:
  /// After a failure: waits until nothing runs, forgets what was in flight.
  void recover() noexcept {
    wait_for_all();
    restart();
  }

  /// Until nothing runs. A failure on the way is a consequence of one that is being reported, or
  /// has nobody left to report it to.
  void wait_for_all() noexcept {
    const auto wait = [&](const Stream& stream) {
      try {
        if (stream) backend_.synchronise(stream.get());
      } catch (const Error&) {
      }
    };
    for (const Stream& stream : streams_) wait(stream);
    for (const SideLane& side : side_lanes_) wait(side.stream);
  }

  void restart() {
    waiting_.assign(static_cast<std::size_t>(stages_), {});
    in_flight_.clear();
    ticks_ = pushed_ = 0;
  }

  int captured() const { return captured_; }
  double capture_seconds() const { return capture_seconds_; }
  const std::string& no_graph_reason() const { return no_graph_reason_; }

  void* address(BufferId buffer, int copy) const {
    const auto b = static_cast<std::size_t>(buffer);
    const Memory& arena = is_pinned(plan_, plan_.buffers[b]) ? pinned_ : device_;
    return static_cast<std::byte*>(arena.data()) +
           memory_.offset[b][static_cast<std::size_t>(copy)];
  }

  void check_input_slot(int slot) const {
    if (slot < 0 || slot >= plan_.input_slots)
      throw Error(ErrorCode::usage, fmt::format("input slot {} is out of range 0 .. {}", slot,
                                                plan_.input_slots - 1));
  }

  void check_address(BufferId buffer, int copy) const {
    if (buffer < 0 || static_cast<std::size_t>(buffer) >= plan_.buffers.size())
      throw Error(ErrorCode::usage, fmt::format("buffer {} does not exist; the plan has {}", buffer,
                                                plan_.buffers.size()));
    const Buffer& b = plan_.buffers[static_cast<std::size_t>(buffer)];
    if (copy < 0 || copy >= copies(plan_, b))
      throw Error(ErrorCode::usage, fmt::format("buffer {} has no copy {}; it has {}", b.name, copy,
                                                copies(plan_, b)));
  }

  double time_stage(int k, int repeats) {
    const Batch batch;
    const StreamRef lane = stream(k);
    backend_.synchronise(lane);
    const auto start = Clock::now();
    for (int r = 0; r < repeats; ++r) run_operations(k, batch, [](std::size_t, const auto&) {});
    backend_.synchronise(lane);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  StreamRef any_stream() const { return streams_.front().get(); }

  Backend& backend_;
  const Plan plan_;
  const SchedulerOptions options_;
  const OnResult on_result_;
  const int stages_;
  const std::uint64_t slots_, window_;

  MemoryPlan memory_;
  Memory device_, pinned_;
  std::vector<RecordPoints> points_;              // per stage
  std::vector<std::vector<Event>> ready_, free_;  // [hand-over][slot]
  std::vector<Event> input_free_;                 // per input slot
  std::vector<Event> done_;                       // per tick of the window
  Event fork_;                                    // graph
  std::vector<Event> joins_;                      // graph: per stage
  BufferId result_ = -1;

  std::vector<std::deque<Batch>>
      waiting_;                 // per stage: batches that the stage before it has issued
  std::deque<Tick> in_flight_;  // issued, not yet waited for; oldest first
  std::uint64_t ticks_ = 0, pushed_ = 0;

  /// A tick whose slots come back every graphs_.size() ticks.
  struct TickGraph {
    bool issued_once = false;
    Graph graph;
  };
  std::vector<TickGraph> graphs_;
  std::optional<Clock::time_point> first_push_;
  int captured_ = 0;
  double capture_seconds_ = 0;
  std::string no_graph_reason_;

  /// Beside a stage's stream, where it has one.
  struct SideLane {
    Event fork, join;
    std::vector<bool> join_before;  // per operation of the stage
    Stream stream;
  };
  std::vector<SideLane> side_lanes_;  // per stage
  std::vector<Stream> streams_;       // last: ends first, running what is queued
};

int stream_count(const Plan& plan, const SchedulerOptions& options) {
  if (options.schedule == Schedule::serial) return 1;
  auto streams = static_cast<int>(plan.stages.size());
  if (!options.side_lanes) return streams;
  for (const Stage& stage : plan.stages)
    if (std::any_of(stage.operations.begin(), stage.operations.end(), is_side)) ++streams;
  return streams;
}

Scheduler::Scheduler(Backend& backend, Plan plan, SchedulerOptions options, OnResult on_result)
    : impl_(std::make_unique<Impl>(backend, std::move(plan), options, std::move(on_result))) {}

Scheduler::~Scheduler() = default;

void Scheduler::push(int input_slot, std::uint64_t step) {
  impl_->check_input_slot(input_slot);
  try {
    impl_->push({0, step, input_slot});
  } catch (...) {
    impl_->recover();
    throw;
  }
}

void Scheduler::drain() {
  try {
    impl_->drain();
  } catch (...) {
    impl_->recover();
    throw;
  }
}

void Scheduler::wait_input_free(int input_slot) {
  impl_->check_input_slot(input_slot);
  impl_->backend_.block(impl_->input_free_[static_cast<std::size_t>(input_slot)].get());
}

void* Scheduler::address(BufferId buffer, int copy) const {
  impl_->check_address(buffer, copy);
  return impl_->address(buffer, copy);
}

void Scheduler::read(BufferId buffer, void* target, int copy) {
  download(impl_->any_stream(), target, address(buffer, copy),
           impl_->plan_.buffers[static_cast<std::size_t>(buffer)].bytes);
}

void Scheduler::write(BufferId buffer, const void* source, int copy) {
  upload(impl_->any_stream(), address(buffer, copy), source,
         impl_->plan_.buffers[static_cast<std::size_t>(buffer)].bytes);
}

double Scheduler::time_stage(int stage, int repeats) {
  if (stage < 0 || stage >= impl_->stages_)
    throw Error(ErrorCode::usage,
                fmt::format("stage {} is out of range 0 .. {}", stage, impl_->stages_ - 1));
  return impl_->time_stage(stage, repeats);
}

const Plan& Scheduler::plan() const noexcept { return impl_->plan_; }
const MemoryPlan& Scheduler::memory() const noexcept { return impl_->memory_; }
Schedule Scheduler::schedule() const noexcept { return impl_->options_.schedule; }
std::uint64_t Scheduler::pushed() const noexcept { return impl_->pushed_; }
int Scheduler::graphs() const noexcept { return impl_->captured(); }
double Scheduler::capture_seconds() const noexcept { return impl_->capture_seconds(); }
const std::string& Scheduler::no_graph_reason() const noexcept { return impl_->no_graph_reason(); }

}  // namespace tandem
