// SPDX-License-Identifier: Apache-2.0
// Fused plans on the GPU: what training adds to each tensor stays what the plain plan adds, and the
// schedules give the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/gpu_segmenter.hpp>

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
  StillSegmenter segmenter(backend, config, start);
  for (const InputSlot& slot : segmenter.trainer().inputs()) {
    // Slow enough that no ReLU goes another way because of a rounding.
    slot.header->learning_rate = 1e-3f;
    finish_header(*slot.header);
  }
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
      const Outcome fused = train(
          *cuda_, config_of(image, batch, precision, Schedule::serial, kFuseAll), start, steps);
      // In TF32 the head rounds its factors to nearest where the library may cut them off: twice
      // 2^-10 a product.
      const double bound = precision == Precision::bf16   ? 5e-2
                           : precision == Precision::tf32 ? 4e-3
                                                          : 1e-3;
      double worst = 0;
      for (std::size_t t = 0; t < plain.weights.size(); ++t) {
        const double error = update_error(fused.weights[t], plain.weights[t], start.trained[t]);
        EXPECT_LE(error, bound) << plain.weights[t].name;
        worst = std::max(worst, error);
      }
      EXPECT_FALSE(same_bits(plain.weights, fused.weights)) << "nothing was fused";
      // The same batch, some rounds earlier.
      EXPECT_LT(plain.losses.back(),
                plain.losses[static_cast<std::size_t>(steps - 1) % kStillBatches]);
      RecordProperty(std::string(name_of(precision)) + "_worst_update_error",
                     std::to_string(worst));
      std::printf("[  update  ] %s, S = %d, %d steps: worst error %.2e\n", name_of(precision),
                  static_cast<int>(image), steps, worst);
    }
  }
  std::unique_ptr<Backend> cuda_;
};

TEST_F(FuseOnCuda, MovesTheWeightsAlike) { expect_alike(32, 3, 20); }

TEST_F(FuseOnCuda, SchedulesGiveTheSameBits) {
  const StartValues start(still_config(32, 3, Precision::fp32, Schedule::serial));
  for (const Precision precision : kPrecisions) {
    SCOPED_TRACE(name_of(precision));
    const Outcome serial =
        train(*cuda_, config_of(32, 3, precision, Schedule::serial, kFuseAll), start, 60);
    for (const Schedule schedule : {Schedule::overlap, Schedule::graph})
      for (const bool side_lanes : {false, true}) {
        EngineConfig config = config_of(32, 3, precision, schedule, kFuseAll);
        config.scheduler.side_lanes = side_lanes;
        const Outcome other = train(*cuda_, config, start, 60);
        EXPECT_EQ(serial.losses, other.losses) << name_of(schedule);
        EXPECT_TRUE(same_bits(serial.weights, other.weights)) << name_of(schedule);
      }
  }
}

class FuseHeavy : public FuseOnCuda {};

TEST_F(FuseHeavy, MovesTheWeightsAlikeOverAThousandSteps) { expect_alike(64, 8, 1000); }

TEST_F(FuseHeavy, SchedulesGiveTheSameBitsInFullSize) {
  const StartValues start(still_config(256, 8, Precision::fp32, Schedule::serial));
  for (const Precision precision : kPrecisions) {
    SCOPED_TRACE(name_of(precision));
    const Outcome serial =
        train(*cuda_, config_of(256, 8, precision, Schedule::serial, kFuseAll), start, 200);
    for (const Schedule schedule : {Schedule::overlap, Schedule::graph}) {
      const Outcome other =
          train(*cuda_, config_of(256, 8, precision, schedule, kFuseAll), start, 200);
      EXPECT_EQ(serial.losses, other.losses) << name_of(schedule);
      EXPECT_TRUE(same_bits(serial.weights, other.weights)) << name_of(schedule);
    }
  }
}

}  // namespace
}  // namespace tandem::test
