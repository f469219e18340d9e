// SPDX-License-Identifier: Apache-2.0
// Every operation of the registry against an oracle that shares no code with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <tandem/engine/error.hpp>
#include <tandem/engine/registry.hpp>
#include <tandem/tests/support/approx.hpp>
#include <tandem/tests/support/op_cases.hpp>

namespace tandem::test {
namespace {

OpKind kind_at(int index) { return static_cast<OpKind>(index); }

class EveryKind : public testing::TestWithParam<int> {
 protected:
  OpKind kind() const { return kind_at(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Ops, EveryKind, testing::ValuesIn(kinds_with_cases()), kind_test_name);

TEST(OpsWithoutCases, AreTheHeadAndACallable) {
  EXPECT_EQ(kinds_with_cases().size() + 3, static_cast<std::size_t>(kOpKindCount));
  EXPECT_EQ(op_info(OpKind::callable).host, nullptr)
      << "a backend calls it itself; see OpsCallable";
}

/// What a kind's cases lack of: an oracle for each, odd channels in an odd batch, batch 1, a
/// partial batch, all storage types.
std::vector<std::string> missing(const std::vector<OpCase>& cases,
                                 const std::vector<DType>& types) {
  bool odd = false, batch_1 = false, partial = false;
  std::vector<std::string> lacks;
  std::set<DType> seen;
  for (const OpCase& c : cases) {
    const CaseSizes& s = c.sizes;
    odd = odd || (s.n > 1 && s.n % 2 == 1 && s.c > 1 && s.c % 2 == 1 && s.k > 1 && s.k % 2 == 1);
    batch_1 = batch_1 || (s.n == 1 && s.samples == 1);
    partial = partial || (s.samples < s.n && c.header.samples < c.header.capacity);
    seen.insert(c.type);
    try {
      const auto expected = c.expected();
      for (std::size_t i = 0; i < c.operation.operands.size(); ++i) {
        const bool written = writes(c.operation.operands[i].access);
        if (written == expected.at(i).empty()) throw std::logic_error("no values");
      }
    } catch (const std::exception&) {
      lacks.push_back("an oracle for " + c.name);
    }
  }
  if (!odd) lacks.push_back("an odd shape");
  if (!batch_1) lacks.push_back("batch 1");
  if (!partial) lacks.push_back("a partial batch");
  for (DType type : types) {
    if (seen.count(type) == 0) lacks.push_back(std::string("type ") + name_of(type));
  }
  return lacks;
}

TEST_P(EveryKind, HasAnOracleAndAllShapes) {
  ASSERT_NE(op_info(kind()).host, nullptr);
  EXPECT_EQ(missing(op_cases(kind()), storage_types(kind())), std::vector<std::string>{});
}

TEST_P(EveryKind, EqualsTheOracle) {
  for (const OpCase& c : op_cases(kind())) {
    const auto expected = c.expected();
    const auto after = run_case(c);
    for (std::size_t i = 0; i < after.size(); ++i) {
      const Operand& operand = c.operation.operands[i];
      if (!writes(operand.access)) continue;
      const DType type = c.is_result(i) ? DType::f64 : operand.desc.dtype;
      EXPECT_TRUE(all_close(expected[i], after[i], type, c.name + ": " + operand.name));
    }
  }
  SUCCEED();
}

TEST(OpsCoverage, MissingNamesWhatIsNotThere) {
  auto cases = op_cases(OpKind::relu_forward);
  const auto without = [&](auto unwanted) {
    auto rest = cases;
    rest.erase(std::remove_if(rest.begin(), rest.end(), unwanted), rest.end());
    return missing(rest, storage_types(OpKind::relu_forward));
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(without([](const OpCase&) { return false; }), Names{});
  EXPECT_EQ(without([](const OpCase& c) { return c.sizes.n == 1; }), Names{"batch 1"});
  EXPECT_EQ(without([](const OpCase& c) { return c.sizes.samples < c.sizes.n; }),
            Names{"a partial batch"});
  EXPECT_EQ(without([](const OpCase& c) { return c.sizes.n % 2 == 1 && c.sizes.n > 1; }),
            (Names{"an odd shape", "a partial batch"}));
  EXPECT_EQ(without([](const OpCase& c) { return c.type == DType::bf16; }), Names{"type bf16"});
  auto unknown = cases.front();
  unknown.operation.kind = OpKind::callable;
  EXPECT_EQ(missing({unknown}, {}).front(), "an oracle for " + unknown.name);
}

TEST(OpsCallable, TakesAnyOperandsAndIsCalledWithItsPointers) {
  struct Call {
    void* const* pointers = nullptr;
    std::uint64_t step = 0;
  } call;
  Operation op;
  op.kind = OpKind::callable;
  op.name = "mine";
  op.operands = {{0, {DType::u8, Layout::nchw, 3, 5, 7, 1}, Access::read, "a", false},
                 {1, byte_desc(13), Access::read_write, "b", false}};
  op.callable = {[](void* user, void* const* pointers, const CallContext& context) {
                   *static_cast<Call*>(user) = {pointers, context.step};
                 },
                 &call};
  EXPECT_NO_THROW(check_operation(op));
  EXPECT_EQ(op_info(op.kind).workspace(op), 0u);
  void* pointers[2] = {};
  op.callable.function(op.callable.user, pointers, {7, nullptr});
  EXPECT_EQ(call.pointers, pointers);
  EXPECT_EQ(call.step, 7u);

  op.operands.resize(kMaxOperands + 1, op.operands[0]);
  EXPECT_THROW(check_operation(op), Error);
}

// The oracle's own ground, by hand.

TEST(OpsOracle, ZOrderOfFourByFour) {
  const std::vector<std::pair<int, int>> expected = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 2}, {0, 3},
                                                     {1, 2}, {1, 3}, {2, 0}, {2, 1}, {3, 0}, {3, 1},
                                                     {2, 2}, {2, 3}, {3, 2}, {3, 3}};
  EXPECT_EQ(z_order(4), expected);
}

TEST(OpsOracle, EncodesEachLayout) {
  const Raster raster = {1, 2, 3, 4, 5, 6, 7, 8};  // 1 x 2 x 2 x 2: pixels (1 2)(3 4)/(5 6)(7 8)
  TensorDesc desc{DType::u8, Layout::nchw, 1, 2, 2, 2};
  const auto bytes = [&](Layout layout) {
    desc.layout = layout;
    const auto encoded = encode(desc, raster);
    EXPECT_EQ(decode(desc, encoded.data()), raster);
    Raster result;
    for (std::byte b : encoded) result.push_back(std::to_integer<int>(b));
    return result;
  };
  EXPECT_EQ(bytes(Layout::nhwc), raster);
  EXPECT_EQ(bytes(Layout::zorder), raster);  // four pixels: the same order
  EXPECT_EQ(bytes(Layout::nchw), (Raster{1, 3, 5, 7, 2, 4, 6, 8}));
}

TEST(OpsOracle, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(round_to(DType::bf16, 1 + 0x1p-8), 1);              // a tie, down to even
  EXPECT_EQ(round_to(DType::bf16, 1 + 0x3p-8), 1 + 0x1p-6);     // a tie, up to even
  EXPECT_EQ(round_to(DType::bf16, 1 + 0x1.01p-8), 1 + 0x1p-7);  // above a tie
  EXPECT_EQ(round_to(DType::f32, 0.1), static_cast<double>(0.1f));
  EXPECT_EQ(round_to(DType::f32, 0x1p-150), 0);  // half the smallest, to even
  EXPECT_EQ(round_to(DType::f32, 0x1.8p-150), 0x1p-149);
  EXPECT_EQ(round_to(DType::bf16, 0x1.8p-134), 0x1p-133);
}

TEST(Approx, FailsOnNanOnAnyElementAndOnLength) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto close = [](Expected e, double a) {
    return static_cast<bool>(all_close({e}, {a}, DType::f32, "x"));
  };
  EXPECT_TRUE(close({1, 0}, 1));
  EXPECT_TRUE(close({1, 0.5}, 1.5));
  EXPECT_FALSE(close({1, 0.5}, 1.5000001));
  EXPECT_FALSE(close({1, 0}, 1.0000001));
  EXPECT_FALSE(close({1, 1e30}, nan));
  EXPECT_FALSE(close({nan, 1e30}, 1));
  EXPECT_FALSE(close({nan, 1e30}, nan));
  EXPECT_FALSE(close({1, nan}, 1));
  EXPECT_FALSE(close({1, 1e30}, infinity));
  EXPECT_FALSE(all_close({{1, 0}, {2, 0}}, {1}, DType::f32, "x"));
  EXPECT_FALSE(all_close({{1, 1}, {2, 1}, {3, 1}}, {1, 2, nan}, DType::f32, "x"));
}

TEST(Approx, NamesTheWorstElement) {
  const auto result = all_close({{1, 1}, {2, 0.25}, {4, 1}}, {1, 3, 5.5}, DType::f32, "weights");
  const std::string text = result.message();
  EXPECT_NE(text.find("weights: 2 of 3 elements"), std::string::npos) << text;
  EXPECT_NE(text.find("element 1: 3, expected 2, error 1"), std::string::npos) << text;
  EXPECT_NE(text.find("share of the bound 4"), std::string::npos) << text;
}

TEST(Approx, TolerancesCountRoundings) {
  EXPECT_DOUBLE_EQ(gamma(3, 0.01), 0.03 / 0.97);
  EXPECT_DOUBLE_EQ(unit_roundoff(DType::f32), 0x1p-24);
  EXPECT_DOUBLE_EQ(unit_roundoff(DType::bf16), 0x1p-8);
  EXPECT_DOUBLE_EQ(ulp(1.5, DType::f32), 0x1p-23);
  EXPECT_EQ(sum_tolerance(1, DType::f32), 0) << "one term is not rounded";
  EXPECT_NEAR(dot_tolerance(10, DType::bf16), 10 * 0x1p-24, 1e-11) << "accumulated in f32";
}

}  // namespace
}  // namespace tandem::test
