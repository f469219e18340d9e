// SPDX-License-Identifier: Apache-2.0
// Where an element of an image tensor lies, for each order of memory.
#pragma once

#include <cstdint>
#include <tandem/kernels/host_device.hpp>
#include <tandem/kernels/morton.hpp>

namespace tandem {

enum class ImageOrder : std::uint8_t {
  nchw,    ///< planes
  nhwc,    ///< channels last, pixels in raster order
  zorder,  ///< channels last, pixels in Z-order; h == w is a power of two
};

struct ImageShape {
  std::int64_t n, h, w, c;
};

/// Offset of channel 0 of pixel (x, y) of an image, in elements.
TANDEM_HD inline std::int64_t pixel_offset(ImageOrder order, const ImageShape& s,
                                           std::int64_t image, std::int64_t y, std::int64_t x) {
  const std::int64_t first = image * s.h * s.w * s.c;
  switch (order) {
    case ImageOrder::nchw:
      return first + y * s.w + x;
    case ImageOrder::zorder:
      return first + static_cast<std::int64_t>(morton_encode(static_cast<std::uint32_t>(x),
                                                             static_cast<std::uint32_t>(y))) *
                         s.c;
    case ImageOrder::nhwc:
      break;
  }
  return first + (y * s.w + x) * s.c;
}

/// Distance from a channel of a pixel to the next, in elements.
TANDEM_HD inline std::int64_t channel_stride(ImageOrder order, const ImageShape& s) {
  return order == ImageOrder::nchw ? s.h * s.w : 1;
}

}  // namespace tandem
