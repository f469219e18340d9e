// SPDX-License-Identifier: Apache-2.0
// Fused plans on the GPU: what training adds to each tensor stays what the plain plan adds, and the
// schedules give the same bits.
#include <gtest/gtest.h>

#include <cstdio>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/tests/support/gpu_classifier.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/gpu_segmenter.hpp>
#include <tandem/tests/support/training_checks.hpp>

namespace tandem::test {
namespace {

constexpr Precision kPrecisions[] = {Precision::fp32, Precision::tf32, Precision::bf16};

EngineConfig config_of(std::int64_t image, std::int64_t batch, Precision precision,
                       Schedule schedule, const FuseOptions& fuse) {
  EngineConfig config = still_config(image, batch, precision, schedule);
  config.fuse = fuse;
  config.momentum = false;
  return config;
}

struct Outcome {
  std::vector<double> losses;
  Parameters weights;
};

Outcome train(Backend& backend, const EngineConfig& config, const StartValues& start, int steps) {
  // Slow enough that no ReLU goes another way because of a rounding.
  StillSegmenter segmenter(backend, config, start, 1e-3f);
  segmenter.train(0, steps);
  return {segmenter.losses(), segmenter.trainer().trained()};
}

class FuseOnCuda : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (runs()) cuda_ = make_cuda_backend();
  }
  void expect_alike(std::int64_t image, std::int64_t batch, int steps) {
    const StartValues start(still_config(image, batch, Precision::fp32, Schedule::serial));
    for (const Precision precision : kPrecisions) {
      SCOPED_TRACE(name_of(precision));
      const Outcome plain =
          train(*cuda_, config_of(image, batch, precision, Schedule::serial, {}), start, steps);
      EngineConfig as_it_runs = config_of(image, batch, precision, Schedule::overlap, kFuseAll);
      as_it_runs.scheduler.side_lanes = true;
      const Outcome fused = train(*cuda_, as_it_runs, start, steps);
      const double worst =
          expect_moved_alike(start.trained, plain.weights, fused.weights, fused_bound(precision));
      EXPECT_FALSE(same_bits(plain.weights, fused.weights)) << "nothing was fused";
      // The same batch, some rounds earlier.
      EXPECT_LT(plain.losses.back(),
                plain.losses[static_cast<std::size_t>(steps - 1) % kStillBatches]);
      tell("segmenter", precision, image, batch, steps, worst);
    }
  }
  void expect_same_bits(std::int64_t image, std::int64_t batch, Precision precision,
                        const StartValues& start, int steps) {
    SCOPED_TRACE(name_of(precision));
    const Outcome serial =
        train(*cuda_, config_of(image, batch, precision, Schedule::serial, kFuseAll), start, steps);
    for (const Schedule schedule : {Schedule::overlap, Schedule::graph})
      for (const bool side_lanes : {false, true}) {
        EngineConfig config = config_of(image, batch, precision, schedule, kFuseAll);
        config.scheduler.side_lanes = side_lanes;
        const Outcome other = train(*cuda_, config, start, steps);
        EXPECT_EQ(serial.losses, other.losses) << name_of(schedule);
        EXPECT_TRUE(same_bits(serial.weights, other.weights)) << name_of(schedule);
      }
  }
  void tell(const char* network, Precision precision, std::int64_t image, std::int64_t batch,
            int steps, double worst) {
    RecordProperty(std::string(name_of(precision)) + "_worst_update_error", std::to_string(worst));
    std::printf("[  update  ] %s, %s, S = %d, batch %d, %d steps: worst error %.2e\n", network,
                name_of(precision), static_cast<int>(image), static_cast<int>(batch), steps, worst);
  }
  std::unique_ptr<Backend> cuda_;
};

TEST_F(FuseOnCuda, MovesTheWeightsAlike) { expect_alike(32, 3, 20); }

TEST_F(FuseOnCuda, SchedulesGiveTheSameBits) {
  const StartValues start(still_config(32, 3, Precision::fp32, Schedule::serial));
  for (const Precision precision : kPrecisions) expect_same_bits(32, 3, precision, start, 60);
}

/// With the batch.
class FuseHeavy : public FuseOnCuda, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Batches, FuseHeavy, ::testing::Values(8, 32));

TEST_P(FuseHeavy, MovesTheWeightsAlikeOverAThousandSteps) { expect_alike(64, GetParam(), 1000); }

// In TF32 the fused plan's first layer has products in float, where the library cuts off factors:
// it turns ReLUs in every step.
TEST_P(FuseHeavy, TheClassifierMovesAlikeOverAThousandSteps) {
  constexpr int kImage = 32, kSteps = 1000;
  const Parameters start = make_parameters(classifier(kImage, kSmallClasses), 0, 0);
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    SCOPED_TRACE(name_of(precision));
    const auto train = [&](Schedule schedule, const FuseOptions& fuse) {
      EngineConfig config = still_classifier_config(kImage, GetParam(), precision, schedule);
      config.momentum = false;
      config.fuse = fuse;
      config.scheduler.side_lanes = fuse.any();
      StillClassifier classifier(*cuda_, config, start, StillClassifier::kSlowRate);
      classifier.train(kSteps);
      return classifier.trainer().trained();
    };
    const Parameters plain = train(Schedule::serial, {});
    const Parameters fused = train(Schedule::overlap, kFuseAll);
    const double worst = expect_moved_alike(start, plain, fused, fused_bound(precision));
    EXPECT_FALSE(same_bits(plain, fused)) << "nothing was fused";
    tell("classifier", precision, kImage, GetParam(), kSteps, worst);
  }
}

TEST_P(FuseHeavy, SchedulesGiveTheSameBitsInFullSize) {
  const StartValues start(still_config(256, GetParam(), Precision::fp32, Schedule::serial));
  for (const Precision precision : kPrecisions)
    expect_same_bits(256, GetParam(), precision, start, 200);
}

}  // namespace
}  // namespace tandem::test
