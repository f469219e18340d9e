// SPDX-License-Identifier: Apache-2.0
// The graph schedule: when a tick is captured, what a launch stands for, what happens where a
// capture fails. On the host, with graphs that queue again what was captured.
#include <gtest/gtest.h>

#include <numeric>
#include <tandem/engine/backend_host.hpp>
#include <tandem/tests/support/capturing_backend.hpp>
#include <tandem/tests/support/short_epochs.hpp>
#include <tandem/tests/support/small_segmenter.hpp>

namespace tandem::test {
namespace {

using ::tandem::testing::CapturingBackend;

constexpr int kStages = 3;

EngineConfig config_of(Schedule schedule, int slots = 2) {
  EngineConfig config = small_config(schedule);
  config.slots = slots;
  return config;
}

struct Outcome {
  std::vector<double> losses;
  Parameters weights;
};

Outcome train(Backend& backend, const EngineConfig& config, std::initializer_list<int> epochs) {
  SmallSegmenter segmenter(backend, config);
  std::uint64_t first = 0;
  for (const int steps : epochs) {
    segmenter.train(first, steps);
    first += static_cast<std::uint64_t>(steps);
  }
  return {segmenter.losses(), segmenter.trainer().trained()};
}

class GraphSchedule : public ::testing::TestWithParam<int> {
 protected:
  int slots() const { return GetParam(); }
  int period() const { return std::lcm(slots(), slots() + 2); }
  const std::unique_ptr<Backend> host = make_host_backend();
  CapturingBackend backend{*host};
};
INSTANTIATE_TEST_SUITE_P(Slots, GraphSchedule, ::testing::Values(1, 2, 3));

TEST_P(GraphSchedule, GivesTheBitsOfSerial) {
  // Epochs that are shorter and longer than a period, each with fill and drain.
  const std::initializer_list<int> epochs = {1, 2, 2 * period() + 3, 5};
  const Outcome serial = train(*host, config_of(Schedule::serial, slots()), epochs);
  const Outcome graph = train(backend, config_of(Schedule::graph, slots()), epochs);
  EXPECT_EQ(serial.losses, graph.losses);
  EXPECT_TRUE(same_bits(serial.weights, graph.weights));
  EXPECT_GE(backend.launches, period());
  EXPECT_TRUE(backend.alive.empty());
}

TEST_P(GraphSchedule, CapturesEachTickOfThePeriodTheSecondTimeAndNeverAgain) {
  SmallSegmenter segmenter(backend, config_of(Schedule::graph, slots()));
  const Scheduler& scheduler = segmenter.trainer().scheduler();
  // In B steps of one run B - (K - 2) ticks have work for every stage behind the copy.
  segmenter.train(0, period() + kStages - 2);
  EXPECT_EQ(scheduler.graphs(), 0);
  EXPECT_EQ(scheduler.capture_seconds(), 0);
  EXPECT_EQ(backend.launches, 0);
  segmenter.train(100, 2 * period() + kStages);
  EXPECT_EQ(scheduler.graphs(), period());
  const double seconds = scheduler.capture_seconds();
  EXPECT_GT(seconds, 0);
  const int launches = backend.launches;
  segmenter.train(200, 10 + kStages - 2);
  EXPECT_EQ(scheduler.graphs(), period());
  EXPECT_EQ(backend.launches, launches + 10);
  EXPECT_EQ(scheduler.capture_seconds(), seconds);
  EXPECT_EQ(backend.alive.size(), static_cast<std::size_t>(period()));
  EXPECT_EQ(scheduler.no_graph_reason(), "");
}

TEST_P(GraphSchedule, GoesOnWithoutGraphsWhereACaptureFails) {
  const int steps = 2 * period() + 4;
  const Outcome serial = train(*host, config_of(Schedule::serial, slots()), {steps});
  backend.refuse = "no ink";
  SmallSegmenter segmenter(backend, config_of(Schedule::graph, slots()));
  segmenter.train(0, steps);
  EXPECT_EQ(segmenter.losses(), serial.losses);
  EXPECT_TRUE(same_bits(segmenter.trainer().trained(), serial.weights));
  EXPECT_EQ(segmenter.trainer().scheduler().no_graph_reason(), "no ink");
  EXPECT_EQ(segmenter.trainer().scheduler().graphs(), 0);
  EXPECT_EQ(segmenter.trainer().scheduler().capture_seconds(), 0);
  EXPECT_EQ(backend.launches, 0);
}

// After a drain nothing waits for the device until the pipeline is full again: what failed in
// between is still unreported when the first tick is captured.
TEST_P(GraphSchedule, AFailureOfBeforeIsNotTakenForOneOfTheCapture) {
  SmallSegmenter segmenter(backend, config_of(Schedule::graph, slots()));
  segmenter.train(0, period() + kStages - 2);
  backend.failure = Error(ErrorCode::run_failed, "a copy went wrong");
  try {
    segmenter.train(100, kStages);
    FAIL() << "nothing was reported";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a copy went wrong");
  }
  EXPECT_EQ(segmenter.trainer().scheduler().no_graph_reason(), "");
}

// The count of labels comes with the header, so a captured tick trains on a short batch too.
TEST(GraphScheduleOnTheHost, ShortLastBatchesKeepTheBits) {
  const auto host = make_host_backend();
  CapturingBackend backend(*host);
  const EngineConfig segmenter = config_of(Schedule::graph);
  expect_short_batches_keep_the_bits(backend, segmenter, make_parameters(segmenter.frozen, 0, 0),
                                     make_parameters(segmenter.trained, 0, 6));
  const EngineConfig classifier = small_classifier_config(Schedule::graph);
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    EngineConfig config = classifier;
    config.precision = precision;
    expect_short_batches_keep_the_bits(backend, config, {},
                                       make_parameters(classifier.trained, 0, 0));
  }
}

TEST(GraphScheduleOnTheHost, SaysThatThereAreNoGraphs) {
  const auto host = make_host_backend();
  SmallSegmenter segmenter(*host, config_of(Schedule::graph));
  EXPECT_EQ(segmenter.trainer().scheduler().no_graph_reason(), "the host backend has no graphs");
  EXPECT_THROW(host->begin_capture({}), Error);
  segmenter.train(0, 20);
  const Outcome serial = train(*host, config_of(Schedule::serial), {20});
  EXPECT_EQ(segmenter.losses(), serial.losses);
  EXPECT_TRUE(same_bits(segmenter.trainer().trained(), serial.weights));
}

}  // namespace
}  // namespace tandem::test
