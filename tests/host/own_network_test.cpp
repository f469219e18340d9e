// SPDX-License-Identifier: Apache-2.0
// Networks that end in another layer than the segmenter's head.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/models/parameters.hpp>
#include <tandem/models/trainer.hpp>
#include <vector>

namespace tandem::test {
namespace {

constexpr std::int64_t kImage = 8, kBatch = 2, kClasses = 3;

/// The network under test, up to its last layer.
using Ending = std::function<void(Sequential&)>;

/// Gradients of the first step on pictures and labels that differ from pixel to pixel.
Parameters first_gradients(const Sequential& trained, const Parameters& weights) {
  EngineConfig config;
  config.frozen = Sequential(3).conv(4, 2, 2);
  config.trained = trained;
  config.image = kImage;
  config.batch = kBatch;
  const std::unique_ptr<Backend> backend = make_host_backend();
  Trainer trainer(*backend, config);
  trainer.set_frozen(initialise(config.frozen, InitScheme::he, 1, 0));
  trainer.set_trained(weights);

  const InputSlot slot = trainer.inputs().front();
  const std::int64_t pixels = kBatch * kImage * kImage;
  for (std::int64_t i = 0; i < 3 * pixels; ++i)
    slot.images[i] = static_cast<std::uint8_t>(i * 37 % 251);
  for (std::int64_t i = 0; i < pixels; ++i)
    slot.labels[i] = static_cast<std::uint8_t>(i * i / 5 % kClasses);
  *slot.header = {};
  slot.header->samples = slot.header->capacity = kBatch;
  slot.header->valid_count = pixels;
  finish_header(*slot.header);
  trainer.step(0);
  trainer.finish();
  return trainer.gradients();
}

/// A 3x3 convolution that passes its input on: exactly, since it multiplies by 1 and adds zeros.
Parameters identity_conv3x3(int layer) {
  NamedTensor weight{std::to_string(layer) + ".weight", {kClasses, kClasses, 3, 3}, {}};
  weight.data.assign(kClasses * kClasses * 9, 0.0f);
  for (std::int64_t k = 0; k < kClasses; ++k)
    weight.data[static_cast<std::size_t>((k * kClasses + k) * 9 + 4)] = 1.0f;
  return {weight,
          {std::to_string(layer) + ".bias", {kClasses}, std::vector<float>(kClasses, 0.0f)}};
}

/// The gradients must be, bit for bit, those of the same network with an identity in raster order
/// behind it, where the loss and its gradient need no permutation.
void expect_same_as_with_identity(const Ending& ending) {
  Sequential plain(4);
  ending(plain);
  const Parameters weights = initialise(plain, InitScheme::he, 5, 1);

  Sequential longer(4);
  ending(longer);
  const int layer = static_cast<int>(longer.layers().size());
  longer.conv(kClasses, 3, 1, 1);
  Parameters more = weights;
  for (NamedTensor& tensor : identity_conv3x3(layer)) more.push_back(std::move(tensor));

  const Parameters got = first_gradients(plain, weights);
  const Parameters expected = first_gradients(longer, more);
  ASSERT_EQ(got.size() + 2, expected.size());
  for (std::size_t t = 0; t < got.size(); ++t) {
    double norm = 0;
    for (const float value : got[t].data) norm += std::abs(value);
    EXPECT_GT(norm, 0) << got[t].name;
    EXPECT_EQ(got[t].data, expected[t].data) << got[t].name;
  }
}

TEST(OwnNetwork, EndsInATransposedConvolution) {
  expect_same_as_with_identity([](Sequential& s) { s.transposed_conv(kClasses, 2, 2); });
}

TEST(OwnNetwork, EndsInA1x1Convolution) {
  expect_same_as_with_identity(
      [](Sequential& s) { s.transposed_conv(5, 2, 2).relu().conv(kClasses, 1); });
}

TEST(OwnNetwork, EndsInAReLU) {
  expect_same_as_with_identity([](Sequential& s) { s.transposed_conv(kClasses, 2, 2).relu(); });
}

TEST(OwnNetwork, MayNotReadAnotherLayerThanTheOneBefore) {
  EngineConfig config;
  config.frozen = Sequential(3).conv(4, 2, 2);
  config.trained = Sequential(4).transposed_conv(4, 2, 2).relu().from(0).conv(kClasses, 1);
  config.image = kImage;
  try {
    plan_training(config);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("layer 2 reads layer 0"), std::string::npos)
        << error.what();
  }
}

TEST(OwnNetwork, NothingLiesBeforeTheFirstLayer) {
  try {
    Sequential(3).from(0);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("none before it"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tandem::test
