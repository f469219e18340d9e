// SPDX-License-Identifier: Apache-2.0
// Every launcher against its host twin: to the bit where the arithmetic is plain, else both within
// the bounds of docs/numerics.md. Each case runs on aligned tensors, which kernels move 16 bytes at
// a time, and on tensors one element off. Outputs are poisoned, all tensors lie between guards.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/binary_xent.hpp>
#include <tandem/kernels/cast.hpp>
#include <tandem/kernels/l2_penalty.hpp>
#include <tandem/kernels/permute.hpp>
#include <tandem/kernels/pointwise.hpp>
#include <tandem/kernels/sgd.hpp>
#include <tandem/kernels/softmax_xent.hpp>
#include <tandem/tests/support/approx.hpp>
#include <tandem/tests/support/device_memory.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/oracles.hpp>
#include <type_traits>
#include <vector>

namespace tandem::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Sizes around a warp, a block and its packs; channels of the workloads, odd ones, and more than a
// block has threads.
constexpr std::int64_t kCounts[] = {1,   3,   4,   5,   7,    8,    9,    31,   32,    33,
                                    255, 256, 257, 511, 1023, 1025, 2047, 2049, 100003};
constexpr std::int64_t kPixels[] = {1, 2, 31, 64, 255, 256, 257, 2051};
constexpr std::int64_t kChannels[] = {1, 3, 10, 11, 16, 64, 1027, 4096};
constexpr std::size_t kOffsets[] = {0, 1};

template <class T>
constexpr DType kType = std::is_same_v<T, bf16> ? DType::bf16 : DType::f32;

std::uint64_t hash(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed * 0xD1342543DE82EF95u + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Numbers of both signs and 21 magnitudes around 1.
template <class T>
std::vector<T> numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t h = hash(seed, i);
    if constexpr (std::is_same_v<T, std::uint8_t>) {
      values[i] = static_cast<std::uint8_t>(h);
    } else {
      const float unit = static_cast<float>(h >> 40) * 0x1p-23f - 1;
      values[i] = T(std::ldexp(unit, static_cast<int>(h % 21) - 10));
    }
  }
  return values;
}

/// The same with a NaN, both zeros, both infinities and a subnormal among them.
template <class T>
std::vector<T> numbers_and_specials(std::int64_t count, std::uint64_t seed) {
  std::vector<T> values = numbers<T>(count, seed);
  const float special[] = {-0.0f, 0.0f, kNaN, -kInfinity, kInfinity, -1e-40f};
  for (std::size_t i = 0; i < std::size(special); ++i) {
    const std::size_t at = 7 * i + seed;
    if (at < values.size()) values[at] = T(special[i]);
  }
  return values;
}

template <class T>
double as_double(const T& value) {
  if constexpr (std::is_same_v<T, std::uint8_t>)
    return value;
  else
    return static_cast<double>(load(value));
}

template <class T>
Raster as_doubles(const std::vector<T>& values) {
  Raster raster;
  for (const T& value : values) raster.push_back(as_double(value));
  return raster;
}

/// The same bits; NaNs differ in payload between host and device, so which element is one counts.
template <class T>
::testing::AssertionResult same(const std::vector<T>& expected, const std::vector<T>& actual) {
  if (expected.size() != actual.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(&expected[i], &actual[i], sizeof(T)) == 0) continue;
    const double e = as_double(expected[i]), a = as_double(actual[i]);
    if (std::isnan(e) && std::isnan(a)) continue;
    return ::testing::AssertionFailure()
           << "element " << i << " of " << expected.size() << ": expected " << e << ", is " << a;
  }
  return ::testing::AssertionSuccess();
}

template <class T>
void expect_same(const std::vector<T>& expected, const GuardedVector<T>& actual,
                 const std::string& what) {
  EXPECT_TRUE(same(expected, actual.to_host())) << what;
  EXPECT_TRUE(actual.intact()) << what << ": a guard was written";
}

/// Runs a launcher on a stream and waits.
template <class Launch>
void run(Launch launch) {
  const TestStream stream;
  launch(stream.get());
  stream.wait();
}

/// A stream with a long queue of work that keeps the memory busy.
class BusyStream {
 public:
  BusyStream() : tensor_(std::vector<float>(kElements, 1.0f)) {
    for (int i = 0; i < 200; ++i) cuda::relu_forward(tensor_.data(), kElements, stream_.get());
  }
  ~BusyStream() { cudaStreamSynchronize(stream_.get()); }

 private:
  static constexpr std::int64_t kElements = std::int64_t{1} << 24;
  DeviceVector<float> tensor_;
  TestStream stream_;
};

BatchHeader header_for(std::int64_t valid_count) {
  BatchHeader header;
  header.step = 41;
  header.valid_count = valid_count;
  header.learning_rate = 0.1f;
  header.momentum = 0.9f;
  header.weight_decay = 1e-2f;
  return header;
}

std::string describe(const ImageShape& s) {
  return std::to_string(s.n) + "x" + std::to_string(s.h) + "x" + std::to_string(s.w) + "x" +
         std::to_string(s.c);
}

std::int64_t elements(const ImageShape& s) { return s.n * s.h * s.w * s.c; }

const char* name_of(ImageOrder order) {
  return order == ImageOrder::nchw ? "nchw" : order == ImageOrder::nhwc ? "nhwc" : "zorder";
}

using Kernels = GpuTest;
/// Apart, so that a run under a sanitizer can leave them out.
using KernelsLarge = GpuTest;

// --- pixels ---

/// Squares whose side is a power of two, fit for Z-order, and shapes that are not.
std::vector<ImageShape> shapes(bool square) {
  if (square) {
    return {{1, 1, 1, 3},   {3, 1, 1, 4096}, {1, 2, 2, 1},    {2, 4, 4, 10},  {1, 8, 8, 64},
            {1, 16, 16, 3}, {3, 16, 16, 11}, {5, 32, 32, 16}, {1, 64, 64, 3}, {2, 4, 4, 300}};
  }
  return {{1, 5, 7, 3},    {3, 3, 85, 1},  {1, 1, 257, 10},
          {2, 17, 15, 11}, {1, 9, 31, 16}, {2, 3, 5, 4096}};
}

template <class T>
void check_u8_to_float(const ImageShape& shape, ImageOrder order, float scale, std::size_t offset) {
  SCOPED_TRACE(describe(shape) + " to " + name_of(order) + ", offset " + std::to_string(offset));
  const std::vector<std::uint8_t> x = numbers<std::uint8_t>(elements(shape), 1);
  std::vector<T> y(x.size());
  host::u8_to_float(shape, x.data(), scale, order, y.data());
  const GuardedVector<std::uint8_t> device_x(x, offset);
  const auto device_y = GuardedVector<T>::poisoned(y.size(), offset);
  run([&](cudaStream_t stream) {
    cuda::u8_to_float(shape, device_x.data(), scale, order, device_y.data(), stream);
  });
  expect_same(y, device_y, "y");
}

TEST_F(Kernels, U8ToFloat) {
  for (const std::size_t offset : kOffsets) {
    for (const bool square : {true, false}) {
      for (const ImageShape& shape : shapes(square)) {
        for (const ImageOrder order : {ImageOrder::nhwc, ImageOrder::zorder}) {
          if (order == ImageOrder::zorder && !square) continue;
          check_u8_to_float<float>(shape, order, 1.0f / 255, offset);
          check_u8_to_float<float>(shape, order, 1.0f, offset);
          check_u8_to_float<bf16>(shape, order, 1.0f / 255, offset);
        }
      }
    }
  }
}

template <class T>
void check_permute(const ImageShape& shape, ImageOrder from, ImageOrder to, std::size_t offset) {
  SCOPED_TRACE(describe(shape) + " from " + name_of(from) + " to " + name_of(to) + ", bytes " +
               std::to_string(sizeof(T)) + ", offset " + std::to_string(offset));
  const std::vector<T> x = numbers<T>(elements(shape), 2);
  std::vector<T> y(x.size());
  host::permute(shape, from, x.data(), to, y.data());
  const GuardedVector<T> device_x(x, offset);
  const auto device_y = GuardedVector<T>::poisoned(y.size(), offset);
  run([&](cudaStream_t stream) {
    cuda::permute(shape, from, device_x.data(), to, device_y.data(), stream);
  });
  expect_same(y, device_y, "y");
}

TEST_F(Kernels, Permute) {
  const ImageOrder orders[] = {ImageOrder::nchw, ImageOrder::nhwc, ImageOrder::zorder};
  for (const std::size_t offset : kOffsets) {
    for (const bool square : {true, false}) {
      for (const ImageShape& shape : shapes(square)) {
        for (const ImageOrder from : orders) {
          for (const ImageOrder to : orders) {
            if (!square && (from == ImageOrder::zorder || to == ImageOrder::zorder)) continue;
            check_permute<std::uint8_t>(shape, from, to, offset);
            check_permute<float>(shape, from, to, offset);
            check_permute<bf16>(shape, from, to, offset);
          }
        }
      }
    }
  }
}

// More pixels than the largest grid has threads.
TEST_F(KernelsLarge, PixelsBeyondTheGrid) {
  check_u8_to_float<bf16>({1, 4099, 4099, 1}, ImageOrder::nhwc, 1.0f / 255, 0);
  check_permute<std::uint8_t>({1, 4099, 4099, 1}, ImageOrder::nhwc, ImageOrder::nhwc, 0);
  check_permute<std::uint8_t>({1, 4099, 4099, 1}, ImageOrder::nhwc, ImageOrder::nchw, 0);
}

TEST_F(KernelsLarge, PermuteOfTheWorkload) {
  check_permute<bf16>({128, 256, 256, 16}, ImageOrder::zorder, ImageOrder::nhwc, 0);
  check_permute<bf16>({128, 256, 256, 16}, ImageOrder::nhwc, ImageOrder::zorder, 0);
}

// --- ReLU ---

template <class T>
void check_relu_forward(std::int64_t count, std::size_t offset) {
  SCOPED_TRACE(std::to_string(count) + ", offset " + std::to_string(offset));
  std::vector<T> y = numbers_and_specials<T>(count, 3);
  const GuardedVector<T> device_y(y, offset);
  host::relu_forward(y.data(), count);
  run([&](cudaStream_t stream) { cuda::relu_forward(device_y.data(), count, stream); });
  expect_same(y, device_y, "y");
}

template <class T>
void check_relu_backward(std::int64_t count, std::size_t offset) {
  SCOPED_TRACE(std::to_string(count) + ", offset " + std::to_string(offset));
  const std::vector<T> y = numbers_and_specials<T>(count, 3);
  std::vector<T> dy = numbers_and_specials<T>(count, 5);
  const GuardedVector<T> device_y(y, offset), device_dy(dy, offset);
  host::relu_backward(y.data(), dy.data(), count);
  run([&](cudaStream_t stream) {
    cuda::relu_backward(device_y.data(), device_dy.data(), count, stream);
  });
  expect_same(dy, device_dy, "dy");
  expect_same(y, device_y, "y is only read");
}

TEST_F(Kernels, Relu) {
  for (const std::size_t offset : kOffsets) {
    for (const std::int64_t count : kCounts) {
      check_relu_forward<float>(count, offset);
      check_relu_forward<bf16>(count, offset);
      check_relu_backward<float>(count, offset);
      check_relu_backward<bf16>(count, offset);
    }
  }
}

// Written out, without the twin.
template <class T>
void check_relu_specials() {
  const std::vector<float> in = {kNaN, -0.0f, 0.0f, -1.0f, 2.0f, kInfinity, -kInfinity, -1e-40f};
  const std::vector<float> out = {kNaN, -0.0f, 0.0f, 0.0f, 2.0f, kInfinity, 0.0f, 0.0f};
  // From a gradient of 3 for each element.
  const std::vector<float> gradient = {3, 0, 0, 0, 3, 3, 0, 0};
  std::vector<T> y, expected_y, expected_dy;
  for (std::size_t i = 0; i < in.size(); ++i) {
    y.push_back(T(in[i]));
    expected_y.push_back(T(out[i]));
    expected_dy.push_back(T(gradient[i]));
  }
  for (const std::size_t offset : kOffsets) {
    const GuardedVector<T> device_y(y, offset), dy(std::vector<T>(y.size(), T(3.0f)), offset);
    const auto count = static_cast<std::int64_t>(y.size());
    run([&](cudaStream_t stream) {
      cuda::relu_forward(device_y.data(), count, stream);
      cuda::relu_backward(device_y.data(), dy.data(), count, stream);
    });
    expect_same(expected_y, device_y, "y");
    expect_same(expected_dy, dy, "dy");
  }
  // A NaN behind a closed unit does not pass: selected, not multiplied by 0.
  const GuardedVector<T> closed(std::vector<T>(4, T(0.0f))), dy(std::vector<T>(4, T(kNaN)));
  run([&](cudaStream_t stream) { cuda::relu_backward(closed.data(), dy.data(), 4, stream); });
  expect_same(std::vector<T>(4, T(0.0f)), dy, "dy behind closed units");
}

TEST_F(Kernels, ReluKeepsNaNAndClosesAtZero) {
  check_relu_specials<float>();
  check_relu_specials<bf16>();
}

// --- sigmoid, L2 ---

template <class T>
void check_sigmoid(std::int64_t count, std::size_t offset) {
  SCOPED_TRACE(std::to_string(count) + ", offset " + std::to_string(offset));
  const std::vector<T> x = numbers_and_specials<T>(count, 3);
  std::vector<T> y(x.size()), dy = numbers<T>(count, 5);
  const GuardedVector<T> device_x(x, offset), device_dy(dy, offset);
  const auto device_y = GuardedVector<T>::poisoned(x.size(), offset);
  host::sigmoid_forward(x.data(), y.data(), count);
  run([&](cudaStream_t stream) {
    cuda::sigmoid_forward(device_x.data(), device_y.data(), count, stream);
  });
  // Each of the two within the oracle's bound: an exponential that is at most 1, a sum with 1, a
  // quotient; in bf16 each also has its own rounding.
  const double u = unit_roundoff(DType::f32), e = kExpUlps * 2 * u;
  const double relative = 2 * ((1 + e) * (1 + u) / (1 - e - u) - 1);
  const double narrow = kType<T> == DType::bf16 ? 2 * unit_roundoff(DType::bf16) : 0;
  std::vector<Expected> expected;
  for (const T& value : y)
    expected.push_back({as_double(value), (relative + narrow) * (1 + narrow) * as_double(value) +
                                              smallest_normal(DType::f32)});
  const std::vector<T> on_device = device_y.to_host();
  Raster found = as_doubles(on_device);
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(std::isnan(as_double(x[i])), std::isnan(found[i])) << "element " << i;
    if (std::isnan(found[i])) found[i] = expected[i].value = expected[i].bound = 0;
  }
  EXPECT_TRUE(all_close(expected, found, kType<T>, "y"));
  EXPECT_TRUE(device_y.intact());

  host::sigmoid_backward(on_device.data(), dy.data(), count);
  run([&](cudaStream_t stream) {
    cuda::sigmoid_backward(device_y.data(), device_dy.data(), count, stream);
  });
  expect_same(dy, device_dy, "dy");
}

TEST_F(Kernels, Sigmoid) {
  for (const std::size_t offset : kOffsets) {
    for (const std::int64_t count : kCounts) {
      check_sigmoid<float>(count, offset);
      check_sigmoid<bf16>(count, offset);
    }
  }
}

void check_l2(std::int64_t count, std::size_t offset, std::int64_t labels) {
  SCOPED_TRACE(std::to_string(count) + ", offset " + std::to_string(offset));
  const std::vector<float> w = numbers<float>(count, 3);
  std::vector<float> dw = numbers<float>(count, 5);
  const GuardedVector<float> device_w(w, offset), device_dw(dw, offset);
  const GuardedVector<BatchHeader> header({header_for(labels)});
  StepResult result{7, labels, 0.5};
  const GuardedVector<StepResult> device_result({result});
  const auto workspace = GuardedVector<unsigned char>::poisoned(cuda::l2_workspace_bytes(count));
  run([&](cudaStream_t stream) {
    cuda::l2_penalty(header.data(), 0.01f, device_w.data(), device_dw.data(), count,
                     device_result.data(), workspace.data(), stream);
  });
  host::l2_penalty(header_for(labels), 0.01f, w.data(), dw.data(), count, &result);
  expect_same(dw, device_dw, "dw");
  expect_same(w, device_w, "w is only read");
  EXPECT_TRUE(workspace.intact()) << "the workspace is too small";
  const double loss = device_result.to_host()[0].loss;
  const double bound = 2 * gamma(static_cast<double>(count) + 2, 0x1p-53) * result.loss;
  EXPECT_TRUE(std::abs(loss - result.loss) <= bound) << loss << ", the twin has " << result.loss;
  EXPECT_EQ(labels == 0, loss == 0.5) << "changed without a label, or not with some";
}

TEST_F(Kernels, L2Penalty) {
  for (const std::size_t offset : kOffsets)
    for (const std::int64_t count : kCounts)
      for (const std::int64_t labels : {0, 3}) check_l2(count, offset, labels);
}

// More packs than the largest grid has threads, and a rest behind the last.
TEST_F(KernelsLarge, ElementsBeyondTheGrid) {
  check_relu_forward<float>((std::int64_t{1} << 26) + 259, 0);
  check_relu_backward<bf16>((std::int64_t{1} << 27) + 7, 0);
  check_l2((std::int64_t{1} << 23) + 5, 0, 3);
}

// --- bias ---

template <class T>
void check_bias_forward(std::int64_t pixels, std::int64_t channels, std::size_t offset) {
  SCOPED_TRACE(std::to_string(pixels) + " pixels, " + std::to_string(channels) +
               " channels, offset " + std::to_string(offset));
  const std::vector<T> b = numbers<T>(channels, 4);
  std::vector<T> y = numbers_and_specials<T>(pixels * channels, 5);
  const GuardedVector<T> device_b(b, offset), device_y(y, offset);
  host::bias_forward(b.data(), y.data(), pixels, channels);
  run([&](cudaStream_t stream) {
    cuda::bias_forward(device_b.data(), device_y.data(), pixels, channels, stream);
  });
  expect_same(y, device_y, "y");
}

/// Runs bias_backward in a poisoned workspace of just the size it asks for.
template <class T>
std::vector<float> bias_backward(const GuardedVector<T>& dy, std::int64_t pixels,
                                 std::int64_t channels) {
  const auto db = GuardedVector<float>::poisoned(static_cast<std::size_t>(channels));
  const auto workspace = GuardedVector<unsigned char>::poisoned(
      cuda::bias_backward_workspace_bytes(pixels, channels, sizeof(T)));
  run([&](cudaStream_t stream) {
    cuda::bias_backward(dy.data(), db.data(), pixels, channels, workspace.data(), stream);
  });
  EXPECT_TRUE(db.intact()) << "db: a guard was written";
  EXPECT_TRUE(workspace.intact()) << "the workspace is too small";
  return db.to_host();
}

/// The sums in long double. Kernel and twin add in double, each in its own order, and round once to
/// float: gamma(pixels - 1) S, then half an ulp.
template <class T>
std::vector<Expected> bias_sums(const std::vector<T>& dy, std::int64_t pixels,
                                std::int64_t channels) {
  std::vector<long double> sum(static_cast<std::size_t>(channels)), magnitude(sum.size());
  for (std::size_t p = 0; p < static_cast<std::size_t>(pixels); ++p) {
    for (std::size_t k = 0; k < sum.size(); ++k) {
      const double value = as_double(dy[p * sum.size() + k]);
      sum[k] += value;
      magnitude[k] += std::abs(value);
    }
  }
  std::vector<Expected> result;
  for (std::size_t k = 0; k < sum.size(); ++k) {
    const auto value = static_cast<double>(sum[k]);
    const double error =
        sum_tolerance(static_cast<double>(pixels), DType::f64) * static_cast<double>(magnitude[k]);
    result.push_back({value, error + unit_roundoff(DType::f32) * (std::abs(value) + error)});
  }
  return result;
}

template <class T>
void check_bias_backward(std::int64_t pixels, std::int64_t channels, std::size_t offset) {
  SCOPED_TRACE(std::to_string(pixels) + " pixels, " + std::to_string(channels) +
               " channels, offset " + std::to_string(offset));
  const std::vector<T> dy = numbers<T>(pixels * channels, 6);
  const std::vector<Expected> expected = bias_sums(dy, pixels, channels);
  const GuardedVector<T> device_dy(dy, offset);
  EXPECT_TRUE(all_close(expected, as_doubles(bias_backward(device_dy, pixels, channels)),
                        DType::f32, "db"));
  std::vector<float> twin(static_cast<std::size_t>(channels));
  host::bias_backward(dy.data(), twin.data(), pixels, channels);
  EXPECT_TRUE(all_close(expected, as_doubles(twin), DType::f32, "db of the twin"));
}

TEST_F(Kernels, BiasForward) {
  for (const std::size_t offset : kOffsets) {
    for (const std::int64_t channels : kChannels) {
      for (const std::int64_t pixels : kPixels) {
        check_bias_forward<float>(pixels, channels, offset);
        check_bias_forward<bf16>(pixels, channels, offset);
      }
    }
  }
}

TEST_F(Kernels, BiasBackward) {
  for (const std::size_t offset : kOffsets) {
    for (const std::int64_t channels : kChannels) {
      for (const std::int64_t pixels : kPixels) {
        check_bias_backward<float>(pixels, channels, offset);
        check_bias_backward<bf16>(pixels, channels, offset);
      }
    }
  }
}

// A sum of whole numbers is exact in any order: not one pixel may be left out or counted twice.
TEST_F(Kernels, BiasBackwardCountsEveryPixelOnce) {
  for (const std::int64_t channels : {1, 10, 11, 16, 300}) {
    for (const std::int64_t pixels : {1, 63, 64, 65, 4099, 70001}) {
      SCOPED_TRACE(std::to_string(pixels) + " pixels, " + std::to_string(channels) + " channels");
      const std::vector<float> expected(static_cast<std::size_t>(channels),
                                        static_cast<float>(pixels));
      for (const std::size_t offset : kOffsets) {
        const auto count = static_cast<std::size_t>(pixels * channels);
        const GuardedVector<float> ones(std::vector<float>(count, 1.0f), offset);
        EXPECT_TRUE(same(expected, bias_backward(ones, pixels, channels)));
        const GuardedVector<bf16> small_ones(std::vector<bf16>(count, bf16(1.0f)), offset);
        EXPECT_TRUE(same(expected, bias_backward(small_ones, pixels, channels)));
      }
    }
  }
}

TEST_F(Kernels, BiasBackwardKeepsNaN) {
  std::vector<float> dy(11 * 257, 1.0f);
  dy[11 * 256 + 3] = kNaN;
  std::vector<float> expected(11, 257.0f);
  expected[3] = kNaN;
  EXPECT_TRUE(same(expected, bias_backward(GuardedVector<float>(dy), 257, 11)));
}

TEST_F(Kernels, BiasBackwardOfNoPixelsIsZero) {
  const auto db = GuardedVector<float>::poisoned(11);
  run([&](cudaStream_t stream) {
    cuda::bias_backward<float>(nullptr, db.data(), 0, 11, nullptr, stream);
  });
  expect_same(std::vector<float>(11, 0.0f), db, "db");
}

/// The fused kernels against the two that each stands for, bit for bit.
template <class T>
void check_fused(std::int64_t pixels, std::int64_t channels, std::size_t offset) {
  SCOPED_TRACE(std::to_string(pixels) + " pixels, " + std::to_string(channels) +
               " channels, offset " + std::to_string(offset));
  const std::int64_t count = pixels * channels;
  const std::vector<T> b = numbers<T>(channels, 4);
  const std::vector<T> y = numbers_and_specials<T>(count, 5), dy = numbers<T>(count, 6);
  const auto workspace = GuardedVector<unsigned char>::poisoned(
      cuda::bias_backward_workspace_bytes(pixels, channels, sizeof(T)));

  const GuardedVector<T> device_b(b, offset), plain_y(y, offset), fused_y(y, offset);
  run([&](cudaStream_t stream) {
    cuda::bias_forward(device_b.data(), plain_y.data(), pixels, channels, stream);
    cuda::relu_forward(plain_y.data(), count, stream);
    cuda::bias_relu_forward(device_b.data(), fused_y.data(), pixels, channels, stream);
  });
  expect_same(plain_y.to_host(), fused_y, "y of bias and ReLU");

  const GuardedVector<T> plain_dy(dy, offset), fused_dy(dy, offset);
  const auto db = GuardedVector<float>::poisoned(static_cast<std::size_t>(channels));
  run([&](cudaStream_t stream) {
    cuda::relu_backward(plain_y.data(), plain_dy.data(), count, stream);
    cuda::relu_bias_backward(plain_y.data(), fused_dy.data(), db.data(), pixels, channels,
                             workspace.data(), stream);
  });
  EXPECT_TRUE(workspace.intact()) << "the workspace is too small";
  expect_same(plain_dy.to_host(), fused_dy, "dy before ReLU");
  expect_same(bias_backward(plain_dy, pixels, channels), db, "db");
  expect_same(fused_y.to_host(), plain_y, "y is only read");
}

TEST_F(Kernels, FusedPointwiseHasTheBitsOfItsParts) {
  for (const std::size_t offset : kOffsets) {
    for (const std::int64_t channels : kChannels) {
      for (const std::int64_t pixels : kPixels) {
        check_fused<float>(pixels, channels, offset);
        check_fused<bf16>(pixels, channels, offset);
      }
    }
  }
}

TEST_F(KernelsLarge, BiasOfTheWorkload) {
  constexpr std::int64_t kPixelsOfBatch = std::int64_t{128} * 256 * 256;
  check_bias_forward<bf16>(kPixelsOfBatch, 16, 0);
  check_bias_backward<bf16>(kPixelsOfBatch, 16, 0);
  check_bias_backward<float>(kPixelsOfBatch, 10, 0);
  check_bias_forward<float>(kPixelsOfBatch / 2 + 1, 11, 0);
}

// --- 64-bit indices ---

TEST_F(KernelsLarge, MoreThanTwoToThe31Elements) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 48;  // a multiple of 16
  constexpr std::size_t kBytes = static_cast<std::size_t>(kCount) * sizeof(bf16), kGuard = 256;
  std::size_t available = 0, total = 0;
  TANDEM_CUDA_TRY(cudaMemGetInfo(&available, &total));
  if (available < kBytes + (std::size_t{1} << 30)) GTEST_SKIP() << "needs 5 GB of device memory";
  void* memory = nullptr;
  TANDEM_CUDA_TRY(cudaMalloc(&memory, kBytes + kGuard));
  TANDEM_CUDA_TRY(cudaMemset(memory, 0xBF, kBytes + kGuard));  // bf16 of -1.49
  TANDEM_CUDA_TRY(cudaDeviceSynchronize());
  {
    const GuardedVector<bf16> b(std::vector<bf16>(16, bf16(3.0f)));
    run([&](cudaStream_t stream) {
      cuda::relu_forward(static_cast<bf16*>(memory), kCount, stream);
      cuda::bias_forward(b.data(), static_cast<bf16*>(memory), kCount / 16, 16, stream);
    });
  }
  // Every element 3, every byte behind them as it was.
  std::vector<unsigned char> bytes(std::size_t{1} << 26);
  std::size_t wrong = 0, first_wrong = 0;
  for (std::size_t from = 0; from < kBytes + kGuard; from += bytes.size()) {
    const std::size_t size = std::min(bytes.size(), kBytes + kGuard - from);
    TANDEM_CUDA_TRY(cudaMemcpy(bytes.data(), static_cast<unsigned char*>(memory) + from, size,
                               cudaMemcpyDeviceToHost));
    for (std::size_t i = 0; i < size; ++i) {
      const unsigned char expected = from + i >= kBytes ? 0xBF : 0x40;  // 3 is 0x4040
      if (bytes[i] != expected && wrong++ == 0) first_wrong = from + i;
    }
  }
  TANDEM_CUDA_TRY(cudaFree(memory));
  EXPECT_EQ(wrong, 0u) << "the first wrong byte is " << first_wrong;
}

// --- softmax and cross-entropy ---

/// What a loss reads.
struct LossInput {
  std::vector<float> logits;
  std::vector<std::uint8_t> labels;
  int ignore_label = 255;
  BatchHeader header;
  std::int64_t classes = 1;

  std::int64_t pixels() const { return static_cast<std::int64_t>(labels.size()); }
};

/// What it writes.
template <class T>
struct LossOutput {
  std::vector<T> dlogits;
  StepResult result;

  Raster result_values() const {
    return {static_cast<double>(result.step), static_cast<double>(result.valid_count), result.loss};
  }
};

/// Logits of a few units; one label in seven is ignored.
LossInput loss_input(std::int64_t pixels, std::int64_t classes) {
  LossInput in;
  in.classes = classes;
  in.ignore_label = classes <= 255 ? 255 : 7;
  for (std::int64_t i = 0; i < pixels * classes; ++i) {
    const auto h = static_cast<float>(hash(8, static_cast<std::uint64_t>(i)) >> 40);
    in.logits.push_back(h * 0x1p-20f - 8);
  }
  std::int64_t count = 0;
  for (std::int64_t p = 0; p < pixels; ++p) {
    const std::uint64_t h = hash(9, static_cast<std::uint64_t>(p));
    const bool ignored = p > 0 && h % 7 == 0;
    const auto label = static_cast<int>((h >> 8) % static_cast<std::uint64_t>(classes));
    in.labels.push_back(static_cast<std::uint8_t>(ignored ? in.ignore_label : label));
    if (in.labels.back() != in.ignore_label) ++count;
  }
  in.header = header_for(count);
  return in;
}

enum class Loss { softmax, binary };

template <class T>
LossOutput<T> kernel_loss(const LossInput& in, std::size_t offset, Loss loss = Loss::softmax) {
  const GuardedVector<float> logits(in.logits, offset);
  const GuardedVector<std::uint8_t> labels(in.labels, offset);
  const GuardedVector<BatchHeader> header({in.header});
  const auto dlogits = GuardedVector<T>::poisoned(in.logits.size(), offset);
  const auto result = GuardedVector<StepResult>::poisoned(1);
  const auto workspace = GuardedVector<unsigned char>::poisoned(
      loss == Loss::softmax ? cuda::softmax_workspace_bytes(in.pixels(), in.classes)
                            : cuda::binary_workspace_bytes(in.pixels(), in.classes));
  const auto launch =
      loss == Loss::softmax ? cuda::softmax_cross_entropy<T> : cuda::binary_cross_entropy<T>;
  run([&](cudaStream_t stream) {
    launch(header.data(), logits.data(), labels.data(), in.ignore_label, in.pixels(), in.classes,
           dlogits.data(), result.data(), workspace.data(), stream);
  });
  EXPECT_TRUE(dlogits.intact()) << "dlogits: a guard was written";
  EXPECT_TRUE(result.intact()) << "result: a guard was written";
  EXPECT_TRUE(workspace.intact()) << "the workspace is too small";
  return {dlogits.to_host(), result.to_host()[0]};
}

template <class T>
LossOutput<T> twin_loss(const LossInput& in, Loss loss = Loss::softmax) {
  LossOutput<T> out;
  out.dlogits.resize(in.logits.size());
  const auto twin =
      loss == Loss::softmax ? host::softmax_cross_entropy<T> : host::binary_cross_entropy<T>;
  twin(in.header, in.logits.data(), in.labels.data(), in.ignore_label, in.pixels(), in.classes,
       out.dlogits.data(), &out.result);
  return out;
}

/// Kernel and twin within the oracle's bounds, which count the roundings of sums in any order and
/// the documented errors of exp and log.
template <class T>
void check_loss(const LossInput& in, Loss loss = Loss::softmax) {
  Operation op;
  op.kind = loss == Loss::softmax ? OpKind::softmax_cross_entropy : OpKind::binary_cross_entropy;
  op.ignore_label = in.ignore_label;
  TensorDesc logits{DType::f32, Layout::nhwc, 1, 1, in.pixels(), in.classes}, dlogits = logits;
  dlogits.dtype = kType<T>;
  const TensorDesc labels{DType::u8, Layout::nhwc, 1, 1, in.pixels(), 1};
  op.operands = {{0, logits, Access::read, "logits", false},
                 {1, labels, Access::read, "labels", false},
                 {2, byte_desc(sizeof(BatchHeader)), Access::read, "header", false},
                 {3, dlogits, Access::write, "dlogits", false},
                 {4, byte_desc(sizeof(StepResult)), Access::write, "result", false}};
  const std::vector<std::vector<Expected>> expected =
      oracle(op, {as_doubles(in.logits), as_doubles(in.labels), {}, {}, {}}, in.header);

  const LossOutput<T> twin = twin_loss<T>(in, loss);
  EXPECT_TRUE(all_close(expected[3], as_doubles(twin.dlogits), kType<T>, "dlogits of the twin"));
  EXPECT_TRUE(all_close(expected[4], twin.result_values(), DType::f64, "result of the twin"));
  for (const std::size_t offset : kOffsets) {
    SCOPED_TRACE("offset " + std::to_string(offset));
    const LossOutput<T> kernel = kernel_loss<T>(in, offset, loss);
    EXPECT_TRUE(all_close(expected[3], as_doubles(kernel.dlogits), kType<T>, "dlogits"));
    EXPECT_TRUE(all_close(expected[4], kernel.result_values(), DType::f64, "result"));
  }
}

TEST_F(Kernels, SoftmaxCrossEntropy) {
  for (const std::int64_t classes : {1, 2, 3, 10, 11, 16, 31, 32, 33, 64, 100, 254, 256}) {
    for (const std::int64_t pixels : {1, 31, 32, 33, 255, 256, 257, 1003}) {
      SCOPED_TRACE(std::to_string(pixels) + " pixels, " + std::to_string(classes) + " classes");
      check_loss<float>(loss_input(pixels, classes));
      check_loss<bf16>(loss_input(pixels, classes));
    }
  }
}

TEST_F(Kernels, BinaryCrossEntropy) {
  for (const std::int64_t classes : {1, 2, 3, 10, 33, 254}) {
    for (const std::int64_t pixels : {1, 31, 128, 257, 1003}) {
      SCOPED_TRACE(std::to_string(pixels) + " pixels, " + std::to_string(classes) + " classes");
      check_loss<float>(loss_input(pixels, classes), Loss::binary);
      check_loss<bf16>(loss_input(pixels, classes), Loss::binary);
    }
  }
}

// More logits than the largest grid has threads.
TEST_F(KernelsLarge, BinaryCrossEntropyBeyondTheGrid) {
  check_loss<float>(loss_input(262144 + 300, 3), Loss::binary);
}

TEST_F(Kernels, BinaryCrossEntropyOfNaNAndOfLargeLogits) {
  LossInput in = loss_input(257, 3);
  for (std::size_t i = 0; i < in.logits.size(); ++i) in.logits[i] *= i % 3 == 0 ? 1e4f : 1e-4f;
  check_loss<float>(in, Loss::binary);
  EXPECT_TRUE(std::isfinite(kernel_loss<float>(in, 0, Loss::binary).result.loss));
  in.labels[200] = 0;
  in.logits[3 * 200 + 1] = kNaN;
  const LossOutput<float> kernel = kernel_loss<float>(in, 0, Loss::binary);
  EXPECT_TRUE(std::isnan(kernel.result.loss));
  EXPECT_TRUE(std::isnan(kernel.dlogits[3 * 200 + 1]));
  EXPECT_FALSE(std::isnan(kernel.dlogits[3 * 200]));
}

// More tiles than blocks.
TEST_F(KernelsLarge, SoftmaxTilesBeyondTheGrid) {
  check_loss<float>(loss_input(262144 + 300, 10));
  check_loss<bf16>(loss_input(32768 + 300, 40));
}

TEST_F(Kernels, SoftmaxOfLargeLogitsIsFinite) {
  for (const std::int64_t classes : {10, 40}) {
    LossInput in = loss_input(257, classes);
    for (std::size_t i = 0; i < in.logits.size(); ++i) in.logits[i] *= i % 3 == 0 ? 1e4f : 1e-4f;
    check_loss<float>(in);
    EXPECT_TRUE(std::isfinite(kernel_loss<float>(in, 0).result.loss));
  }
}

/// Compares which elements are NaN; the others are compared by the bounds of other tests.
template <class T>
void expect_same_nans(const LossInput& in) {
  const LossOutput<T> twin = twin_loss<T>(in);
  for (const std::size_t offset : kOffsets) {
    const LossOutput<T> kernel = kernel_loss<T>(in, offset);
    EXPECT_EQ(std::isnan(kernel.result.loss), std::isnan(twin.result.loss));
    for (std::size_t i = 0; i < twin.dlogits.size(); ++i) {
      EXPECT_EQ(std::isnan(as_double(kernel.dlogits[i])), std::isnan(as_double(twin.dlogits[i])))
          << "element " << i;
    }
  }
}

TEST_F(Kernels, NaNAndInfiniteLogitsReachTheLoss) {
  for (const std::int64_t classes : {1, 10, 40}) {
    for (const float bad : {kNaN, kInfinity}) {
      // In each class of one pixel in turn: the label's, the first, the last.
      for (std::int64_t k = 0; k < classes; ++k) {
        SCOPED_TRACE(std::to_string(classes) + " classes, class " + std::to_string(k));
        LossInput in = loss_input(300, classes);
        in.labels[290] = 0;
        in.logits[static_cast<std::size_t>(290 * classes + k)] = bad;
        EXPECT_TRUE(std::isnan(kernel_loss<float>(in, 0).result.loss));
        expect_same_nans<float>(in);
        expect_same_nans<bf16>(in);
      }
    }
    // All of a row at minus infinity: the largest is infinite.
    LossInput in = loss_input(300, classes);
    in.labels[290] = 0;
    for (std::int64_t k = 0; k < classes; ++k) {
      in.logits[static_cast<std::size_t>(290 * classes + k)] = -kInfinity;
    }
    EXPECT_TRUE(std::isnan(kernel_loss<float>(in, 0).result.loss));
    expect_same_nans<float>(in);
  }
}

TEST_F(Kernels, AnIgnoredPixelContributesNothing) {
  for (const std::int64_t classes : {10, 40}) {
    LossInput in = loss_input(300, classes);
    in.labels[290] = 255;
    const LossOutput<float> before = kernel_loss<float>(in, 0);
    for (std::int64_t k = 0; k < classes; ++k) {
      in.logits[static_cast<std::size_t>(290 * classes + k)] = kNaN;
    }
    const LossOutput<float> after = kernel_loss<float>(in, 0);
    EXPECT_EQ(before.result.loss, after.result.loss);
    EXPECT_TRUE(std::isfinite(after.result.loss));
    EXPECT_TRUE(same(before.dlogits, after.dlogits));
  }
}

TEST_F(Kernels, ALabelThatIsNoClassIsNaN) {
  for (const std::int64_t classes : {10, 40}) {
    LossInput in = loss_input(300, classes);
    in.labels[290] = static_cast<std::uint8_t>(classes);
    EXPECT_TRUE(std::isnan(kernel_loss<float>(in, 0).result.loss));
    expect_same_nans<float>(in);
    expect_same_nans<bf16>(in);
  }
}

TEST_F(Kernels, NoValidLabelIsALossOfZero) {
  for (const std::int64_t classes : {10, 40}) {
    LossInput in = loss_input(300, classes);
    in.labels.assign(in.labels.size(), 255);
    in.header = header_for(0);
    for (float& logit : in.logits) logit = kNaN;
    const LossOutput<bf16> out = kernel_loss<bf16>(in, 0);
    EXPECT_EQ(out.result_values(), (Raster{41, 0, 0}));
    EXPECT_TRUE(same(std::vector<bf16>(in.logits.size(), bf16(0.0f)), out.dlogits));
  }
}

// --- argmax ---

void check_argmax(const std::vector<float>& logits, std::int64_t pixels, std::int64_t classes) {
  std::vector<std::uint8_t> y(static_cast<std::size_t>(pixels));
  host::argmax(logits.data(), pixels, classes, y.data());
  for (const std::size_t offset : kOffsets) {
    SCOPED_TRACE(std::to_string(pixels) + " pixels, " + std::to_string(classes) +
                 " classes, offset " + std::to_string(offset));
    const GuardedVector<float> device_logits(logits, offset);
    const auto device_y = GuardedVector<std::uint8_t>::poisoned(y.size(), offset);
    run([&](cudaStream_t stream) {
      cuda::argmax(device_logits.data(), pixels, classes, device_y.data(), stream);
    });
    expect_same(y, device_y, "y");
  }
}

TEST_F(Kernels, Argmax) {
  for (const std::int64_t classes : {1, 2, 3, 10, 11, 16, 32, 33, 64, 254, 256}) {
    for (const std::int64_t pixels : {1, 31, 32, 33, 255, 256, 257, 1003}) {
      check_argmax(numbers_and_specials<float>(pixels * classes, 10), pixels, classes);
      // Few values, so that most rows have their largest more than once: the first counts.
      std::vector<float> ties;
      for (std::int64_t i = 0; i < pixels * classes; ++i) {
        ties.push_back(static_cast<float>(hash(11, static_cast<std::uint64_t>(i)) % 3));
      }
      check_argmax(ties, pixels, classes);
    }
  }
}

TEST_F(Kernels, ArgmaxOfNaNIsThatOfTheTwin) {
  for (const std::int64_t classes : {10, 40}) {
    for (std::int64_t k = 0; k < classes; ++k) {
      std::vector<float> logits = numbers<float>(33 * classes, 12);
      logits[static_cast<std::size_t>(32 * classes + k)] = kNaN;
      check_argmax(logits, 33, classes);
    }
  }
}

// --- updates ---

void check_sgd(std::int64_t count, std::int64_t valid_count, std::size_t offset) {
  SCOPED_TRACE(std::to_string(count) + ", count " + std::to_string(valid_count) + ", offset " +
               std::to_string(offset));
  const BatchHeader header = header_for(valid_count);
  const std::vector<float> dw = numbers_and_specials<float>(count, 0);
  std::vector<float> w = numbers_and_specials<float>(count, 1);
  std::vector<float> v = numbers_and_specials<float>(count, 2), momentum_w = w;
  const GuardedVector<BatchHeader> device_header({header});
  const GuardedVector<float> device_dw(dw, offset), device_w(w, offset), device_v(v, offset),
      device_momentum_w(momentum_w, offset);
  run([&](cudaStream_t stream) {
    for (int step = 0; step < 3; ++step) {
      host::sgd(header, dw.data(), w.data(), count);
      host::sgd_momentum(header, dw.data(), v.data(), momentum_w.data(), count);
      cuda::sgd(device_header.data(), device_dw.data(), device_w.data(), count, stream);
      cuda::sgd_momentum(device_header.data(), device_dw.data(), device_v.data(),
                         device_momentum_w.data(), count, stream);
    }
  });
  expect_same(w, device_w, "weights");
  expect_same(v, device_v, "velocities");
  expect_same(momentum_w, device_momentum_w, "weights with momentum");
  expect_same(dw, device_dw, "gradients are only read");
}

TEST_F(Kernels, Sgd) {
  for (const std::size_t offset : kOffsets) {
    for (const std::int64_t count : kCounts) check_sgd(count, 517, offset);
    check_sgd(257, (std::int64_t{1} << 24) + 1, offset);
    check_sgd(257, 0, offset);  // nothing changes
  }
}

// --- cast ---

template <class In, class Out>
void check_cast(const std::vector<In>& x) {
  const auto count = static_cast<std::int64_t>(x.size());
  std::vector<Out> y(x.size());
  host::cast(x.data(), y.data(), count);
  for (const std::size_t offset : kOffsets) {
    SCOPED_TRACE(std::to_string(count) + ", offset " + std::to_string(offset));
    const GuardedVector<In> device_x(x, offset);
    const auto device_y = GuardedVector<Out>::poisoned(y.size(), offset);
    run([&](cudaStream_t stream) { cuda::cast(device_x.data(), device_y.data(), count, stream); });
    expect_same(y, device_y, "y");
  }
}

TEST_F(Kernels, CastOfEveryBf16) {
  std::vector<bf16> x(1 << 16);
  for (std::size_t i = 0; i < x.size(); ++i) x[i].bits = static_cast<std::uint16_t>(i);
  check_cast<bf16, float>(x);
}

TEST_F(Kernels, CastOfFloats) {
  for (const std::int64_t count : kCounts) {
    check_cast<float, bf16>(numbers_and_specials<float>(count, 13));
    check_cast<bf16, float>(numbers_and_specials<bf16>(count, 13));
  }
  // Any bits, and around every value of bf16: just below a tie, the tie, just above.
  std::vector<float> x(4 << 16);
  for (std::uint32_t i = 0; i < x.size(); ++i) {
    const std::uint32_t low[] = {0x7fff, 0x8000, 0x8001,
                                 static_cast<std::uint32_t>(hash(14, i)) & 0xffff};
    const std::uint32_t word = (i / 4) << 16 | low[i % 4];
    std::memcpy(&x[i], &word, sizeof word);
  }
  check_cast<float, bf16>(x);
}

// --- the same bits again ---

template <class T>
void check_repeats() {
  const LossInput in = loss_input(100003, 10), many = loss_input(5003, 40);
  const std::vector<T> dy = numbers<T>(100003 * 11, 15);
  const GuardedVector<T> device_dy(dy);
  const auto all = [&] {
    return std::tuple(kernel_loss<T>(in, 0), kernel_loss<T>(many, 0),
                      bias_backward(device_dy, 100003, 11));
  };
  const auto [loss, many_loss, db] = all();
  const auto compare = [&, &first = loss, &second = many_loss, &sums = db](const char* when) {
    const auto [loss_again, many_again, db_again] = all();
    EXPECT_TRUE(same(first.dlogits, loss_again.dlogits)) << when;
    EXPECT_EQ(first.result.loss, loss_again.result.loss) << when;
    EXPECT_TRUE(same(second.dlogits, many_again.dlogits)) << when;
    EXPECT_EQ(second.result.loss, many_again.result.loss) << when;
    EXPECT_TRUE(same(sums, db_again)) << when;
  };
  compare("alone");
  const BusyStream busy;
  compare("beside a busy stream");
}

TEST_F(Kernels, RepeatsAlsoBesideABusyStream) {
  check_repeats<float>();
  check_repeats<bf16>();
}

// --- launches ---

TEST_F(Kernels, NoElementsIsNoLaunch) {
  const ImageShape none{0, 4, 4, 3};
  EXPECT_NO_THROW(cuda::u8_to_float<float>(none, nullptr, 1, ImageOrder::nhwc, nullptr, nullptr));
  EXPECT_NO_THROW(
      cuda::permute<bf16>(none, ImageOrder::nhwc, nullptr, ImageOrder::zorder, nullptr, nullptr));
  EXPECT_NO_THROW(cuda::relu_forward<float>(nullptr, 0, nullptr));
  EXPECT_NO_THROW(cuda::relu_backward<float>(nullptr, nullptr, 0, nullptr));
  EXPECT_NO_THROW(cuda::bias_forward<float>(nullptr, nullptr, 0, 4, nullptr));
  EXPECT_NO_THROW(cuda::sigmoid_forward<float>(nullptr, nullptr, 0, nullptr));
  EXPECT_NO_THROW(cuda::sigmoid_backward<float>(nullptr, nullptr, 0, nullptr));
  EXPECT_NO_THROW(cuda::l2_penalty(nullptr, 1, nullptr, nullptr, 0, nullptr, nullptr, nullptr));
  EXPECT_NO_THROW(cuda::argmax(nullptr, 0, 4, nullptr, nullptr));
  EXPECT_NO_THROW(cuda::sgd(nullptr, nullptr, nullptr, 0, nullptr));
  EXPECT_NO_THROW(
      cuda::cast(static_cast<const float*>(nullptr), static_cast<bf16*>(nullptr), 0, nullptr));
  TANDEM_CUDA_TRY(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace tandem::test
