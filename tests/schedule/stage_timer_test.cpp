// SPDX-License-Identifier: Apache-2.0
// Where the scheduler tells a timer of its stages, and what is made of the times.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tandem/engine/backend_trace.hpp>
#include <tandem/engine/overlap.hpp>
#include <tandem/engine/scheduler.hpp>
#include <tandem/engine/stage_timer.hpp>
#include <tandem/tests/support/synthetic_stages.hpp>
#include <vector>

namespace tandem {
namespace {

/// Leaves a mark on the stream: an operation named "begin" or "end".
class MarkingTimer final : public StageTimer {
 public:
  MarkingTimer() {
    begin_.name = "begin";
    end_.name = "end";
  }
  void begin(int, StreamRef stream) override { mark(begin_, stream); }
  void end(int, StreamRef stream) override { mark(end_, stream); }

 private:
  static void mark(const Operation& operation, StreamRef stream) {
    BoundOperation bound;
    bound.operation = &operation;
    stream.backend->enqueue(stream, bound);
  }
  Operation begin_, end_;
};

// Between the marks lie the stage's operations, all of them and nothing else but records: what a
// stage waits for is not its time.
TEST(StageTimer, MarksEncloseTheOperationsAndNoWait) {
  for (const Schedule schedule : {Schedule::serial, Schedule::overlap}) {
    SCOPED_TRACE(name_of(schedule));
    constexpr std::size_t kBatches = 5;
    testing::SyntheticStages stages;
    TraceBackend backend;
    MarkingTimer timer;
    SchedulerOptions options;
    options.schedule = schedule;
    options.stage_timer = &timer;
    Scheduler scheduler(backend, stages.plan(2), options);
    for (std::size_t n = 0; n < kBatches; ++n) scheduler.push(static_cast<int>(n), n);
    scheduler.drain();

    // The names seen on each stream between a begin and its end.
    std::vector<std::string> open(backend.trace().streams.size());
    std::vector<bool> inside(open.size());
    std::vector<std::string> closed;
    int waits_outside = 0;
    for (const TraceEntry& entry : backend.trace().entries) {
      if (entry.stream < 0) continue;
      const auto stream = static_cast<std::size_t>(entry.stream);
      if (entry.name == "begin") {
        EXPECT_FALSE(inside[stream]);
        inside[stream] = true;
        open[stream].clear();
      } else if (entry.name == "end") {
        EXPECT_TRUE(inside[stream]);
        inside[stream] = false;
        closed.push_back(open[stream]);
      } else if (entry.kind == TraceEntry::wait) {
        EXPECT_FALSE(inside[stream]);
        ++waits_outside;
      } else if (entry.kind == TraceEntry::operation) {
        EXPECT_TRUE(inside[stream]) << entry.name;
        open[stream] += entry.name + " ";
      }
    }
    EXPECT_EQ(closed.size(), kBatches * testing::SyntheticStages::kStages);
    for (const char* operations : {"fill label ", "map pass scale ", "check report "})
      EXPECT_EQ(std::count(closed.begin(), closed.end(), operations), kBatches) << operations;
    EXPECT_EQ(waits_outside > 0, schedule == Schedule::overlap);
  }
}

TEST(BusyPercent, IsTheUnionOverTheWholeTime) {
  EXPECT_EQ(busy_percent({}), 0);
  EXPECT_EQ(busy_percent({{0, 2, 3}}), 100);
  EXPECT_EQ(busy_percent({{0, 0, 1}, {1, 3, 4}}), 50);               // a gap of two
  EXPECT_EQ(busy_percent({{0, 0, 2}, {1, 1, 4}}), 100);              // they overlap
  EXPECT_EQ(busy_percent({{0, 0, 4}, {1, 1, 2}, {2, 7, 8}}), 62.5);  // one inside another
  EXPECT_EQ(busy_percent({{2, 7, 8}, {1, 1, 2}, {0, 0, 4}}), 62.5);  // in any order
  EXPECT_EQ(busy_percent({{0, 5, 5}}), 0);                           // no time at all
}

TEST(Overlap, EfficiencyIsTheHiddenPartOfTheShorterStage) {
  EXPECT_EQ(overlap_efficiency({10, 10, 20, 20}), 0.0);
  EXPECT_EQ(overlap_efficiency({10, 10, 20, 10}), 1.0);
  EXPECT_EQ(overlap_efficiency({10, 2, 12, 11}), 0.5);
  EXPECT_EQ(overlap_efficiency({10, 10, 20, 25}), -0.5);
  EXPECT_EQ(overlap_bound({10, 2, 12, 10}), 1.2);
  EXPECT_EQ(overlap_bound({10, 10, 20, 20}), 2.0);
}

TEST(Overlap, VerdictFollowsTheEfficiency) {
  EXPECT_EQ(overlap_verdict({10, 10, 20, 18}), OverlapVerdict::pays);
  EXPECT_EQ(overlap_verdict({10, 10, 20, 19.5}), OverlapVerdict::nothing);
  EXPECT_EQ(overlap_verdict({10, 10, 20, 20.5}), OverlapVerdict::nothing);
  EXPECT_EQ(overlap_verdict({10, 10, 20, 22}), OverlapVerdict::hurts);
  EXPECT_EQ(overlap_verdict({10, 10, 22, 10.1}), OverlapVerdict::pays) << "1.09 bounds";
  EXPECT_EQ(overlap_verdict({10, 10, 30, 10.1}), OverlapVerdict::unclear) << "1.49 bounds";
  EXPECT_EQ(overlap_verdict({10, 1, 30, 11}), OverlapVerdict::unclear);
  // A step is no shorter than one of its stages, whichever that is.
  EXPECT_EQ(overlap_verdict({10, 2, 9, 7}), OverlapVerdict::unclear) << "a alone: 1.11 steps";
  EXPECT_EQ(overlap_verdict({2, 10, 9, 9}), OverlapVerdict::unclear) << "b alone: 1.11 steps";
  EXPECT_EQ(overlap_verdict({2, 10, 9, 11}), OverlapVerdict::unclear);
  EXPECT_EQ(overlap_verdict({10, 2, 9.2, 8.5}), OverlapVerdict::pays) << "1.09 steps";
}

}  // namespace
}  // namespace tandem
