// SPDX-License-Identifier: Apache-2.0
// Every operation and the oracles against PyTorch's values (tests/golden/ops/make_ops.py).
//
// The bounds are the oracles' own: they hold for the engine against any reference that is computed
// in double with the same number of roundings, and PyTorch's float64 is one.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tandem/tests/support/approx.hpp>
#include <tandem/tests/support/op_cases.hpp>

namespace tandem::test {
namespace {

using nlohmann::json;

const json& golden() {
  static const json file = [] {
    std::ifstream stream(TANDEM_SOURCE_DIR "/tests/golden/ops/ops.json");
    return json::parse(stream);
  }();
  return file;
}

std::vector<json> golden_cases(const std::string& op) {
  std::vector<json> found;
  for (const json& c : golden().at("cases")) {
    if (c.at("op") == op) found.push_back(c);
  }
  return found;
}

/// PyTorch's order (planes) to raster with channels last, for images and weights alike.
Raster from_torch(const json& list, TensorDesc desc, bool in_units) {
  std::vector<double> values;
  for (const json& value : list) {
    values.push_back(in_units ? value.get<double>() / golden().at("unit").get<double>()
                              : value.get<double>());
  }
  EXPECT_EQ(static_cast<std::int64_t>(values.size()), desc.elements());
  desc.dtype = DType::f64;
  desc.layout = Layout::nchw;
  return decode(desc, values.data());
}

/// The registry's result for one written operand against PyTorch's; and the oracle's, in double.
void expect_torch(const OpCase& c, std::size_t operand, const Raster& torch,
                  const std::vector<Expected>& extra = {}) {
  std::vector<Expected> expected = c.expected().at(operand);
  Raster oracle_values;
  ASSERT_EQ(expected.size(), torch.size()) << c.name;
  for (std::size_t i = 0; i < torch.size(); ++i) {
    oracle_values.push_back(expected[i].value);
    expected[i].value = torch[i];
    if (!extra.empty()) expected[i].bound += extra[i].bound;
  }
  const DType type = c.is_result(operand) ? DType::f64 : c.operation.operands[operand].desc.dtype;
  EXPECT_TRUE(all_close(expected, run_case(c).at(operand), type, c.name + " against PyTorch"));
  if (c.type == DType::f64) {
    EXPECT_TRUE(all_close(expected, oracle_values, type, c.name + ": oracle against PyTorch"));
  }
}

struct Kinds {
  OpKind forward, data, weights;
  std::vector<Layout> layouts;
};
const std::map<std::string, Kinds> kConvolutions = {
    {"conv1x1",
     {OpKind::conv1x1_forward,
      OpKind::conv1x1_backward_data,
      OpKind::conv1x1_backward_weights,
      {Layout::nhwc, Layout::zorder}}},
    {"conv2x2",
     {OpKind::conv2x2_forward,
      OpKind::conv2x2_backward_data,
      OpKind::conv2x2_backward_weights,
      {Layout::zorder}}},
    {"tconv2x2",
     {OpKind::tconv2x2_forward,
      OpKind::tconv2x2_backward_data,
      OpKind::tconv2x2_backward_weights,
      {Layout::zorder}}},
    {"conv3x3",
     {OpKind::conv3x3_forward,
      OpKind::conv3x3_backward_data,
      OpKind::conv3x3_backward_weights,
      {Layout::nhwc}}},
};

class Torch : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Ops, Torch, testing::Values(DType::f32, DType::bf16, DType::f64),
                         type_test_name);

TEST_P(Torch, ConvolutionsAndBias) {
  int checked = 0;
  for (const auto& [op, kinds] : kConvolutions) {
    for (const json& torch : golden_cases(op)) {
      for (Layout layout : kinds.layouts) {
        CaseSizes sizes{"torch",       torch.at("n"), torch.at("n"), torch.at("h"),
                        torch.at("w"), torch.at("h"), torch.at("c"), torch.at("k")};
        if (layout == Layout::zorder && sizes.h != sizes.w) continue;
        if (op == "conv2x2") sizes.side /= 2;  // cases are named by the smaller image
        const auto make = [&](OpKind kind) { return make_case(kind, GetParam(), layout, sizes); };
        const auto desc = [](const OpCase& c, std::size_t i) {
          return c.operation.operands[i].desc;
        };

        OpCase forward = make(kinds.forward);
        const Raster x = from_torch(torch.at("x"), desc(forward, 0), true);
        const Raster w = from_torch(torch.at("weight"), desc(forward, 1), true);
        const TensorDesc y_desc = desc(forward, 2);
        const Raster dy = from_torch(torch.at("dy"), y_desc, true);
        forward.values = {x, w, {}};

        // The bias op adds to what the convolution left, which errs by the convolution's bound.
        OpCase bias = make(OpKind::bias_forward);
        for (auto* d : {&bias.operation.operands[1].desc}) *d = y_desc;
        bias.values = {from_torch(torch.at("b"), desc(bias, 0), true), run_case(forward)[2]};
        auto carried = forward.expected()[2];
        if (GetParam() == DType::bf16) {  // the error may also move the sum to another neighbour
          for (Expected& e : carried) e.bound *= 1 + unit_roundoff(DType::bf16);
        }
        expect_torch(bias, 1, from_torch(torch.at("y"), y_desc, false), carried);

        OpCase data = make(kinds.data);
        data.values = {dy, w, {}};
        expect_torch(data, 2, from_torch(torch.at("dx"), desc(data, 2), false));

        OpCase weights = make(kinds.weights);
        weights.values = {x, dy, {}};
        expect_torch(weights, 2, from_torch(torch.at("dweight"), desc(weights, 2), false));

        OpCase bias_gradient = make(OpKind::bias_backward);
        bias_gradient.operation.operands[0].desc = y_desc;
        bias_gradient.values[0] = dy;
        expect_torch(bias_gradient, 1, from_torch(torch.at("db"), desc(bias_gradient, 1), false));
        ++checked;
      }
    }
  }
  EXPECT_EQ(checked, 9);
}

TEST_P(Torch, Relu) {
  for (const json& torch : golden_cases("relu")) {
    const CaseSizes sizes{"torch", torch.at("n"), torch.at("n"), torch.at("h"), torch.at("w"), 1,
                          1,       torch.at("c")};
    OpCase forward = make_case(OpKind::relu_forward, GetParam(), Layout::nhwc, sizes);
    const TensorDesc desc = forward.operation.operands[0].desc;
    forward.values[0] = from_torch(torch.at("x"), desc, true);
    expect_torch(forward, 0, from_torch(torch.at("y"), desc, false));
    OpCase backward = make_case(OpKind::relu_backward, GetParam(), Layout::nhwc, sizes);
    backward.values = {run_case(forward)[0], from_torch(torch.at("dy"), desc, true)};
    expect_torch(backward, 1, from_torch(torch.at("dx"), desc, false));
  }
}

TEST_P(Torch, CrossEntropyWithIgnoredLabels) {
  const auto cases = golden_cases("cross_entropy");
  ASSERT_EQ(cases.size(), 2u);
  for (const json& torch : cases) {
    const CaseSizes sizes{"torch", torch.at("n"), torch.at("n"), torch.at("h"), torch.at("w"), 1,
                          1,       torch.at("k")};
    OpCase c = make_case(OpKind::softmax_cross_entropy, GetParam(), Layout::nhwc, sizes);
    c.operation.ignore_label = torch.at("ignore");
    c.values[0] = from_torch(torch.at("logits"), c.operation.operands[0].desc, true);
    c.values[1] = torch.at("labels").get<Raster>();
    set_count(c.header, torch.at("valid_count"));
    expect_torch(c, 3, from_torch(torch.at("dlogits_of_sum"), c.operation.operands[3].desc, false));
    expect_torch(c, 4,
                 {static_cast<double>(c.header.step), torch.at("valid_count"), torch.at("loss")});
  }
}

TEST_P(Torch, Sigmoid) {
  const auto cases = golden_cases("sigmoid");
  ASSERT_EQ(cases.size(), 2u);
  for (const json& torch : cases) {
    const CaseSizes sizes{"torch", torch.at("n"), torch.at("n"), torch.at("h"), torch.at("w"), 1,
                          1,       torch.at("c")};
    OpCase forward = make_case(OpKind::sigmoid_forward, GetParam(), Layout::nhwc, sizes);
    const TensorDesc desc = forward.operation.operands[0].desc;
    forward.values[0] = from_torch(torch.at("x"), desc, true);
    expect_torch(forward, 1, from_torch(torch.at("y"), desc, false));

    // PyTorch's gradient has its own y in it; ours errs by the forward bound, times |dy (1 - 2y)|
    // and at most the square of the bound times |dy|.
    OpCase backward = make_case(OpKind::sigmoid_backward, GetParam(), Layout::nhwc, sizes);
    const auto y = forward.expected()[1];
    backward.values = {run_case(forward)[1], from_torch(torch.at("dy"), desc, true)};
    std::vector<Expected> carried;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double error = std::abs(backward.values[1][i]) * y[i].bound * (1 + y[i].bound);
      carried.push_back(stored(0, error * (1 + 0x1p-7), GetParam()));
    }
    expect_torch(backward, 1, from_torch(torch.at("dx"), desc, false), carried);
  }
}

TEST_P(Torch, BinaryCrossEntropyWithIgnoredLabels) {
  const auto cases = golden_cases("binary_cross_entropy");
  ASSERT_EQ(cases.size(), 2u);
  for (const json& torch : cases) {
    const CaseSizes sizes{"torch", torch.at("n"), torch.at("n"), torch.at("h"), torch.at("w"), 1,
                          1,       torch.at("k")};
    OpCase c = make_case(OpKind::binary_cross_entropy, GetParam(), Layout::nhwc, sizes);
    c.operation.ignore_label = torch.at("ignore");
    c.values[0] = from_torch(torch.at("logits"), c.operation.operands[0].desc, true);
    c.values[1] = torch.at("labels").get<Raster>();
    set_count(c.header, torch.at("valid_count"));
    const Raster dlogits =
        from_torch(torch.at("dlogits_of_sum"), c.operation.operands[3].desc, false);
    // PyTorch takes the target from the sigmoid, which loses what is smaller than an ulp of 1.
    expect_torch(c, 3, dlogits, std::vector<Expected>(dlogits.size(), {0, 0x1p-52}));
    expect_torch(c, 4,
                 {static_cast<double>(c.header.step), torch.at("valid_count"), torch.at("loss")});
  }
}

TEST(TorchL2, PenaltyIsThatOfTheSumOfSquares) {
  const auto cases = golden_cases("l2_penalty");
  ASSERT_EQ(cases.size(), 1u);
  for (const json& torch : cases) {
    for (const DType type : {DType::f32, DType::f64}) {
      OpCase c = make_case(OpKind::l2_penalty, type, Layout::nhwc, {"torch"});
      const TensorDesc desc{type, Layout::nhwc, torch.at("elements"), 1, 1, 1};
      c.operation.l2 = torch.at("l2");
      c.operation.operands[1].desc = c.operation.operands[2].desc = desc;
      c.values[1] = from_torch(torch.at("weight"), desc, true);
      c.values[2] = from_torch(torch.at("dweight"), desc, true);
      set_count(c.header, torch.at("count"));
      set_result(c, 3, {41, torch.at("count"), torch.at("loss")});
      expect_torch(c, 2, from_torch(torch.at("after"), desc, false));
      expect_torch(c, 3, {41, torch.at("count"), torch.at("penalised")});
    }
  }
}

/// Several optimizer steps. The errors of a step are those of the operation on the values it got,
/// and of the values themselves, carried by the recurrence.
void expect_torch_steps(const json& torch, DType type) {
  const double lr = torch.at("lr"), momentum = torch.at("momentum"),
               decay = torch.at("weight_decay");
  const std::int64_t count = 8;  // gradients are handed over as sums over the batch
  const OpKind kind = momentum == 0 ? OpKind::sgd : OpKind::sgd_momentum;
  OpCase step = make_case(kind, type, Layout::nhwc, {"torch"});
  step.header.learning_rate = torch.at("lr");
  step.header.momentum = torch.at("momentum");
  step.header.weight_decay = torch.at("weight_decay");
  set_count(step.header, count);
  const TensorDesc desc{type, Layout::nhwc, torch.at("elements"), 1, 1, 1};
  for (std::size_t i = 1; i < step.operation.operands.size(); ++i) {
    step.operation.operands[i].desc = desc;
  }
  const std::size_t w = step.operation.operands.size() - 1, v = 2;
  const auto elements = static_cast<std::size_t>(desc.elements());
  step.values[w] = from_torch(torch.at("weight"), desc, true);
  if (kind == OpKind::sgd_momentum) step.values[v].assign(elements, 0);
  std::vector<double> w_error(elements), v_error(elements);
  for (const json& now : torch.at("steps")) {
    step.values[1] = from_torch(now.at("dweight"), desc, true);
    for (double& value : step.values[1]) value *= static_cast<double>(count);
    const auto expected = step.expected();
    const auto after = run_case(step);
    const Raster torch_after = from_torch(now.at("after"), desc, false);
    std::vector<Expected> bounds(elements);
    for (std::size_t i = 0; i < elements; ++i) {
      v_error[i] = momentum * v_error[i] + decay * w_error[i];
      // The operation's bound for w includes its own rounding of v.
      w_error[i] += lr * v_error[i] + expected[w][i].bound;
      if (kind == OpKind::sgd_momentum) {
        v_error[i] += expected[v][i].bound;
        step.values[v][i] = after[v][i];
      }
      bounds[i] = {torch_after[i], w_error[i]};
    }
    step.values[w] = after[w];
    EXPECT_TRUE(all_close(bounds, after[w], type, step.name + " against PyTorch"));
  }
}

TEST(TorchSgd, SeveralStepsWithMomentumAndWeightDecay) {
  const auto cases = golden_cases("sgd");
  ASSERT_EQ(cases.size(), 3u);
  for (const json& torch : cases) {
    expect_torch_steps(torch, DType::f32);
    expect_torch_steps(torch, DType::f64);
  }
}

}  // namespace
}  // namespace tandem::test
