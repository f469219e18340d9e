// SPDX-License-Identifier: Apache-2.0
// weight_update on the GPU against its host twin: the same bits where all sums are exact, within
// the bound of a sum in float elsewhere.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tandem/kernels/philox.hpp>
#include <tandem/kernels/weight_update.hpp>
#include <tandem/tests/support/device_memory.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <vector>

namespace tandem::test {
namespace {

using WeightUpdateKernel = GpuTest;

std::size_t count_of(std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); }

/// Whole numbers from -3 to 3: products of two and sums of 256 of them are exact in float.
std::vector<bf16> whole_numbers(std::size_t count, std::uint64_t stream) {
  std::vector<bf16> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = bf16(static_cast<float>(
        static_cast<int>(philox4x32_10(philox_counter(i, stream), philox_key(3)).word[0] % 7) - 3));
  return values;
}

std::vector<double> normal_numbers(std::size_t count, std::uint64_t stream) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = normal_pair(philox4x32_10(philox_counter(i, stream), philox_key(4))).first;
  return values;
}

template <class T>
std::vector<T> rounded(const std::vector<double>& values) {
  std::vector<T> out;
  for (const double value : values) out.emplace_back(static_cast<float>(value));
  return out;
}

BatchHeader header_of(float rate_over_count, float keep) {
  BatchHeader header;
  header.valid_count = 1;
  header.minus_rate_over_count = -rate_over_count;
  header.keep = keep;
  return header;
}

struct Updated {
  std::vector<float> w;
  std::vector<bf16> copy;
};

/// On the device, between guards; what is only read has to be as before.
Updated on_device(const WeightUpdateShape& shape, const BatchHeader& header,
                  const std::vector<bf16>& a, const std::vector<bf16>& b,
                  const std::vector<float>& w, bool with_copy = true) {
  const DeviceVector<BatchHeader> device_header({header});
  const GuardedVector<bf16> device_a(a), device_b(b);
  GuardedVector<float> device_w(w);
  auto copy = GuardedVector<bf16>::poisoned(w.size());
  const TestStream stream;
  cuda::weight_update(shape, device_header.data(), device_a.data(), device_b.data(),
                      device_w.data(), with_copy ? copy.data() : nullptr, stream.get());
  stream.wait();
  EXPECT_TRUE(device_a.intact() && device_b.intact() && device_w.intact() && copy.intact());
  return {device_w.to_host(), copy.to_host()};
}

template <class T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

const WeightUpdateShape kShapes[] = {
    {64, 128, 1},   {64, 128, 8},  {128, 128, 15},  {64, 256, 16},  {192, 384, 17},
    {128, 256, 64}, {64, 128, 65}, {256, 512, 128}, {64, 128, 250}, {128, 1024, 256}};

TEST_F(WeightUpdateKernel, EqualsTheTwinBitForBitWhereSumsAreExact) {
  for (const WeightUpdateShape& shape : kShapes) {
    SCOPED_TRACE(shape.depth);
    ASSERT_TRUE(weight_update_takes(shape));
    const auto a = whole_numbers(count_of(shape.depth, shape.rows), 0);
    const auto b = whole_numbers(count_of(shape.depth, shape.columns), 1);
    const auto before = rounded<float>(normal_numbers(count_of(shape.rows, shape.columns), 2));
    const BatchHeader header = header_of(0.37f, 0.99f);
    Updated twin{before, std::vector<bf16>(before.size())};
    host::weight_update(shape, header, a.data(), b.data(), twin.w.data(), twin.copy.data());
    const Updated kernel = on_device(shape, header, a, b, before);
    EXPECT_TRUE(same_bits(kernel.w, twin.w));
    EXPECT_TRUE(same_bits(kernel.copy, twin.copy));
    EXPECT_FALSE(same_bits(kernel.w, before)) << "the weights moved";
    EXPECT_TRUE(same_bits(on_device(shape, header, a, b, before, false).w, twin.w)) << "no copy";
  }
}

// The bound: depth - 1 additions and the order of two sums (2 gamma of |a|^T |b|), then a product
// and a sum more, each within half a unit in the last place of 24 bits.
TEST_F(WeightUpdateKernel, IsWithinTheBoundOfItsSums) {
  constexpr double u = 0x1p-24;
  const WeightUpdateShape shape{128, 256, 128};
  const auto a = rounded<bf16>(normal_numbers(count_of(shape.depth, shape.rows), 5));
  const auto b = rounded<bf16>(normal_numbers(count_of(shape.depth, shape.columns), 6));
  const auto before = rounded<float>(normal_numbers(count_of(shape.rows, shape.columns), 7));
  const BatchHeader header = header_of(0.01f, 1.0f);
  const Updated kernel = on_device(shape, header, a, b, before);
  const double step = header.minus_rate_over_count;
  double most = 0;
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t c = 0; c < shape.columns; ++c) {
      double sum = 0, magnitude = 0;
      for (std::int64_t p = 0; p < shape.depth; ++p) {
        const double term =
            double{float(a[count_of(p, shape.rows) + static_cast<std::size_t>(r)])} *
            double{float(b[count_of(p, shape.columns) + static_cast<std::size_t>(c)])};
        sum += term;
        magnitude += std::abs(term);
      }
      const std::size_t at = count_of(r, shape.columns) + static_cast<std::size_t>(c);
      const double expected = before[at] + step * sum;
      const double bound = std::abs(step) * magnitude * static_cast<double>(shape.depth) * 2 * u +
                           3 * u * (std::abs(before[at]) + std::abs(step * sum));
      ASSERT_LE(std::abs(kernel.w[at] - expected), bound) << r << ", " << c;
      EXPECT_EQ(float(kernel.copy[at]), float(bf16(kernel.w[at])));
      most = std::max(most, std::abs(kernel.w[at] - expected) / bound);
    }
  }
  EXPECT_GT(most, 1e-3) << "the bound is far from what it bounds";
}

TEST_F(WeightUpdateKernel, KeepsTheWeightsWhereTheHeaderSaysSo) {
  const WeightUpdateShape shape{64, 128, 8};
  const auto a = whole_numbers(count_of(shape.depth, shape.rows), 0);
  const auto b = whole_numbers(count_of(shape.depth, shape.columns), 1);
  const auto before = rounded<float>(normal_numbers(count_of(shape.rows, shape.columns), 2));
  const Updated kernel = on_device(shape, header_of(0.0f, 1.0f), a, b, before);
  EXPECT_TRUE(same_bits(kernel.w, before));
}

TEST_F(WeightUpdateKernel, ANaNReachesItsRowOnly) {
  const WeightUpdateShape shape{128, 256, 20};
  auto a = whole_numbers(count_of(shape.depth, shape.rows), 0);
  const auto b = whole_numbers(count_of(shape.depth, shape.columns), 1);
  a[count_of(19, shape.rows) + 70] = bf16(std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> before(count_of(shape.rows, shape.columns), 1.0f);
  const Updated kernel = on_device(shape, header_of(0.5f, 1.0f), a, b, before);
  for (std::int64_t r = 0; r < shape.rows; ++r)
    for (std::int64_t c = 0; c < shape.columns; ++c)
      ASSERT_EQ(std::isnan(kernel.w[count_of(r, shape.columns) + static_cast<std::size_t>(c)]),
                r == 70)
          << r << ", " << c;
}

TEST(WeightUpdate, TakesWholeTilesOfFewPixels) {
  EXPECT_TRUE(weight_update_takes({4096, 8192, 8}));
  EXPECT_TRUE(weight_update_takes({64, 128, 256}));
  EXPECT_FALSE(weight_update_takes({64, 128, 257}));
  EXPECT_FALSE(weight_update_takes({64, 128, 0}));
  EXPECT_FALSE(weight_update_takes({32, 128, 8}));
  EXPECT_FALSE(weight_update_takes({64, 64, 8}));
  EXPECT_FALSE(weight_update_takes({0, 128, 8}));
  EXPECT_FALSE(weight_update_takes({std::int64_t{64} << 31, 128, 8}));
}

}  // namespace
}  // namespace tandem::test
