// SPDX-License-Identifier: Apache-2.0
// Gradients against central differences of the forward operation, all in double.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tandem/tests/support/approx.hpp>
#include <tandem/tests/support/op_cases.hpp>

namespace tandem::test {
namespace {

const CaseSizes kSizes = {"gradient", 3, 3, 3, 4, 2, 3, 5};

OpCase f64_case(OpKind kind, Layout layout) { return make_case(kind, DType::f64, layout, kSizes); }

double dot(const Raster& a, const Raster& b, double (*term)(double, double)) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += term(a[i], b[i]);
  return sum;
}

/// The weighted sum of the forward operation's output, L = sum of dy * y. Its derivative by an
/// operand is what the backward operation must return for dy. L is linear in each operand of these
/// operations (or in pieces wider than the step), so that the difference has no truncation error,
/// and what is left is the rounding of L: each y errs by its own bound, and the sum of `dy.size()`
/// products by gamma(dy.size()) * sum of |dy * y|.
Expected central_difference(OpCase forward, std::size_t operand, std::size_t element,
                            std::size_t output, const Raster& dy, double step) {
  double difference = 0, error = 0;
  const double start = forward.values[operand][element];
  for (double sign : {1.0, -1.0}) {
    forward.values[operand][element] = start + sign * step;
    const Raster y = run_case(forward)[output];
    const auto bounds = forward.expected()[output];
    difference += sign * dot(dy, y, [](double a, double b) { return a * b; });
    error += rounding_tolerance(static_cast<double>(dy.size()), DType::f64) *
             dot(dy, y, [](double a, double b) { return std::abs(a * b); });
    for (std::size_t i = 0; i < y.size(); ++i) error += std::abs(dy[i]) * bounds[i].bound;
  }
  return {difference / (2 * step), error / (2 * step)};
}

/// The backward operation's result beside the central difference of each element of one operand.
testing::AssertionResult is_derivative(const OpCase& forward, std::size_t operand,
                                       std::size_t output, const OpCase& backward, const Raster& dy,
                                       double step) {
  Raster gradient;
  std::vector<Expected> own;
  const auto after = run_case(backward);
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (after[i].empty()) continue;
    gradient = after[i];
    own = backward.expected()[i];
  }
  std::vector<Expected> expected;
  for (std::size_t e = 0; e < forward.values[operand].size(); ++e) {
    expected.push_back(central_difference(forward, operand, e, output, dy, step));
    expected.back().bound += own.at(e).bound;
  }
  return all_close(expected, gradient, DType::f64, backward.name);
}

struct Layer {
  OpKind forward, backward_data, backward_weights;
  Layout layout;
};

class ConvolutionGradient : public testing::TestWithParam<Layer> {};

TEST_P(ConvolutionGradient, IsTheCentralDifference) {
  const Layer layer = GetParam();
  const OpCase forward = f64_case(layer.forward, layer.layout);
  OpCase data = f64_case(layer.backward_data, layer.layout);
  OpCase weights = f64_case(layer.backward_weights, layer.layout);
  const Raster dy = data.values[0];
  data.values[1] = forward.values[1];
  weights.values[0] = forward.values[0];
  weights.values[1] = dy;
  EXPECT_TRUE(is_derivative(forward, 0, 2, data, dy, 0.5));
  EXPECT_TRUE(is_derivative(forward, 1, 2, weights, dy, 0.5));

  OpCase wrong = data;  // the check sees a gradient of other weights
  wrong.values[1][0] += 0x1p-20;
  EXPECT_FALSE(is_derivative(forward, 0, 2, wrong, dy, 0.5));
}

INSTANTIATE_TEST_SUITE_P(
    Ops, ConvolutionGradient,
    testing::Values(Layer{OpKind::conv1x1_forward, OpKind::conv1x1_backward_data,
                          OpKind::conv1x1_backward_weights, Layout::nhwc},
                    Layer{OpKind::conv1x1_forward, OpKind::conv1x1_backward_data,
                          OpKind::conv1x1_backward_weights, Layout::zorder},
                    Layer{OpKind::conv2x2_forward, OpKind::conv2x2_backward_data,
                          OpKind::conv2x2_backward_weights, Layout::zorder},
                    Layer{OpKind::tconv2x2_forward, OpKind::tconv2x2_backward_data,
                          OpKind::tconv2x2_backward_weights, Layout::zorder},
                    Layer{OpKind::conv3x3_forward, OpKind::conv3x3_backward_data,
                          OpKind::conv3x3_backward_weights, Layout::nhwc}),
    [](const testing::TestParamInfo<Layer>& layer) {
      return kind_name(layer.param.forward) + "_" + name_of(layer.param.layout);
    });

TEST(OpsGradient, BiasIsTheCentralDifference) {
  for (Layout layout : {Layout::nhwc, Layout::zorder}) {
    const OpCase forward = f64_case(OpKind::bias_forward, layout);
    const OpCase backward = f64_case(OpKind::bias_backward, layout);
    EXPECT_TRUE(is_derivative(forward, 0, 1, backward, backward.values[0], 0.5));
  }
}

TEST(OpsGradient, ReluIsTheCentralDifferenceAwayFromZero) {
  OpCase forward = f64_case(OpKind::relu_forward, Layout::nhwc);
  for (double& value : forward.values[0]) value += value < 0 ? -0.25 : 0.25;
  OpCase backward = f64_case(OpKind::relu_backward, Layout::nhwc);
  backward.values[0] = run_case(forward)[0];
  EXPECT_TRUE(is_derivative(forward, 0, 0, backward, backward.values[1], 0.125));
}

TEST(OpsGradient, SigmoidIsTheCentralDifference) {
  const OpCase forward = f64_case(OpKind::sigmoid_forward, Layout::nhwc);
  OpCase backward = f64_case(OpKind::sigmoid_backward, Layout::nhwc);
  backward.values[0] = run_case(forward)[1];
  const Raster& dy = backward.values[1];
  const Raster gradient = run_case(backward)[1];
  const auto own = backward.expected()[1];
  const double step = 0x1p-12;
  std::vector<Expected> expected;
  for (std::size_t e = 0; e < gradient.size(); ++e) {
    // y[e] alone depends on x[e]. The third derivative of sigmoid is at most 1/8.
    expected.push_back(central_difference(forward, 0, e, 1, dy, step));
    expected.back().bound += std::abs(dy[e]) * step * step / 6 / 8 + own[e].bound;
    ASSERT_LT(expected.back().bound, 1e-7) << "a bound that lets everything pass";
  }
  EXPECT_TRUE(all_close(expected, gradient, DType::f64, backward.name));
}

// The loss is a polynomial of the second degree in each weight: no truncation error.
TEST(OpsGradient, L2PenaltyIsTheCentralDifference) {
  const OpCase c = f64_case(OpKind::l2_penalty, Layout::nhwc);
  const auto count = static_cast<double>(c.header.valid_count);
  const Raster gradient = run_case(c)[2];
  const auto own = c.expected()[2];
  const double step = 0.5;
  std::vector<Expected> expected;
  for (std::size_t e = 0; e < gradient.size(); ++e) {
    double difference = 0, error = 0;
    for (double sign : {1.0, -1.0}) {
      OpCase moved = c;
      moved.values[1][e] += sign * step;
      difference += sign * run_case(moved)[3][2];
      error += moved.expected()[3][2].bound;
    }
    // Of the mean loss, where the gradient is of the sum over the labels.
    expected.push_back({c.values[2][e] + count * difference / (2 * step),
                        count * error / (2 * step) + own[e].bound});
    ASSERT_LT(expected.back().bound, 1e-9) << "a bound that lets everything pass";
  }
  EXPECT_TRUE(all_close(expected, gradient, DType::f64, c.name));
}

class CrossEntropyGradient : public testing::TestWithParam<OpKind> {};
INSTANTIATE_TEST_SUITE_P(OpsGradient, CrossEntropyGradient,
                         testing::Values(OpKind::softmax_cross_entropy,
                                         OpKind::binary_cross_entropy),
                         [](const testing::TestParamInfo<OpKind>& kind) {
                           return kind_name(kind.param);
                         });

TEST_P(CrossEntropyGradient, IsTheCentralDifference) {
  const OpCase c = f64_case(GetParam(), Layout::nhwc);
  const auto count = static_cast<double>(c.header.valid_count);
  ASSERT_GT(count, 10);
  const Raster gradient = run_case(c)[3];  // of the sum over pixels: not divided by the count
  const auto own = c.expected()[3];
  // The third derivative of either loss by a logit, p (1 - p) (1 - 2p) with p its softmax or
  // sigmoid, is at most 1 / (6 sqrt 3).
  const double step = 0x1p-12;
  const double truncation = step * step / 6 / (6 * std::sqrt(3.0));
  std::vector<Expected> expected;
  for (std::size_t e = 0; e < gradient.size(); ++e) {
    double difference = 0, error = 0;
    for (double sign : {1.0, -1.0}) {
      OpCase moved = c;
      moved.values[0][e] += sign * step;
      difference += sign * run_case(moved)[4][2] * count;
      const Expected loss = moved.expected()[4][2];
      error += (loss.bound + unit_roundoff(DType::f64) * loss.value) * count;
    }
    expected.push_back({difference / (2 * step), truncation + error / (2 * step) + own[e].bound});
    ASSERT_LT(expected.back().bound, 1e-7) << "a bound that lets everything pass";
  }
  EXPECT_TRUE(all_close(expected, gradient, DType::f64, c.name));
}

}  // namespace
}  // namespace tandem::test
