// SPDX-License-Identifier: Apache-2.0
// What the two kernels of conv3x3_loss.hpp share: tiles in shared memory, and factors of products
// for elements T, which are bf16 or float rounded to TF32. For .cu files.
#pragma once

#include <cstdint>
#include <tandem/kernels/conv3x3_loss.hpp>
#include <tandem/kernels/device.cuh>
#include <tandem/kernels/tensor_core.cuh>
#include <type_traits>

namespace tandem {

#if defined(__CUDACC__)

namespace conv3x3_tile {

inline constexpr int kC = kHeadChannels;
inline constexpr int kTaps = 9;
inline constexpr int kWarps = 4;
inline constexpr int kThreads = 32 * kWarps;
inline constexpr int kChunkBytes = 16;

template <class T>
inline constexpr bool kIsBf16 = std::is_same_v<T, bf16>;
template <class T>
inline constexpr int kPlaneChannels = kChunkBytes / static_cast<int>(sizeof(T));
template <class T>
inline constexpr int kPlanes = kC / kPlaneChannels<T>;
template <class T, class Layout>
inline constexpr int kBytes = kPlanes<T>* Layout::kPlane* kChunkBytes;

/// Address of channel `c` of pixel (x, y) in shared memory.
template <class T, class Layout>
__device__ inline unsigned char* address(unsigned char* pixels, int c, int x, int y) {
  return pixels + Layout::chunk(c / kPlaneChannels<T>, x, y) * kChunkBytes +
         c % kPlaneChannels<T> * static_cast<int>(sizeof(T));
}

/// Starts to copy a tile, whose pixels lie one after the other from `from` on.
template <class T, class Layout>
__device__ inline void load_inner(const T* from, unsigned char* tile) {
  constexpr int kPixelsAtOnce = kThreads / kPlanes<T>;
  const int thread = static_cast<int>(threadIdx.x);
  const Position p = inner_pixel(thread / kPlanes<T>);
  const T* source = from + thread * kPlaneChannels<T>;
  unsigned char* target =
      address<T, Layout>(tile, thread % kPlanes<T> * kPlaneChannels<T>, p.x, p.y);
#pragma unroll
  for (int first = 0; first < kPixels; first += kPixelsAtOnce) {
    const Position further = inner_pixel(first);  // added: no bit in common
    copy_async(target + Layout::shift(further.x, further.y) * kChunkBytes, source + first * kC);
  }
}

/// Starts to copy the ring around a tile of `image`, with zeros outside the image.
template <class T>
__device__ inline void load_ring(const T* image, int side, std::uint32_t first_index,
                                 unsigned char* tile) {
  const auto pixels = static_cast<std::uint32_t>(side) * static_cast<std::uint32_t>(side);
#pragma unroll
  for (int first = 0; first < kRingPixels * kPlanes<T>; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    if (i >= kRingPixels * kPlanes<T>) break;
    const Position p = ring_pixel(i / kPlanes<T>);
    const int c = i % kPlanes<T> * kPlaneChannels<T>;
    const std::uint32_t index = index_from(first_index, p);
    const bool inside = index < pixels;
    copy_async_or_zero(address<T, TileWithRing>(tile, c, p.x, p.y),
                       image + (inside ? index : 0) * kC + c, inside);
  }
}

/// Copies a unit, whose first pixel is (x, y) of `pixels`, to its place in the tile whose pixels
/// lie from `to` on. By one warp.
template <class T, class Layout>
__device__ inline void store_unit(unsigned char* pixels, int x, int y, T* to, int unit) {
  constexpr int kPixelsAtOnce = 32 / kPlanes<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int pixel = lane / kPlanes<T>, c = lane % kPlanes<T> * kPlaneChannels<T>;
  const Position p = unit_pixel(pixel);
  const unsigned char* source = address<T, Layout>(pixels, c, x + p.x, y + p.y);
  T* target = to + unit_index(unit, pixel) * kC + c;
#pragma unroll
  for (int first = 0; first < kUnitPixels; first += kPixelsAtOnce) {
    const Position further = unit_pixel(first);  // added: no bit in common
    *reinterpret_cast<uint4*>(target + unit_index(0, first) * kC) =
        *reinterpret_cast<const uint4*>(source + Layout::shift(further.x, further.y) * kChunkBytes);
  }
}

// --- factors ---

/// Products that a contraction of 16 takes, each over 16 or 8 of them.
template <class T>
inline constexpr int kSteps = kIsBf16<T> ? 1 : 2;

/// First factor, [16, 16], and second, [16, 8], in the registers of a warp.
template <class T>
struct First {
  std::uint32_t word[kSteps<T>][4];
};
template <class T>
struct Second {
  std::uint32_t word[kSteps<T>][2];
};

/// d += a b; which elements of d [16, 8] a lane holds see tensor_core.cuh.
template <class T>
__device__ inline void multiply_add(float (&d)[4], const First<T>& a, const Second<T>& b) {
#pragma unroll
  for (int step = 0; step < kSteps<T>; ++step) {
    if constexpr (kIsBf16<T>)
      multiply_add_bf16(d, a.word[step], b.word[step]);
    else
      multiply_add_tf32(d, a.word[step], b.word[step]);
  }
}

/// A second factor from its elements value(k, column): bf16, or float to be rounded.
template <class T, class Value>
__device__ inline Second<T> second_factor(Value value) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane / 4, pair = lane % 4;
  Second<T> factor;
#pragma unroll
  for (int step = 0; step < kSteps<T>; ++step) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (kIsBf16<T>) {
        const int k = 2 * pair + 8 * i;
        factor.word[step][i] =
            value(k, row).bits | static_cast<std::uint32_t>(value(k + 1, row).bits) << 16;
      } else {
        factor.word[step][i] = to_tf32(value(pair + 4 * i + 8 * step, row));
      }
    }
  }
  return factor;
}

/// Where this lane finds its part of the factors below for the 16 pixels from (0, 0) of `pixels`.
template <class Layout>
__device__ inline unsigned char* lane_address(unsigned char* pixels, MatrixRow row) {
  return pixels + Layout::chunk(row.plane, row.pixel, 0) * kChunkBytes;
}
/// The same for elements of float that are read one by one: pixel `pair`, channel `row`.
template <class Layout>
__device__ inline unsigned char* lane_address_of_floats(unsigned char* pixels) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return address<float, Layout>(pixels, lane / 4, lane % 4, 0);
}

/// Rows of 16 pixels from a place (x, y) on in shared memory.
template <class T, class Layout>
class PixelRows {
 public:
  __device__ explicit PixelRows(unsigned char* pixels) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    by_pixel_ = lane_address<Layout>(pixels, pixels_first(lane));
    if constexpr (kIsBf16<T>)
      by_channel_ = lane_address<Layout>(pixels, channels_first(lane));
    else
      by_channel_ = lane_address_of_floats<Layout>(pixels);
  }

  /// [pixels, channels]
  __device__ First<T> pixels_by_channels(int x, int y) const {
    const unsigned char* row = by_pixel_ + Layout::shift(x, y) * kChunkBytes;
    First<T> factor;
#pragma unroll
    for (int step = 0; step < kSteps<T>; ++step) {
      // In words, a matrix is 8 pixels and the 4 channels of a plane; a step takes two planes.
      load_matrices(factor.word[step], row + 2 * step * kPlaneBytes);
      if constexpr (!kIsBf16<T>) round(factor.word[step]);
    }
    return factor;
  }

  /// [channels, pixels]
  __device__ First<T> channels_by_pixels(int x, int y) const {
    const unsigned char* row = by_channel_ + Layout::shift(x, y) * kChunkBytes;
    First<T> factor;
    if constexpr (kIsBf16<T>) {
      load_matrices_transposed(factor.word[0], row);
    } else {
#pragma unroll
      for (int step = 0; step < kSteps<T>; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // 8 channels further, 4 pixels further
          factor.word[step][i] = to_tf32(float_at(row, 2 * (i % 2), 8 * step + i / 2 * 4));
        }
      }
    }
    return factor;
  }

  /// [pixels, channels], channels 0 .. 7 and 8 .. 15.
  __device__ void as_second(int x, int y, Second<T> (&factor)[2]) const {
    if constexpr (kIsBf16<T>) {
      std::uint32_t word[4];
      load_matrices_transposed(word, by_pixel_ + Layout::shift(x, y) * kChunkBytes);
#pragma unroll
      for (int i = 0; i < 4; ++i) factor[i / 2].word[0][i % 2] = word[i];
    } else {
      const unsigned char* row = by_channel_ + Layout::shift(x, y) * kChunkBytes;
#pragma unroll
      for (int step = 0; step < kSteps<T>; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          factor[i / 2].word[step][i % 2] = to_tf32(float_at(row, i / 2 * 2, 8 * step + i % 2 * 4));
        }
      }
    }
  }

 private:
  static constexpr int kPlaneBytes = Layout::kPlane * kChunkBytes;

  __device__ static void round(std::uint32_t (&word)[4]) {
#pragma unroll
    for (std::uint32_t& w : word) w = to_tf32(__uint_as_float(w));
  }
  __device__ static float float_at(const unsigned char* row, int planes, int pixels) {
    return *reinterpret_cast<const float*>(row + planes * kPlaneBytes + pixels * kChunkBytes);
  }

  unsigned char* by_pixel_;
  unsigned char* by_channel_;
};

// --- what lies beside a lane's results: two neighbouring channels as stored ---

template <class T>
inline constexpr int kPairWords = static_cast<int>(2 * sizeof(T)) / 4;

template <class T>
struct alignas(2 * sizeof(T)) ChannelPair {
  std::uint32_t word[kPairWords<T>];

  __device__ static ChannelPair of(float first, float second) {
    if constexpr (kIsBf16<T>)
      return {{to_bf16_pair(first, second)}};
    else
      return {{__float_as_uint(first), __float_as_uint(second)}};
  }
  /// All bits of those that are set.
  __device__ static ChannelPair mask(bool first, bool second) {
    const std::uint32_t a = first ? 0xffffffffu : 0, b = second ? 0xffffffffu : 0;
    if constexpr (kIsBf16<T>)
      return {{(a & 0x0000ffffu) | (b & 0xffff0000u)}};
    else
      return {{a, b}};
  }
  __device__ float first() const { return __uint_as_float(kIsBf16<T> ? word[0] << 16 : word[0]); }
  __device__ float second() const {
    return __uint_as_float(kIsBf16<T> ? word[0] & 0xffff0000u : word[kPairWords<T> - 1]);
  }
};

/// Channels c and c + 1 of pixel (x, y), c even.
template <class T, class Layout>
__device__ inline ChannelPair<T>& channel_pair(unsigned char* pixels, int c, int x, int y) {
  return *reinterpret_cast<ChannelPair<T>*>(address<T, Layout>(pixels, c, x, y));
}

}  // namespace conv3x3_tile

#endif  // __CUDACC__

}  // namespace tandem
