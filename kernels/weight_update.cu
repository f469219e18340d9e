// SPDX-License-Identifier: Apache-2.0
// A block of eight warps updates a tile of 64 x 128 weights. Pixels come through shared memory, 64
// at a time; a warp multiplies for 32 x 32 weights:
//
//        columns   0        32       64       96      128
//   rows  0        +--------+--------+--------+--------+
//                  | warp 0 |   1    |   2    |   3    |
//        32        +--------+--------+--------+--------+
//                  |   4    |   5    |   6    |   7    |
//        64        +--------+--------+--------+--------+
//
// Two lanes that are neighbours in a row of an accumulator exchange halves, so that each holds four
// adjacent weights: 16 bytes an access. The weights are asked for before the pixels are waited for.
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/device.cuh>
#include <tandem/kernels/rounded.hpp>
#include <tandem/kernels/tensor_core.cuh>
#include <tandem/kernels/weight_update.hpp>

namespace tandem::cuda {

namespace {

constexpr int kRows = kUpdateTileRows, kColumns = kUpdateTileColumns;
constexpr int kDepth = 64;     // pixels in shared memory at a time
constexpr int kWarpSide = 32;  // of the weights of a warp
constexpr int kWarpsAcross = kColumns / kWarpSide;
static_assert(kBlockThreads == 32 * kWarpsAcross * (kRows / kWarpSide));
// Rows of shared memory are an odd number of 16-byte units apart, so that the eight rows of a
// matrix lie in different banks.
constexpr int kPadding = 8;

using Quad = Pack<float, 4>;

/// Starts the copies of rows `first` .. first + rows - 1 of a tile of x [depth, stride] from column
/// `column` on; rows behind the last pixel become zeros.
template <int kWidth>
__device__ void start_rows(bf16 (*to)[kWidth + kPadding], const bf16* x, std::int64_t stride,
                           std::int64_t column, int first, int rows, int depth) {
  constexpr int kUnit = 8;  // bf16 in 16 bytes
  constexpr int kUnits = kWidth / kUnit;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kUnits; i += kBlockThreads) {
    const int row = i / kUnits, unit = i % kUnits * kUnit;
    const bool there = first + row < depth;
    const bf16* from = x + (there ? first + row : 0) * stride + column + unit;
    copy_async_or_zero(&to[row][unit], from, there);
  }
}

/// Four adjacent elements of a row of [16, 16] from two accumulators that lie side by side, as
/// halves [half] of rows r and r + 8: even lanes get theirs of the left one, odd ones of the right.
__device__ Quad four_adjacent(const float (&left)[4], const float (&right)[4], int half) {
  const bool odd = threadIdx.x % 2 != 0;
  float mine[2], other[2];
  for (int e = 0; e < 2; ++e) {
    const float at_left = left[2 * half + e], at_right = right[2 * half + e];
    mine[e] = odd ? at_right : at_left;
    other[e] = __shfl_xor_sync(0xffffffffu, odd ? at_left : at_right, 1);
  }
  if (odd) return {{other[0], other[1], mine[0], mine[1]}};
  return {{mine[0], mine[1], other[0], other[1]}};
}

__global__ void __launch_bounds__(kBlockThreads, 2)
    weight_update_kernel(const BatchHeader* header, const bf16* a, const bf16* b, float* w,
                         bf16* copy, std::int64_t rows, std::int64_t columns, int depth) {
  // Rows are copied, and read into fragments, 16 bytes at a time.
  __shared__ alignas(16) bf16 tile_a[kDepth][kRows + kPadding];
  __shared__ alignas(16) bf16 tile_b[kDepth][kColumns + kPadding];
  const std::int64_t tiles_across = columns / kColumns;
  const std::int64_t row0 = blockIdx.x / tiles_across * kRows;
  const std::int64_t column0 = blockIdx.x % tiles_across * kColumns;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp / kWarpsAcross * kWarpSide,
            warp_column = warp % kWarpsAcross * kWarpSide;

  const auto start = [&](int first) {
    // Whole steps of 16 pixels; what is behind the last one is not multiplied.
    const int here = min(kDepth, (depth - first + 15) / 16 * 16);
    start_rows<kRows>(tile_a, a, rows, row0, first, here, depth);
    start_rows<kColumns>(tile_b, b, columns, column0, first, here, depth);
    return here;
  };
  int here = start(0);

  // The weights of this thread: two accumulators tall, two pairs of accumulators wide, rows r and
  // r + 8 of each.
  const int pair = lane % 4;
  float* const mine = w + (row0 + warp_row + lane / 4) * columns + column0 + warp_column +
                      pair % 2 * 8 + pair / 2 * 4;
  const auto offset = [&](int i, int j, int half) {
    return (16 * i + 8 * half) * columns + 16 * j;
  };
  Quad before[2][2][2];
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        before[i][j][half] = load_pack<4>(mine + offset(i, j, half));

  float sum[2][4][4] = {};
  for (int first = 0;;) {
    wait_for_copies();
    __syncthreads();
    for (int k = 0; k < here; k += 16) {
      std::uint32_t left[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        load_matrices_transposed(
            left[i], &tile_a[k + lane / 16 * 8 + lane % 8][warp_row + 16 * i + lane / 8 % 2 * 8]);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        std::uint32_t right[4];
        load_matrices_transposed(
            right, &tile_b[k + lane / 8 % 2 * 8 + lane % 8][warp_column + 16 * j + lane / 16 * 8]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          multiply_add_bf16(sum[i][2 * j], left[i], {right[0], right[1]});
          multiply_add_bf16(sum[i][2 * j + 1], left[i], {right[2], right[3]});
        }
      }
    }
    first += kDepth;
    if (first >= depth) break;
    __syncthreads();
    here = start(first);
  }

  const float keep = header->keep, step = header->minus_rate_over_count;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Quad value = four_adjacent(sum[i][2 * j], sum[i][2 * j + 1], half);
        for (int e = 0; e < 4; ++e)
          value.element[e] =
              add_rn(mul_rn(keep, before[i][j][half].element[e]), mul_rn(step, value.element[e]));
        float* const to = mine + offset(i, j, half);
        store_pack(to, value);
        if (copy == nullptr) continue;
        Pack<bf16, 4> narrow;
        for (int e = 0; e < 4; ++e) narrow.element[e] = bf16(value.element[e]);
        store_pack(copy + (to - w), narrow);
      }
}

}  // namespace

void weight_update(const WeightUpdateShape& shape, const BatchHeader* header, const bf16* a,
                   const bf16* b, float* w, bf16* copy, cudaStream_t stream) {
  const LaunchShape blocks = {
      static_cast<unsigned>(shape.rows / kRows * (shape.columns / kColumns)), kBlockThreads};
  TANDEM_CUDA_TRY(launch(weight_update_kernel, blocks, stream, header, a, b, w, copy, shape.rows,
                         shape.columns, static_cast<int>(shape.depth)));
}

}  // namespace tandem::cuda
