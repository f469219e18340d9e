// SPDX-License-Identifier: Apache-2.0
// Arithmetic of the augmentation, for host and device: where a part takes its pixels from, and in
// which order it adds. Every operation rounds, so that twin and kernels agree to the bit. A pixel
// is a value 0 .. 255 for each of three channels; coordinates are (x, y), x to the right.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tandem/kernels/augment.hpp>
#include <tandem/kernels/host_device.hpp>
#include <tandem/kernels/rounded.hpp>

namespace tandem {

// --- crop and flip ---

/// Column of the crop that stands at column x after the flip.
TANDEM_HD inline int flipped(int flip, int x, int crop_w) { return flip ? crop_w - 1 - x : x; }

// --- resize ---

/// The pixels of the crop that one pixel of the result is made of, along one axis.
struct ResizeSpan {
  std::int32_t first, count;
};

/// The resize along one axis: pixel i of the result is the sum over k of
/// weights[i * taps + k] * crop[span[i].first + k]. Every span lies within the crop.
struct ResizeAxis {
  const ResizeSpan* span;  ///< [out]
  const float* weights;    ///< [out, taps]
  int taps;
};

inline bool resizes(const AugmentSpec& spec) {
  return spec.crop_h != spec.out_h || spec.crop_w != spec.out_w;
}

/// Most pixels that a span has. Above 2 only where the filter is widened. Where it is 2, both
/// pixels of every span lie within the crop and weight 0 is 1 - weight 1, to the bit.
inline int resize_taps(std::int64_t in, std::int64_t out, bool antialias) {
  if (in == 1 || in == out) return 1;
  if (!antialias || in < out) return 2;
  return static_cast<int>(2 * ceil_div(in, out) + 1);
}

/// The axes within the tables of fill_augment_tables(), on host or device: no access to memory.
inline ResizeAxis resize_axis_x(const AugmentSpec& spec, const void* tables) {
  const auto* span = static_cast<const ResizeSpan*>(tables);
  return {span, reinterpret_cast<const float*>(span + spec.out_w),
          resize_taps(spec.crop_w, spec.out_w, spec.antialias)};
}
inline ResizeAxis resize_axis_y(const AugmentSpec& spec, const void* tables) {
  const ResizeAxis x = resize_axis_x(spec, tables);
  const auto* span = reinterpret_cast<const ResizeSpan*>(x.weights + spec.out_w * x.taps);
  return {span, reinterpret_cast<const float*>(span + spec.out_h),
          resize_taps(spec.crop_h, spec.out_h, spec.antialias)};
}

/// Sum of weights[k] * value(k), in the order of k; count >= 1. The resize takes it along x first,
/// then along y over the results.
template <class T, class Value>
TANDEM_HD inline T weighted_sum(const float* weights, int count, Value value) {
  T sum = mul_rn(value(0), static_cast<T>(weights[0]));
  for (int k = 1; k < count; ++k) {
    sum = add_rn(sum, mul_rn(value(k), static_cast<T>(weights[k])));
  }
  return sum;
}

/// The same for two taps.
template <class T>
TANDEM_HD inline T weighted_sum(T a, T weight_a, T b, T weight_b) {
  return add_rn(mul_rn(a, weight_a), mul_rn(b, weight_b));
}

// --- rotation ---

/// A pixel, by its column and row.
struct PixelIndex {
  int x, y;
};

TANDEM_HD inline bool is_inside(const PixelIndex& p, int w, int h) {
  return static_cast<unsigned>(p.x) < static_cast<unsigned>(w) &&
         static_cast<unsigned>(p.y) < static_cast<unsigned>(h);
}

/// Source of pixel (x, y) under a turn of the whole picture, counter-clockwise; not for general.
TANDEM_HD inline PixelIndex turned(Turn turn, int x, int y, int w, int h) {
  switch (turn) {
    case Turn::quarter:
      return {w - 1 - y, x};
    case Turn::half:
      return {w - 1 - x, h - 1 - y};
    case Turn::three_quarters:
      return {y, h - 1 - x};
    default:
      return {x, y};
  }
}

/// Distance of pixel i of n from the middle; exact.
TANDEM_HD inline float from_middle(int i, int n) {
  return 0.5f * static_cast<float>(2 * i - (n - 1));
}

/// One coordinate of where a pixel comes from, in torchvision's order of float operations:
/// along_x = x * m[0], along_y = y * m[1] and shift = m[2] (or m[3], m[4], m[5]), with x and y
/// from_middle(); half_size is half the width (height) of the picture.
TANDEM_HD inline float source_coordinate(float along_x, float along_y, float shift,
                                         float half_size) {
  const float grid = add_rn(add_rn(along_x, along_y), shift);
  return add_rn(mul_rn(add_rn(grid, 1.0f), half_size), -0.5f);
}

struct Coordinates {
  float x, y;
};

/// Both coordinates of the source of pixel (x, y) of a w x h picture.
TANDEM_HD inline Coordinates source_coordinates(const float* matrix, int x, int y, int w, int h) {
  const float dx = from_middle(x, w), dy = from_middle(y, h);
  return {source_coordinate(mul_rn(dx, matrix[0]), mul_rn(dy, matrix[1]), matrix[2],
                            0.5f * static_cast<float>(w)),
          source_coordinate(mul_rn(dx, matrix[3]), mul_rn(dy, matrix[4]), matrix[5],
                            0.5f * static_cast<float>(h))};
}

/// The nearest pixel, halves to the even one; for coordinates below 2^22. Adding 1.5 * 2^23 leaves
/// no room for a fraction, and the number stands in the lower bits.
TANDEM_HD inline int nearest_pixel(float coordinate) {
  const float shifted = add_rn(coordinate, 12582912.0f);
  std::int32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  return bits - 0x4B400000;
}

/// Rotation by bilinear: pixels outside count as 0, and so does their share of the weights, which
/// `fill` takes. inside(p) says whether a pixel is in the picture, value(p, c) what it holds.
template <class T, class Inside, class Value>
TANDEM_HD inline void rotate_bilinear(const Coordinates& at, float fill, Inside inside, Value value,
                                      T (&result)[kAugmentChannels]) {
  const float left = std::floor(at.x), top = std::floor(at.y);
  const T west = static_cast<T>(at.x - left), north = static_cast<T>(at.y - top);  // exact
  const T east = add_rn(T{1}, -west), south = add_rn(T{1}, -north);
  const T weight[4] = {mul_rn(east, south), mul_rn(west, south), mul_rn(east, north),
                       mul_rn(west, north)};
  T mask = 0;
  for (T& channel : result) channel = 0;
  for (int k = 0; k < 4; ++k) {
    const PixelIndex p = {static_cast<int>(left) + k % 2, static_cast<int>(top) + k / 2};
    if (!inside(p)) continue;
    mask = add_rn(mask, weight[k]);
    for (int c = 0; c < kAugmentChannels; ++c) {
      result[c] = add_rn(result[c], mul_rn(value(p, c), weight[k]));
    }
  }
  const T outside = static_cast<T>(fill);
  for (T& channel : result) channel = add_rn(mul_rn(add_rn(channel, -outside), mask), outside);
}

// --- blur ---

/// Where pixel i of a row of n is found, for i outside it too; -1: it is 0.
TANDEM_HD inline int border_index(Border border, int i, int n) {
  if (border == Border::constant) return i < 0 || i >= n ? -1 : i;
  if (border == Border::replicate) return i < 0 ? 0 : (i >= n ? n - 1 : i);
  const int repeated = border == Border::symmetric ? 1 : 0;  // of the edge
  while (i < 0 || i >= n) {
    i = i < 0 ? -repeated - i : 2 * (n - 1) + repeated - i;
  }
  return i;
}

/// One pixel of the blur along an axis: the middle first, then pairs of pixels at growing distance.
/// value(d) is the pixel at distance d. Further pairs of weight 0 do not change the result.
template <class T, class Value>
TANDEM_HD inline T blur_sum(const float* weights, int radius, Value value) {
  T sum = mul_rn(value(0), static_cast<T>(weights[0]));
  for (int d = 1; d <= radius; ++d) {
    sum = add_rn(sum, mul_rn(add_rn(value(-d), value(d)), static_cast<T>(weights[d])));
  }
  return sum;
}

// --- normalise ---

/// x / d, rounded once, with r = 1 / d rounded. The device takes one multiplication and two fused
/// ones, which give the bits of the division (P. Markstein, "Computation of elementary functions on
/// the IBM RISC System/6000 processor", 1990) unless the remainder falls below the normal numbers.
/// There both sides take them.
TANDEM_HD inline float divide(float x, float d, float r) {
#if !defined(__CUDA_ARCH__)
  if (x == 0 || std::fabs(x) >= 0x1p-100f) return x / d;
#endif
  const float quotient = mul_rn(x, r);
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(__fmaf_rn(-quotient, d, x), r, quotient);
#else
  return std::fma(std::fma(-quotient, d, x), r, quotient);
#endif
}
TANDEM_HD inline double divide(double x, double d, double) { return div_rn(x, d); }

/// What the values of one channel are normalised with.
template <class T>
struct Normalisation {
  T scale, mean, deviation, reciprocal;
};

template <class T>
TANDEM_HD inline Normalisation<T> normalisation(const AugmentSpec& spec, int channel) {
  const T deviation = static_cast<T>(spec.deviation[channel]);
  return {static_cast<T>(spec.scale), static_cast<T>(spec.mean[channel]), deviation,
          div_rn(T{1}, deviation)};
}

template <class T>
TANDEM_HD inline T normalise(const Normalisation<T>& n, T value) {
  return divide(add_rn(mul_rn(value, n.scale), -n.mean), n.deviation, n.reciprocal);
}

}  // namespace tandem
