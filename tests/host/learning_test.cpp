// SPDX-License-Identifier: Apache-2.0
// What training must do whatever the numbers are: NaN is found, zero is inactive, an empty batch
// changes nothing, the frozen part stays as it is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/tests/support/parity_data.hpp>
#include <tandem/tests/support/small_segmenter.hpp>
#include <vector>

namespace tandem::test {
namespace {

/// Where the tensor `name` lies.
std::size_t index_of(const Parameters& parameters, const std::string& name) {
  for (std::size_t t = 0; t < parameters.size(); ++t) {
    if (parameters[t].name == name) return t;
  }
  ADD_FAILURE() << "no tensor " << name;
  return 0;
}

/// Trains two good steps, 0 and 1, then puts one NaN into a tensor and trains from step 2 on until
/// the trainer throws; then the good weights come back and so do the bits of a fresh run.
void expect_nan_is_found(bool in_frozen, std::size_t tensor) {
  const auto backend = make_host_backend();
  SmallSegmenter good(*backend, small_config());
  good.train(0, 2);
  ASSERT_EQ(good.losses().size(), 2u);

  Parameters values = in_frozen ? good.frozen_start() : good.trained_start();
  SCOPED_TRACE(fmt::format("{} {}", in_frozen ? "encoder" : "decoder", values[tensor].name));
  std::vector<float>& data = values[tensor].data;
  data[data.size() / 2] = -std::nanf("");  // the sign of a NaN means nothing, and is not printed
  if (in_frozen) {
    good.trainer().set_frozen(values);
  } else {
    good.trainer().set_trained(values);
  }
  try {
    good.train(2, 8);
    ADD_FAILURE() << "trained on in spite of a NaN";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::non_finite) << error.what();
    EXPECT_NE(std::string(error.what()).find("step 2 is nan"), std::string::npos) << error.what();
  }
  EXPECT_EQ(good.losses().size(), 2u) << "a step with a NaN, or a later one, was reported";

  good.reset();
  good.train(0, 2);
  ASSERT_EQ(good.losses().size(), 4u);
  EXPECT_EQ(good.losses()[2], good.losses()[0]);
  EXPECT_EQ(good.losses()[3], good.losses()[1]);
}

TEST(Learning, NanInAnyTensorOfTheEncoderReachesTheLoss) {
  const std::size_t tensors = small_config().frozen.parameters().size();
  ASSERT_EQ(tensors, 12u);
  for (std::size_t t = 0; t < tensors; ++t) expect_nan_is_found(true, t);
}

TEST(Learning, NanInAnyTensorOfTheDecoderReachesTheLoss) {
  const std::size_t tensors = small_config().trained.parameters().size();
  ASSERT_EQ(tensors, 12u);
  for (std::size_t t = 0; t < tensors; ++t) expect_nan_is_found(false, t);
}

TEST(Learning, ErrorsAndResultsNameTheStepOfTheHeader) {
  const auto backend = make_host_backend();
  SmallSegmenter segmenter(*backend, small_config());
  segmenter.train(70, 2);
  ASSERT_EQ(segmenter.results().size(), 2u);
  EXPECT_EQ(segmenter.results()[0].step, 70u);
  EXPECT_EQ(segmenter.results()[1].step, 71u);
  Parameters values = segmenter.trained_start();
  values[0].data[0] = std::nanf("");
  segmenter.trainer().set_trained(values);
  try {
    segmenter.train(72, 1);
    ADD_FAILURE() << "trained on in spite of a NaN";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("step 72"), std::string::npos) << error.what();
  }
}

// Channel 3 of a level has weights 0, so its pre-activation is its bias. At exactly 0 the unit is
// inactive in both directions: no gradient enters it. Just above 0 it is active.
TEST(Learning, AnExactZeroBeforeTheActivationHasNoGradient) {
  const auto backend = make_host_backend();
  constexpr std::size_t kChannel = 3;
  for (int level = 0; level < 5; ++level) {
    for (const float bias : {0.0f, 0.0009765625f}) {
      SCOPED_TRACE(fmt::format("level {}, bias {}", level, bias));
      SmallSegmenter segmenter(*backend, small_config());
      Parameters values = segmenter.trained_start();
      const std::size_t w = index_of(values, fmt::format("{}.weight", 2 * level));
      const std::size_t b = index_of(values, fmt::format("{}.bias", 2 * level));
      const auto inputs = static_cast<std::size_t>(values[w].shape[0]);
      const auto outputs = static_cast<std::size_t>(values[w].shape[1]);
      const auto each_weight_of_channel = [&](Parameters& of, auto&& function) {
        for (std::size_t c = 0; c < inputs; ++c) {
          for (std::size_t i = 0; i < 4; ++i) {
            function(of[w].data[(c * outputs + kChannel) * 4 + i]);
          }
        }
      };
      each_weight_of_channel(values, [](float& weight) { weight = 0; });
      values[b].data[kChannel] = bias;
      segmenter.trainer().set_trained(values);
      segmenter.train(0, 1);

      Parameters gradients = segmenter.trainer().gradients();
      int nonzero = 0;
      each_weight_of_channel(gradients, [&](float& gradient) { nonzero += gradient != 0; });
      // Its outputs are 0 (or the bias), and so is its share of the next layer's gradient.
      const std::size_t next = b + 1;
      const bool last = level == 4;  // the next layer is the 3x3 one: [K,C,3,3], not [C,K,2,2]
      const std::size_t inner = last ? 9 : gradients[next].data.size() / outputs;
      for (std::size_t i = 0; i < inner; ++i) {
        const std::size_t at = (last ? i : kChannel * inner + i) + (last ? kChannel * 9 : 0);
        nonzero += gradients[next].data[at] != 0;
      }
      if (bias == 0) {
        EXPECT_EQ(nonzero, 0);
        EXPECT_EQ(gradients[b].data[kChannel], 0.0f);
      } else {
        EXPECT_GT(nonzero, 0);
        EXPECT_NE(gradients[b].data[kChannel], 0.0f);
      }
      EXPECT_NE(gradients[b].data[kChannel + 1], 0.0f) << "the channel beside it learns";
    }
  }
}

TEST(Learning, ABatchWithoutValidLabelsChangesNothing) {
  const auto backend = make_host_backend();
  SmallSegmenter with(*backend, small_config()), without(*backend, small_config());
  with.train(0, 2);
  const Parameters before = with.trainer().trained();
  with.train_ignored(2);
  EXPECT_TRUE(same_bits(with.trainer().trained(), before));
  ASSERT_EQ(with.results().size(), 3u);
  EXPECT_EQ(with.results()[2].step, 2u);
  EXPECT_EQ(with.results()[2].valid_count, 0);
  EXPECT_EQ(with.results()[2].loss, 0.0);
  EXPECT_GT(with.results()[1].valid_count, 0);

  // The velocities did not change either: the next steps are those of a run without that batch.
  without.train(0, 2);
  with.train(3, 2);
  without.train(3, 2);
  EXPECT_TRUE(same_bits(with.trainer().trained(), without.trainer().trained()));
  EXPECT_FALSE(same_bits(with.trainer().trained(), before));
}

TEST(Learning, TheFrozenPartStaysAsItIs) {
  const auto backend = make_host_backend();
  SmallSegmenter segmenter(*backend, small_config());
  EXPECT_TRUE(same_bits(segmenter.trainer().frozen(), segmenter.frozen_start()));
  EXPECT_TRUE(same_bits(segmenter.trainer().trained(), segmenter.trained_start()));
  segmenter.train(0, 10);
  EXPECT_TRUE(same_bits(segmenter.trainer().frozen(), segmenter.frozen_start()));
  EXPECT_FALSE(same_bits(segmenter.trainer().trained(), segmenter.trained_start()));
}

TEST(Learning, SharedMemoryChangesNoBit) {
  for (const bool momentum : {true, false}) {
    const auto backend = make_host_backend();
    EngineConfig config = small_config();
    config.momentum = momentum;
    config.scheduler.share_memory = true;
    SmallSegmenter shared(*backend, config);
    config.scheduler.share_memory = false;
    SmallSegmenter apart(*backend, config);
    EXPECT_LT(shared.trainer().scheduler().memory().device_bytes,
              apart.trainer().scheduler().memory().device_bytes);
    shared.train(0, 10);
    apart.train(0, 10);
    EXPECT_EQ(shared.losses(), apart.losses());
    EXPECT_TRUE(same_bits(shared.trainer().trained(), apart.trainer().trained()));
  }
}

}  // namespace
}  // namespace tandem::test
