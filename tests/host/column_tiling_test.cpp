// SPDX-License-Identifier: Apache-2.0
// How a grid shares a tensor: every pack falls to one thread, and the workspace is bounded.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tandem/kernels/column_tiling.hpp>
#include <tandem/kernels/pointwise.hpp>
#include <tandem/kernels/softmax_xent.hpp>
#include <vector>

namespace tandem {
namespace {

/// Times each element of a tensor falls to a thread of the grid.
std::vector<int> visits(const ColumnTiling& t, std::int64_t elements, int pack) {
  std::vector<int> count(static_cast<std::size_t>(elements));
  for (std::int64_t block = 0; block < t.blocks(); ++block) {
    const std::int64_t tile = block % t.column_tiles, chunk = block / t.column_tiles;
    for (int thread = 0; thread < t.rows_at_once * t.columns_a_block; ++thread) {
      const std::int64_t column = tile * t.columns_a_block + thread % t.columns_a_block;
      if (column >= t.columns) continue;
      const std::int64_t end = std::min(t.rows, (chunk + 1) * t.rows_a_chunk);
      for (std::int64_t row = chunk * t.rows_a_chunk + thread / t.columns_a_block; row < end;
           row += t.rows_at_once) {
        for (int j = 0; j < pack; ++j) {
          const std::int64_t element = (row * t.columns + column) * pack + j;
          if (element < elements) ++count[static_cast<std::size_t>(element)];
        }
      }
    }
  }
  return count;
}

TEST(ColumnTiling, EveryElementOnceAndAThreadKeepsItsChannels) {
  for (const int pack : {1, 4, 8}) {
    for (const std::int64_t channels : {1, 3, 10, 11, 16, 64, 300, 4096}) {
      for (const std::int64_t pixels : {1, 2, 7, 64, 257, 1001}) {
        SCOPED_TRACE(std::to_string(pixels) + "x" + std::to_string(channels) + ", packs of " +
                     std::to_string(pack));
        for (const ColumnTiling& t : {column_tiling(pixels, channels, pack, 1, 1 << 16),
                                      column_tiling(pixels, channels, pack, 8, 4)}) {
          EXPECT_EQ(visits(t, pixels * channels, pack),
                    std::vector<int>(static_cast<std::size_t>(pixels * channels), 1));
          EXPECT_EQ(t.columns * pack % channels, 0) << "a row is whole pixels";
          EXPECT_EQ(t.columns * pack, channels * t.pixels_a_row);
          EXPECT_LE(t.rows_at_once * t.columns_a_block, kBlockThreads);
          EXPECT_EQ(t.full_rows, pixels / t.pixels_a_row);
        }
      }
    }
  }
}

TEST(ColumnTiling, GridsHaveALargestSize) {
  for (const std::int64_t channels : {1, 10, 11, 16, 4096, 65536}) {
    for (const std::int64_t pixels :
         {std::int64_t{1}, std::int64_t{1} << 23, std::int64_t{1} << 31}) {
      for (const int pack : {1, 4, 8}) {
        EXPECT_LE(cuda::bias_backward_tiling(pixels, channels, pack).blocks(), 1024);
      }
      for (const std::size_t bytes : {2, 4}) {
        const std::size_t workspace = cuda::bias_backward_workspace_bytes(pixels, channels, bytes);
        EXPECT_GE(workspace, static_cast<std::size_t>(channels) * sizeof(double));
        EXPECT_LE(workspace, std::size_t{16} << 20);
      }
    }
  }
  EXPECT_EQ(cuda::softmax_workspace_bytes(std::int64_t{1} << 33, 10), 1024 * sizeof(double));
  EXPECT_EQ(cuda::softmax_workspace_bytes(257, 10), 2 * sizeof(double));
  EXPECT_EQ(cuda::softmax_workspace_bytes(33, 40), 2 * sizeof(double));
}

}  // namespace
}  // namespace tandem
