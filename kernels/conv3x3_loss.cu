// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/conv3x3_loss.hpp>
#include <tandem/kernels/conv3x3_loss_device.cuh>
#include <tandem/kernels/kernel_attributes.hpp>
#include <tandem/kernels/launch.hpp>

namespace tandem::cuda {

namespace {

using namespace conv3x3_tile;

constexpr int kLabelBytes = kPixels;
/// A tile, its labels; another for the copy of the next tile; a unit of each warp on its way out.
template <class T>
constexpr int kBufferBytes = kBytes<T, TileWithRing> + kLabelBytes;
template <class T>
constexpr int kSharedBytes = 2 * kBufferBytes<T> + kWarps* kBytes<T, Unit>;
/// Columns of a block's sums: the loss, and the gradients' sums of the classes.
constexpr int kColumns = 1 + kC;

/// Largest value, or sum, over the four lanes that hold the classes of a pixel.
__device__ inline float largest_of_four(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
__device__ inline float sum_of_four(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

/// Sum over the lanes that hold the same classes.
__device__ inline double sum_over_rows(double value) {
  for (int distance = 4; distance < 32; distance *= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

template <class T>
__device__ inline void load_tile(int tile, int side, const T* x, const std::uint8_t* labels,
                                 unsigned char* buffer) {
  const std::uint32_t index = first_index(tile, side);
  const std::int64_t first = std::int64_t{tile} * kPixels, image = first - index;
  load_inner<T, TileWithRing>(x + first * kC, buffer);
  load_ring(x + image * kC, side, index, buffer);
  constexpr int kChunksARow = kWidth / kChunkBytes;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kHeight * kChunksARow) {
    const auto row = static_cast<int>(morton_y(index)) + thread / kChunksARow;
    const auto column = static_cast<int>(morton_x(index)) + thread % kChunksARow * kChunkBytes;
    copy_async(buffer + kBytes<T, TileWithRing> + thread * kChunkBytes,
               labels + image + row * side + column);
  }
}

/// Class of a column of the products, of which there are two halves of eight; kC for none. A lane
/// has columns 2 pair and 2 pair + 1 of each half. Where 12 classes are enough, the second half has
/// them in its even columns, so that a lane has three logits of a pixel to work on instead of four.
template <int kLogits>
__device__ constexpr int class_of_column(int half, int column) {
  if (half == 0 || kLogits == 4) return 8 * half + column;
  return column % 2 == 0 ? 8 + column / 2 : kC;
}

/// The classes of a lane.
template <class T, int kLogits>
struct LaneClasses {
  int own[kLogits];
  ChannelPair<T> mask[2];  ///< of those that are classes
  float bias[2][4];        ///< of a lane's places in a product; -infinity where there is no class

  __device__ LaneClasses(int classes, const float* b) {
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first = class_of_column<kLogits>(half, column);
      const int second = class_of_column<kLogits>(half, column + 1);
      mask[half] = ChannelPair<T>::mask(first < classes, second < classes);
      own[2 * half] = first;
      if (2 * half + 1 < kLogits) own[2 * half + 1] = second;
      bias[half][0] = bias[half][2] = first < classes ? b[first] : -INFINITY;
      bias[half][1] = bias[half][3] = second < classes ? b[second] : -INFINITY;
    }
  }
};

/// Sums over a tile. Of a pixel's four lanes each adds the classes it holds, and all multiply the
/// denominators of the softmax: the logarithm of a product of 16 denominators, each from 1 to 16,
/// is the sum of theirs, at the price of one.
struct LaneSums {
  float denominators = 1;
  float label_logits = 0;      ///< less the largest of their pixels
  float gradients[2][4] = {};  ///< as stored; by place in a product, the first two of each half
};

/// Softmax of a pixel, of which this lane has `logit`. Returns the gradient as stored.
template <class T, int kLogits>
__device__ inline void pixel_loss(const float (&logit)[kLogits],
                                  const LaneClasses<T, kLogits>& lane, int classes, int label,
                                  int ignore_label, LaneSums& sums, ChannelPair<T> (&stored)[2]) {
  constexpr float kLog2OfE = 1.4426950408889634f;
  const bool ignored = label == ignore_label;
  const bool counted = !ignored && label < classes;
  // As fmaxf passes over a NaN, it makes the sum a NaN.
  float largest = logit[0];
#pragma unroll
  for (int i = 1; i < kLogits; ++i) largest = fmaxf(largest, logit[i]);
  largest = largest_of_four(largest);
  float below[kLogits], numerator[kLogits], sum = 0;
#pragma unroll
  for (int i = 0; i < kLogits; ++i) {
    below[i] = logit[i] - largest;
    numerator[i] = exp2_approximate(below[i] * kLog2OfE);
    sum += numerator[i];
  }
  sum = sum_of_four(sum);
  // A label that is no class makes loss and gradient a NaN.
  if (!counted) sum = ignored ? 1.0f : __int_as_float(0x7fc00000);
  sums.denominators *= sum;
  const float factor = reciprocal_approximate(sum);
  const int counted_label = counted ? label : -1;
  float gradient[4] = {};
#pragma unroll
  for (int i = 0; i < kLogits; ++i) {
    gradient[i] = numerator[i] * factor;
    if (counted_label == lane.own[i]) {
      gradient[i] -= 1;
      sums.label_logits += below[i];
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    stored[half] = ChannelPair<T>::of(gradient[2 * half], gradient[2 * half + 1]);
#pragma unroll
    for (int i = 0; i < kPairWords<T>; ++i) {
      stored[half].word[i] &= ignored ? 0 : lane.mask[half].word[i];
    }
    if (!kIsBf16<T>) {
      sums.gradients[half][0] += stored[half].first();
      sums.gradients[half][1] += stored[half].second();
    }
  }
}

/// Writes a lane's gradients of pixel (x, y) of a unit.
template <class T, int kLogits>
__device__ inline void write_pixel(unsigned char* unit, const LaneClasses<T, kLogits>& lane, int x,
                                   int y, const ChannelPair<T> (&gradient)[2]) {
  channel_pair<T, Unit>(unit, lane.own[0], x, y) = gradient[0];
  if constexpr (kLogits == 4) {
    channel_pair<T, Unit>(unit, lane.own[2], x, y) = gradient[1];
  } else {
    static_assert(kIsBf16<T>, "half a word");
    *reinterpret_cast<std::uint16_t*>(address<T, Unit>(unit, lane.own[2], x, y)) =
        static_cast<std::uint16_t>(gradient[1].word[0]);
  }
}

/// Adds the gradients of a unit by tensor cores, as products with ones: only the first row of the
/// first factor has them, so that only its four lanes get sums.
__device__ inline void add_gradients(unsigned char* unit, LaneSums& sums) {
  const std::uint32_t ones = threadIdx.x % 32 < 4 ? 0x3f803f80u : 0;
  const First<bf16> first = {{{ones, 0, ones, 0}}};
  const PixelRows<bf16, Unit> gradients(unit);
#pragma unroll
  for (int r = 0; r < kUnitHeight; ++r) {
    Second<bf16> second[2];
    gradients.as_second(0, r, second);
#pragma unroll
    for (int half = 0; half < 2; ++half) multiply_add(sums.gradients[half], first, second[half]);
  }
}

/// For classes up to 4 kLogits. partial [kColumns][blocks]: the sums of each block.
template <class T, int kLogits>
__global__ void __launch_bounds__(kThreads, kIsBf16<T> ? 4 : 2)
    conv3x3_loss_kernel(int side, int classes, int tiles, const T* x, const T* w, const float* b,
                        const std::uint8_t* labels, int ignore_label, T* dlogits, double* partial) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ double block_sums[kWarps][kColumns];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = lane / 4, pair = lane % 4;
  const int blocks = static_cast<int>(gridDim.x);
  unsigned char* unit_out = shared + 2 * kBufferBytes<T> + warp * kBytes<T, Unit>;

  int tile = static_cast<int>(blockIdx.x);
  load_tile(tile, side, x, labels, shared);

  // Second factors [channels, classes] of the taps.
  Second<T> filter[kTaps][2];
#pragma unroll
  for (int i = 0; i < kTaps * 2; ++i) {
    const int tap = i / 2, half = i % 2;
    filter[tap][half] = second_factor<T>([&](int c, int column) {
      const int k = class_of_column<kLogits>(half, column);
      return k < classes ? w[(k * kTaps + tap) * kC + c] : T(0.0f);
    });
  }
  const LaneClasses<T, kLogits> own(classes, b);
  // The channels that are never written below.
  for (int i = lane * kChunkBytes; i < kBytes<T, Unit>; i += 32 * kChunkBytes) {
    *reinterpret_cast<uint4*>(unit_out + i) = {};
  }
  __syncwarp();

  double loss = 0, db[4] = {};
  for (int offset = 0; tile < tiles; tile += blocks, offset = kBufferBytes<T> - offset) {
    wait_for_copies();
    __syncthreads();  // the tile is there, and the other buffer is no longer read
    unsigned char* buffer = shared + offset;
    if (tile + blocks < tiles) {
      load_tile(tile + blocks, side, x, labels, shared + kBufferBytes<T> - offset);
    }

    const PixelRows<T, TileWithRing> pixels(buffer);
    const std::uint8_t* tile_labels = buffer + kBytes<T, TileWithRing>;
    LaneSums sums;
#pragma unroll 1
    for (int unit = warp; unit < kUnits; unit += kWarps) {
      const Position at = unit_first(unit);
      float logits[kUnitHeight][2][4];
#pragma unroll
      for (int i = 0; i < kUnitHeight * 2 * 4; ++i) {
        logits[i / 8][i / 4 % 2][i % 4] = own.bias[i / 4 % 2][i % 4];
      }
      // A row of the input is in the windows of three rows of logits, of which two are here.
#pragma unroll
      for (int i = 0; i < 3 * (kUnitHeight + 2); ++i) {
        const int tap_x = i / (kUnitHeight + 2), input_row = i % (kUnitHeight + 2);
        const First<T> input = pixels.pixels_by_channels(at.x + tap_x - 1, at.y + input_row - 1);
#pragma unroll
        for (int r = 0; r < kUnitHeight; ++r) {
          const int tap_y = input_row - r;
          if (tap_y < 0 || tap_y > 2) continue;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            multiply_add(logits[r][half], input, filter[tap_y * 3 + tap_x][half]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kUnitHeight * 2; ++i) {
        const int r = i / 2, lower = i % 2, column = row + 8 * lower;
        float logit[kLogits];
#pragma unroll
        for (int j = 0; j < kLogits; ++j) logit[j] = logits[r][j / 2][2 * lower + j % 2];
        ChannelPair<T> stored[2];
        pixel_loss(logit, own, classes, tile_labels[(at.y + r) * kWidth + at.x + column],
                   ignore_label, sums, stored);
        write_pixel(unit_out, own, column, r, stored);
      }
      __syncwarp();
      if constexpr (kIsBf16<T>) add_gradients(unit_out, sums);
      store_unit<T, Unit>(unit_out, 0, 0, dlogits + std::int64_t{tile} * kPixels * kC, unit);
      __syncwarp();  // before unit_out is overwritten
    }
    if (pair == 0) loss += static_cast<double>(logf(sums.denominators));
    loss -= static_cast<double>(sums.label_logits);
#pragma unroll
    for (int i = 0; i < 4; ++i) db[i] += static_cast<double>(sums.gradients[i / 2][i % 2]);
  }

  loss = warp_sum(loss);
  if (lane == 0) block_sums[warp][0] = loss;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const double sum = sum_over_rows(db[i]);
    if (row == 0) block_sums[warp][1 + 2 * pair + i / 2 * 8 + i % 2] = sum;
  }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column > classes) return;
  double sum = 0;
  for (int i = 0; i < kWarps; ++i) sum += block_sums[i][column];
  partial[column * blocks + static_cast<int>(blockIdx.x)] = sum;
}

/// One block. A warp adds the sums of a column, a lane every 32nd of them in their order.
__global__ void __launch_bounds__(32 * kColumns)
    conv3x3_loss_result_kernel(const BatchHeader* header, const double* partial, int blocks,
                               float* db, StepResult* result) {
  const int column = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  double sum = 0;
#pragma unroll 8
  for (int i = lane; i < blocks; i += 32) sum += partial[column * blocks + i];
  sum = warp_sum(sum);
  if (lane != 0) return;
  if (column > 0) {
    db[column - 1] = static_cast<float>(sum);
    return;
  }
  result->step = header->step;
  result->valid_count = header->valid_count;
  result->loss = header->valid_count == 0 ? 0.0 : sum / static_cast<double>(header->valid_count);
}

}  // namespace

template <class T>
void conv3x3_loss(const Conv3x3LossShape& shape, const BatchHeader* header, const T* x, const T* w,
                  const float* b, const std::uint8_t* labels, int ignore_label, T* dlogits,
                  float* db, StepResult* result, void* workspace, cudaStream_t stream) {
  double* partial = static_cast<double*>(workspace);
  const auto blocks = static_cast<unsigned>(conv3x3_loss_blocks(shape));
  if (blocks > 0) {
    constexpr int kShared = kSharedBytes<T>;
    auto* kernel = conv3x3_loss_kernel<T, 4>;
    if constexpr (kIsBf16<T>) {
      if (shape.classes <= 12) kernel = conv3x3_loss_kernel<T, 3>;
    }
    allow_shared_memory(reinterpret_cast<const void*>(kernel), kShared);
    TANDEM_CUDA_TRY(launch(kernel, LaunchShape{blocks, kThreads, kShared}, stream, shape.side,
                           shape.classes, conv3x3_loss_tiles(shape), x, w, b, labels, ignore_label,
                           dlogits, partial));
  }
  const auto columns = static_cast<unsigned>(1 + shape.classes);
  TANDEM_CUDA_TRY(launch(conv3x3_loss_result_kernel, LaunchShape{1, 32 * columns}, stream, header,
                         partial, blocks, db, result));
}

template void conv3x3_loss(const Conv3x3LossShape&, const BatchHeader*, const float*, const float*,
                           const float*, const std::uint8_t*, int, float*, float*, StepResult*,
                           void*, cudaStream_t);
template void conv3x3_loss(const Conv3x3LossShape&, const BatchHeader*, const bf16*, const bf16*,
                           const float*, const std::uint8_t*, int, bf16*, float*, StepResult*,
                           void*, cudaStream_t);

}  // namespace tandem::cuda
