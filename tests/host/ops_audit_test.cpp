// SPDX-License-Identifier: Apache-2.0
// The declared reads and writes of every operation, held against what it does to memory. A schedule
// is derived from the declarations, so one that lies is a race.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <tandem/engine/registry.hpp>
#include <tandem/tests/support/op_cases.hpp>

namespace tandem::test {
namespace {

class EveryKindAudit : public testing::TestWithParam<int> {
 protected:
  OpKind kind() const { return static_cast<OpKind>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Ops, EveryKindAudit, testing::ValuesIn(kinds_with_cases()),
                         kind_test_name);

/// Bytes of all written operands after a run.
std::vector<std::vector<std::byte>> outputs(const OpCase& c, const Body& body,
                                            unsigned char poison) {
  OpMemory memory(c, poison);
  memory.run(body);
  std::vector<std::vector<std::byte>> result;
  for (std::size_t i = 0; i < c.operation.operands.size(); ++i) {
    if (writes(c.operation.operands[i].access)) result.push_back(memory.bytes(i));
  }
  return result;
}

/// Only what is declared written changes; guard zones and undeclared buffers keep every byte.
testing::AssertionResult writes_only_what_it_declares(const OpCase& c, const Body& body) {
  OpMemory memory(c);
  memory.run(body);
  const auto trespasses = memory.trespasses();
  if (trespasses.empty()) return testing::AssertionSuccess();
  auto result = testing::AssertionFailure() << c.name << " changed without declaring it:";
  for (const std::string& name : trespasses) result << " [" << name << "]";
  return result;
}

/// Every byte of what is declared written is written, and neither what was there before nor what
/// the workspace held gets into it: other garbage there leaves the same bytes.
testing::AssertionResult writes_all_it_declares(const OpCase& c, const Body& body) {
  const auto once = outputs(c, body, 0xFF), again = outputs(c, body, 0x5A);
  for (std::size_t i = 0; i < once.size(); ++i) {
    for (std::size_t byte = 0; byte < once[i].size(); ++byte) {
      if (once[i][byte] != again[i][byte]) {
        return testing::AssertionFailure()
               << c.name << ": byte " << byte << " of written operand " << i << " of "
               << once.size() << " depends on what was there before";
      }
    }
  }
  return testing::AssertionSuccess();
}

/// Each operand that is declared read matters: other values there change some output.
testing::AssertionResult reads_all_it_declares(const OpCase& c, const Body& body) {
  const auto before = outputs(c, body, 0xFF);
  for (std::size_t i = 0; i < c.operation.operands.size(); ++i) {
    if (!reads(c.operation.operands[i].access)) continue;
    OpCase changed = c;
    redraw(changed, i);
    if (outputs(changed, body, 0xFF) == before) {
      return testing::AssertionFailure() << c.name << ": other values of "
                                         << c.operation.operands[i].name << " change no output";
    }
  }
  return testing::AssertionSuccess();
}

TEST_P(EveryKindAudit, WritesOnlyWhatItDeclares) {
  for (const OpCase& c : op_cases(kind())) {
    EXPECT_TRUE(writes_only_what_it_declares(c, host_body(kind())));
  }
  SUCCEED();
}

TEST_P(EveryKindAudit, WritesAllItDeclares) {
  for (const OpCase& c : op_cases(kind())) {
    EXPECT_TRUE(writes_all_it_declares(c, host_body(kind())));
  }
  SUCCEED();
}

// What is read without being declared holds NaN here, so EveryKind.EqualsTheOracle would fail.
TEST_P(EveryKindAudit, ReadsAllItDeclares) {
  for (const OpCase& c : op_cases(kind())) {
    EXPECT_TRUE(reads_all_it_declares(c, host_body(kind())));
  }
  SUCCEED();
}

// The audit sees a body that breaks its declaration.

OpCase audited() {
  return make_case(OpKind::relu_backward, DType::f32, Layout::nhwc, case_sizes()[0]);
}

Body with(void (*extra)(const Operation&, void* const*)) {
  return [extra](const Operation& op, void* const* pointers) {
    op_info(op.kind).host(op, pointers);
    extra(op, pointers);
  };
}

TEST(OpsAudit, AcceptsTheHonestBody) {
  const Body honest = with([](const Operation&, void* const*) {});
  EXPECT_TRUE(writes_only_what_it_declares(audited(), honest));
  EXPECT_TRUE(writes_all_it_declares(audited(), honest));
  EXPECT_TRUE(reads_all_it_declares(audited(), honest));
}

TEST(OpsAudit, SeesAWriteToAReadOperand) {
  const auto result = writes_only_what_it_declares(
      audited(), with([](const Operation&, void* const* p) { static_cast<float*>(p[0])[3] += 1; }));
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("[y]"), std::string::npos) << result.message();
}

TEST(OpsAudit, SeesAWriteBehindAnOperand) {
  const auto result = writes_only_what_it_declares(
      audited(), with([](const Operation& op, void* const* p) {
        static_cast<std::byte*>(p[1])[op.operands[1].desc.bytes()] = std::byte{0};
      }));
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("[behind dy]"), std::string::npos)
      << result.message();
}

TEST(OpsAudit, SeesAnElementThatIsNotWritten) {
  const OpCase c = make_case(OpKind::argmax, DType::f32, Layout::nhwc, case_sizes()[0]);
  const Body skips_last = [](const Operation& op, void* const* p) {
    auto* y = static_cast<std::byte*>(p[1]);
    const std::byte last = y[op.operands[1].desc.bytes() - 1];
    op_info(op.kind).host(op, p);
    y[op.operands[1].desc.bytes() - 1] = last;
  };
  EXPECT_FALSE(writes_all_it_declares(c, skips_last));
}

TEST(OpsAudit, SeesAReadThatDoesNotMatter) {
  const Body ignores_y = [](const Operation&, void* const*) {};
  EXPECT_FALSE(reads_all_it_declares(audited(), ignores_y));
}

TEST(OpsAudit, AnUndeclaredReadBringsNan) {
  const OpCase c = audited();
  OpMemory memory(c);
  memory.run([](const Operation& op, void* const* p) {
    auto* dy = static_cast<float*>(p[1]);
    dy[0] = dy[op.operands[1].desc.elements()];  // one behind the end
  });
  EXPECT_FALSE(all_close(c.expected()[1], memory.values(1), DType::f32, "dy"));
}

}  // namespace
}  // namespace tandem::test
