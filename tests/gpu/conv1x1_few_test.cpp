// SPDX-License-Identifier: Apache-2.0
// The kernels of 1x1 layers of few channels against the host's products: whole numbers, whose sums
// are exact in any order, so that every bit has to agree.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <tandem/kernels/conv1x1_few.hpp>
#include <tandem/kernels/gemm.hpp>
#include <tandem/kernels/philox.hpp>
#include <tandem/tests/support/device_memory.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <vector>

namespace tandem::test {
namespace {

template <class T>
class Conv1x1FewKernels : public GpuTest {};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(Conv1x1FewKernels, Types);

/// From -2 to 2: a sum over 2^20 pixels is exact in float.
template <class T>
std::vector<T> whole_numbers(std::int64_t count, std::uint64_t stream) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto counter = philox_counter(static_cast<std::uint64_t>(i), stream);
    values.push_back(T(static_cast<float>(
        static_cast<int>(philox4x32_10(counter, philox_key(9)).word[0] % 5) - 2)));
  }
  return values;
}

template <class T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

// One pixel, less than a block, more pixels than threads; every count of channels; packs and none.
constexpr Conv1x1FewShape kShapes[] = {{1, 3, 16},    {255, 1, 16},  {257, 2, 5},
                                       {1000, 3, 16}, {4099, 4, 16}, {777, 3, 1},
                                       {5000, 4, 15}, {300, 1, 2},   {140001, 3, 16}};

TYPED_TEST(Conv1x1FewKernels, ForwardEqualsTheHost) {
  using T = TypeParam;
  for (const Conv1x1FewShape& s : kShapes) {
    SCOPED_TRACE(testing::Message()
                 << s.pixels << " pixels, " << s.channels << " -> " << s.outputs);
    ASSERT_TRUE(conv1x1_few_takes(s));
    const auto x = whole_numbers<T>(s.pixels * s.channels, 0);
    const auto w = whole_numbers<T>(s.outputs * s.channels, 1);
    const GuardedVector<T> device_x(x), device_w(w);
    const TestStream stream;
    const auto check = [&](auto type) {
      using Out = decltype(type);
      std::vector<Out> y(static_cast<std::size_t>(s.pixels * s.outputs));
      host::conv_forward(s.pixels, s.channels, s.outputs, x.data(), w.data(), y.data());
      const auto device_y = GuardedVector<Out>::poisoned(y.size());
      cuda::conv1x1_few_forward(s, device_x.data(), device_w.data(), device_y.data(), stream.get());
      stream.wait();
      EXPECT_TRUE(same_bits(device_y.to_host(), y));
      EXPECT_TRUE(device_y.intact() && device_x.intact() && device_w.intact());
    };
    check(T{});
    check(float{});
  }
}

TYPED_TEST(Conv1x1FewKernels, WeightGradientAndUpdateEqualTheHost) {
  using T = TypeParam;
  for (const Conv1x1FewShape& s : kShapes) {
    SCOPED_TRACE(testing::Message()
                 << s.pixels << " pixels, " << s.channels << " -> " << s.outputs);
    const auto x = whole_numbers<T>(s.pixels * s.channels, 2);
    const auto dy = whole_numbers<T>(s.pixels * s.outputs, 3);
    const auto count = static_cast<std::size_t>(s.outputs * s.channels);
    const GuardedVector<T> device_x(x), device_dy(dy);
    const std::size_t bytes = cuda::conv1x1_few_workspace_bytes(s);
    const auto workspace = GuardedVector<unsigned char>::poisoned(bytes);
    const TestStream stream;

    std::vector<float> dw(count);
    host::conv_backward_weights(s.pixels, s.channels, s.outputs, x.data(), dy.data(), dw.data());
    const auto device_dw = GuardedVector<float>::poisoned(count);
    cuda::conv1x1_few_backward_weights(s, device_x.data(), device_dy.data(), device_dw.data(),
                                       workspace.data(), stream.get());
    stream.wait();
    EXPECT_TRUE(same_bits(device_dw.to_host(), dw));
    EXPECT_TRUE(device_dw.intact() && workspace.intact());

    BatchHeader header;
    header.valid_count = 7;
    header.minus_rate_over_count = -0.031f;
    header.keep = 0.999f;
    std::vector<float> w(count, 1.25f);
    host::gemm_update<T>(host::Transpose::yes, host::Transpose::no, s.outputs, s.channels, s.pixels,
                         header.minus_rate_over_count, dy.data(), x.data(), header.keep, w.data());
    std::vector<bf16> copy;
    for (const float value : w) copy.emplace_back(value);
    const DeviceVector<BatchHeader> device_header({header});
    for (const bool with_copy : {true, false}) {
      const GuardedVector<float> device_w(std::vector<float>(count, 1.25f));
      const auto device_copy = GuardedVector<bf16>::poisoned(count);
      cuda::conv1x1_few_update(s, device_header.data(), device_x.data(), device_dy.data(),
                               device_w.data(), with_copy ? device_copy.data() : nullptr,
                               workspace.data(), stream.get());
      stream.wait();
      EXPECT_TRUE(same_bits(device_w.to_host(), w));
      EXPECT_EQ(same_bits(device_copy.to_host(), copy), with_copy);
      EXPECT_TRUE(device_w.intact() && device_copy.intact() && workspace.intact());
    }
    EXPECT_TRUE(device_x.intact() && device_dy.intact());
  }
}

TEST(Conv1x1Few, TakesFewChannels) {
  EXPECT_TRUE(conv1x1_few_takes({1, 1, 1}));
  EXPECT_TRUE(conv1x1_few_takes({1 << 30, 4, 16}));
  EXPECT_FALSE(conv1x1_few_takes({8, 5, 16}));
  EXPECT_FALSE(conv1x1_few_takes({8, 3, 17}));
  EXPECT_FALSE(conv1x1_few_takes({0, 3, 16}));
}

}  // namespace
}  // namespace tandem::test
