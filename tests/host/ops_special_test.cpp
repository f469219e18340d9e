// SPDX-License-Identifier: Apache-2.0
// Values with a rule of their own: NaN, zeros, ties, ignored labels, a count of 0, huge logits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tandem/tests/support/approx.hpp>
#include <tandem/tests/support/op_cases.hpp>

namespace tandem::test {
namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInfinity = std::numeric_limits<double>::infinity();

/// One row of `values.size()` channels.
OpCase row(OpKind kind, DType type, const Raster& values) {
  const auto channels = static_cast<std::int64_t>(values.size());
  OpCase c = make_case(kind, type, Layout::nhwc, {"row", 1, 1, 1, 1, 1, channels, channels});
  c.values[0] = values;
  return c;
}

class EveryFloat : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(OpsSpecial, EveryFloat,
                         testing::Values(DType::f32, DType::bf16, DType::f64), type_test_name);

TEST_P(EveryFloat, ReluKeepsNanAndZeros) {
  const OpCase c = row(OpKind::relu_forward, GetParam(),
                       {kNan, -kNan, 0.0, -0.0, -1, 1, kInfinity, -kInfinity, -0x1p-120, 0x1p-120});
  const Raster y = run_case(c)[0];
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_TRUE(y[3] == 0 && std::signbit(y[3])) << "-0.0 is not below 0 and stays";
  EXPECT_FALSE(std::signbit(y[4])) << "a negative number becomes +0.0";
  EXPECT_EQ(Raster(y.begin() + 2, y.end()), (Raster{0, 0, 0, 1, kInfinity, 0, 0, 0x1p-120}));
}

TEST_P(EveryFloat, ReluGradientIsZeroAtZeroAndPassesAtNan) {
  OpCase c = row(OpKind::relu_backward, GetParam(), {0.0, -0.0, -1, 1, 0x1p-120, kNan});
  c.values[1] = {5, 5, 5, 5, 5, 5};
  // y <= 0 is false for a NaN: the gradient passes, as the definition says.
  EXPECT_EQ(run_case(c)[1], (Raster{0, 0, 0, 5, 5, 5}));
  c.values[1] = {kNan, kInfinity, 5, kNan, kNan, 5};
  const Raster dy = run_case(c)[1];
  EXPECT_EQ(Raster(dy.begin(), dy.begin() + 3), (Raster{0, 0, 0})) << "selected, not multiplied";
  EXPECT_TRUE(std::isnan(dy[3]));
}

TEST_P(EveryFloat, NanInALogitReachesTheLossAndItsGradient) {
  for (std::size_t position : {0, 1, 2}) {
    for (double label : {0.0, 1.0, 2.0}) {
      OpCase c = row(OpKind::softmax_cross_entropy, GetParam(), {1, 2, 3});
      c.values[0][position] = kNan;
      c.values[1] = {label};
      set_count(c.header, 1);
      const auto after = run_case(c);
      EXPECT_TRUE(std::isnan(after[4][2])) << "NaN at " << position << ", label " << label;
      for (double d : after[3]) EXPECT_TRUE(std::isnan(d));
    }
  }
}

TEST_P(EveryFloat, SigmoidKeepsNanAndSaturatesWithoutOverflow) {
  const OpCase c =
      row(OpKind::sigmoid_forward, GetParam(), {kNan, kInfinity, -kInfinity, 1e4, -1e4, 0.0, -0.0});
  const Raster y = run_case(c)[1];
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(Raster(y.begin() + 1, y.end()), (Raster{1, 0, 1, 0, 0.5, 0.5}));
}

TEST_P(EveryFloat, NanInALogitReachesTheBinaryLossAndItsOwnGradient) {
  for (double label : {0.0, 1.0, 2.0}) {
    OpCase c = row(OpKind::binary_cross_entropy, GetParam(), {1, kNan, 3});
    c.values[1] = {label};
    set_count(c.header, 1);
    const auto after = run_case(c);
    EXPECT_TRUE(std::isnan(after[4][2])) << "label " << label;
    for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(std::isnan(after[3][k]), k == 1);
  }
}

TEST_P(EveryFloat, HugeLogitsOfTheBinaryLossNeitherOverflowNorCancel) {
  OpCase c = row(OpKind::binary_cross_entropy, GetParam(), {1e4, -1e4});
  set_count(c.header, 1);
  c.values[1] = {0};  // both right
  EXPECT_EQ(run_case(c)[3], (Raster{0, 0}));
  EXPECT_EQ(run_case(c)[4][2], 0);
  c.values[1] = {1};  // both wrong; a bf16 case has logits in f32
  EXPECT_EQ(run_case(c)[3], (Raster{0.5, -0.5}));
  EXPECT_EQ(run_case(c)[4][2], 1e4);
  // Where 1 - sigmoid(z) would be 0: the gradient of a class that is nearly right.
  c.values[0] = {60, -60};
  c.values[1] = {0};
  const Raster small = run_case(c)[3];
  const auto bounds = c.expected();
  EXPECT_TRUE(all_close(bounds[3], small, GetParam(), "dlogits"));
  EXPECT_LT(small[0], 0);
  EXPECT_GT(small[1], 0);
}

TEST_P(EveryFloat, BinaryLossOfIgnoredLabelsAndOfLabelsBeyondTheClasses) {
  OpCase c = make_case(OpKind::binary_cross_entropy, GetParam(), Layout::nhwc,
                       {"labels", 1, 1, 1, 3, 1, 1, 2});
  c.values[1] = {255, 1, 255};
  set_count(c.header, 1);
  const auto after = run_case(c);
  const auto bounds = c.expected();
  EXPECT_TRUE(all_close(bounds[3], after[3], GetParam(), "dlogits"));
  EXPECT_TRUE(all_close(bounds[4], after[4], DType::f64, "result"));
  c.values[1] = {0, 2, 1};
  set_count(c.header, 3);
  const auto beyond = run_case(c);
  EXPECT_TRUE(std::isnan(beyond[4][2]));
  for (std::size_t k = 0; k < 6; ++k) EXPECT_EQ(std::isnan(beyond[3][k]), k == 2 || k == 3);
}

TEST(OpsL2, ChangesNothingWithoutALabel) {
  OpCase c = make_case(OpKind::l2_penalty, DType::f32, Layout::nhwc, case_sizes()[0]);
  set_count(c.header, 0);
  set_result(c, 3, {41, 0, 0});
  const auto after = run_case(c);
  EXPECT_EQ(after[2], c.values[2]);
  EXPECT_EQ(after[3], (Raster{41, 0, 0}));
}

TEST(OpsL2, IsTheGradientThatKerasAdds) {  // 0.02 w for l2(0.01), by hand
  OpCase c = make_case(OpKind::l2_penalty, DType::f64, Layout::nhwc, {"one"});
  c.operation.l2 = 0.5f;
  for (const std::size_t i : {1, 2}) c.operation.operands[i].desc = {DType::f64, Layout::nhwc, 2};
  c.values[1] = {3, -1};
  c.values[2] = {8, 8};
  set_count(c.header, 4);
  set_result(c, 3, {41, 4, 0.25});
  const auto after = run_case(c);
  EXPECT_EQ(after[2], (Raster{8 + 4 * 2 * 0.5 * 3, 8 - 4 * 2 * 0.5 * 1}));
  EXPECT_EQ(after[3], (Raster{41, 4, 0.25 + 0.5 * (9 + 1)}));
}

TEST_P(EveryFloat, NanInAnIgnoredPixelDoesNot) {
  OpCase c = row(OpKind::softmax_cross_entropy, GetParam(), {kNan, kNan});
  c.values[1] = {255};
  set_count(c.header, 0);
  const auto after = run_case(c);
  EXPECT_EQ(after[3], (Raster{0, 0}));
  EXPECT_EQ(after[4], (Raster{41, 0, 0}));
}

TEST_P(EveryFloat, HugeLogitsDoNotOverflow) {
  OpCase c = row(OpKind::softmax_cross_entropy, GetParam(), {1e4, -1e4, 1e4, 0});
  set_count(c.header, 1);
  for (double label : {0.0, 1.0}) {
    c.values[1] = {label};
    const auto after = run_case(c);
    const auto bounds = c.expected();
    EXPECT_TRUE(all_close(bounds[3], after[3], GetParam(), "dlogits"));
    EXPECT_TRUE(all_close(bounds[4], after[4], DType::f64, "result"));
    EXPECT_NEAR(after[4][2], (label == 0 ? 0 : 2e4) + std::log(2.0), 1e-2);
  }
  // All classes far below zero, where no exponential is above 0 without subtracting the largest.
  c.values[0] = {-1e4, -1e4, -1e4, -1e4};
  EXPECT_NEAR(run_case(c)[4][2], std::log(4.0), 1e-6);
}

TEST_P(EveryFloat, IgnoredLabelsAreWhateverTheOperationSays) {
  OpCase c = make_case(OpKind::softmax_cross_entropy, GetParam(), Layout::nhwc,
                       {"ignore", 1, 1, 1, 3, 1, 1, 4});
  c.operation.ignore_label = 2;
  c.values[1] = {1, 2, 3};
  set_count(c.header, 2);
  const auto after = run_case(c);
  const auto bounds = c.expected();
  EXPECT_TRUE(all_close(bounds[3], after[3], GetParam(), "dlogits"));
  EXPECT_TRUE(all_close(bounds[4], after[4], DType::f64, "result"));
  EXPECT_EQ(Raster(after[3].begin() + 4, after[3].begin() + 8), (Raster{0, 0, 0, 0}));
  // Sum over classes of softmax - onehot is 0, whatever the logits are.
  double sum = 0, error = 0;
  for (int k = 0; k < 4; ++k) {
    sum += after[3][k];
    error += bounds[3][k].bound;
  }
  EXPECT_TRUE(std::abs(sum) <= error) << sum << " allowed " << error;
}

TEST_P(EveryFloat, ALabelBeyondTheClassesIsNanAndNoWildRead) {
  OpCase c = make_case(OpKind::softmax_cross_entropy, GetParam(), Layout::nhwc,
                       {"beyond", 1, 1, 1, 2, 1, 1, 3});
  c.values[1] = {3, 1};
  set_count(c.header, 2);
  const auto after = run_case(c);
  EXPECT_TRUE(std::isnan(after[4][2]));
  for (std::size_t k = 0; k < 6; ++k) EXPECT_EQ(std::isnan(after[3][k]), k < 3);
}

TEST_P(EveryFloat, TheGradientIsNotDividedByTheCount) {
  OpCase c = row(OpKind::softmax_cross_entropy, GetParam(), {0, 0});
  c.values[1] = {1};
  set_count(c.header, 4);
  const auto after = run_case(c);
  EXPECT_EQ(after[3], (Raster{0.5, -0.5}));
  EXPECT_NEAR(after[4][2], std::log(2.0) / 4, 1e-7) << "the loss is";
}

class Wide : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(OpsSpecial, Wide, testing::Values(DType::f32, DType::f64), type_test_name);

TEST_P(Wide, ArgmaxTakesTheFirstOfEqualValues) {
  const auto argmax = [](const Raster& logits) {
    return run_case(row(OpKind::argmax, GetParam(), logits))[1][0];
  };
  EXPECT_EQ(argmax({1, 3, 3, 2}), 1);
  EXPECT_EQ(argmax({0, 0, 0}), 0);
  EXPECT_EQ(argmax({-0.0, 0.0}), 0) << "equal values";
  EXPECT_EQ(argmax({-3, -2, -1}), 2);
  EXPECT_EQ(argmax({-kInfinity, -kInfinity, 1}), 2);
  EXPECT_EQ(argmax({7}), 0);
  Raster many(254, 0.0);
  many[253] = 1;
  EXPECT_EQ(argmax(many), 253);
}

TEST_P(Wide, ACountOfZeroChangesNoBitOfWeightsAndVelocities) {
  for (OpKind kind : {OpKind::sgd, OpKind::sgd_momentum}) {
    OpCase c = make_case(kind, GetParam(), Layout::nhwc, case_sizes()[0]);
    set_count(c.header, 0);
    c.values[1][0] = kNan;  // not even by 0 * NaN
    c.values[1][1] = kInfinity;
    OpMemory memory(c);
    std::vector<std::vector<std::byte>> before, after;
    for (std::size_t i = 2; i < c.operation.operands.size(); ++i) before.push_back(memory.bytes(i));
    memory.run(host_body(kind));
    for (std::size_t i = 2; i < c.operation.operands.size(); ++i) after.push_back(memory.bytes(i));
    EXPECT_EQ(before, after) << c.name;
  }
}

TEST_P(Wide, EachNumberOfTheHeaderMatters) {
  const auto updated = [](OpKind kind, void (*change)(BatchHeader&)) {
    OpCase c = make_case(kind, GetParam(), Layout::nhwc, case_sizes()[0]);
    change(c.header);
    const auto expected = c.expected();
    const auto after = run_case(c);
    for (std::size_t i = 2; i < after.size(); ++i) {
      EXPECT_TRUE(all_close(expected[i], after[i], GetParam(), c.operation.operands[i].name));
    }
    return after;
  };
  for (OpKind kind : {OpKind::sgd, OpKind::sgd_momentum}) {
    const auto plain = updated(kind, [](BatchHeader&) {});
    EXPECT_NE(updated(kind, [](BatchHeader& h) { set_count(h, h.valid_count + 1); }), plain);
    EXPECT_NE(updated(kind, [](BatchHeader& h) { h.weight_decay = 0; }), plain);
    EXPECT_NE(updated(kind,
                      [](BatchHeader& h) {
                        h.learning_rate *= 2;
                        set_count(h, h.valid_count);
                      }),
              plain);
  }
  EXPECT_NE(updated(OpKind::sgd_momentum, [](BatchHeader& h) { h.momentum = 0; }),
            updated(OpKind::sgd_momentum, [](BatchHeader&) {}));
}

TEST_P(Wide, NanInAGradientReachesTheWeight) {
  for (OpKind kind : {OpKind::sgd, OpKind::sgd_momentum}) {
    OpCase c = make_case(kind, GetParam(), Layout::nhwc, case_sizes()[0]);
    c.values[1][3] = kNan;
    const Raster w = run_case(c).back();
    EXPECT_TRUE(std::isnan(w[3]));
    EXPECT_FALSE(std::isnan(w[2]));
  }
}

/// A NaN in any operand of a layer reaches everything that is summed with it, and nothing else: but
/// a 3x3 window's padding may count as a zero that is multiplied, which NaN makes a NaN.
TEST_P(EveryFloat, NanPassesThroughConvolutionsAndBias) {
  for (OpKind kind :
       {OpKind::conv1x1_forward, OpKind::conv2x2_forward, OpKind::tconv2x2_forward,
        OpKind::conv3x3_forward, OpKind::conv3x3_backward_data, OpKind::conv3x3_backward_weights,
        OpKind::bias_forward, OpKind::bias_backward}) {
    const bool padded = kind >= OpKind::conv3x3_forward && kind <= OpKind::conv3x3_backward_weights;
    const OpCase clean =
        make_case(kind, GetParam(), padded ? Layout::nhwc : Layout::zorder, case_sizes()[0]);
    for (std::size_t operand = 0; operand < clean.values.size(); ++operand) {
      if (!reads(clean.operation.operands[operand].access)) continue;
      OpCase c = clean;
      c.values[operand].back() = kNan;
      const auto expected = c.expected();
      const auto after = run_case(c);
      int reached = 0;
      for (std::size_t i = 0; i < after.size(); ++i) {
        for (std::size_t e = 0; e < after[i].size(); ++e) {
          const bool is_nan = std::isnan(after[i][e]);
          if (std::isnan(expected[i][e].value)) {
            EXPECT_TRUE(is_nan) << c.name;
          } else if (!padded) {
            EXPECT_FALSE(is_nan) << c.name;
          }
          reached += is_nan ? 1 : 0;
        }
      }
      EXPECT_GT(reached, 0) << c.name << ": NaN in " << c.operation.operands[operand].name;
    }
  }
}

}  // namespace
}  // namespace tandem::test
