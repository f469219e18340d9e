// SPDX-License-Identifier: Apache-2.0
// Weight updates on a stream beside their stage's: ordered where they have to be and nowhere else,
// with the bits of a serial run.
#include <gtest/gtest.h>

#include <algorithm>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/backend_trace.hpp>
#include <tandem/engine/fuse.hpp>
#include <tandem/engine/hazards.hpp>
#include <tandem/tests/support/small_segmenter.hpp>

namespace tandem::test {
namespace {

EngineConfig config_of(Schedule schedule, const FuseOptions& fuse, Precision precision,
                       bool momentum, int slots = 2) {
  EngineConfig config = small_config(schedule);
  config.fuse = fuse;
  config.precision = precision;
  config.momentum = momentum;
  config.slots = slots;
  config.scheduler.side_lanes = true;
  return config;
}

Trace trace_of(const EngineConfig& config) {
  TraceBackend backend;
  Scheduler scheduler(backend, plan_training(config), config.scheduler);
  backend.clear();
  for (int n = 0; n < 12; ++n) scheduler.push(n % 4, static_cast<std::uint64_t>(n));
  scheduler.drain();
  return backend.trace();
}

TEST(SideLanes, HaveNoHazards) {
  for (const Schedule schedule : {Schedule::serial, Schedule::overlap, Schedule::graph})
    for (const FuseOptions& fuse : {FuseOptions{}, kFuseAll})
      for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16})
        for (const bool momentum : {true, false})
          for (const int slots : {1, 2, 3}) {
            const Trace trace = trace_of(config_of(schedule, fuse, precision, momentum, slots));
            EXPECT_EQ(distinct_pairs(trace, find_hazards(trace)), std::vector<std::string>{})
                << name_of(schedule) << " " << name_of(precision) << " fused " << fuse.any();
          }
}

TEST(SideLanes, AreCountedAmongThePlansStreams) {
  for (const Schedule schedule : {Schedule::serial, Schedule::overlap, Schedule::graph})
    for (const bool side_lanes : {false, true}) {
      EngineConfig config = config_of(schedule, kFuseAll, Precision::bf16, false);
      config.scheduler.side_lanes = side_lanes;
      EXPECT_EQ(static_cast<std::size_t>(stream_count(plan_training(config), config.scheduler)),
                trace_of(config).streams.size())
          << name_of(schedule) << side_lanes;
      // A prediction updates nothing.
      TraceBackend backend;
      const Plan prediction = plan_prediction(config);
      const Scheduler scheduler(backend, prediction, config.scheduler);
      EXPECT_EQ(static_cast<std::size_t>(stream_count(prediction, config.scheduler)),
                backend.trace().streams.size());
    }
}

TEST(SideLanes, AreAStreamOfTheStageThatUpdatesAndNoneUnderSerial) {
  const auto has_lane = [](const Trace& trace) {
    return std::count(trace.streams.begin(), trace.streams.end(), "train update");
  };
  const Trace overlap = trace_of(config_of(Schedule::overlap, kFuseAll, Precision::bf16, false));
  EXPECT_EQ(overlap.streams.size(), 4u);
  EXPECT_EQ(has_lane(overlap), 1);
  EXPECT_EQ(has_lane(trace_of(config_of(Schedule::graph, kFuseAll, Precision::bf16, false))), 1);
  EXPECT_EQ(trace_of(config_of(Schedule::serial, kFuseAll, Precision::bf16, false)).streams.size(),
            1u);
  EngineConfig off = config_of(Schedule::overlap, kFuseAll, Precision::bf16, false);
  off.scheduler.side_lanes = false;
  EXPECT_EQ(trace_of(off).streams.size(), 3u);
}

/// A schedule that orders everything has no hazards either. So: an update and the backward pass of
/// an earlier layer behind it, given bytes in common, must be found.
TEST(SideLanes, RunBesideWhatIsBehindThemInTheStage) {
  for (const Schedule schedule : {Schedule::overlap, Schedule::graph}) {
    Trace trace = trace_of(config_of(schedule, kFuseAll, Precision::bf16, false));
    for (TraceEntry& entry : trace.entries) {
      if (entry.kind != TraceEntry::operation || entry.step != 5) continue;
      if (entry.name == "decoder.8.tconv2x2_update" || entry.name == "decoder.0.tconv2x2_update" ||
          entry.name == "decoder.4.tconv2x2_backward_data")
        entry.accesses.push_back({1, 2, Access::write, "probe"});
    }
    EXPECT_EQ(distinct_pairs(trace, find_hazards(trace)),
              std::vector<std::string>{"train.decoder.4.tconv2x2_backward_data write probe | "
                                       "train.decoder.8.tconv2x2_update write probe"})
        << name_of(schedule);
  }
}

TEST(SideLanes, KeepTheBits) {
  for (const FuseOptions& fuse : {FuseOptions{}, kFuseAll})
    for (const bool momentum : {true, false}) {
      std::vector<double> losses;
      Parameters weights;
      for (const Schedule schedule : {Schedule::serial, Schedule::overlap, Schedule::graph}) {
        const auto backend = make_host_backend();
        SmallSegmenter segmenter(*backend, config_of(schedule, fuse, Precision::fp32, momentum));
        segmenter.train(0, 20);
        if (schedule == Schedule::serial) {
          losses = segmenter.losses();
          weights = segmenter.trainer().trained();
        }
        EXPECT_EQ(segmenter.losses(), losses) << name_of(schedule);
        EXPECT_TRUE(same_bits(segmenter.trainer().trained(), weights)) << name_of(schedule);
      }
    }
}

}  // namespace
}  // namespace tandem::test
