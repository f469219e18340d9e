// SPDX-License-Identifier: Apache-2.0
// The kernels of the head against the plain operations in double, within the bounds of tensor
// cores. Outputs and workspaces are poisoned and lie between guards.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tandem/kernels/conv3x3_loss.hpp>
#include <tandem/tests/support/approx.hpp>
#include <tandem/tests/support/device_memory.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/head_reference.hpp>
#include <type_traits>
#include <vector>

namespace tandem::test {
namespace {

using Conv3x3LossKernels = GpuTest;
/// Apart, so that a run under a sanitizer can leave them out.
using Conv3x3LossKernelsLarge = GpuTest;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class T>
constexpr bool kIsBf16 = std::is_same_v<T, bf16>;
template <class T>
constexpr DType kType = kIsBf16<T> ? DType::bf16 : DType::f32;

std::string describe(const HeadCase& c, DType type) {
  return std::to_string(c.shape.n) + " x " + std::to_string(c.shape.side) + ", " +
         std::to_string(c.shape.classes) + " classes, " + name_of(type);
}

// --- what the kernels take and do ---

/// A factor of a product as the tensor cores get it: TF32 keeps 10 bits of the fraction, to
/// nearest, ties away from zero.
template <class T>
double as_factor(double value) {
  if (kIsBf16<T> || std::isnan(value)) return value;
  const auto stored = static_cast<float>(value);
  std::uint32_t word;
  std::memcpy(&word, &stored, sizeof word);
  word = (word + 0x1000u) & ~0x1fffu;
  float rounded;
  std::memcpy(&rounded, &word, sizeof rounded);
  return static_cast<double>(rounded);
}

/// The same case with the factors as the tensor cores get them: what the reference computes with.
template <class T>
HeadCase with_factors(HeadCase c) {
  for (Numbers* numbers : {&c.x, &c.w, &c.dlogits}) {
    for (double& number : *numbers) number = as_factor<T>(number);
  }
  return c;
}

/// Roundings of sums in tensor cores. Products of such factors are exact. An instruction adds
/// `terms` products and what it is given: it aligns them to the largest and cuts off what is below
/// 24 bits, which is at most 2^-23 of the largest, for each of them and for the result (M. Fasi,
/// N. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021).
template <class T>
double tensor_core_error(std::int64_t products) {
  constexpr int kTerms = kIsBf16<T> ? 16 : 8;
  return gamma(static_cast<double>(ceil_div<std::int64_t>(products, kTerms) * (kTerms + 2)),
               0x1p-23);
}

template <class T>
HeadErrors kernel_errors(const HeadCase& c) {
  constexpr double u = 0x1p-24;
  const std::int64_t tiles = cuda::conv3x3_loss_tiles(c.shape);
  // Four warps share a tile, then the sums of the warps are added.
  const std::int64_t tiles_a_block = ceil_div(tiles, cuda::conv3x3_loss_backward_blocks(c.shape));
  const std::int64_t pixels_a_warp = tiles_a_block * conv3x3_tile::kPixels / 4;
  // Of a tile a lane adds 16 gradients, or the tensor cores those of a warp; more in double, which
  // is rounded to float.
  const double tile_sum = std::max(gamma(16, u), tensor_core_error<T>(conv3x3_tile::kPixels / 4));
  return {tensor_core_error<T>(9 * kHeadChannels) + 0x1p-50, u + 0x1p-53, tile_sum + 2 * u,
          tensor_core_error<T>(pixels_a_warp) + gamma(5, u), kType<T>};
}

template <class T>
struct LossOutput {
  std::vector<T> dlogits;
  std::vector<float> db;
  StepResult result;
};

template <class T>
LossOutput<T> kernel_loss(const HeadCase& c) {
  const GuardedVector<T> x(head_storage<T>(c.x)), w(head_storage<T>(c.w));
  const GuardedVector<float> b(head_storage<float>(c.b));
  const GuardedVector<std::uint8_t> labels(c.labels);
  const GuardedVector<BatchHeader> header({c.header});
  const auto dlogits = GuardedVector<T>::poisoned(c.x.size());
  const auto db = GuardedVector<float>::poisoned(c.classes());
  const auto result = GuardedVector<StepResult>::poisoned(1);
  const auto workspace =
      GuardedVector<unsigned char>::poisoned(cuda::conv3x3_loss_workspace_bytes(c.shape));
  const TestStream stream;
  cuda::conv3x3_loss(c.shape, header.data(), x.data(), w.data(), b.data(), labels.data(),
                     c.ignore_label, dlogits.data(), db.data(), result.data(), workspace.data(),
                     stream.get());
  stream.wait();
  EXPECT_TRUE(dlogits.intact() && db.intact() && result.intact()) << "a guard was written";
  EXPECT_TRUE(workspace.intact()) << "the workspace is too small";
  return {dlogits.to_host(), db.to_host(), result.to_host()[0]};
}

template <class T>
struct BackwardOutput {
  std::vector<T> dx;
  std::vector<float> dw;
};

template <class T>
BackwardOutput<T> kernel_backward(const HeadCase& c) {
  const GuardedVector<T> dlogits(head_storage<T>(c.dlogits)), x(head_storage<T>(c.x)),
      w(head_storage<T>(c.w));
  const auto dx = GuardedVector<T>::poisoned(c.x.size());
  const auto dw = GuardedVector<float>::poisoned(c.w.size());
  const auto workspace =
      GuardedVector<unsigned char>::poisoned(cuda::conv3x3_loss_backward_workspace_bytes(c.shape));
  const TestStream stream;
  cuda::conv3x3_loss_backward(c.shape, dlogits.data(), x.data(), w.data(), dx.data(), dw.data(),
                              workspace.data(), stream.get());
  stream.wait();
  EXPECT_TRUE(dx.intact() && dw.intact()) << "a guard was written";
  EXPECT_TRUE(workspace.intact()) << "the workspace is too small";
  return {dx.to_host(), dw.to_host()};
}

template <class T>
void check_loss(const HeadCase& c) {
  SCOPED_TRACE(describe(c, kType<T>));
  const HeadErrors errors = kernel_errors<T>(c);
  const HeadLoss expected = head_loss(with_factors<T>(c), errors);
  const LossOutput<T> out = kernel_loss<T>(c);
  const Numbers dlogits = head_doubles(out.dlogits);
  EXPECT_TRUE(all_close(expected.dlogits, dlogits, kType<T>, "dlogits"));
  EXPECT_TRUE(all_close(expected.result, head_result(out.result), DType::f64, "result"));
  EXPECT_TRUE(
      all_close(head_bias_gradient(c, dlogits, errors), head_doubles(out.db), DType::f32, "db"));
}

template <class T>
void check_backward(const HeadCase& c) {
  SCOPED_TRACE(describe(c, kType<T>));
  const HeadGradients expected = head_gradients(with_factors<T>(c), kernel_errors<T>(c));
  const BackwardOutput<T> out = kernel_backward<T>(c);
  EXPECT_TRUE(all_close(expected.dx, head_doubles(out.dx), kType<T>, "dx"));
  EXPECT_TRUE(all_close(expected.dw, head_doubles(out.dw), DType::f32, "dw"));
}

template <class T>
void check(const Conv3x3LossShape& shape) {
  const HeadCase c = head_case<T>(shape);
  check_loss<T>(c);
  check_backward<T>(c);
}

// --- against the reference ---

TEST_F(Conv3x3LossKernels, EqualThePlainOperations) {
  for (const std::int64_t classes : {2, 3, 8, 9, 10, 11, 12, 13, 16}) {
    for (const std::int64_t n : {1, 2, 3, 5}) {
      check<bf16>({n, 32, classes});
      check<float>({n, 32, classes});
    }
  }
  for (const std::int64_t classes : {2, 10, 11, 16}) {
    check<bf16>({3, 64, classes});
    check<float>({3, 64, classes});
    check<bf16>({1, 128, classes});
    check<float>({1, 128, classes});
  }
}

// More tiles than blocks; 640 are 528 + 112 and 396 + 244.
TEST_F(Conv3x3LossKernelsLarge, MoreTilesThanBlocks) {
  check<bf16>({5, 256, 10});
  check<float>({5, 256, 10});
}

TEST_F(Conv3x3LossKernels, AnIgnoredLabelMayBeAClassOrNone) {
  HeadCase c = head_case<bf16>({1, 32, 10});
  for (std::uint8_t& label : c.labels) label = label == 255 ? 2 : label;
  for (const int ignored : {0, 9, -1, 256}) {
    SCOPED_TRACE(ignored);
    c.ignore_label = ignored;
    c.count_labels();
    check_loss<bf16>(c);
    check_loss<float>(c);
  }
}

TEST_F(Conv3x3LossKernels, LargeLogitsStayFinite) {
  for (const std::int64_t classes : {10, 16}) {
    HeadCase c = head_case<bf16>({1, 32, classes});
    for (std::size_t k = 0; k < c.b.size(); ++k) c.b[k] *= k % 3 == 0 ? 1e4 : 1e-4;
    check_loss<bf16>(c);
    check_loss<float>(c);
    c.b.assign(c.b.size(), -1e30);
    EXPECT_TRUE(std::isfinite(kernel_loss<bf16>(c).result.loss));
  }
}

// --- windows and borders: small integers, whose sums are exact ---

/// A pixel of each kind: corners and edges of the image, on both sides of the borders between
/// tiles, inside.
struct Pixel {
  std::int64_t y, x;
};
std::vector<Pixel> kinds_of_pixels() {
  std::vector<Pixel> pixels;
  for (const std::int64_t y : {0, 1, 15, 16, 37, 63}) {
    for (const std::int64_t x : {0, 31, 32, 45, 63}) pixels.push_back({y, x});
  }
  return pixels;
}

/// One image for each of those pixels; class k counts with tap (k + tap) % 3 and so on, so that
/// every tap of a class is another number.
HeadCase one_pixel_case(std::int64_t classes) {
  const auto n = static_cast<std::int64_t>(kinds_of_pixels().size());
  HeadCase c = empty_head_case({n, 64, classes});
  for (std::size_t i = 0; i < c.w.size(); ++i) {
    const std::size_t k = i / 144, tap = i / 16 % 9, channel = i % 16;
    c.w[i] = static_cast<double>((7 * k + 3 * tap + 5 * channel) % 19) - 9;
  }
  for (std::uint8_t& label : c.labels) label = 1;
  c.count_labels();
  return c;
}

template <class T>
void check_one_pixel_of_the_input(std::int64_t classes) {
  HeadCase c = one_pixel_case(classes);
  for (double& weight : c.w) weight /= 8;
  const LossOutput<T> without = kernel_loss<T>(c);
  const std::vector<Pixel> pixels = kinds_of_pixels();
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t at =
        head_offset(c.shape, static_cast<std::int64_t>(i), pixels[i].y, pixels[i].x);
    c.x[at + i % 16] = 1;
  }
  check_loss<T>(c);
  // Outside its window nothing changes, to the bit.
  const LossOutput<T> with = kernel_loss<T>(c);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    for (std::int64_t y = 0; y < 64; ++y) {
      for (std::int64_t x = 0; x < 64; ++x) {
        const std::size_t at = head_offset(c.shape, static_cast<std::int64_t>(i), y, x);
        const bool same = std::memcmp(&without.dlogits[at], &with.dlogits[at], 16 * sizeof(T)) == 0;
        const bool near = std::abs(y - pixels[i].y) <= 1 && std::abs(x - pixels[i].x) <= 1;
        EXPECT_EQ(same, !near) << "image " << i << ", pixel " << y << ", " << x;
      }
    }
  }
}

TEST_F(Conv3x3LossKernels, APixelReachesItsWindowsOnly) {
  for (const std::int64_t classes : {2, 10, 16}) {
    check_one_pixel_of_the_input<bf16>(classes);
    check_one_pixel_of_the_input<float>(classes);
  }
}

/// Both passes' sums are integers that bf16 holds, or float for the weights: no error is allowed.
template <class T>
void check_exact_gradients(const HeadCase& c) {
  SCOPED_TRACE(describe(c, kType<T>));
  const HeadErrors none{0, 0, 0, 0, DType::f64};
  HeadGradients expected = head_gradients(c, none);
  for (Expected& e : expected.dx) ASSERT_LE(std::abs(e.value), 256);
  for (Expected& e : expected.dw) {
    ASSERT_LT(std::abs(e.value), 1 << 24);
    e.bound = 0;
  }
  const BackwardOutput<T> out = kernel_backward<T>(c);
  EXPECT_TRUE(all_close(expected.dx, head_doubles(out.dx), kType<T>, "dx"));
  EXPECT_TRUE(all_close(expected.dw, head_doubles(out.dw), DType::f32, "dw"));
}

TEST_F(Conv3x3LossKernels, GradientsOfOnePixelAreExact) {
  for (const std::int64_t classes : {2, 10, 11, 16}) {
    HeadCase c = one_pixel_case(classes);
    for (double& x : c.x) x = 1;
    const std::vector<Pixel> pixels = kinds_of_pixels();
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const std::size_t at =
          head_offset(c.shape, static_cast<std::int64_t>(i), pixels[i].y, pixels[i].x);
      c.dlogits[at + i % c.classes()] = 3;
    }
    check_exact_gradients<bf16>(c);
    check_exact_gradients<float>(c);
    // And the other way round: one input counts for the weights.
    for (double& d : c.dlogits) d = 0;
    for (double& x : c.x) x = 0;
    for (std::size_t i = 0; i < c.dlogits.size(); ++i) {
      if (i % 16 < c.classes()) c.dlogits[i] = static_cast<double>(head_hash(3, i) % 3) - 1;
    }
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const std::size_t at =
          head_offset(c.shape, static_cast<std::int64_t>(i), pixels[i].y, pixels[i].x);
      c.x[at + i % 16] = 2;
    }
    for (double& weight : c.w) weight = weight > 0 ? 1 : weight < 0 ? -1 : 0;
    check_exact_gradients<bf16>(c);
    check_exact_gradients<float>(c);
  }
}

TEST_F(Conv3x3LossKernels, GradientsOfSmallIntegersAreExact) {
  for (const std::int64_t n : {1, 3, 5}) {
    for (const std::int64_t classes : {2, 10, 11, 16}) {
      HeadCase c = empty_head_case({n, 64, classes});
      const auto small = [](std::uint64_t h) { return static_cast<double>(h % 3); };
      c.x = head_numbers<bf16>(c.x.size(), 1, small);
      c.w = head_numbers<bf16>(c.w.size(), 2, [&](std::uint64_t h) { return small(h) - 1; });
      c.dlogits = head_numbers<bf16>(c.x.size(), 3, [&](std::uint64_t h) { return small(h) - 1; });
      for (std::size_t i = 0; i < c.dlogits.size(); ++i) {
        if (i % 16 >= c.classes()) c.dlogits[i] = 0;
      }
      check_exact_gradients<bf16>(c);
      check_exact_gradients<float>(c);
      // All ones: each sum is the number of its terms, fewer at a border.
      std::fill(c.x.begin(), c.x.end(), 1);
      std::fill(c.w.begin(), c.w.end(), 1);
      for (std::size_t i = 0; i < c.dlogits.size(); ++i) {
        c.dlogits[i] = i % 16 < c.classes() ? 1 : 0;
      }
      check_exact_gradients<bf16>(c);
      check_exact_gradients<float>(c);
    }
  }
}

// --- NaN, labels ---

template <class T>
bool is_nan(const T& value) {
  return std::isnan(load(value));
}

template <class T>
void check_nan_in_the_input() {
  HeadCase c = head_case<T>({2, 64, 10});
  for (std::uint8_t& label : c.labels) label = label == 255 ? 0 : label;
  c.labels[4096 + 15 * 64 + 33] = 255;  // of image 1
  c.count_labels();
  const LossOutput<T> before = kernel_loss<T>(c);
  c.x[head_offset(c.shape, 1, 16, 32) + 11] = kNaN;
  const LossOutput<T> after = kernel_loss<T>(c);
  EXPECT_TRUE(std::isfinite(before.result.loss));
  EXPECT_TRUE(std::isnan(after.result.loss));
  for (const float sum : after.db) EXPECT_TRUE(std::isnan(sum));
  for (std::int64_t image = 0; image < 2; ++image) {
    for (std::int64_t y = 0; y < 64; ++y) {
      for (std::int64_t x = 0; x < 64; ++x) {
        const std::size_t at = head_offset(c.shape, image, y, x);
        const bool ignored = c.labels[static_cast<std::size_t>((image * 64 + y) * 64 + x)] == 255;
        const bool near = image == 1 && std::abs(y - 16) <= 1 && std::abs(x - 32) <= 1;
        for (std::size_t k = 0; k < 16; ++k) {
          const T &b = before.dlogits[at + k], &a = after.dlogits[at + k];
          EXPECT_EQ(is_nan(a), near && !ignored && k < 10) << image << ", " << y << ", " << x;
          if (!near || ignored || k >= 10) {
            EXPECT_EQ(std::memcmp(&a, &b, sizeof(T)), 0);
          }
        }
      }
    }
  }
  // The gradient passes where the input is a NaN, and reaches all weights of the channel.
  const BackwardOutput<T> backward = kernel_backward<T>(c);
  EXPECT_FALSE(is_nan(backward.dx[head_offset(c.shape, 1, 16, 32) + 11]));
  EXPECT_NE(load(backward.dx[head_offset(c.shape, 1, 16, 32) + 11]), 0.0f);
  for (std::size_t i = 0; i < backward.dw.size(); ++i) {
    EXPECT_EQ(std::isnan(backward.dw[i]), i % 16 == 11) << i;
  }
}

TEST_F(Conv3x3LossKernels, NaNInTheInputReachesTheLossUnlessIgnored) {
  check_nan_in_the_input<bf16>();
  check_nan_in_the_input<float>();
}

template <class T>
void check_special_labels() {
  for (const std::int64_t classes : {10, 16}) {
    HeadCase c = head_case<T>({1, 32, classes});
    for (std::uint8_t& label : c.labels) label = label == 255 ? 0 : label;
    // In weights and bias, of each class.
    for (std::size_t k = 0; k < c.classes(); ++k) {
      HeadCase bad = c;
      bad.w[k * 144 + 77] = kNaN;
      EXPECT_TRUE(std::isnan(kernel_loss<T>(bad).result.loss)) << k;
      bad = c;
      bad.b[k] = kNaN;
      EXPECT_TRUE(std::isnan(kernel_loss<T>(bad).result.loss)) << k;
      bad.b[k] = std::numeric_limits<double>::infinity();
      EXPECT_TRUE(std::isnan(kernel_loss<T>(bad).result.loss)) << k;
    }
    HeadCase bad = c;
    bad.labels[77] = static_cast<std::uint8_t>(classes);
    const LossOutput<T> out = kernel_loss<T>(bad);
    EXPECT_TRUE(std::isnan(out.result.loss));
    for (std::size_t i = 0; i < out.dlogits.size(); ++i) {
      const std::size_t own = head_offset(c.shape, 0, 2, 13);
      EXPECT_EQ(is_nan(out.dlogits[i]), i >= own && i < own + c.classes()) << i;
    }
    // All ignored, in the face of NaN.
    bad.labels.assign(bad.labels.size(), 255);
    bad.x.assign(bad.x.size(), kNaN);
    bad.count_labels();
    const LossOutput<T> ignored = kernel_loss<T>(bad);
    EXPECT_EQ(head_result(ignored.result), (Numbers{41, 0, 0}));
    for (const T& d : ignored.dlogits) EXPECT_EQ(load(d), 0.0f);
    for (const float d : ignored.db) EXPECT_EQ(d, 0.0f);
  }
}

TEST_F(Conv3x3LossKernels, NaNInParametersAndLabelsThatAreNoClass) {
  check_special_labels<bf16>();
  check_special_labels<float>();
}

TEST_F(Conv3x3LossKernels, NoImagesIsALossOfZero) {
  HeadCase c = empty_head_case({0, 64, 10});
  const LossOutput<bf16> out = kernel_loss<bf16>(c);
  EXPECT_EQ(head_result(out.result), (Numbers{41, 0, 0}));
  for (const float d : out.db) EXPECT_EQ(d, 0.0f);
  for (const float d : kernel_backward<bf16>(c).dw) EXPECT_EQ(d, 0.0f);
}

// --- the same bits again ---

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
void check_repeats() {
  const HeadCase c = head_case<T>({3, 256, 10});
  const LossOutput<T> loss = kernel_loss<T>(c);
  const BackwardOutput<T> backward = kernel_backward<T>(c);
  // Beside another stream with the same kernels, so that blocks start in another order.
  const GuardedVector<T> x(head_storage<T>(c.x)), w(head_storage<T>(c.w));
  const auto dx = GuardedVector<T>::poisoned(c.x.size());
  const auto dw = GuardedVector<float>::poisoned(c.w.size());
  const auto workspace =
      GuardedVector<unsigned char>::poisoned(cuda::conv3x3_loss_backward_workspace_bytes(c.shape));
  const TestStream busy;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 20; ++j) {
      cuda::conv3x3_loss_backward(c.shape, x.data(), x.data(), w.data(), dx.data(), dw.data(),
                                  workspace.data(), busy.get());
    }
    const LossOutput<T> again = kernel_loss<T>(c);
    EXPECT_TRUE(same_bits(loss.dlogits, again.dlogits));
    EXPECT_TRUE(same_bits(loss.db, again.db));
    EXPECT_EQ(loss.result.loss, again.result.loss);
    const BackwardOutput<T> backward_again = kernel_backward<T>(c);
    EXPECT_TRUE(same_bits(backward.dx, backward_again.dx));
    EXPECT_TRUE(same_bits(backward.dw, backward_again.dw));
    busy.wait();
  }
}

TEST_F(Conv3x3LossKernelsLarge, RepeatAlsoBesideABusyStream) {
  check_repeats<bf16>();
  check_repeats<float>();
}

}  // namespace
}  // namespace tandem::test
