// SPDX-License-Identifier: Apache-2.0
// Whether overlapping pays, from made-up times.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <tandem/engine/overlap.hpp>

namespace tandem::test {
namespace {

/// Milliseconds in, an answer out.
OverlapAnswer judge(double copy, double encode, double train, double serial, double overlapped) {
  return judge_overlap({{{"copy", copy / 1e3}, {"encode", encode / 1e3}, {"train", train / 1e3}},
                        serial / 1e3,
                        overlapped / 1e3});
}

bool says(const OverlapAnswer& answer, const std::string& words) {
  return answer.sentence.find(words) != std::string::npos;
}

TEST(OverlapTimes, BoundAndEfficiency) {
  EXPECT_DOUBLE_EQ(overlap_efficiency({10, 10, 20, 20}), 0);
  EXPECT_DOUBLE_EQ(overlap_efficiency({10, 10, 20, 10}), 1);
  EXPECT_DOUBLE_EQ(overlap_bound({10, 2, 12, 10}), 1.2);
}

TEST(OverlapAnswer, NumbersAreThoseOfTheTimes) {
  const OverlapAnswer answer = judge(1, 4, 5, 10.5, 7);
  EXPECT_DOUBLE_EQ(answer.a, 4e-3);
  EXPECT_DOUBLE_EQ(answer.b, 5e-3);
  EXPECT_DOUBLE_EQ(answer.bound, 2);
  EXPECT_DOUBLE_EQ(answer.speedup, 1.5);
  EXPECT_DOUBLE_EQ(answer.efficiency, 3.5 / 5);
}

TEST(OverlapAnswer, PaysWhereATenthOfTheGainWasHad) {
  const OverlapAnswer good = judge(0.1, 5, 5, 10.1, 6);
  EXPECT_TRUE(good.overlap_is_worth_it());
  EXPECT_TRUE(says(good, "Overlap pays: 1.68 times as fast as serial, at most 2.02."))
      << good.sentence;
  EXPECT_TRUE(judge(0, 5, 5, 11.01, 10).overlap_is_worth_it()) << "1.101 of at most 2";
  EXPECT_FALSE(judge(0, 5, 5, 10.99, 10).overlap_is_worth_it()) << "1.099 of at most 2";
}

// More than the bound allows is a serial trial that something else slowed.
TEST(OverlapAnswer, MoreThanTheBoundAllowsIsUnclear) {
  const OverlapAnswer answer = judge(0.1, 5, 5, 21, 9.0);
  EXPECT_FALSE(answer.overlap_is_worth_it());
  EXPECT_EQ(answer.verdict, OverlapVerdict::unclear);
  EXPECT_TRUE(says(answer, "unclear: 2.33 times as fast as serial, at most 2.02"))
      << answer.sentence;
  EXPECT_TRUE(judge(0.1, 5, 5, 19, 9.0).overlap_is_worth_it()) << "1.04 of the bound";
}

TEST(OverlapAnswer, SerialWhereTheStagesAreUnequal) {
  const OverlapAnswer answer = judge(0.1, 0.2, 10, 10.3, 9);  // however good it looked
  EXPECT_FALSE(answer.overlap_is_worth_it());
  EXPECT_EQ(answer.verdict, OverlapVerdict::nothing);
  EXPECT_TRUE(says(answer, "the stages are unequal, 0.200 ms beside 10.000 ms")) << answer.sentence;
}

TEST(OverlapAnswer, SerialWhereEachStageFillsTheDevice) {
  const OverlapAnswer nothing = judge(0.1, 5, 5, 10, 9.9);
  EXPECT_FALSE(nothing.overlap_is_worth_it());
  EXPECT_EQ(nothing.verdict, OverlapVerdict::nothing);
  EXPECT_TRUE(says(nothing, "Overlap does nothing: 1.01 times")) << nothing.sentence;
  EXPECT_TRUE(says(nothing, "fills the device alone"));
  const OverlapAnswer loses = judge(0.1, 5, 5, 10, 12.5);
  EXPECT_FALSE(loses.overlap_is_worth_it());
  EXPECT_EQ(loses.verdict, OverlapVerdict::hurts);
  EXPECT_TRUE(says(loses, "Overlap loses: 0.80 times as fast as serial, at most 2.02"))
      << loses.sentence;
  EXPECT_LT(loses.efficiency, 0);
}

// Stages of microseconds: the threads or streams that wake each other take longer than they do.
TEST(OverlapAnswer, SerialWhereHandingOverCostsMore) {
  const OverlapAnswer loses = judge(0, 0.004, 0.005, 0.012, 0.031);
  EXPECT_EQ(loses.verdict, OverlapVerdict::hurts);
  EXPECT_TRUE(says(loses,
                   "Overlap loses: 0.39 times as fast as serial, at most 1.80; handing over "
                   "costs more than is hidden, as with small batches: a step takes 0.031 ms, its "
                   "stages alone 0.009 ms in all."))
      << loses.sentence;
  EXPECT_FALSE(says(loses, "fills the device"));
  const OverlapAnswer nothing = judge(0, 0.004, 0.005, 0.031, 0.03);
  EXPECT_EQ(nothing.verdict, OverlapVerdict::nothing);
  EXPECT_TRUE(says(nothing,
                   "Overlap does nothing: 1.03 times as fast as serial, at most 1.80; "
                   "handing over costs more than is hidden"))
      << nothing.sentence;
  // Half as much again as one after the other is where the reason changes.
  EXPECT_TRUE(says(judge(0, 5, 5, 10, 14.9), "the stages slow each other down"));
  EXPECT_TRUE(says(judge(0, 5, 5, 10, 15.1), "handing over costs more than is hidden"));
  // Where it pays, or has nothing to gain, it is no reason.
  EXPECT_TRUE(says(judge(0, 0.004, 0.005, 0.04, 0.03), "Overlap pays"));
  EXPECT_TRUE(says(judge(0, 0.001, 0.1, 0.3, 0.4), "the stages are unequal"));
}

TEST(OverlapAnswer, TimesThatSayNothingAreSerial) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(judge(0, 5, 5, nan, 10).overlap_is_worth_it());
  EXPECT_FALSE(judge(0, 5, 5, 10, nan).overlap_is_worth_it());
  EXPECT_FALSE(judge(0, 5, 5, 10, 0).overlap_is_worth_it());
  EXPECT_FALSE(judge(0, nan, 5, 10, 5).overlap_is_worth_it());
  EXPECT_FALSE(judge(0, 0, 0, 10, 5).overlap_is_worth_it());
  EXPECT_FALSE(judge_overlap({}).overlap_is_worth_it());
  EXPECT_FALSE(judge_overlap({{{"train", 1}}, 2, 1}).overlap_is_worth_it()) << "one stage alone";
}

}  // namespace
}  // namespace tandem::test
