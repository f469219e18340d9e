// SPDX-License-Identifier: Apache-2.0
// The scheduler on three synthetic stages: order, window, fill and drain, failures. See
// support/synthetic_stages.hpp for what the stages do. Work is ordered by gates, never by time.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/backend_trace.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/hazards.hpp>
#include <tandem/engine/scheduler.hpp>
#include <tandem/tests/support/gate.hpp>
#include <tandem/tests/support/synthetic_stages.hpp>
#include <thread>
#include <tuple>
#include <vector>

namespace tandem::testing {
namespace {

using Results = std::vector<SyntheticResult>;
using Stages = SyntheticStages;
constexpr int kStages = Stages::kStages;

/// A scheduler of the synthetic stages on the host backend, and the results it delivered.
struct Engine {
  explicit Engine(Schedule schedule, int slots = 2, Edge drop = {}) {
    SchedulerOptions options;
    options.schedule = schedule;
    options.test_drop_edge = drop;
    scheduler.emplace(*backend, stages.plan(slots), options,
                      [this](std::uint64_t step, const void* result) {
                        const auto* outcome = static_cast<const SyntheticResult*>(result);
                        EXPECT_EQ(outcome->step, step);
                        results.push_back(*outcome);
                        if (on_result) on_result(step);
                      });
  }
  /// Pushes `count` batches from `first` on.
  void push(std::uint64_t count, std::uint64_t first = 0) {
    for (std::uint64_t n = 0; n < count; ++n) stages.feed(*scheduler, first + n);
  }
  void run(std::uint64_t count, std::uint64_t first = 0) {
    push(count, first);
    scheduler->drain();
  }
  std::uint64_t state() {
    std::uint64_t value = 0;
    scheduler->read(stages.state, &value);
    return value;
  }

  std::unique_ptr<Backend> backend = make_host_backend();
  Stages stages;
  Results results;
  std::function<void(std::uint64_t step)> on_result;
  std::optional<Scheduler> scheduler;  // last: its work refers to the rest
};

/// What `count` batches from `first` on must give, worked out without a scheduler.
Results expected_results(std::uint64_t count, std::uint64_t first = 0, std::uint64_t state = 0) {
  Results results;
  for (std::uint64_t n = first; n < first + count; ++n) {
    state = state * 6364136223846793005ULL + n + 1;
    results.push_back({n, 0, state});
  }
  return results;
}

/// Order of everything that happened, as tickets drawn at the begin and end of each stage.
class Tickets {
 public:
  explicit Tickets(std::size_t batches) : begin_(batches), end_(batches) {}
  void watch(Stages& stages) {
    stages.before = [this](int stage, std::uint64_t step) { begin_[step][index(stage)] = ++next_; };
    stages.after = [this](int stage, std::uint64_t step) { end_[step][index(stage)] = ++next_; };
  }
  int draw() { return ++next_; }
  int begin(std::size_t step, int stage) const { return begin_[step][index(stage)]; }
  int end(std::size_t step, int stage) const { return end_[step][index(stage)]; }

 private:
  static std::size_t index(int stage) { return static_cast<std::size_t>(stage); }
  using Row = std::array<std::atomic<int>, kStages>;
  std::atomic<int> next_{0};
  std::vector<Row> begin_, end_;
};

class EverySchedule : public ::testing::TestWithParam<std::tuple<Schedule, int>> {
 protected:
  Schedule schedule() const { return std::get<0>(GetParam()); }
  int slots() const { return std::get<1>(GetParam()); }
};
std::string schedule_name(const ::testing::TestParamInfo<std::tuple<Schedule, int>>& info) {
  return std::string(name_of(std::get<0>(info.param))) + "_R" +
         std::to_string(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Scheduler, EverySchedule,
                         ::testing::Combine(::testing::Values(Schedule::serial, Schedule::overlap,
                                                              Schedule::graph),
                                            ::testing::Values(1, 2, 3)),
                         schedule_name);

TEST_P(EverySchedule, RunsOfAnyLengthDeliverEveryResultOnceInOrder) {
  for (int batches : {0, 1, 2, slots(), slots() + 1, slots() + 2, slots() + 3, 100}) {
    const auto count = static_cast<std::uint64_t>(batches);
    Engine engine(schedule(), slots());
    engine.run(count);
    EXPECT_EQ(engine.results, expected_results(count)) << batches << " batches";
    EXPECT_EQ(engine.scheduler->pushed(), count);
    engine.scheduler->drain();  // nothing left
    EXPECT_EQ(engine.results.size(), count);
  }
}

TEST_P(EverySchedule, EpochsOnOneSchedulerContinueEachOther) {
  Engine engine(schedule(), slots());
  std::uint64_t pushed = 0;
  for (std::uint64_t epoch : {1, 1, 2, 5, 0, 1, 7, 3}) {
    engine.run(epoch, pushed);
    pushed += epoch;
    EXPECT_EQ(engine.results.size(), pushed);
    EXPECT_EQ(engine.scheduler->pushed(), pushed);
  }
  EXPECT_EQ(engine.results, expected_results(pushed));
  EXPECT_EQ(engine.state(), engine.results.back().state);
}

TEST_P(EverySchedule, AtMostRSlotsOfAHandOverAreInFlight) {
  constexpr std::size_t kBatches = 200;
  Engine engine(schedule(), slots());
  Tickets tickets(kBatches);
  tickets.watch(engine.stages);
  engine.run(kBatches);
  const auto lap = static_cast<std::size_t>(slots());
  for (std::size_t n = 0; n < kBatches; ++n) {
    for (int stage = 0; stage < kStages; ++stage) {
      ASSERT_LT(tickets.begin(n, stage), tickets.end(n, stage));
      if (stage == 0) continue;
      // The consumer starts after its producer, and before the slot is written again.
      ASSERT_LT(tickets.end(n, stage - 1), tickets.begin(n, stage)) << n;
      if (n + lap < kBatches) {
        ASSERT_LT(tickets.begin(n, stage), tickets.begin(n + lap, stage - 1)) << n;
      }
    }
  }
  EXPECT_EQ(engine.results, expected_results(kBatches));
}

TEST(Scheduler, SerialAndOverlapGiveTheSameBits) {
  Engine serial(Schedule::serial), overlap(Schedule::overlap);
  serial.run(500);
  overlap.run(500);
  EXPECT_EQ(serial.results, overlap.results);
  EXPECT_EQ(serial.state(), overlap.state());
  EXPECT_EQ(plan_hash(serial.scheduler->plan()), plan_hash(overlap.scheduler->plan()));
  EXPECT_EQ(serial.scheduler->memory().offset, overlap.scheduler->memory().offset);
  EXPECT_EQ(serial.scheduler->schedule(), Schedule::serial);
  EXPECT_EQ(overlap.scheduler->schedule(), Schedule::overlap);
}

TEST(Scheduler, SerialPassesABatchThroughAllStagesFirst) {
  constexpr std::size_t kBatches = 20;
  Engine engine(Schedule::serial);
  Tickets tickets(kBatches);
  tickets.watch(engine.stages);
  engine.run(kBatches);
  for (std::size_t n = 0; n + 1 < kBatches; ++n)
    EXPECT_LT(tickets.end(n, Stages::kConsume), tickets.begin(n + 1, Stages::kProduce));
}

// --- what the host waits for ---

/// Under `serial` B batches take B ticks, under the others B + K - 1, of which B are issued by
/// push() and the rest by drain(). Tick n waits for tick n - (R + 2); drain() waits for every tick
/// that nobody has waited for yet. So: max(0, B - (R + 2)) waits after the pushes, one a tick in
/// the end.
TEST_P(EverySchedule, TheHostWaitsForItsWindowAndNothingElse) {
  for (int batches : {0, 1, 2, 3, 4, 5, 6, 7, 12, 100}) {
    TraceBackend trace;
    Stages stages;
    SchedulerOptions options;
    options.schedule = schedule();
    Scheduler scheduler(trace, stages.plan(slots()), options);
    trace.clear();
    const int window = slots() + 2;
    ASSERT_EQ(scheduler.plan().window(), window);
    for (int n = 0; n < batches; ++n) {
      scheduler.push(n % 8, static_cast<std::uint64_t>(n));
      EXPECT_EQ(host_waits(trace.trace()), std::max(0, n + 1 - window)) << "after batch " << n;
    }
    scheduler.drain();
    const int fill = schedule() != Schedule::serial && batches > 0 ? kStages - 1 : 0;
    EXPECT_EQ(host_waits(trace.trace()), batches + fill) << batches << " batches";
    scheduler.drain();
    EXPECT_EQ(host_waits(trace.trace()), batches + fill) << "an empty drain waits for nothing";
    // An input slot's copy event is the one other wait there is.
    scheduler.wait_input_free(0);
    EXPECT_EQ(host_waits(trace.trace()), batches + fill + 1);
  }
}

TEST_P(EverySchedule, StreamsAndEventsAreCreatedOnce) {
  TraceBackend trace;
  Stages stages;
  SchedulerOptions options;
  options.schedule = schedule();
  Scheduler scheduler(trace, stages.plan(slots()), options);
  const std::size_t streams = trace.trace().streams.size(), events = trace.trace().events.size();
  EXPECT_EQ(streams, schedule() != Schedule::serial ? 3u : 1u);
  for (int n = 0; n < 50; ++n) scheduler.push(n % 8, static_cast<std::uint64_t>(n));
  scheduler.drain();
  EXPECT_EQ(trace.trace().streams.size(), streams);
  EXPECT_EQ(trace.trace().events.size(), events);
}

// --- overlap ---

class Slots : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Scheduler, Slots, ::testing::Values(2, 3));

/// With consume(0) held, transform fills the R slots after it and produce the R slots before that.
TEST_P(Slots, ProducersRunAheadExactlyAsFarAsTheSlotsAllow) {
  const auto slots = static_cast<std::size_t>(GetParam());
  const std::size_t batches = slots + 4;  // as many as the host issues without waiting for tick 2
  Gate gate;
  Counter produced, transformed;
  int released = 0;  // the ticket of the moment at which consume(0) went on
  Engine engine(Schedule::overlap, GetParam());
  OpenOnExit open_on_exit(gate);
  Tickets tickets(batches);
  tickets.watch(engine.stages);
  engine.stages.before = [&, watch = engine.stages.before](int stage, std::uint64_t step) {
    watch(stage, step);
    if (stage != Stages::kConsume || step != 0) return;
    gate.pass();
    released = tickets.draw();
  };
  engine.stages.after = [&, watch = engine.stages.after](int stage, std::uint64_t step) {
    watch(stage, step);
    if (stage == Stages::kProduce) produced.add();
    if (stage == Stages::kTransform) transformed.add();
  };
  engine.push(batches);
  gate.wait_arrived();
  transformed.wait_for(slots);
  produced.wait_for(2 * slots);
  EXPECT_EQ(transformed.value(), slots);
  EXPECT_EQ(produced.value(), 2 * slots);
  gate.open();
  engine.scheduler->drain();
  EXPECT_EQ(engine.results, expected_results(batches));
  for (std::size_t n = 0; n < batches; ++n) {
    EXPECT_EQ(tickets.end(n, Stages::kTransform) < released, n < slots) << n;
    EXPECT_EQ(tickets.end(n, Stages::kProduce) < released, n < 2 * slots) << n;
  }
}

/// The consumer is held now and then until the producer is as far ahead as it can be.
TEST_P(Slots, TenThousandBatchesThroughASlowConsumer) {
  constexpr std::uint64_t kBatches = 10000;
  const auto slots = static_cast<std::uint64_t>(GetParam());
  Counter produced;
  std::atomic<double> sink{0};
  Engine engine(Schedule::overlap, GetParam());
  engine.stages.after = [&](int stage, std::uint64_t) {
    if (stage == Stages::kProduce) produced.add();
  };
  engine.stages.before = [&](int stage, std::uint64_t step) {
    if (stage != Stages::kConsume) return;
    if (step % 97 == 0) produced.wait_for(std::min(step + 2 * slots, kBatches));
    double x = 1;
    for (int i = 0; i < 2000; ++i) x = x * 0.999 + static_cast<double>(i);
    sink = x;
  };
  engine.run(kBatches);
  EXPECT_EQ(engine.results, expected_results(kBatches));
}

/// Without the edge that says "this slot is free again" the producer laps a consumer that is held
/// until it has: every batch with a successor in its slot is overwritten before it is read.
TEST_P(Slots, WithoutAFreeEdgeThereAreMismatches) {
#if defined(TANDEM_THREAD_SANITIZER)
  GTEST_SKIP() << "a race by intention; race_test shows that thread sanitizer reports it";
#endif
  constexpr std::uint64_t kBatches = 500;
  const auto slots = static_cast<std::uint64_t>(GetParam());
  for (int handover : {0, 1}) {
    Counter written;  // executions of the hand-over's producer
    Engine engine(Schedule::overlap, GetParam(), {Edge::free, handover});
    engine.stages.after = [&](int stage, std::uint64_t) {
      if (stage == handover) written.add();
    };
    engine.stages.before = [&](int stage, std::uint64_t step) {
      if (stage == handover + 1 && step + slots < kBatches) written.wait_for(step + slots + 1);
    };
    engine.run(kBatches);
    ASSERT_EQ(engine.results.size(), kBatches);
    std::uint64_t wrong = 0;
    for (const SyntheticResult& result : engine.results) wrong += result.mismatches > 0;
    EXPECT_EQ(wrong, kBatches - slots) << "hand-over " << handover;
  }
}

/// Without the edge that says "this slot is ready" a consumer reads what the slot held before, when
/// its producer is held until then.
TEST_P(Slots, WithoutAReadyEdgeThereAreMismatches) {
#if defined(TANDEM_THREAD_SANITIZER)
  GTEST_SKIP() << "a race by intention; race_test shows that thread sanitizer reports it";
#endif
  constexpr std::uint64_t kBatches = 500;
  for (int handover : {0, 1}) {
    Counter read;  // executions of the hand-over's consumer
    Engine engine(Schedule::overlap, GetParam(), {Edge::ready, handover});
    engine.stages.after = [&](int stage, std::uint64_t) {
      if (stage == handover + 1) read.add();
    };
    engine.stages.before = [&](int stage, std::uint64_t step) {
      if (stage == handover) read.wait_for(step);  // steps count from 1
    };
    std::uint64_t wrong = 0;
    for (std::uint64_t n = 1; n <= kBatches; ++n) engine.run(1, n);
    for (const SyntheticResult& result : engine.results) wrong += result.mismatches > 0;
    EXPECT_EQ(wrong, kBatches) << "hand-over " << handover;
  }
}

// --- inputs ---

TEST_P(EverySchedule, AnInputSlotWaitsForTheLastReaderOfItsLastBatch) {
  TraceBackend trace;
  Stages stages;
  SchedulerOptions options;
  options.schedule = schedule();
  Scheduler scheduler(trace, stages.plan(slots()), options);
  for (int n = 0; n < 20; ++n) {
    scheduler.push(n % 8, static_cast<std::uint64_t>(n));
    scheduler.wait_input_free(n % 8);
    const std::vector<TraceEntry>& entries = trace.trace().entries;
    ASSERT_EQ(entries.back().kind, TraceEntry::host_wait);
    ASSERT_GT(entries.back().binds_to, 0);
    // Recorded right behind produce.label, the last operation that reads the input.
    const auto record = static_cast<std::size_t>(entries.back().binds_to);
    EXPECT_EQ(entries[record].kind, TraceEntry::record);
    EXPECT_EQ(entries[record - 1].name, "label");
    EXPECT_EQ(entries[record - 1].stream, entries[record].stream);
    EXPECT_EQ(entries[record - 1].step, static_cast<std::uint64_t>(n));
  }
}

TEST_P(EverySchedule, AnInputSlotIsFreeOnceItsLastReaderHasRun) {
  Gate gate;
  Engine engine(schedule(), slots());
  OpenOnExit open_on_exit(gate);
  engine.stages.before = [&](int stage, std::uint64_t) {
    if (stage == Stages::kProduce) gate.pass();
  };
  for (int slot = 0; slot < 8; ++slot) engine.scheduler->wait_input_free(slot);  // never used
  engine.push(1);
  gate.wait_arrived();
  std::atomic<bool> free{false};
  std::thread loader([&] {
    engine.scheduler->wait_input_free(0);
    free = true;
  });
  EXPECT_FALSE(free);
  engine.scheduler->wait_input_free(1);  // another slot is not held
  gate.open();
  loader.join();
  engine.scheduler->drain();
  EXPECT_EQ(engine.results, expected_results(1));
}

TEST(Scheduler, AnInputSlotIsFreeWhileTheConsumerIsHeld) {
  Gate gate;
  Engine engine(Schedule::overlap);
  OpenOnExit open_on_exit(gate);
  engine.stages.before = [&](int stage, std::uint64_t) {
    if (stage == Stages::kConsume) gate.pass();
  };
  engine.push(3);  // tick 2 holds consume(0)
  gate.wait_arrived();
  engine.scheduler->wait_input_free(0);
  gate.open();
  engine.scheduler->drain();
  EXPECT_EQ(engine.results, expected_results(3));
}

TEST(Scheduler, RefusesSlotsBuffersAndStagesThatDoNotExist) {
  Engine engine(Schedule::overlap);
  const auto expect_usage = [](const std::function<void()>& call, const std::string& value) {
    try {
      call();
      ADD_FAILURE() << value << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_NE(std::string(error.what()).find(value), std::string::npos) << error.what();
    }
  };
  expect_usage([&] { engine.scheduler->push(-1, 0); }, "-1");
  expect_usage([&] { engine.scheduler->push(8, 0); }, "8");
  expect_usage([&] { engine.scheduler->address(10); }, "10");
  expect_usage([&] { engine.scheduler->address(engine.stages.produced, 2); }, "2");
  expect_usage([&] { engine.scheduler->time_stage(3, 1); }, "3");
  expect_usage([&] { engine.scheduler->wait_input_free(8); }, "8");
  engine.run(5);  // and none of it did harm
  EXPECT_EQ(engine.results, expected_results(5));
  Plan plan = Stages().plan(2);
  plan.slots = 0;
  expect_usage([&] { Scheduler(*engine.backend, plan, {}); }, "slots");
}

TEST(Scheduler, MemoryStartsAtZeroAndIsReadAndWrittenByBuffer) {
  Engine engine(Schedule::overlap);
  EXPECT_EQ(engine.state(), 0u);
  const std::uint64_t start = 99;
  engine.scheduler->write(engine.stages.state, &start);
  engine.run(3);
  EXPECT_EQ(engine.results, expected_results(3, 0, 99));
}

TEST(Scheduler, TimesOneStageAlone) {
  Engine engine(Schedule::overlap);
  std::atomic<int> calls[kStages] = {};
  engine.stages.before = [&](int stage, std::uint64_t) { ++calls[stage]; };
  const double seconds = engine.scheduler->time_stage(Stages::kTransform, 5);
  EXPECT_GT(seconds, 0.0);
  EXPECT_EQ(calls[Stages::kProduce], 0);
  EXPECT_EQ(calls[Stages::kTransform], 5);
  EXPECT_EQ(calls[Stages::kConsume], 0);
}

// --- failures ---

/// Pushes batches until something is thrown, drains if nothing was; what was thrown.
std::optional<Error> first_error(Engine& engine, std::uint64_t count, std::uint64_t first_step) {
  try {
    engine.run(count, first_step);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

constexpr const char* kStageNames[] = {"produce", "transform", "consume"};
constexpr const char* kFirstOperation[] = {"fill", "map", "check"};

/// A stage fails at the first batch (while the pipeline fills), in the steady state, and at the
/// last batch, which later stages only see during drain().
TEST_P(EverySchedule, AfterAFailureTheSameSchedulerGivesTheBitsOfAFreshOne) {
  constexpr std::uint64_t kBatches = 20, kFirst = 700;
  for (std::uint64_t failing : {kFirst, kFirst + 9, kFirst + kBatches - 1}) {
    for (int failing_stage = 0; failing_stage < kStages; ++failing_stage) {
      SCOPED_TRACE(std::string(kStageNames[failing_stage]) + " at " + std::to_string(failing));
      Engine engine(schedule(), slots());
      engine.stages.before = [&](int stage, std::uint64_t step) {
        if (stage == failing_stage && step == failing) throw std::runtime_error("no more ink");
      };
      const std::optional<Error> error = first_error(engine, kBatches, kFirst);
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), ErrorCode::run_failed);
      const std::string text = error->what();
      for (const std::string& part :
           {std::string(kFirstOperation[failing_stage]), std::string(kStageNames[failing_stage]),
            std::to_string(failing), std::string("no more ink")})
        EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is missing in: " << text;

      // Once: nothing is left of it, and nothing in flight.
      EXPECT_NO_THROW(engine.scheduler->drain());
      EXPECT_EQ(engine.scheduler->pushed(), 0u);
      // What was delivered is right, in order, and from before the failure.
      EXPECT_LE(engine.results.size(), failing - kFirst);
      EXPECT_EQ(engine.results, expected_results(engine.results.size(), kFirst));

      engine.stages.before = nullptr;
      engine.results.clear();
      const std::uint64_t start = 0;
      engine.scheduler->write(engine.stages.state, &start);
      engine.run(kBatches, 5000);
      Engine fresh(schedule(), slots());
      fresh.run(kBatches, 5000);
      EXPECT_EQ(engine.results, fresh.results);
      EXPECT_EQ(engine.results, expected_results(kBatches, 5000));
      EXPECT_EQ(engine.state(), fresh.state());
    }
  }
}

/// consume(0) fails while produce(3) is at work on another stream: the error comes when that is
/// over.
TEST_P(Slots, NothingIsInFlightWhenAFailureIsReported) {
  Counter started, failed;
  std::atomic<bool> ended{false};
  Engine engine(Schedule::overlap, GetParam());
  engine.stages.before = [&](int stage, std::uint64_t step) {
    if (stage == Stages::kConsume && step == 0) {
      started.wait_for(1);
      failed.add();
      throw std::runtime_error("no more ink");
    }
    if (stage == Stages::kProduce && step == 3) {
      started.add();
      failed.wait_for(1);
      std::uint64_t x = 1;  // at work long enough to be seen by whoever does not wait
      for (int i = 0; i < 20'000'000; ++i) x = x * 6364136223846793005ULL + 1;
      ended = x != 0;
    }
  };
  ASSERT_TRUE(first_error(engine, 4, 0).has_value());
  EXPECT_TRUE(ended);
}

TEST_P(EverySchedule, FailuresOneAfterTheOtherAreEachReportedOnce) {
  Engine engine(schedule(), slots());
  engine.stages.before = [&](int stage, std::uint64_t step) {
    if (stage == Stages::kTransform) throw std::runtime_error("attempt " + std::to_string(step));
  };
  for (std::uint64_t attempt = 0; attempt < 5; ++attempt) {
    const std::optional<Error> error = first_error(engine, 10, 10 * attempt);
    ASSERT_TRUE(error.has_value());
    EXPECT_NE(std::string(error->what()).find("attempt " + std::to_string(10 * attempt)),
              std::string::npos)
        << error->what();
    EXPECT_NO_THROW(engine.scheduler->drain());
  }
  EXPECT_TRUE(engine.results.empty());
}

TEST_P(EverySchedule, ALoaderThatWaitsForAnInputDoesNotSwallowTheFailure) {
  Gate gate;
  Engine engine(schedule(), slots());
  OpenOnExit open_on_exit(gate);
  engine.stages.before = [&](int stage, std::uint64_t) {
    if (stage != Stages::kProduce) return;
    gate.pass();
    throw std::runtime_error("no more ink");
  };
  engine.push(1);
  std::thread loader([&] { EXPECT_NO_THROW(engine.scheduler->wait_input_free(0)); });
  gate.open();
  loader.join();
  EXPECT_THROW(engine.scheduler->drain(), Error);
}

TEST_P(EverySchedule, WhatOnResultThrowsEndsTheRunAndComesBackAsItIs) {
  struct Stop {
    std::uint64_t step;
  };
  for (std::uint64_t at : {0, 5, 9}) {
    Engine engine(schedule(), slots());
    engine.on_result = [&](std::uint64_t step) {
      if (step == at) throw Stop{step};
    };
    int stops = 0;
    try {
      engine.run(10);
    } catch (const Stop& stop) {
      EXPECT_EQ(stop.step, at);
      ++stops;
    }
    EXPECT_EQ(stops, 1);
    EXPECT_EQ(engine.results, expected_results(at + 1));
    EXPECT_NO_THROW(engine.scheduler->drain());  // what was in flight is lost, not delivered
    EXPECT_EQ(engine.results.size(), at + 1);
    EXPECT_EQ(engine.scheduler->pushed(), 0u);

    engine.on_result = nullptr;
    engine.results.clear();
    const std::uint64_t start = 0;
    engine.scheduler->write(engine.stages.state, &start);
    engine.run(20, 300);
    EXPECT_EQ(engine.results, expected_results(20, 300));
  }
}

// --- the end ---

TEST_P(EverySchedule, TheDestructorWaitsForWhatIsInFlight) {
  Gate gate;
  std::atomic<int> ended[kStages] = {};
  std::atomic<bool> destroyed{false};
  Engine engine(schedule(), slots());
  OpenOnExit open_on_exit(gate);
  engine.stages.before = [&](int stage, std::uint64_t) {
    if (stage == Stages::kProduce) gate.pass();
  };
  engine.stages.after = [&](int stage, std::uint64_t) { ++ended[stage]; };
  engine.push(3);  // as many ticks as are issued without a wait, for every R
  gate.wait_arrived();
  std::thread destroyer([&] {
    engine.scheduler.reset();
    destroyed = true;
  });
  EXPECT_FALSE(destroyed);
  gate.open();
  destroyer.join();
  const bool overlap = schedule() != Schedule::serial;
  EXPECT_EQ(ended[Stages::kProduce], 3);
  EXPECT_EQ(ended[Stages::kTransform], overlap ? 2 : 3);
  EXPECT_EQ(ended[Stages::kConsume], overlap ? 1 : 3);
  EXPECT_TRUE(engine.results.empty());
}

TEST_P(EverySchedule, TheDestructorOutlivesAFailure) {
  Engine engine(schedule(), slots());
  engine.stages.before = [&](int, std::uint64_t) { throw std::runtime_error("no more ink"); };
  engine.push(3);
  EXPECT_NO_THROW(engine.scheduler.reset());
  EXPECT_TRUE(engine.results.empty());
}

}  // namespace
}  // namespace tandem::testing
