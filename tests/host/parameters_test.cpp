// SPDX-License-Identifier: Apache-2.0
// Initial weights: a function of (seed, stream, tensor, element), whatever draws them.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tandem/engine/error.hpp>
#include <tandem/kernels/philox.hpp>
#include <tandem/models/parameters.hpp>

namespace tandem {
namespace {

// Large enough that several threads share it, with an odd number of elements.
TEST(Parameters, EachElementComesFromItsOwnDraw) {
  Sequential model(1025);
  model.conv(1023, 1);
  const std::uint64_t seed = 7, stream = 1;
  for (const InitScheme scheme : {InitScheme::he, InitScheme::torch}) {
    const std::vector<float> weights = initialise(model, scheme, seed, stream).front().data;
    ASSERT_EQ(weights.size(), 1025u * 1023u);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const PhiloxWords w = philox4x32_10(philox_counter(i / 2, stream << 32), philox_key(seed));
      double expected;
      if (scheme == InitScheme::he) {
        const double u = 1 - uniform_double(w.word[0], w.word[1]);
        const double angle = 2 * std::acos(-1.0) * uniform_double(w.word[2], w.word[3]);
        expected = std::sqrt(2 / 1025.0) * std::sqrt(-2 * std::log(u)) *
                   (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
      } else {
        const std::size_t word = i % 2 == 0 ? 0 : 2;
        expected = (2 * uniform_double(w.word[word], w.word[word + 1]) - 1) / std::sqrt(1025.0);
      }
      // Both are rounded to float once; a double's rounding may move the tie.
      ASSERT_LE(std::abs(static_cast<double>(weights[i]) - expected),
                std::abs(expected) * 0x1p-23 + 0x1p-60)
          << "element " << i;
    }
  }
}

TEST(Parameters, AnotherNumberOfValuesIsRefused) {
  const Sequential model = Sequential(3).conv(2, 2, 2);
  const ParameterSpec spec = model.parameters().front();
  for (const std::size_t wrong : {0, 23, 25}) {
    const std::vector<float> values(wrong);
    for (const auto order : {to_channels_last, from_channels_last}) {
      try {
        order(spec, values);
        ADD_FAILURE() << wrong << " values are taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::data);
        EXPECT_EQ(error.what(), spec.name + ": " + std::to_string(wrong) +
                                    " values; a tensor of shape [2, 3, 2, 2] has 24");
      }
    }
  }
}

// Whole numbers up to 256 have a bf16 of the same value.
TEST(Parameters, ABf16CopyKeepsTheOrderWhateverThreadsShareIt) {
  std::vector<float> values((1 << 20) + 3);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i * 40503u % 513u) - 256);
  const std::vector<bf16> copy = to_bf16(values);
  ASSERT_EQ(copy.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(static_cast<float>(copy[i]), values[i]) << "element " << i;
  // 1 + 3/256 lies halfway between 1 + 2/256 and 1 + 4/256, whose last bit is 0.
  EXPECT_EQ(static_cast<float>(to_bf16({1.01171875f}).front()), 1.015625f);
}

}  // namespace
}  // namespace tandem
