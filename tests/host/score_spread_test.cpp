// SPDX-License-Identifier: Apache-2.0
// Spread of scores, and whether batch sizes are further apart than seeds.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tandem/engine/score_spread.hpp>

namespace tandem::test {
namespace {

TEST(Spread, OfNoneOfOneAndOfSeveral) {
  EXPECT_FALSE(spread_of({}).has_value());
  const Spread one = *spread_of({0.5});
  EXPECT_EQ(one.mean, 0.5);
  EXPECT_FALSE(one.deviation.has_value());
  const Spread some = *spread_of({0.5, 0.75, 1});
  EXPECT_EQ(some.mean, 0.75);
  EXPECT_EQ(some.min, 0.5);
  EXPECT_EQ(some.max, 1);
  EXPECT_DOUBLE_EQ(*some.deviation, 0.25);
}

TEST(CompareScores, NamesWhatIsFurtherBelowThanTheSeedsAreApart) {
  const std::vector<SizeScores> sizes = {
      {8, {0.90, 0.92, 0.94}, 0}, {16, {0.91, 0.93, 0.95}, 0}, {512, {0.80, 0.82, 0.84}, 0}};
  EXPECT_EQ(compare_scores(sizes, "accuracy").sentence,
            "Batch 16 has the best mean accuracy, 0.9300; below it by more than their seeds are "
            "apart: batch 512.");
  EXPECT_EQ(compare_scores(sizes, "accuracy").below, std::vector<std::int64_t>{512});
  EXPECT_EQ(compare_scores({sizes[0], sizes[1]}, "accuracy").sentence,
            "Batch 16 has the best mean accuracy, 0.9300; no other size is below it by more than "
            "its seeds are apart.");
}

// Deviations of 0.02 and three seeds each: twice the standard error of the difference is 0.03266.
TEST(CompareScores, TheLimitIsTwoStandardErrors) {
  for (const auto& [gap, below] : {std::pair(0.0326, false), {0.0327, true}}) {
    const std::string text =
        compare_scores({{1, {0.90, 0.92, 0.94}, 0}, {2, {0.90 - gap, 0.92 - gap, 0.94 - gap}, 0}},
                       "accuracy")
            .sentence;
    EXPECT_EQ(text.find("apart: batch 2") != std::string::npos, below) << text;
  }
}

TEST(CompareScores, OneSeedSaysLittle) {
  EXPECT_EQ(
      compare_scores({{1, {0.5}, 0}, {2, {0.9}, 0}}, "miou").sentence,
      "Batch 2 has the best mean miou, 0.9000; of one seed a size the spread is not known, so "
      "that says little.");
}

TEST(CompareScores, OneSizeIsComparedWithNothing) {
  EXPECT_EQ(
      compare_scores({{8, {0.25, 0.75}, 1}}, "accuracy").sentence,
      "Batch 8 has a mean accuracy of 0.5000, and there is no other size to compare. Training "
      "diverged at batch 8.");
}

TEST(CompareScores, DivergedTrainingsAreNamed) {
  EXPECT_EQ(
      compare_scores({{1, {}, 2}, {2, {0.9, 0.9}, 0}, {4, {0.8}, 1}}, "accuracy").sentence,
      "Batch 2 has the best mean accuracy, 0.9000; of one seed a size the spread is not known, "
      "so that says little. Training diverged at batch 1, 4.");
  EXPECT_EQ(compare_scores({{1, {}, 2}}, "accuracy").sentence,
            "No size has a score. Training diverged at batch 1.");
}

}  // namespace
}  // namespace tandem::test
