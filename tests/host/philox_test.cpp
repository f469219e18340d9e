// SPDX-License-Identifier: Apache-2.0
// The generator against the known answers published with Random123, and its numbers against what
// their distributions promise.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <tandem/kernels/philox.hpp>

namespace tandem {
namespace {

struct KnownAnswer {
  PhiloxCounter counter;
  PhiloxKey key;
  std::uint32_t words[4];
};

// Random123, tests/kat_vectors, the three lines "philox4x32 10".
constexpr KnownAnswer kKnownAnswers[] = {
    {{{0, 0, 0, 0}}, {{0, 0}}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
     {{0xffffffff, 0xffffffff}},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
     {{0xa4093822, 0x299f31d0}},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(Philox, KnownAnswers) {
  for (const KnownAnswer& known : kKnownAnswers) {
    const PhiloxWords words = philox4x32_10(known.counter, known.key);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(words.word[i], known.words[i]) << i;
  }
}

TEST(Philox, KeysAndCountersTakeLowerHalvesFirst) {
  const PhiloxKey key = philox_key(0x1111111122222222);
  EXPECT_EQ(key.word[0], 0x22222222u);
  EXPECT_EQ(key.word[1], 0x11111111u);
  const PhiloxCounter counter = philox_counter(0x1111111122222222, 0x3333333344444444);
  EXPECT_EQ(counter.word[0], 0x22222222u);
  EXPECT_EQ(counter.word[1], 0x11111111u);
  EXPECT_EQ(counter.word[2], 0x44444444u);
  EXPECT_EQ(counter.word[3], 0x33333333u);
}

TEST(Philox, UniformNumbersAreExactAndBelowOne) {
  EXPECT_EQ(uniform_float(0), 0.0f);
  EXPECT_EQ(uniform_float(0xff), 0.0f);
  EXPECT_EQ(uniform_float(0x80000000), 0.5f);
  EXPECT_EQ(uniform_float(0xffffffff), std::nextafter(1.0f, 0.0f));
  EXPECT_EQ(uniform_double(0, 0), 0.0);
  EXPECT_EQ(uniform_double(0, 0x800), 0x1p-53);
  EXPECT_EQ(uniform_double(0x80000000, 0), 0.5);
  EXPECT_EQ(uniform_double(0xffffffff, 0xffffffff), std::nextafter(1.0, 0.0));
}

TEST(Philox, NormalPairsAtKnownAngles) {
  // Words 0 and 1 at half: radius sqrt(2 ln 2). A quarter of a turn exchanges the two numbers.
  const double radius = std::sqrt(2 * std::log(2.0));
  const double tolerance = 4 * radius * 0x1p-53;  // log, sqrt, angle and product round once each
  const NormalPair zero = normal_pair({{0x80000000, 0, 0, 0}});
  EXPECT_TRUE(std::fabs(zero.first - radius) <= tolerance) << zero.first;
  EXPECT_EQ(zero.second, 0.0);
  const NormalPair quarter = normal_pair({{0x80000000, 0, 0x40000000, 0}});
  EXPECT_TRUE(std::fabs(quarter.first) <= tolerance) << quarter.first;
  EXPECT_TRUE(std::fabs(quarter.second - radius) <= tolerance) << quarter.second;
}

TEST(Philox, NormalPairsAreFiniteAtBothEnds) {
  for (const std::uint32_t word : {0u, 0xffffffffu}) {
    const NormalPair pair = normal_pair({{word, word, word, word}});
    EXPECT_TRUE(std::isfinite(pair.first));
    EXPECT_TRUE(std::isfinite(pair.second));
  }
}

// A mean of n independent numbers of variance s^2 lies within 5 s / sqrt(n) of its expectation, but
// for one stream in two million; the stream is fixed.
TEST(Philox, MomentsOfOneStream) {
  constexpr int kCount = 100000;
  double uniform = 0, normal = 0, square = 0, fourth = 0, product = 0;
  for (int i = 0; i < kCount; ++i) {
    const PhiloxWords words =
        philox4x32_10(philox_counter(static_cast<std::uint64_t>(i), 0), philox_key(1));
    const NormalPair pair = normal_pair(words);
    uniform += static_cast<double>(uniform_float(words.word[3]));
    normal += pair.first + pair.second;
    square += pair.first * pair.first;
    fourth += std::pow(pair.second, 4);
    product += pair.first * pair.second;
  }
  const double root = std::sqrt(static_cast<double>(kCount));
  const auto within = [&](double sum, double expected, double deviation) {
    return std::fabs(sum / kCount - expected) <= 5 * deviation / root;
  };
  EXPECT_TRUE(within(uniform, 0.5, std::sqrt(1.0 / 12))) << uniform / kCount;
  EXPECT_TRUE(within(normal, 0, std::sqrt(2.0))) << normal / kCount;
  EXPECT_TRUE(within(square, 1, std::sqrt(2.0))) << square / kCount;
  EXPECT_TRUE(within(fourth, 3, std::sqrt(96.0))) << fourth / kCount;
  EXPECT_TRUE(within(product, 0, 1)) << product / kCount;
}

TEST(Philox, EveryWordOfCounterAndKeyMatters) {
  std::set<std::uint32_t> first_words;
  first_words.insert(philox4x32_10({{0, 0, 0, 0}}, {{0, 0}}).word[0]);
  for (int i = 0; i < 4; ++i) {
    PhiloxCounter counter = {{0, 0, 0, 0}};
    counter.word[i] = 1;
    first_words.insert(philox4x32_10(counter, {{0, 0}}).word[0]);
  }
  first_words.insert(philox4x32_10({{0, 0, 0, 0}}, {{1, 0}}).word[0]);
  first_words.insert(philox4x32_10({{0, 0, 0, 0}}, {{0, 1}}).word[0]);
  EXPECT_EQ(first_words.size(), 7u);
}

}  // namespace
}  // namespace tandem
