// SPDX-License-Identifier: Apache-2.0
// How the blocks of a grid share a tensor [pixels, channels] so that each thread always meets the
// same channels. A function of the shape only: the same shape gives the same sums everywhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tandem/kernels/host_device.hpp>

namespace tandem {

/// Threads of every block.
inline constexpr int kBlockThreads = 256;

/// The widest access of a thread. A plain path takes one element at a time.
inline constexpr int kPackBytes = 16;

/// A thread moves packs of some elements. As many pixels as it takes for the channels to fill whole
/// packs make a row: 2 pixels for 10 channels in packs of 4. A block takes some columns of packs
/// and a chunk of the rows, `rows_at_once` of them at a time.
struct ColumnTiling {
  std::int64_t pixels_a_row;
  std::int64_t columns;    ///< packs a row
  std::int64_t full_rows;  ///< rows whose pixels are all there
  std::int64_t rows;       ///< the same, with a last one that may be incomplete
  int columns_a_block;
  int rows_at_once;
  std::int64_t rows_a_chunk;
  std::int64_t column_tiles;
  std::int64_t row_chunks;

  constexpr std::int64_t blocks() const { return column_tiles * row_chunks; }
};

/// pixels, channels >= 1. A thread meets at least `rows_a_thread` packs where there are that many,
/// and more where the grid would otherwise exceed `largest_grid` blocks.
constexpr ColumnTiling column_tiling(std::int64_t pixels, std::int64_t channels, int pack,
                                     int rows_a_thread, std::int64_t largest_grid) {
  ColumnTiling t = {};
  t.pixels_a_row = pack / std::gcd(channels, std::int64_t{pack});
  t.columns = channels * t.pixels_a_row / pack;
  t.full_rows = pixels / t.pixels_a_row;
  t.rows = ceil_div(pixels, t.pixels_a_row);
  t.columns_a_block = static_cast<int>(std::min(t.columns, std::int64_t{kBlockThreads}));
  t.rows_at_once = kBlockThreads / t.columns_a_block;
  t.column_tiles = ceil_div(t.columns, std::int64_t{t.columns_a_block});
  const std::int64_t most_chunks = std::max(std::int64_t{1}, largest_grid / t.column_tiles);
  const std::int64_t steps =
      std::max(std::int64_t{rows_a_thread}, ceil_div(t.rows, t.rows_at_once * most_chunks));
  t.rows_a_chunk = steps * t.rows_at_once;
  t.row_chunks = ceil_div(t.rows, t.rows_a_chunk);
  return t;
}

}  // namespace tandem
