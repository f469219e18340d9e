// SPDX-License-Identifier: Apache-2.0
// Z-order (Morton order): bit 0 of the index is bit 0 of x, bit 1 is bit 0 of y, and so on.
#pragma once

#include <cstdint>
#include <tandem/kernels/host_device.hpp>

namespace tandem {

namespace detail {
/// Moves bit i of the lower 16 bits to bit 2i.
TANDEM_HD constexpr std::uint32_t spread_bits(std::uint32_t v) {
  v &= 0x0000ffffu;
  v = (v | (v << 8)) & 0x00ff00ffu;
  v = (v | (v << 4)) & 0x0f0f0f0fu;
  v = (v | (v << 2)) & 0x33333333u;
  v = (v | (v << 1)) & 0x55555555u;
  return v;
}

/// Moves bit 2i to bit i and drops the odd bits.
TANDEM_HD constexpr std::uint32_t gather_bits(std::uint32_t v) {
  v &= 0x55555555u;
  v = (v | (v >> 1)) & 0x33333333u;
  v = (v | (v >> 2)) & 0x0f0f0f0fu;
  v = (v | (v >> 4)) & 0x00ff00ffu;
  v = (v | (v >> 8)) & 0x0000ffffu;
  return v;
}
}  // namespace detail

/// Index of pixel (x, y), both below 65536, in a square image whose side is a power of two. The
/// four pixels of an aligned 2x2 window are 4i .. 4i + 3, in the order (0,0) (1,0) (0,1) (1,1).
TANDEM_HD constexpr std::uint32_t morton_encode(std::uint32_t x, std::uint32_t y) {
  return detail::spread_bits(x) | (detail::spread_bits(y) << 1);
}

/// The column of the pixel at an index.
TANDEM_HD constexpr std::uint32_t morton_x(std::uint32_t index) {
  return detail::gather_bits(index);
}

/// The row of the pixel at an index.
TANDEM_HD constexpr std::uint32_t morton_y(std::uint32_t index) {
  return detail::gather_bits(index >> 1);
}

}  // namespace tandem
