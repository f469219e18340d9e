// SPDX-License-Identifier: Apache-2.0
// Visits the pixels of images whose channels are last, in the target's order. For .cu files.
#pragma once

#include <cstdint>
#include <tandem/kernels/device.cuh>
#include <tandem/kernels/permute_math.hpp>

namespace tandem {

#if defined(__CUDACC__)

/// The pixel (x, y) at an index of an image.
struct PixelPosition {
  std::int64_t x, y;
};

__device__ inline PixelPosition pixel_position(ImageOrder order, const ImageShape& s,
                                               std::uint32_t index) {
  if (order == ImageOrder::zorder) return {morton_x(index), morton_y(index)};
  const std::uint32_t width = static_cast<std::uint32_t>(s.w);
  return {index % width, index / width};
}

/// Calls body(t, f) for each of the `units` parts of every pixel: t counts them in the order `to`,
/// f in the order `from`, neither of them nchw. Neighbouring threads have neighbouring t. Where a
/// pixel comes from is worked out once for all of its parts. For blocks of kBlockThreads, and at
/// most once a kernel.
template <class Body>
__device__ inline void for_each_moved(const ImageShape& s, ImageOrder from, ImageOrder to,
                                      int units, Body body) {
  __shared__ std::int64_t source[kBlockThreads];
  const ImageShape plane = {s.n, s.h, s.w, 1};
  const std::int64_t pixels_an_image = s.h * s.w, pixels = s.n * pixels_an_image;
  const int thread = static_cast<int>(threadIdx.x);
  // From one part of a thread to its next: kBlockThreads parts, as whole pixels and the rest.
  const int pixel_step = kBlockThreads / units, unit_step = kBlockThreads % units;

  for (std::int64_t first = std::int64_t{blockIdx.x} * kBlockThreads; first < pixels;
       first += std::int64_t{gridDim.x} * kBlockThreads) {
    if (first + thread < pixels) {
      const std::int64_t image = (first + thread) / pixels_an_image;
      const PixelPosition p = pixel_position(
          to, s, static_cast<std::uint32_t>(first + thread - image * pixels_an_image));
      source[thread] = pixel_offset(from, plane, image, p.y, p.x);
    }
    __syncthreads();
    const int count =
        static_cast<int>((pixels - first < kBlockThreads ? pixels - first : kBlockThreads) * units);
    int pixel = thread / units, unit = thread % units;
#pragma unroll 4
    for (int e = thread; e < count; e += kBlockThreads) {
      body(first * units + e, source[pixel] * units + unit);
      pixel += pixel_step;
      unit += unit_step;
      if (unit >= units) {
        unit -= units;
        ++pixel;
      }
    }
    __syncthreads();  // before `source` is overwritten
  }
}

#endif  // __CUDACC__

}  // namespace tandem
