// SPDX-License-Identifier: Apache-2.0
// What check_operation refuses, and that its message names the operation and the operand.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <tandem/engine/error.hpp>
#include <tandem/engine/registry.hpp>
#include <tandem/kernels/augment.hpp>
#include <tandem/kernels/sgd.hpp>
#include <tandem/tests/support/op_cases.hpp>

namespace tandem::test {
namespace {

/// Refused as a usage error whose one line names the operation, and `operand` if it is not empty.
testing::AssertionResult refused(const Operation& op, const std::string& operand = {}) {
  try {
    check_operation(op);
  } catch (const Error& error) {
    const std::string text = error.what();
    if (error.code() != ErrorCode::usage) {
      return testing::AssertionFailure() << "not a usage error: " << text;
    }
    if (text.find(op.name) == std::string::npos) {
      return testing::AssertionFailure() << "does not name " << op.name << ": " << text;
    }
    if (!operand.empty()) {
      // The operand by its name in the registry's table, as a word before the list of all operands,
      // and what it should be.
      const std::size_t named = text.find(": " + operand + " "), list = text.find(" (operands:");
      const std::size_t required = text.find(", required ");
      if (!(named < required && required < list)) {
        return testing::AssertionFailure()
               << "does not say what is required of " << operand << ": " << text;
      }
    }
    if (text.find('\n') != std::string::npos) {
      return testing::AssertionFailure() << "more than one line: " << text;
    }
    return testing::AssertionSuccess();
  }
  auto result = testing::AssertionFailure() << "accepted " << op.name << ":";
  for (const Operand& o : op.operands) result << " " << o.name << " " << to_string(o.desc);
  return result;
}

/// Every pair of operands of every kind on one buffer: allowed only where both are read.
TEST(OpAliases, AWrittenBufferIsOneOperandOfItsOperation) {
  int pairs = 0, allowed = 0;
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    for (const OpCase& op_case : op_cases(static_cast<OpKind>(kind))) {
      if (op_case.sizes.name != std::string("odd")) continue;
      Operation op = op_case.operation;
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        op.operands[i].buffer = static_cast<BufferId>(i);
      EXPECT_NO_THROW(check_operation(op)) << op_case.name;
      for (std::size_t i = 0; i < op.operands.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          Operation aliased = op;
          aliased.operands[i].buffer = aliased.operands[j].buffer;
          ++pairs;
          if (!writes(op.operands[i].access) && !writes(op.operands[j].access)) {
            ++allowed;
            EXPECT_NO_THROW(check_operation(aliased)) << op_case.name << ' ' << j << ' ' << i;
            continue;
          }
          EXPECT_TRUE(refused(aliased)) << j << ' ' << i;
          EXPECT_THROW(check_aliases(aliased), Error) << op_case.name;
          aliased.kind = OpKind::callable;  // what its function makes of them is its author's
          EXPECT_NO_THROW(check_aliases(aliased)) << op_case.name;
        }
      }
    }
  }
  EXPECT_GT(allowed, 10);
  EXPECT_GT(pairs - allowed, 10);
}

TEST(OpAliases, AreNamed) {
  Operation op = op_cases(OpKind::sgd).front().operation;
  op.operands[1].buffer = op.operands[2].buffer = 7;
  try {
    check_operation(op);
    FAIL() << "dw and w are one buffer";
  } catch (const Error& error) {
    EXPECT_NE(
        std::string(error.what()).find("operands 1 (dw) and 2 (w) are the same buffer, number 7"),
        std::string::npos)
        << error.what();
  }
}

Layout layout_of(OpKind kind) {
  switch (kind) {
    case OpKind::conv2x2_forward:
    case OpKind::conv2x2_backward_data:
    case OpKind::conv2x2_backward_weights:
    case OpKind::tconv2x2_forward:
    case OpKind::tconv2x2_backward_data:
    case OpKind::tconv2x2_backward_weights:
    case OpKind::conv2x2_update:
    case OpKind::tconv2x2_update:
      return Layout::zorder;
    default:
      return Layout::nhwc;
  }
}

Operation good(OpKind kind, Layout layout) {
  const Layout to = kind == OpKind::permute && layout == Layout::nhwc ? Layout::nchw : layout;
  return make_case(kind, DType::f32, layout, case_sizes()[0], to).operation;
}
Operation good(OpKind kind) { return good(kind, layout_of(kind)); }

class EveryCheck : public testing::TestWithParam<int> {
 protected:
  OpKind kind() const { return static_cast<OpKind>(GetParam()); }
};
/// sgd_many has as many operands as there are tensors; see SgdMany below.
std::vector<int> kinds_with_fixed_operands() {
  std::vector<int> kinds = kinds_with_cases();
  kinds.erase(std::find(kinds.begin(), kinds.end(), static_cast<int>(OpKind::sgd_many)));
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Ops, EveryCheck, testing::ValuesIn(kinds_with_fixed_operands()),
                         kind_test_name);

TEST_P(EveryCheck, AcceptsAllCases) {
  for (const OpCase& c : op_cases(kind())) EXPECT_NO_THROW(check_operation(c.operation)) << c.name;
  EXPECT_FALSE(refused(good(kind())));
}

TEST_P(EveryCheck, RefusesAnotherNumberOfOperands) {
  Operation op = good(kind());
  op.operands.pop_back();
  EXPECT_TRUE(refused(op));
  op.operands.clear();
  EXPECT_TRUE(refused(op));
  op = good(kind());
  op.operands.push_back(op.operands.back());
  EXPECT_TRUE(refused(op));
}

TEST_P(EveryCheck, RefusesAnotherAccess) {
  for (std::size_t i = 0; i < good(kind()).operands.size(); ++i) {
    for (Access access : {Access::read, Access::write, Access::read_write}) {
      Operation op = good(kind());
      if (op.operands[i].access == access) continue;
      op.operands[i].access = access;
      EXPECT_TRUE(refused(op, op.operands[i].name)) << static_cast<int>(access);
    }
  }
}

/// Operands that stand alone in some dimension, so that another size there is as good.
bool is_free(OpKind kind, std::size_t operand, char dimension) {
  switch (kind) {
    case OpKind::relu_forward:
      return true;
    case OpKind::argmax:
      return operand == 0 && dimension == 'c';
    case OpKind::bias_forward:
    case OpKind::bias_relu_forward:
      return operand == 1 && dimension != 'c';
    case OpKind::bias_backward:
      return operand == 0 && dimension != 'c';
    default:
      return false;
  }
}

TEST_P(EveryCheck, RefusesOneOperandOfAnotherSize) {
  for (std::size_t i = 0; i < good(kind()).operands.size(); ++i) {
    for (char dimension : {'n', 'h', 'w', 'c'}) {
      for (std::int64_t change : {-1, 1}) {
        Operation op = good(kind());
        TensorDesc& desc = op.operands[i].desc;
        if (desc.layout == Layout::flat && dimension != 'c') continue;  // headers and results
        if (is_free(kind(), i, dimension)) continue;
        std::int64_t& size = dimension == 'n'   ? desc.n
                             : dimension == 'h' ? desc.h
                             : dimension == 'w' ? desc.w
                                                : desc.c;
        if (desc.layout == Layout::flat) {
          desc = byte_desc(8);
        } else {
          size += change;
        }
        EXPECT_TRUE(refused(op)) << op.operands[i].name << " " << dimension << " by " << change;
      }
    }
  }
}

TEST_P(EveryCheck, RefusesAnotherType) {
  for (std::size_t i = 0; i < good(kind()).operands.size(); ++i) {
    for (DType type : {DType::u8, DType::f32, DType::f64}) {
      Operation op = good(kind());
      TensorDesc& desc = op.operands[i].desc;
      if (desc.dtype == type || desc.layout == Layout::flat) continue;
      const bool one_float = kind() == OpKind::relu_forward || kind() == OpKind::argmax ||
                             kind() == OpKind::u8_to_float || kind() == OpKind::augment;
      if (one_float && type == DType::f64 && desc.dtype == DType::f32) continue;  // T = f64
      desc.dtype = type;
      EXPECT_TRUE(refused(op)) << op.operands[i].name << " as " << name_of(type);
    }
  }
}

TEST_P(EveryCheck, RefusesBytesForNumbers) {
  Operation op = good(kind());
  for (Operand& o : op.operands) o.desc.dtype = DType::u8;
  const auto types = storage_types(kind());
  const bool moves_bytes = std::count(types.begin(), types.end(), DType::u8) > 0;
  EXPECT_EQ(static_cast<bool>(refused(op)), !moves_bytes);
}

TEST_P(EveryCheck, TakesItsWorkspaceAsTheLastOperand) {
  Operation op = good(kind());
  const std::size_t bytes = op_info(kind()).workspace(op);
  const auto with = [&](std::size_t size, Access access, bool workspace) {
    Operation appended = op;
    appended.operands.push_back({99, byte_desc(size), access, "scratch", workspace});
    return appended;
  };
  if (bytes == 0) {
    EXPECT_TRUE(refused(with(64, Access::write, false)));
    return;
  }
  EXPECT_NO_THROW(check_operation(with(bytes, Access::write, true)));
  EXPECT_EQ(op_info(kind()).workspace(with(bytes, Access::write, true)), bytes);
  EXPECT_TRUE(refused(with(bytes - 1, Access::write, true)));
  EXPECT_TRUE(refused(with(bytes, Access::read, true)));
  EXPECT_TRUE(refused(with(bytes, Access::write, false)));
}

TEST_P(EveryCheck, RefusesAnEmptyTensor) {
  for (std::int64_t bad : {0, -1}) {
    Operation op = good(kind());
    std::int64_t batch = 0;
    for (Operand& o : op.operands) batch = std::max(batch, o.desc.n);
    for (Operand& o : op.operands) {
      if (o.desc.n == batch) o.desc.n = bad;
    }
    EXPECT_TRUE(refused(op)) << "n " << bad;
  }
}

TEST(WeightUpdate, HasACopyOnlyInBf16AndOfTheWeights) {
  for (const OpKind kind :
       {OpKind::conv1x1_update, OpKind::conv2x2_update, OpKind::tconv2x2_update}) {
    const auto with_copy = [&](DType type, auto change) {
      Operation op =
          make_case(kind, type, layout_of(kind), case_sizes()[0], layout_of(kind)).operation;
      if (type != DType::bf16) {
        op.operands.push_back(op.operands[3]);
        op.operands[4].access = Access::write;
        op.operands[4].buffer = 4;
        op.operands[4].desc.dtype = DType::bf16;
      }
      change(op.operands[4].desc);
      return op;
    };
    EXPECT_FALSE(refused(with_copy(DType::bf16, [](TensorDesc&) {})));
    EXPECT_TRUE(refused(with_copy(DType::f32, [](TensorDesc&) {}), "x"));
    EXPECT_TRUE(
        refused(with_copy(DType::bf16, [](TensorDesc& d) { d.dtype = DType::f32; }), "copy"));
    EXPECT_TRUE(refused(with_copy(DType::bf16, [](TensorDesc& d) { ++d.n; }), "copy"));
    EXPECT_TRUE(
        refused(with_copy(DType::bf16, [](TensorDesc& d) { d.layout = Layout::nchw; }), "copy"));
  }
}

// The sums of a bias's gradient go into a lane's 64 MiB: one double for each channel and, of an odd
// number of channels, for each place in a pack of 16 bytes.
TEST(BiasBackward, TakesAsManyChannelsAsALaneHasMemoryFor) {
  struct Case {
    DType type;
    std::int64_t channels;
    bool taken;
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 23;
  for (const Case& c :
       {Case{DType::f32, kMost, true}, Case{DType::f32, kMost + 4, false},
        Case{DType::bf16, kMost, true}, Case{DType::bf16, kMost + 8, false},
        Case{DType::f32, kMost / 4 - 1, true}, Case{DType::f32, kMost / 4 + 1, false},
        Case{DType::bf16, kMost / 8 + 1, false}}) {
    const TensorDesc dy{c.type, Layout::nhwc, 2, 1, 8, c.channels};
    const TensorDesc db{DType::f32, Layout::nhwc, 1, 1, 1, c.channels};
    Operation op;
    op.kind = OpKind::bias_backward;
    op.name = "tested";
    op.operands = {{0, dy, Access::read, "dy"}, {1, db, Access::write, "db"}};
    EXPECT_EQ(static_cast<bool>(refused(op, "dy")), !c.taken) << to_string(dy);
    op.kind = OpKind::relu_bias_backward;
    op.operands = {{0, dy, Access::read, "y"},
                   {1, dy, Access::read_write, "dy"},
                   {2, db, Access::write, "db"}};
    EXPECT_EQ(static_cast<bool>(refused(op, "dy")), !c.taken) << to_string(dy);
  }
}

TEST(SgdMany, RefusesWhatIsNoListOfTensors) {
  const Operation all = good(OpKind::sgd_many);  // header, dw v w copy, dw w
  EXPECT_FALSE(refused(all));
  const auto without = [&](std::initializer_list<std::size_t> operands) {
    Operation op = all;
    op.operands.clear();
    for (std::size_t i = 0; i < all.operands.size(); ++i)
      if (std::find(operands.begin(), operands.end(), i) == operands.end())
        op.operands.push_back(all.operands[i]);
    return op;
  };
  // What may be left out: a copy, a velocity, a tensor.
  EXPECT_FALSE(refused(without({4})));
  EXPECT_FALSE(refused(without({2})));
  EXPECT_FALSE(refused(without({1, 2, 3, 4})));
  EXPECT_TRUE(refused(without({0}))) << "no header";
  EXPECT_TRUE(refused(without({1}))) << "no gradient";
  EXPECT_TRUE(refused(without({2, 3}))) << "no weight";
  EXPECT_TRUE(refused(without({6})));
  EXPECT_TRUE(refused(without({1, 2, 3, 4, 5, 6}))) << "no tensor";
  EXPECT_TRUE(refused(without({0, 1, 2, 3, 4, 5, 6})));
  for (std::size_t i = 0; i < all.operands.size(); ++i) {
    Operation op = all;
    op.operands[i].access = Access::write;
    EXPECT_EQ(static_cast<bool>(refused(op)), all.operands[i].access != Access::write) << i;
    if (i == 0) continue;
    for (const std::int64_t size : {std::int64_t{0}, op.operands[i].desc.n + 1}) {
      op = all;
      op.operands[i].desc.n = size;
      EXPECT_TRUE(refused(op)) << i << " with n " << size;
    }
    for (const DType type : {DType::u8, DType::bf16, DType::f32, DType::f64}) {
      op = all;
      if (op.operands[i].desc.dtype == type) continue;
      op.operands[i].desc.dtype = type;
      EXPECT_TRUE(refused(op)) << i << " as " << name_of(type);
    }
  }
  Operation op = all;
  op.operands[0].desc = byte_desc(8);
  EXPECT_TRUE(refused(op));
  op = without({2, 4});
  while (op.operands.size() < 1 + 2 * (kMaxSgdTensors + 1) && op.operands.size() < kMaxOperands + 1)
    op.operands.insert(op.operands.end(), {all.operands[5], all.operands[6]});
  EXPECT_TRUE(refused(op)) << "too many";
}

TEST(Head, RefusesOtherShapesTypesAndLayouts) {
  const TensorDesc x{DType::bf16, Layout::zorder, 2, 32, 32, 16},
      w{DType::bf16, Layout::nhwc, 10, 3, 3, 16};
  const TensorDesc b{DType::f32, Layout::flat, 1, 1, 1, 10},
      labels{DType::u8, Layout::nhwc, 2, 32, 32, 1};
  TensorDesc dw = w;
  dw.dtype = DType::f32;
  const auto operation = [](OpKind kind, std::vector<std::pair<TensorDesc, Access>> operands) {
    Operation op;
    op.kind = kind;
    op.name = "tested.head";
    for (const auto& [d, access] : operands)
      op.operands.push_back({static_cast<BufferId>(op.operands.size()), d, access, "o", false});
    return op;
  };
  const Access r = Access::read, written = Access::write;
  const Operation forward =
      operation(OpKind::conv3x3_loss, {{x, r},
                                       {w, r},
                                       {b, r},
                                       {labels, r},
                                       {byte_desc(batch_header_bytes(2)), r},
                                       {x, written},
                                       {b, written},
                                       {byte_desc(sizeof(StepResult)), written}});
  const Operation backward = operation(OpKind::conv3x3_loss_backward,
                                       {{x, r}, {x, r}, {w, r}, {x, written}, {dw, written}});
  for (const Operation& good : {forward, backward}) {
    EXPECT_NO_THROW(check_operation(good));
    for (std::size_t i = 0; i < good.operands.size(); ++i) {
      const bool flat = good.operands[i].desc.dtype == DType::u8 &&
                        good.operands[i].desc.layout == Layout::flat;  // a header or a result
      Operation op = good;
      if (flat) {
        op.operands[i].desc = byte_desc(8);
        EXPECT_TRUE(refused(op)) << i;
        continue;
      }
      ++op.operands[i].desc.c;
      EXPECT_TRUE(refused(op)) << i << " c";
      op = good;
      ++op.operands[i].desc.n;
      EXPECT_TRUE(refused(op)) << i << " n";
      op = good;
      op.operands[i].desc.dtype = DType::f64;
      EXPECT_TRUE(refused(op)) << i << " type";
    }
    // All alike, but not what the kernels take.
    for (const std::int64_t side : {16, 48}) {
      Operation op = good;
      for (Operand& o : op.operands)
        if (o.desc.h == 32) o.desc.h = o.desc.w = side;
      EXPECT_TRUE(refused(op)) << side;
    }
    for (const std::int64_t classes : {1, 17}) {
      Operation op = good;
      for (Operand& o : op.operands) {
        if (o.desc.n == 10) o.desc.n = classes;
        if (o.desc.c == 10) o.desc.c = classes;
      }
      EXPECT_TRUE(refused(op)) << classes;
    }
    Operation op = good;
    for (Operand& o : op.operands)
      if (o.desc.layout == Layout::zorder) o.desc.layout = Layout::nhwc;
    EXPECT_TRUE(refused(op));
  }
}

// Layouts.

TEST(OpsCheck, TwoByTwoLayersAndMixedLayersNeedTheirLayout) {
  const auto with_layout = [](OpKind kind, std::size_t operand, Layout layout) {
    Operation op = good(kind, layout_of(kind));
    op.operands[operand].desc.layout = layout;
    return op;
  };
  using Images = std::vector<std::pair<OpKind, std::vector<std::size_t>>>;
  const Images z_order_only = {
      {OpKind::conv2x2_forward, {0, 2}},          {OpKind::conv2x2_backward_data, {0, 2}},
      {OpKind::tconv2x2_forward, {0, 2}},         {OpKind::tconv2x2_backward_data, {0, 2}},
      {OpKind::conv2x2_backward_weights, {0, 1}}, {OpKind::tconv2x2_backward_weights, {0, 1}},
      {OpKind::conv2x2_update, {1, 2}},           {OpKind::tconv2x2_update, {1, 2}}};
  for (const auto& [kind, images] : z_order_only) {
    for (std::size_t i : images) {
      for (Layout layout : {Layout::nhwc, Layout::nchw, Layout::flat}) {
        const Operation op = with_layout(kind, i, layout);
        EXPECT_TRUE(refused(op, op.operands[i].name)) << name_of(layout);
      }
    }
  }
  const Images raster_only = {{OpKind::conv3x3_forward, {0, 2}},
                              {OpKind::conv3x3_backward_data, {0, 2}},
                              {OpKind::conv3x3_backward_weights, {0, 1}},
                              {OpKind::softmax_cross_entropy, {0, 1, 3}},
                              {OpKind::binary_cross_entropy, {0, 1, 3}},
                              {OpKind::argmax, {0, 1}},
                              {OpKind::u8_to_float, {0}}};
  for (const auto& [kind, images] : raster_only) {
    for (std::size_t i : images) {
      for (Layout layout : {Layout::zorder, Layout::nchw, Layout::flat}) {
        Operation op = with_layout(kind, i, layout);
        for (Operand& o : op.operands) {  // a shape that Z-order would allow
          if (o.desc.h == 5 && o.desc.w == 7) o.desc.h = o.desc.w = 4;
        }
        EXPECT_TRUE(refused(op, op.operands[i].name)) << name_of(layout);
      }
    }
  }
  // Where both layouts are allowed, the two images must agree, and planes are none of the two.
  const Images same_layout = {
      {OpKind::conv1x1_forward, {0, 2}},          {OpKind::conv1x1_backward_data, {0, 2}},
      {OpKind::conv1x1_backward_weights, {0, 1}}, {OpKind::relu_backward, {0, 1}},
      {OpKind::sigmoid_forward, {0, 1}},          {OpKind::sigmoid_backward, {0, 1}}};
  for (const auto& [kind, images] : same_layout) {
    for (std::size_t i : images) {
      for (Layout layout : {Layout::nhwc, Layout::nchw, Layout::flat}) {
        Operation op = good(kind, Layout::zorder);
        op.operands[i].desc.layout = layout;
        EXPECT_TRUE(refused(op)) << op.operands[i].name << " " << name_of(layout);
      }
    }
  }
  for (Layout layout : {Layout::nchw, Layout::flat}) {
    for (OpKind kind : {OpKind::conv1x1_forward, OpKind::bias_forward, OpKind::bias_backward}) {
      Operation op = good(kind);
      for (Operand& o : op.operands) {
        if (o.desc.pixels() > 1) o.desc.layout = layout;
      }
      EXPECT_TRUE(refused(op)) << kind_name(kind) << " " << name_of(layout);
    }
  }
  for (Layout layout : {Layout::nchw, Layout::flat}) {
    EXPECT_TRUE(refused(with_layout(OpKind::u8_to_float, 1, layout), "y")) << name_of(layout);
  }
  EXPECT_TRUE(refused(with_layout(OpKind::permute, 0, Layout::flat), "x"));
  EXPECT_TRUE(refused(with_layout(OpKind::permute, 1, Layout::flat), "y"));
}

TEST(OpsCheck, ZOrderNeedsASquareOfAPowerOfTwo) {
  const std::pair<std::int64_t, std::int64_t> bad[] = {{2, 4}, {4, 2}, {3, 3}, {6, 6}, {12, 12}};
  for (auto [h, w] : bad) {
    for (OpKind kind : {OpKind::conv1x1_forward, OpKind::conv2x2_forward, OpKind::tconv2x2_forward,
                        OpKind::bias_forward, OpKind::bias_backward, OpKind::relu_forward,
                        OpKind::relu_backward, OpKind::sigmoid_forward, OpKind::sigmoid_backward,
                        OpKind::permute, OpKind::u8_to_float}) {
      Operation op = good(kind, Layout::zorder);
      if (kind == OpKind::permute) op.operands[1].desc.layout = Layout::nhwc;
      for (Operand& o : op.operands) {
        if (o.desc.pixels() == 1 || o.name == "w") continue;
        const bool doubled = (kind == OpKind::conv2x2_forward && o.name == "x") ||
                             (kind == OpKind::tconv2x2_forward && o.name == "y");
        o.desc.h = doubled ? 2 * h : h;
        o.desc.w = doubled ? 2 * w : w;
      }
      EXPECT_TRUE(refused(op)) << kind_name(kind) << " " << h << " x " << w;
    }
  }
}

TEST(OpsCheck, HalvingNeedsAnEvenSide) {
  for (auto [side, half] : {std::pair<std::int64_t, std::int64_t>{1, 0}, {1, 1}, {7, 3}, {9, 4}}) {
    Operation op = good(OpKind::conv2x2_forward);
    op.operands[0].desc.h = op.operands[0].desc.w = side;
    op.operands[2].desc.h = op.operands[2].desc.w = half;
    EXPECT_TRUE(refused(op)) << side;
  }
}

TEST(OpsCheck, AnAugmentationNeedsGoodSettingsAndTheirSizes) {
  const auto changed = [](auto change) {
    Operation op = good(OpKind::augment, Layout::zorder);
    change(op);
    return op;
  };
  EXPECT_FALSE(refused(changed([](Operation&) {})));
  // The settings, in the words of check_augment().
  const Operation large = changed([](Operation& op) { op.augment.crop_h = op.augment.in_h + 1; });
  try {
    check_operation(large);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    for (const char* part : {"augment 'tested.augment'", "crop_h"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
  EXPECT_TRUE(refused(changed([](Operation& op) { op.augment.blur_taps = 4; })));
  // Each size of the pictures and of the result is one of the settings.
  EXPECT_TRUE(refused(changed([](Operation& op) { ++op.augment.in_h; }), "x"));
  EXPECT_TRUE(refused(changed([](Operation& op) { ++op.augment.in_w; }), "x"));
  EXPECT_TRUE(refused(changed([](Operation& op) { op.operands[3].desc.h /= 2; })));
  // A draw a sample lies behind the header.
  const auto with_header = [&](std::size_t bytes) {
    return changed([&](Operation& op) { op.operands[1].desc = byte_desc(bytes); });
  };
  const std::size_t bytes = batch_header_bytes(case_sizes()[0].n);
  EXPECT_FALSE(refused(with_header(bytes)));
  EXPECT_TRUE(refused(with_header(bytes - 1), "header"));
  const std::size_t table_bytes = augment_table_bytes(changed([](Operation&) {}).augment);
  const auto with_tables = [&](std::size_t size) {
    return changed([&](Operation& op) { op.operands[2].desc = byte_desc(size); });
  };
  EXPECT_FALSE(refused(with_tables(table_bytes)));
  EXPECT_TRUE(refused(with_tables(table_bytes - 1), "tables"));
  // Z-order of what has none.
  const Operation oblong = changed([](Operation& op) {
    op.augment.out_h = op.operands[3].desc.h = 3;
    op.augment.out_w = op.operands[3].desc.w = 5;
  });
  EXPECT_TRUE(refused(oblong, "y"));
  for (Layout layout : {Layout::nchw, Layout::flat}) {
    EXPECT_TRUE(refused(changed([&](Operation& op) { op.operands[3].desc.layout = layout; }), "y"));
    EXPECT_TRUE(refused(changed([&](Operation& op) { op.operands[0].desc.layout = layout; }), "x"));
  }
}

TEST(OpsCheck, AnAugmentationOfOneKernelNeedsNoWorkspace) {
  Operation op = good(OpKind::augment);
  const auto workspace = op_info(OpKind::augment).workspace;
  EXPECT_EQ(workspace(op), 0u);
  const std::size_t plain_bytes = augment_plain_bytes(op.augment, op.operands[0].desc.n);
  ASSERT_GT(plain_bytes, 0u);
  op.plain = true;
  EXPECT_EQ(workspace(op), plain_bytes);
  op.operands.push_back({99, byte_desc(plain_bytes), Access::write, "scratch", true});
  EXPECT_FALSE(refused(op));
  op.operands.back().desc = byte_desc(plain_bytes - 1);
  EXPECT_TRUE(refused(op));
  op.operands.pop_back();
  op.plain = false;
  op.augment.border = Border::symmetric;  // which takes the plain path
  EXPECT_EQ(workspace(op), augment_plain_bytes(op.augment, op.operands[0].desc.n));
}

// Labels are bytes, and the sizes of a matrix product are 32 bits wide.

TEST(OpsCheck, NoMoreClassesThanAByteNames) {
  for (OpKind kind :
       {OpKind::softmax_cross_entropy, OpKind::binary_cross_entropy, OpKind::argmax}) {
    Operation op = good(kind);
    for (std::int64_t classes : {256, 257}) {
      for (Operand& o : op.operands) {
        if (o.name == "logits" || o.name == "dlogits") o.desc.c = classes;
      }
      EXPECT_EQ(static_cast<bool>(refused(op, "logits")), classes > 256) << kind_name(kind);
    }
  }
}

TEST(OpsCheck, ProductsOfMoreThan32BitsAreRefused) {
  constexpr std::int64_t kTooLarge = std::int64_t{1} << 31;
  // {n, c, k}: too many pixels, too many numbers a window of x, too many channels of y.
  const std::int64_t sizes[][3] = {{kTooLarge, 3, 5}, {1, kTooLarge, 5}, {1, 3, kTooLarge}};
  for (OpKind kind : {OpKind::conv1x1_forward, OpKind::conv2x2_forward, OpKind::tconv2x2_forward,
                      OpKind::conv3x3_forward}) {
    for (auto [n, c, k] : sizes) {
      Operation op =
          make_case(kind, DType::f32, layout_of(kind), {"size", 1, 1, 1, 1, 1, 1, 1}).operation;
      for (std::int64_t divisor : {kTooLarge, std::int64_t{1}}) {
        op.operands[0].desc.n = op.operands[2].desc.n = std::max<std::int64_t>(1, n / divisor);
        op.operands[0].desc.c = std::max<std::int64_t>(1, c / divisor);
        op.operands[2].desc.c = std::max<std::int64_t>(1, k / divisor);
        TensorDesc& w = op.operands[1].desc;
        const bool transposed = kind == OpKind::tconv2x2_forward;
        w.n = op.operands[transposed ? 0 : 2].desc.c;
        w.c = op.operands[transposed ? 2 : 0].desc.c;
        EXPECT_EQ(static_cast<bool>(refused(op)), divisor == 1)
            << kind_name(kind) << " " << n << " " << c << " " << k;
      }
    }
  }
}

TEST(OpsCheck, PixelsAreCountedOnBothSidesOfALayer) {
  for (OpKind kind : {OpKind::conv2x2_forward, OpKind::tconv2x2_forward}) {
    Operation op = make_case(kind, DType::f32, Layout::zorder, {"size"}).operation;
    for (std::int64_t n : {(std::int64_t{1} << 29) - 1, std::int64_t{1} << 29}) {
      op.operands[0].desc.n = op.operands[2].desc.n = n;  // four pixels an image on the large side
      EXPECT_EQ(static_cast<bool>(refused(op)), n == std::int64_t{1} << 29) << kind_name(kind);
    }
  }
}

TEST(OpsCheck, FiltersNeedTheirSize) {
  for (OpKind kind : {OpKind::conv1x1_forward, OpKind::conv2x2_forward, OpKind::tconv2x2_forward,
                      OpKind::conv3x3_forward}) {
    Operation op = good(kind);
    op.operands[1].desc.h = op.operands[1].desc.w = 5;
    EXPECT_TRUE(refused(op, "w")) << kind_name(kind);
  }
}

TEST(OpsCheck, Bf16KeepsGradientsOfParametersAndLogitsInF32) {
  for (OpKind kind : {OpKind::conv1x1_backward_weights, OpKind::conv2x2_backward_weights,
                      OpKind::tconv2x2_backward_weights, OpKind::conv3x3_backward_weights}) {
    Operation op = make_case(kind, DType::bf16, layout_of(kind), case_sizes()[0]).operation;
    EXPECT_NO_THROW(check_operation(op));
    op.operands[2].desc.dtype = DType::bf16;
    EXPECT_TRUE(refused(op, "dw")) << kind_name(kind);
  }
  Operation bias =
      make_case(OpKind::bias_backward, DType::bf16, Layout::nhwc, case_sizes()[0]).operation;
  bias.operands[1].desc.dtype = DType::bf16;
  EXPECT_TRUE(refused(bias, "db"));
  Operation loss =
      make_case(OpKind::softmax_cross_entropy, DType::bf16, Layout::nhwc, case_sizes()[0])
          .operation;
  loss.operands[0].desc.dtype = DType::bf16;
  EXPECT_TRUE(refused(loss, "logits"));
  Operation update = good(OpKind::sgd);
  for (Operand& o : update.operands) {
    if (o.desc.dtype == DType::f32) o.desc.dtype = DType::bf16;
  }
  EXPECT_TRUE(refused(update));
}

TEST(OpsCheck, APenaltyNeedsAFiniteFactor) {
  Operation op = good(OpKind::l2_penalty);
  for (const float l2 : {-0x1p-149f, std::numeric_limits<float>::quiet_NaN(),
                         std::numeric_limits<float>::infinity()}) {
    op.l2 = l2;
    EXPECT_TRUE(refused(op)) << l2;
  }
  op.l2 = 0;
  EXPECT_NO_THROW(check_operation(op));
}

TEST(OpsCheck, ACallableNeedsAFunctionAndTakesAsManyOperandsAsThereAreAddresses) {
  Operation op;
  op.name = "mine";
  EXPECT_TRUE(refused(op)) << "no function";
  op.callable.function = [](void*, void* const*, const CallContext&) {};
  EXPECT_NO_THROW(check_operation(op));
  op.operands.resize(kMaxOperands);
  EXPECT_NO_THROW(check_operation(op));
  op.operands.resize(kMaxOperands + 1);
  EXPECT_TRUE(refused(op));
}

}  // namespace
}  // namespace tandem::test
