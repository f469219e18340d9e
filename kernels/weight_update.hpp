// SPDX-License-Identifier: Apache-2.0
// The update of a wide layer's weights from the few pixels it sees: the product that makes their
// gradient, SGD, and the copy of the weights that layers read, in one pass over the weights.
//
// With so few pixels the product is cheap and the weights are all that counts: 4 bytes read and 6
// written each, where a product, an update and a cast would move 14.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/bf16.hpp>

struct CUstream_st;  // what a cudaStream_t points to

namespace tandem {

/// w [rows, columns] from `depth` pixels, all row-major and dense.
struct WeightUpdateShape {
  std::int64_t rows, columns, depth;
};

/// Sides of the tile of weights that a block updates.
inline constexpr int kUpdateTileRows = 64, kUpdateTileColumns = 128;
/// From this depth on the product takes longer than the memory, and a library does it faster.
inline constexpr std::int64_t kUpdateDepthEnd = 257;

/// Whether the kernel takes the shape: whole tiles, at most 2^31 - 1 of them, and few pixels.
constexpr bool weight_update_takes(const WeightUpdateShape& s) {
  return s.rows > 0 && s.columns > 0 && s.rows % kUpdateTileRows == 0 &&
         s.columns % kUpdateTileColumns == 0 && s.depth > 0 && s.depth < kUpdateDepthEnd &&
         s.rows / kUpdateTileRows <= 2147483647 / (s.columns / kUpdateTileColumns);
}

namespace host {

/// a [depth, rows], b [depth, columns]:
///   w = keep * w + minus_rate_over_count * a^T b,  copy = bf16(w)
/// with both factors from the header. The sum is made in float, in the order of depth; the rest
/// rounds three times.
void weight_update(const WeightUpdateShape& shape, const BatchHeader& header, const bf16* a,
                   const bf16* b, float* w, bf16* copy);

}  // namespace host

namespace cuda {

/// The same on the tensor cores: products of bf16 are exact, their sum is in float in an order that
/// only the shape decides. The same bits as the twin where every sum is exact. For shapes that
/// weight_update_takes(). Pointers are device memory at multiples of 16 bytes, the header too.
/// `copy` may be null: there is none. Queued on the stream. Throws CudaError if it cannot be
/// launched.
void weight_update(const WeightUpdateShape& shape, const BatchHeader* header, const bf16* a,
                   const bf16* b, float* w, bf16* copy, CUstream_st* stream);

}  // namespace cuda

}  // namespace tandem
