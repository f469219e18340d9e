// SPDX-License-Identifier: Apache-2.0
// The hazard checker on traces written by hand, then the shipped scheduler under it, with every
// edge and with each edge removed in turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tandem/engine/backend_trace.hpp>
#include <tandem/engine/hazards.hpp>
#include <tandem/engine/scheduler.hpp>
#include <tandem/tests/support/synthetic_stages.hpp>
#include <vector>

namespace tandem::testing {
namespace {

using Pairs = std::vector<std::string>;

/// Writes a trace entry by entry. Memory is one line of addresses.
class Script {
 public:
  static constexpr int kStreams = 3, kEvents = 3;
  Script() {
    trace.streams = {"q0", "q1", "q2"};
    trace.events = {"e0", "e1", "e2"};
  }
  struct Touch {
    std::uintptr_t begin, end;
    Access access;
  };
  Script& op(int stream, std::string name, std::vector<Touch> touches) {
    TraceEntry entry;
    entry.kind = TraceEntry::operation;
    entry.stream = stream;
    entry.name = std::move(name);
    entry.stage = "s";
    for (const Touch& touch : touches)
      entry.accesses.push_back({touch.begin, touch.end, touch.access, "m"});
    trace.entries.push_back(std::move(entry));
    return *this;
  }
  Script& record(int stream, int event) {
    latest_[event] = static_cast<int>(trace.entries.size());
    return other(TraceEntry::record, stream, event, -1);
  }
  Script& wait(int stream, int event) {
    return other(TraceEntry::wait, stream, event, latest_[event]);
  }
  Script& host_wait_event(int event) {
    return other(TraceEntry::host_wait, -1, event, latest_[event]);
  }
  Script& host_wait_stream(int stream) { return other(TraceEntry::host_wait, stream, -1, -1); }

  std::vector<Hazard> hazards() const { return find_hazards(trace); }
  Pairs pairs() const { return distinct_pairs(trace, hazards()); }

  Trace trace;

 private:
  Script& other(TraceEntry::Kind kind, int stream, int event, int binds_to) {
    TraceEntry entry;
    entry.kind = kind;
    entry.stream = stream;
    entry.event = event;
    entry.binds_to = binds_to;
    trace.entries.push_back(std::move(entry));
    return *this;
  }
  int latest_[kEvents] = {-1, -1, -1};
};

constexpr Access r = Access::read, w = Access::write, rw = Access::read_write;

TEST(FindHazards, EveryKindOfConflictBetweenUnorderedStreams) {
  struct Case {
    Access first, second;
    std::string pair;  // empty: no hazard
  };
  for (const Case& c : {Case{w, r, "s.a write m | s.b read m"},               // read after write
                        Case{r, w, "s.a read m | s.b write m"},               // write after read
                        Case{w, w, "s.a write m | s.b write m"},              // write after write
                        Case{rw, r, "s.a read_write m | s.b read m"},         //
                        Case{r, rw, "s.a read m | s.b read_write m"},         //
                        Case{rw, rw, "s.a read_write m | s.b read_write m"},  //
                        Case{r, r, ""}}) {
    Script script;
    script.op(0, "a", {{100, 200, c.first}}).op(1, "b", {{100, 200, c.second}});
    EXPECT_EQ(script.pairs(), c.pair.empty() ? Pairs{} : Pairs{c.pair});
  }
}

TEST(FindHazards, OneStreamIsInOrder) {
  Script script;
  script.op(0, "a", {{0, 8, w}}).op(0, "b", {{0, 8, rw}}).op(0, "c", {{0, 8, w}});
  EXPECT_TRUE(script.hazards().empty());
}

TEST(FindHazards, OneOperationIsNoHazardWithItself) {
  Script script;
  script.op(0, "a", {{0, 8, r}, {0, 8, w}, {4, 12, w}});
  EXPECT_TRUE(script.hazards().empty());
}

TEST(FindHazards, BytesMustOverlap) {
  const auto hazards_of = [](std::uintptr_t begin, std::uintptr_t end) {
    Script script;
    script.op(0, "a", {{100, 200, w}}).op(1, "b", {{begin, end, r}});
    return script.hazards().size();
  };
  EXPECT_EQ(hazards_of(200, 300), 0u);  // end is exclusive
  EXPECT_EQ(hazards_of(0, 100), 0u);
  EXPECT_EQ(hazards_of(300, 400), 0u);
  EXPECT_EQ(hazards_of(199, 300), 1u);
  EXPECT_EQ(hazards_of(0, 101), 1u);
  EXPECT_EQ(hazards_of(120, 130), 1u);
  EXPECT_EQ(hazards_of(0, 1000), 1u);
  EXPECT_EQ(hazards_of(150, 150), 0u);  // nothing is touched
}

TEST(FindHazards, AShortAccessDoesNotHideALongOneBehindIt) {
  Script script;
  script.op(0, "long", {{0, 1000, w}})
      .op(1, "short", {{10, 20, r}})
      .op(1, "far", {{900, 910, r}})
      .op(2, "other", {{950, 960, w}});
  EXPECT_EQ(script.pairs(),
            (Pairs{"s.far read m | s.long write m", "s.long write m | s.other write m",
                   "s.long write m | s.short read m"}));
}

TEST(FindHazards, ARecordAndAWaitAreAnEdge) {
  Script script;
  script.op(0, "a", {{0, 8, w}}).record(0, 0).wait(1, 0).op(1, "b", {{0, 8, r}});
  EXPECT_TRUE(script.hazards().empty());
}

TEST(FindHazards, AnEdgeCoversOnlyWhatWasQueuedBeforeTheRecord) {
  Script script;
  script.record(0, 0).op(0, "a", {{0, 8, w}}).wait(1, 0).op(1, "b", {{0, 8, r}});
  EXPECT_EQ(script.pairs(), Pairs{"s.a write m | s.b read m"});
}

TEST(FindHazards, AnEdgeCoversOnlyWhatIsQueuedAfterTheWait) {
  Script script;
  script.op(0, "a", {{0, 8, w}})
      .record(0, 0)
      .op(1, "b", {{0, 8, r}})
      .wait(1, 0)
      .op(1, "c", {{0, 8, r}});
  EXPECT_EQ(script.pairs(), Pairs{"s.a write m | s.b read m"});
}

TEST(FindHazards, OrderIsTransitive) {
  Script script;
  script.op(0, "a", {{0, 8, w}}).record(0, 0).wait(1, 0);
  script.op(1, "b", {{50, 58, w}}).record(1, 1).wait(2, 1).op(2, "c", {{0, 8, r}});
  EXPECT_TRUE(script.hazards().empty());
  Script without;
  without.op(0, "a", {{0, 8, w}}).record(0, 0);
  without.op(1, "b", {{50, 58, w}}).record(1, 1).wait(2, 1).op(2, "c", {{0, 8, r}});
  EXPECT_EQ(without.pairs(), Pairs{"s.a write m | s.c read m"});
}

TEST(FindHazards, AWaitBindsToTheRecordItSaw) {
  Script script;
  script.op(0, "a", {{0, 8, w}}).record(0, 0).wait(1, 0);
  script.op(0, "later", {{50, 58, w}}).record(0, 0);  // again, after the wait
  script.op(1, "b", {{0, 8, r}, {50, 58, r}});
  EXPECT_EQ(script.pairs(), Pairs{"s.b read m | s.later write m"});
}

TEST(FindHazards, AWaitForNoRecordIsNoEdge) {
  Script script;
  script.op(0, "a", {{0, 8, w}}).wait(1, 0).op(1, "b", {{0, 8, r}});
  EXPECT_EQ(script.pairs(), Pairs{"s.a write m | s.b read m"});
}

TEST(FindHazards, AHostWaitIsNoEdge) {
  Script script;
  script.op(0, "a", {{0, 8, w}}).record(0, 0).host_wait_event(0).host_wait_stream(0);
  script.op(1, "b", {{0, 8, r}});
  EXPECT_EQ(script.pairs(), Pairs{"s.a write m | s.b read m"});
  EXPECT_EQ(host_waits(script.trace), 2);
}

TEST(FindHazards, ReportsEveryPairInOrderOfIssue) {
  Script script;
  script.op(0, "a", {{0, 8, w}, {8, 16, w}}).op(1, "b", {{0, 16, r}}).op(0, "c", {{4, 5, w}});
  const std::vector<Hazard> hazards = script.hazards();
  ASSERT_EQ(hazards.size(), 3u);
  EXPECT_EQ(hazards[0].first, 0);
  EXPECT_EQ(hazards[0].second, 1);
  EXPECT_EQ(hazards[0].first_access, 0);
  EXPECT_EQ(hazards[1].first_access, 1);
  EXPECT_EQ(hazards[2].first, 1);
  EXPECT_EQ(hazards[2].second, 2);
  EXPECT_EQ(script.pairs(), (Pairs{"s.a write m | s.b read m", "s.b read m | s.c write m"}));
  const std::string text = describe(script.trace, hazards[2]);
  for (const char* part : {"s.b", "s.c", "read m", "write m", "||"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(WritersOf, NamesWhoWritesAnyByteOfARange) {
  Script script;
  script.op(0, "a", {{100, 200, w}}).op(1, "b", {{0, 1000, r}}).op(1, "c", {{190, 210, rw}});
  script.op(2, "a", {{100, 200, w}});
  const auto writers = [&](std::uintptr_t begin, std::uintptr_t end) {
    return writers_of(script.trace, reinterpret_cast<void*>(begin), reinterpret_cast<void*>(end));
  };
  EXPECT_EQ(writers(0, 100), Pairs{});
  EXPECT_EQ(writers(0, 101), Pairs{"s.a"});
  EXPECT_EQ(writers(195, 196), (Pairs{"s.a", "s.c"}));
  EXPECT_EQ(writers(200, 1000), Pairs{"s.c"});
  EXPECT_EQ(writers(210, 1000), Pairs{});
}

TEST(ToDot, DrawsOperationsEventsAndHazards) {
  Script script;
  script.op(0, "first", {{0, 8, w}}).record(0, 1).wait(1, 1).op(1, "second", {{0, 8, r}});
  script.op(2, "third", {{0, 8, w}});
  const std::string dot = to_dot(script.trace, script.hazards());
  EXPECT_EQ(dot.rfind("digraph", 0), 0u);
  for (const char* part : {"first", "second", "third", "q0", "q1", "q2", "e1", "dashed", "red"})
    EXPECT_NE(dot.find(part), std::string::npos) << part << " is missing in\n" << dot;
  EXPECT_EQ(to_dot(script.trace, {}).find("red"), std::string::npos);
}

// --- the shipped scheduler ---

struct Traced {
  explicit Traced(Schedule schedule, int slots, Edge drop = {}, int batches = 12,
                  bool share = true) {
    SchedulerOptions options;
    options.schedule = schedule;
    options.test_drop_edge = drop;
    options.share_memory = share;
    scheduler = std::make_unique<Scheduler>(backend, stages.plan(slots), options);
    backend.clear();
    for (int n = 0; n < batches; ++n) scheduler->push(n % 8, static_cast<std::uint64_t>(n));
    scheduler->drain();
  }
  const Trace& trace() const { return backend.trace(); }
  std::vector<Hazard> hazards() const { return find_hazards(trace()); }
  Pairs pairs() const { return distinct_pairs(trace(), hazards()); }
  Pairs writers(BufferId buffer, int copy = 0) const {
    const auto* begin = static_cast<const std::byte*>(scheduler->address(buffer, copy));
    const auto& buffers = scheduler->plan().buffers;
    return writers_of(trace(), begin, begin + buffers[static_cast<std::size_t>(buffer)].bytes);
  }

  TraceBackend backend;
  SyntheticStages stages;
  std::unique_ptr<Scheduler> scheduler;
};

class ShippedScheduler : public ::testing::TestWithParam<int> {
 protected:
  int slots() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Slots, ShippedScheduler, ::testing::Values(2, 3));

TEST_P(ShippedScheduler, HasNoHazards) {
  for (Schedule schedule : {Schedule::serial, Schedule::overlap, Schedule::graph})
    for (bool share : {true, false}) {
      const Traced traced(schedule, slots(), {}, 12, share);
      EXPECT_EQ(traced.pairs(), Pairs{}) << name_of(schedule);
      // 12 batches of 7 operations each, all of them with a name, a stage and their step.
      std::vector<int> seen(12, 0);
      for (const TraceEntry& entry : traced.trace().entries) {
        if (entry.kind != TraceEntry::operation) continue;
        EXPECT_FALSE(entry.name.empty());
        EXPECT_FALSE(entry.stage.empty());
        ASSERT_LT(entry.step, 12u);
        ++seen[entry.step];
      }
      EXPECT_EQ(seen, std::vector<int>(12, 7));
    }
}

TEST_P(ShippedScheduler, OverlapDoesNotOrderAConsumerBeforeTheNextProducer) {
  // A schedule in which everything is ordered has no hazards either. So: two operations of
  // neighbouring batches that may run side by side, given bytes in common, must be found.
  Traced traced(Schedule::overlap, slots());
  Trace trace = traced.trace();
  for (TraceEntry& entry : trace.entries) {
    if (entry.kind != TraceEntry::operation) continue;
    const bool probe =
        (entry.name == "report" && entry.step == 5) || (entry.name == "fill" && entry.step == 6);
    if (probe) entry.accesses.push_back({1, 2, Access::write, "probe"});
  }
  EXPECT_EQ(distinct_pairs(trace, find_hazards(trace)),
            Pairs{"consume.report write probe | produce.fill write probe"});
}

TEST_P(ShippedScheduler, EachMissingEdgeIsNamed) {
  struct Case {
    Edge edge;
    Pairs expected;
  };
  const Case cases[] = {
      {{Edge::ready, 0},
       {"produce.fill write produced | transform.map read produced",
        "produce.label write tag | transform.pass read tag"}},
      {{Edge::free, 0},
       {"produce.fill write produced | transform.map read produced",
        "produce.label write tag | transform.pass read tag"}},
      {{Edge::ready, 1},
       {"consume.check read tag_out | transform.pass write tag_out",
        "consume.check read transformed | transform.scale write transformed"}},
      {{Edge::free, 1},
       {"consume.check read tag_out | transform.pass write tag_out",
        "consume.check read transformed | transform.scale write transformed"}},
  };
  for (const Case& c : cases) {
    const Traced traced(Schedule::overlap, slots(), c.edge);
    EXPECT_EQ(traced.pairs(), c.expected)
        << (c.edge.kind == Edge::ready ? "ready " : "free ") << c.edge.handover;
    // Without `ready` a reader races with its own batch's writer, which is issued first; without
    // `free` a writer races with the reader of R batches before it, or of 2 R, and so on.
    for (const Hazard& hazard : traced.hazards()) {
      const TraceEntry& first = traced.trace().entries[static_cast<std::size_t>(hazard.first)];
      const TraceEntry& second = traced.trace().entries[static_cast<std::size_t>(hazard.second)];
      const bool first_writes =
          writes(first.accesses[static_cast<std::size_t>(hazard.first_access)].access);
      EXPECT_EQ(first_writes, c.edge.kind == Edge::ready) << describe(traced.trace(), hazard);
      EXPECT_EQ((second.step - first.step) % static_cast<unsigned>(slots()), 0u);
      if (c.edge.kind == Edge::free) {
        EXPECT_GT(second.step, first.step);
      }
    }
  }
}

/// Under `graph` only hand-over 0 has edges of its own; fork and join order the rest.
TEST_P(ShippedScheduler, EachMissingEdgeOfAGraphIsNamed) {
  for (const Edge::Kind kind : {Edge::ready, Edge::free}) {
    const Traced traced(Schedule::graph, slots(), {kind, 0});
    EXPECT_EQ(traced.pairs(), (Pairs{"produce.fill write produced | transform.map read produced",
                                     "produce.label write tag | transform.pass read tag"}));
  }
}

TEST_P(ShippedScheduler, StagesOfAGraphMayRunSideBySide) {
  Traced traced(Schedule::graph, slots());
  Trace trace = traced.trace();
  for (TraceEntry& entry : trace.entries) {
    if (entry.kind != TraceEntry::operation) continue;
    // In one tick consume works on batch 5, transform on 6 and produce on 7.
    const bool probe = (entry.name == "report" && entry.step == 5) ||
                       (entry.name == "pass" && entry.step == 6) ||
                       (entry.name == "fill" && entry.step == 7);
    if (probe) entry.accesses.push_back({1, 2, Access::write, "probe"});
  }
  EXPECT_EQ(distinct_pairs(trace, find_hazards(trace)),
            (Pairs{"consume.report write probe | produce.fill write probe",
                   "consume.report write probe | transform.pass write probe",
                   "produce.fill write probe | transform.pass write probe"}));
}

TEST_P(ShippedScheduler, EachSlotHasItsOwnWriterAndReader) {
  const Traced traced(Schedule::overlap, slots());
  for (int copy = 0; copy < slots(); ++copy) {
    EXPECT_EQ(traced.writers(traced.stages.produced, copy), Pairs{"produce.fill"});
    EXPECT_EQ(traced.writers(traced.stages.tag_out, copy), Pairs{"transform.pass"});
  }
  EXPECT_EQ(traced.writers(traced.stages.state), Pairs{"consume.report"});
}

TEST_P(ShippedScheduler, NothingWritesWhatIsFrozen) {
  for (Schedule schedule : {Schedule::serial, Schedule::overlap, Schedule::graph}) {
    const Traced traced(schedule, slots());
    EXPECT_EQ(traced.writers(traced.stages.table), Pairs{});
    for (int copy = 0; copy < 8; ++copy)
      EXPECT_EQ(traced.writers(traced.stages.number, copy), Pairs{});
  }
}

TEST(SerialSchedule, NeedsNoEventsBetweenStages) {
  const Traced traced(Schedule::serial, 2);
  EXPECT_EQ(traced.trace().streams.size(), 1u);
  for (const TraceEntry& entry : traced.trace().entries) EXPECT_NE(entry.kind, TraceEntry::wait);
}

}  // namespace
}  // namespace tandem::testing
