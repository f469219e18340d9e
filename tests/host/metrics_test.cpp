// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <tandem/engine/metrics.hpp>
#include <tandem/tests/support/files.hpp>

namespace tandem {
namespace {

using namespace testing;

// Four classes, of which 3 occurs nowhere. Worked by hand:
//   truth      0 0 0 0 1 1 1 2 2 ignored
//   prediction 0 0 1 2 1 1 0 1 2 3
//   class 0: both 2, either 2 + 2 + 1 = 5; class 1: both 2, either 3 + 2 = 5; class 2: both 1,
//   either 2 + 1 = 3.
Confusion example() {
  const Bytes truth{0, 0, 0, 0, 1, 1, 1, 2, 2, 255};
  const Bytes prediction{0, 0, 1, 2, 1, 1, 0, 1, 2, 3};
  Confusion confusion(4);
  confusion.add(truth.data(), prediction.data(), 10);
  return confusion;
}

TEST(Confusion, CountsPairsAndSkipsIgnoredPixels) {
  const Confusion confusion = example();
  const std::int64_t expected[4][4] = {{2, 1, 1, 0}, {1, 2, 0, 0}, {0, 1, 1, 0}, {0, 0, 0, 0}};
  for (int t = 0; t < 4; ++t) {
    for (int p = 0; p < 4; ++p) EXPECT_EQ(confusion.count(t, p), expected[t][p]) << t << ' ' << p;
  }
  EXPECT_EQ(confusion.total(), 9);
  EXPECT_EQ(confusion.classes(), 4);
}

TEST(Confusion, ScoresWorkedByHand) {
  const Confusion confusion = example();
  EXPECT_DOUBLE_EQ(confusion.pixel_accuracy(), 5.0 / 9);
  EXPECT_DOUBLE_EQ(confusion.iou(0).value(), 2.0 / 5);
  EXPECT_DOUBLE_EQ(confusion.iou(1).value(), 2.0 / 5);
  EXPECT_DOUBLE_EQ(confusion.iou(2).value(), 1.0 / 3);
  EXPECT_FALSE(confusion.iou(3).has_value());
  EXPECT_DOUBLE_EQ(confusion.mean_iou(), (2.0 / 5 + 2.0 / 5 + 1.0 / 3) / 3);
  EXPECT_DOUBLE_EQ(confusion.mean_iou(1), (2.0 / 5 + 1.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(confusion.mean_iou(3), 0.0);
}

// The pixels have 4, 3 and 2 labels of classes 0, 1, 2: background everywhere is right on 4 of 9.
TEST(Confusion, BackgroundEverywhere) {
  const Confusion background = example().all_background();
  EXPECT_EQ(background.total(), 9);
  EXPECT_DOUBLE_EQ(background.pixel_accuracy(), 4.0 / 9);
  EXPECT_DOUBLE_EQ(background.iou(0).value(), 4.0 / 9);
  EXPECT_DOUBLE_EQ(background.iou(1).value(), 0.0);
  EXPECT_FALSE(background.iou(3).has_value());
  EXPECT_DOUBLE_EQ(background.mean_iou(), (4.0 / 9) / 3);
  EXPECT_DOUBLE_EQ(background.mean_iou(1), 0.0);
}

// A class that is only predicted counts, with 0.
TEST(Confusion, AClassOnlyPredictedCounts) {
  const Bytes truth{0, 0}, prediction{0, 1};
  Confusion confusion(3);
  confusion.add(truth.data(), prediction.data(), 2);
  EXPECT_DOUBLE_EQ(confusion.iou(1).value(), 0.0);
  EXPECT_DOUBLE_EQ(confusion.mean_iou(), 0.25);
}

TEST(Confusion, NothingAtAllScoresZero) {
  const Confusion confusion(2);
  EXPECT_EQ(confusion.total(), 0);
  EXPECT_EQ(confusion.pixel_accuracy(), 0.0);
  EXPECT_EQ(confusion.mean_iou(), 0.0);
  EXPECT_EQ(confusion.all_background().mean_iou(), 0.0);
}

TEST(Confusion, OrderOfAddingIsTheSame) {
  const Bytes truth{0, 1, 2, 1}, prediction{1, 1, 2, 0};
  Confusion together(3), apart(3);
  together.add(truth.data(), prediction.data(), 4);
  for (int i = 3; i >= 0; --i) apart.add(&truth[i], &prediction[i], 1);
  for (int t = 0; t < 3; ++t) {
    for (int p = 0; p < 3; ++p) EXPECT_EQ(together.count(t, p), apart.count(t, p));
  }
}

TEST(Confusion, RefusesWhatIsNoClassAndStaysAsItWas) {
  Confusion confusion = example();
  const Bytes good{0, 1}, bad{0, 4};
  expect_error(ErrorCode::data, {"label 4", "pixel 1", "0 to 3"},
               [&] { confusion.add(bad.data(), good.data(), 2); });
  expect_error(ErrorCode::data, {"prediction 4", "pixel 1", "0 to 3"},
               [&] { confusion.add(good.data(), bad.data(), 2); });
  // 255 is a label only where it is the ignore label.
  const Bytes ignored{255, 255};
  expect_error(ErrorCode::data, {"label 255"},
               [&] { confusion.add(ignored.data(), good.data(), 2, 7); });
  EXPECT_EQ(confusion.total(), 9);
  expect_error(ErrorCode::usage, {"(4, 0)", "0 to 3"}, [&] { confusion.count(4, 0); });
  expect_error(ErrorCode::usage, {"(-1, -1)"}, [&] { confusion.mean_iou(-1); });
  expect_error(ErrorCode::usage, {"0 classes", "1 to 255"}, [] { Confusion(0); });
  expect_error(ErrorCode::usage, {"256 classes"}, [] { Confusion(256); });
}

}  // namespace
}  // namespace tandem
