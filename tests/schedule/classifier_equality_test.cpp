// SPDX-License-Identifier: Apache-2.0
// Overlapping changes the time and nothing else, also where each picture is augmented on its way;
// nor does it matter who augments it.
#include <gtest/gtest.h>

#include <string>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/fuse.hpp>
#include <tandem/tests/support/capturing_backend.hpp>
#include <tandem/tests/support/small_classifier.hpp>
#include <tandem/tests/support/small_segmenter.hpp>
#include <tandem/tests/support/training_checks.hpp>

namespace tandem::test {
namespace {

struct Outcome {
  std::vector<double> losses;
  Parameters start, weights;
};

Outcome train(const EngineConfig& config, int steps) {
  const auto backend = make_host_backend();
  SmallClassifier classifier(*backend, config);
  classifier.train(0, steps);
  return {classifier.losses(), classifier.start(), classifier.trainer().trained()};
}

void expect_moved(const Outcome& outcome) { test::expect_moved(outcome.start, outcome.weights); }

TEST(ClassifierEquality, SerialAndOverlapGiveTheSameBits) {
  constexpr int kSteps = 200;
  const Outcome serial = train(small_classifier_config(Schedule::serial), kSteps);
  const Outcome overlap = train(small_classifier_config(Schedule::overlap), kSteps);
  ASSERT_EQ(serial.losses.size(), static_cast<std::size_t>(kSteps));
  EXPECT_EQ(serial.losses, overlap.losses);
  EXPECT_TRUE(same_bits(serial.weights, overlap.weights));
  expect_moved(serial);
}

// What runs on a GPU unless it is told otherwise: everything fused, updates on side lanes, ticks
// captured. Two epochs, so that the pipeline runs empty and a replay follows other batches.
TEST(ClassifierEquality, FusedPlansOnSideLanesAndInGraphsKeepTheBits) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    Outcome serial;
    for (const Schedule schedule : {Schedule::serial, Schedule::overlap, Schedule::graph}) {
      EngineConfig config = small_classifier_config(schedule);
      config.precision = precision;
      config.fuse = kFuseAll;
      config.scheduler.side_lanes = true;
      const auto host = make_host_backend();
      testing::CapturingBackend backend(*host);
      {
        SmallClassifier classifier(backend, config);
        classifier.train(0, 17);
        classifier.train(17, 9);
        const Outcome outcome{classifier.losses(), classifier.start(),
                              classifier.trainer().trained()};
        if (schedule == Schedule::serial) {
          serial = outcome;
          expect_moved(serial);
        }
        EXPECT_EQ(outcome.losses, serial.losses) << name_of(schedule) << name_of(precision);
        EXPECT_TRUE(same_bits(outcome.weights, serial.weights)) << name_of(schedule);
      }
      EXPECT_EQ(backend.launches > 0, schedule == Schedule::graph);
    }
  }
}

// A launched tick uses the draws in the header of its batch, not those it was captured with.
TEST(ClassifierEquality, EveryReplayUsesTheDrawsOfItsBatch) {
  const auto host = make_host_backend();
  testing::CapturingBackend backend(*host);
  EngineConfig config = small_classifier_config(Schedule::graph);
  SmallClassifier classifier(backend, config);
  const Outcome serial = train(small_classifier_config(Schedule::serial), 20);
  classifier.train(0, 20);
  EXPECT_EQ(classifier.losses(), serial.losses);
  EXPECT_GE(backend.launches, 8);
  config.augment->rotate = false;  // the draws matter
  const auto other_host = make_host_backend();
  SmallClassifier other(*other_host, config);
  other.train(0, 20);
  EXPECT_NE(other.losses(), serial.losses);
}

TEST(ClassifierEquality, WhoAugmentsDoesNotMatter) {
  constexpr int kSteps = 20;
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    EngineConfig config = small_classifier_config();
    config.precision = precision;
    const Outcome stage = train(config, kSteps);
    config.augment_on_cpu = true;
    const Outcome workers = train(config, kSteps);
    EXPECT_EQ(stage.losses, workers.losses) << name_of(precision);
    EXPECT_TRUE(same_bits(stage.weights, workers.weights)) << name_of(precision);
    config.augment_on_cpu = false;
    config.plain_augment = true;
    const Outcome plain = train(config, kSteps);
    EXPECT_EQ(stage.losses, plain.losses) << name_of(precision);
    expect_moved(stage);

    // Without augmentation it is another run.
    config.augment.reset();
    EXPECT_NE(train(config, kSteps).losses, stage.losses);
  }
}

TEST(ClassifierEquality, PicturesOfAnotherSizeAreResized) {
  EngineConfig config = small_classifier_config();
  config.augment->in_h = config.augment->in_w = 27;  // of the data set
  config.augment->crop_h = config.augment->crop_w = 20;
  const Outcome stage = train(config, 4);
  config.augment_on_cpu = true;
  const Outcome workers = train(config, 4);
  EXPECT_EQ(stage.losses, workers.losses);
  EXPECT_TRUE(same_bits(stage.weights, workers.weights));
}

}  // namespace
}  // namespace tandem::test
