// SPDX-License-Identifier: Apache-2.0
// How the kernels of conv3x3_loss.hpp cut images into tiles, and where a pixel lies in memory, in
// shared memory and in the fragments of the tensor cores. Numbers only, so that they can be tested
// on the host.
#pragma once

#include <cstdint>
#include <tandem/kernels/host_device.hpp>
#include <tandem/kernels/morton.hpp>

namespace tandem::conv3x3_tile {

// A tile is 32 x 16 pixels: in Z-order one contiguous block.
inline constexpr int kWidth = 32, kHeight = 16, kPixels = kWidth * kHeight;

/// Pixels of the ring around a tile, which a 3x3 window reaches.
inline constexpr int kRingPixels = 2 * (kWidth + 2) + 2 * kHeight;

// A unit is what a warp works on at a time: two rows of the 16 pixels of a product.
inline constexpr int kUnitWidth = 16, kUnitHeight = 2, kUnitPixels = kUnitWidth * kUnitHeight;
inline constexpr int kUnits = kPixels / kUnitPixels;

struct Position {
  int x, y;
};

/// Index in its image of a tile's first pixel. Tiles are counted in the order of memory: tile t
/// starts at pixel t * kPixels of the batch. side is a power of two.
TANDEM_HD constexpr std::uint32_t first_index(int tile, int side) {
  return static_cast<std::uint32_t>(tile) * kPixels &
         (static_cast<std::uint32_t>(side) * static_cast<std::uint32_t>(side) - 1);
}

/// Index of the pixel at `p` from the one at `index`: the bits of x and of y are added apart, each
/// carry led through the other's. side * side or more if the pixel is outside the image.
TANDEM_HD constexpr std::uint32_t index_from(std::uint32_t index, Position p) {
  constexpr std::uint32_t kX = 0x55555555u, kY = 0xaaaaaaaau;
  const std::uint32_t step =
      morton_encode(static_cast<std::uint32_t>(p.x), static_cast<std::uint32_t>(p.y));
  return (((index | kY) + (step & kX)) & kX) | (((index | kX) + (step & kY)) & kY);
}

/// Position in its tile of the tile's pixel `i` in the order of memory. Where i and j have no bit
/// in common, the position of i + j is the sum of theirs.
TANDEM_HD constexpr Position inner_pixel(int i) {
  return {static_cast<int>(morton_x(static_cast<std::uint32_t>(i))),
          static_cast<int>(morton_y(static_cast<std::uint32_t>(i)))};
}

/// Position of pixel `i` of the ring: the rows above and below, then the columns on both sides with
/// the corners.
TANDEM_HD constexpr Position ring_pixel(int i) {
  constexpr int kRows = 2 * kWidth;
  if (i < kRows) return {i % kWidth, i < kWidth ? -1 : kHeight};
  return {i % 2 == 0 ? -1 : kWidth, (i - kRows) / 2 - 1};
}

/// First pixel of a unit in its tile.
TANDEM_HD constexpr Position unit_first(int unit) {
  return {unit % 2 * kUnitWidth, unit / 2 * kUnitHeight};
}

/// Position in its unit of the unit's pixel `i` in the order of memory.
TANDEM_HD constexpr Position unit_pixel(int i) { return {i / 4 * 2 + i % 2, i / 2 % 2}; }

/// The place of that pixel in the order of memory of its tile: the bits of morton_encode() for the
/// sum of the two positions above, each moved to where it belongs.
TANDEM_HD constexpr int unit_index(int unit, int i) {
  return (unit & 1) << 8 | (unit & 2) << 2 | (unit & 4) << 3 | (unit & 8) << 4 |  // x4 y1 y2 y3
         (i & 7) | (i & 8) << 1 | (i & 16) << 2;                                  // x0 y0 x1 x2 x3
}

/// Pixels in shared memory: planes of chunks, a chunk the 16 bytes of neighbouring channels of a
/// pixel, pixels in raster order. Chunks that differ in the lower three bits of their number lie in
/// different banks. So the eight pixels of a row that ldmatrix takes at a time are free of
/// conflicts wherever they start, and since pitch = 2 and plane = 4 modulo 8, so are two planes of
/// an aligned window of 2x2 pixels, which adjacent threads copy.
template <int width, int height, int ring>
struct Planes {
  static constexpr int kPitch = width + 2;
  static constexpr int kOrigin = ring * (kPitch + 1);
  static constexpr int kRows = height + 2 * ring;
  static constexpr int kPlane = (kPitch * kRows + 3) / 8 * 8 + 4;

  /// Chunks between two pixels of a plane.
  TANDEM_HD static constexpr int shift(int x, int y) { return y * kPitch + x; }

  /// Number of a chunk, for pixel (x, y) of the tile.
  TANDEM_HD static constexpr int chunk(int plane, int x, int y) {
    return plane * kPlane + kOrigin + shift(x, y);
  }
};

using TileWithRing = Planes<kWidth, kHeight, 1>;
using TileAlone = Planes<kWidth, kHeight, 0>;
using Unit = Planes<kUnitWidth, kUnitHeight, 0>;

/// Of 16 pixels of a row and two planes, the chunk whose address a lane gives to ldmatrix, which
/// loads four 8x8 matrices of 16-bit elements, eight lanes a matrix.
struct MatrixRow {
  int plane, pixel;
};

/// Rows are pixels: the first factor of a product over channels. Transposed on loading: the second
/// factor, [pixels, channels], of a product over pixels.
TANDEM_HD constexpr MatrixRow pixels_first(int lane) { return {lane / 16, lane % 16}; }

/// Transposed on loading: the first factor, [channels, pixels], of a product over pixels.
TANDEM_HD constexpr MatrixRow channels_first(int lane) {
  return {lane / 8 % 2, lane % 8 + lane / 16 * 8};
}

}  // namespace tandem::conv3x3_tile
