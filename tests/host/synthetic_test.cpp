// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tandem/engine/dataset.hpp>
#include <tandem/tests/support/files.hpp>

namespace tandem {
namespace {

using namespace testing;

struct Sample {
  Bytes picture, labels;
  bool operator==(const Sample& other) const {
    return picture == other.picture && labels == other.labels;
  }
};
Sample sample(const Dataset& data, std::int64_t index) {
  const auto pixels = static_cast<std::size_t>(data.image() * data.image());
  Sample result{Bytes(3 * pixels, 0xaa), Bytes(pixels, 0xaa)};
  data.sample(index, result.picture.data(), result.labels.data());
  return result;
}

TEST(Synthetic, IsAFunctionOfSeedAndIndex) {
  const auto data = make_synthetic(16, 10, 5);
  EXPECT_EQ(data->image(), 16);
  EXPECT_EQ(data->classes(), 10);
  EXPECT_EQ(data->epoch_size(), 10'000);
  const Sample third = sample(*data, 3);
  sample(*data, 9);
  EXPECT_EQ(sample(*data, 3), third);
  EXPECT_EQ(sample(*make_synthetic(16, 10, 5), 3), third);
  for (const Sample& other :
       {sample(*data, 4), sample(*data, 3 + (1LL << 32)), sample(*make_synthetic(16, 10, 6), 3),
        sample(*make_synthetic(16, 10, 5 + (1ULL << 32)), 3)}) {
    EXPECT_NE(other.picture, third.picture);
    EXPECT_NE(other.labels, third.labels);
  }
}

/// Pearson's statistic of counts that should be equal.
double chi_square(const std::vector<std::int64_t>& counts) {
  double total = 0, result = 0;
  for (const std::int64_t count : counts) total += static_cast<double>(count);
  const double expected = total / static_cast<double>(counts.size());
  for (const std::int64_t count : counts) {
    const double difference = static_cast<double>(count) - expected;
    result += difference * difference / expected;
  }
  return result;
}

// With k - 1 degrees of freedom the statistic has mean k - 1 and variance 2 (k - 1): six standard
// deviations above it is far beyond chance, and the seed is fixed.
TEST(Synthetic, BytesAndClassesAreUniform) {
  for (const std::int64_t classes : {2, 10, 11, 255}) {
    const auto data = make_synthetic(64, classes, 1);
    std::vector<std::int64_t> bytes(256), labels(256), parity(2);
    for (int i = 0; i < 40; ++i) {
      const Sample s = sample(*data, i);
      for (const std::uint8_t byte : s.picture) ++bytes[byte], ++parity[byte % 2];
      for (const std::uint8_t label : s.labels) ++labels[label];
    }
    for (std::int64_t c = classes; c < 256; ++c) ASSERT_EQ(labels[c], 0);
    labels.resize(classes);
    for (const auto& counts : {bytes, labels, parity}) {
      const double freedom = static_cast<double>(counts.size()) - 1;
      EXPECT_LT(chi_square(counts), freedom + 6 * std::sqrt(2 * freedom)) << classes;
    }
  }
}

// Sides whose pictures do not fill the last draw.
TEST(Synthetic, OddSidesAreWrittenToTheEndAndNoFurther) {
  for (const std::int64_t side : {9, 11, 13}) {
    const auto data = make_synthetic(side, 3, 1);
    const auto pixels = static_cast<std::size_t>(side * side);
    Bytes picture(3 * pixels + 16, 0xaa), labels(pixels + 16, 0xaa);
    std::set<std::uint8_t> last;
    for (int i = 0; i < 20; ++i) {
      data->sample(i, picture.data(), labels.data());
      last.insert(picture[3 * pixels - 1]);
      EXPECT_LT(labels[pixels - 1], 3);
    }
    EXPECT_GT(last.size(), 5u);
    for (std::size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(picture[3 * pixels + i], 0xaa);
      EXPECT_EQ(labels[pixels + i], 0xaa);
    }
  }
}

// One label a picture: the same pictures, and the label is as even as those of pixels.
TEST(SyntheticClasses, HaveOneUniformLabelAPicture) {
  const auto data = make_synthetic_classes(8, 10, 5);
  const auto pictures = make_synthetic(8, 10, 5);
  EXPECT_EQ(data->label_count(), 1);
  EXPECT_EQ(pictures->label_count(), 64);
  EXPECT_EQ(data->image(), 8);
  EXPECT_EQ(data->classes(), 10);
  EXPECT_EQ(data->epoch_size(), 10'000);
  std::vector<std::int64_t> counts(10);
  for (int i = 0; i < 10'000; ++i) {
    Bytes picture(3 * 64, 0xaa), labels(2, 0xaa);
    data->sample(i, picture.data(), labels.data());
    ASSERT_LT(labels[0], 10);
    ASSERT_EQ(labels[1], 0xaa);
    ++counts[labels[0]];
    EXPECT_EQ(data->record(i), i);
    if (i < 10) {
      EXPECT_EQ(picture, sample(*pictures, i).picture);
    }
  }
  EXPECT_LT(chi_square(counts), 9 + 6 * std::sqrt(2 * 9.0));
  expect_error(ErrorCode::usage, {"image side 7", "8 to 4096"},
               [] { make_synthetic_classes(7, 10, 0); });
  expect_error(ErrorCode::usage, {"256 classes", "2 to 255"},
               [] { make_synthetic_classes(32, 256, 0); });
}

TEST(Synthetic, RefusesSizesOutOfRange) {
  expect_error(ErrorCode::usage, {"image side 7", "8 to 4096"}, [] { make_synthetic(7, 10, 0); });
  expect_error(ErrorCode::usage, {"image side 4097"}, [] { make_synthetic(4097, 10, 0); });
  expect_error(ErrorCode::usage, {"1 classes", "2 to 255"}, [] { make_synthetic(32, 1, 0); });
  expect_error(ErrorCode::usage, {"256 classes"}, [] { make_synthetic(32, 256, 0); });
  expect_error(ErrorCode::usage, {"sample index -1"}, [] { sample(*make_synthetic(8, 2, 0), -1); });
}

}  // namespace
}  // namespace tandem
