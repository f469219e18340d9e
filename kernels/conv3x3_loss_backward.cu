// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/conv3x3_loss.hpp>
#include <tandem/kernels/conv3x3_loss_device.cuh>
#include <tandem/kernels/kernel_attributes.hpp>
#include <tandem/kernels/launch.hpp>
#include <tandem/kernels/pointwise_math.hpp>

namespace tandem::cuda {

namespace {

using namespace conv3x3_tile;

constexpr int kWeightsAClass = kTaps * kC;

/// dlogits with a ring and x without, twice where three blocks still fit into a multiprocessor.
template <class T>
constexpr int kBuffers = kIsBf16<T> ? 2 : 1;
template <class T>
constexpr int kBufferBytes = kBytes<T, TileWithRing> + kBytes<T, TileAlone>;
template <class T>
constexpr int kSharedBytes = kBuffers<T>* kBufferBytes<T>;
static_assert(kSharedBytes<bf16> >= kWarps * kC * kWeightsAClass * int{sizeof(float)} &&
                  kSharedBytes<float> >= kWarps * kC * kWeightsAClass * int{sizeof(float)},
              "the sums of the warps take the place of the tiles");

template <class T>
__device__ inline void load_tile(int tile, int side, const T* dlogits, const T* x,
                                 unsigned char* buffer) {
  const std::uint32_t index = first_index(tile, side);
  const std::int64_t first = std::int64_t{tile} * kPixels;
  load_inner<T, TileWithRing>(dlogits + first * kC, buffer);
  load_ring(dlogits + (first - index) * kC, side, index, buffer);
  load_inner<T, TileAlone>(x + first * kC, buffer + kBytes<T, TileWithRing>);
}

/// partial [blocks][classes][kTaps][kC]: the sums of each block.
template <class T>
__global__ void __launch_bounds__(kThreads, kIsBf16<T> ? 3 : 2)
    conv3x3_loss_backward_kernel(int side, int classes, int tiles, const T* dlogits, const T* x,
                                 const T* w, T* dx, float* partial) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = lane / 4, pair = lane % 4;
  const int blocks = static_cast<int>(gridDim.x);
  constexpr int kLastBuffer = (kBuffers<T> - 1) * kBufferBytes<T>;

  int tile = static_cast<int>(blockIdx.x);
  if (kBuffers<T> == 2) load_tile(tile, side, dlogits, x, shared);

  // Second factors [classes, channels] of the taps.
  Second<T> filter[kTaps][2];
#pragma unroll
  for (int i = 0; i < kTaps * 2; ++i) {
    const int tap = i / 2, half = i % 2;
    filter[tap][half] = second_factor<T>([&](int k, int c) {
      return k < classes ? w[(k * kTaps + tap) * kC + 8 * half + c] : T(0.0f);
    });
  }

  float dw[kTaps][2][4] = {};  // [classes, channels] of each tap
  for (int offset = 0; tile < tiles; tile += blocks, offset = kLastBuffer - offset) {
    unsigned char* buffer = shared + offset;
    if (kBuffers<T> == 1) {
      __syncthreads();  // the tile before is no longer read
      load_tile(tile, side, dlogits, x, buffer);
    }
    wait_for_copies();
    __syncthreads();  // the tile is there, and the other buffer is no longer read
    if (kBuffers<T> == 2 && tile + blocks < tiles) {
      load_tile(tile + blocks, side, dlogits, x, shared + kLastBuffer - offset);
    }

    unsigned char* x_tile = buffer + kBytes<T, TileWithRing>;
    const PixelRows<T, TileWithRing> gradients(buffer);
    const PixelRows<T, TileAlone> inputs(x_tile);
#pragma unroll 1
    for (int unit = warp; unit < kUnits; unit += kWarps) {
      const Position at = unit_first(unit);
      Second<T> input[kUnitHeight][2];
#pragma unroll
      for (int r = 0; r < kUnitHeight; ++r) inputs.as_second(at.x, at.y + r, input[r]);
      float gradient[kUnitHeight][2][4] = {};  // of the input, [pixels, channels]
      // An input is in the windows of the logits around it: by tap (0, 0) in that of the logit
      // below to the right. A row of logits reaches three rows of inputs, of which two are here.
#pragma unroll
      for (int i = 0; i < 3 * (kUnitHeight + 2); ++i) {
        const int tap_x = i / (kUnitHeight + 2), logit_row = i % (kUnitHeight + 2);
        const int from_x = at.x + 1 - tap_x, from_y = at.y + logit_row - 1;
        const First<T> dlogit = gradients.pixels_by_channels(from_x, from_y);
        const First<T> dlogit_by_class = gradients.channels_by_pixels(from_x, from_y);
#pragma unroll
        for (int r = 0; r < kUnitHeight; ++r) {
          const int tap_y = r + 2 - logit_row;
          if (tap_y < 0 || tap_y > 2) continue;
          const int tap = tap_y * 3 + tap_x;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            multiply_add(gradient[r][half], dlogit, filter[tap][half]);
            multiply_add(dw[tap][half], dlogit_by_class, input[r][half]);
          }
        }
      }
      __syncwarp();  // only now the inputs may be overwritten, by this warp alone
#pragma unroll
      for (int i = 0; i < kUnitHeight * 4; ++i) {
        const int r = i / 4, half = i / 2 % 2, lower = i % 2;
        ChannelPair<T>& stored = channel_pair<T, TileAlone>(x_tile, 2 * pair + 8 * half,
                                                            at.x + row + 8 * lower, at.y + r);
        stored =
            ChannelPair<T>::of(relu_gradient(stored.first(), gradient[r][half][2 * lower]),
                               relu_gradient(stored.second(), gradient[r][half][2 * lower + 1]));
      }
      __syncwarp();
      store_unit<T, TileAlone>(x_tile, at.x, at.y, dx + std::int64_t{tile} * kPixels * kC, unit);
    }
  }

  // [warps][kC][kTaps][kC]
  __syncthreads();
  float* sums = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int i = 0; i < kTaps * 2 * 4; ++i) {
    const int tap = i / 8, half = i / 4 % 2, j = i % 4;
    const int k = row + j / 2 * 8, c = 8 * half + 2 * pair + j % 2;
    sums[((warp * kC + k) * kTaps + tap) * kC + c] = dw[tap][half][j];
  }
  __syncthreads();
  const int count = classes * kWeightsAClass;
  float* block_sums = partial + static_cast<std::int64_t>(blockIdx.x) * count;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    float sum = 0;
    for (int j = 0; j < kWarps; ++j) sum += sums[j * kC * kWeightsAClass + i];
    block_sums[i] = sum;
  }
}

/// Weights of a block of the sum, and parts into which it cuts the partial sums of each.
constexpr int kSumWeights = 32, kSumParts = 32;

/// partial [blocks][count]. A thread adds every kSumParts-th of a weight's sums in their order.
__global__ void __launch_bounds__(kSumWeights* kSumParts)
    conv3x3_loss_backward_sum_kernel(const float* partial, int blocks, int count, float* dw) {
  __shared__ double part_sums[kSumParts][kSumWeights];
  const int column = static_cast<int>(threadIdx.x) % kSumWeights;
  const int part = static_cast<int>(threadIdx.x) / kSumWeights;
  const int weight = static_cast<int>(blockIdx.x) * kSumWeights + column;
  double sum = 0;
  if (weight < count) {
#pragma unroll 4
    for (int i = part; i < blocks; i += kSumParts) {
      sum += static_cast<double>(partial[static_cast<std::int64_t>(i) * count + weight]);
    }
  }
  part_sums[part][column] = sum;
  __syncthreads();
  if (part > 0 || weight >= count) return;
  for (int i = 1; i < kSumParts; ++i) sum += part_sums[i][column];
  dw[weight] = static_cast<float>(sum);
}

}  // namespace

template <class T>
void conv3x3_loss_backward(const Conv3x3LossShape& shape, const T* dlogits, const T* x, const T* w,
                           T* dx, float* dw, void* workspace, cudaStream_t stream) {
  float* partial = static_cast<float*>(workspace);
  const auto blocks = static_cast<unsigned>(conv3x3_loss_backward_blocks(shape));
  if (blocks > 0) {
    constexpr int kShared = kSharedBytes<T>;
    allow_shared_memory(reinterpret_cast<const void*>(conv3x3_loss_backward_kernel<T>), kShared);
    TANDEM_CUDA_TRY(launch(conv3x3_loss_backward_kernel<T>, LaunchShape{blocks, kThreads, kShared},
                           stream, shape.side, shape.classes, conv3x3_loss_tiles(shape), dlogits, x,
                           w, dx, partial));
  }
  const auto count = static_cast<int>(shape.classes) * kWeightsAClass;
  const auto sum_blocks = static_cast<unsigned>(ceil_div(count, kSumWeights));
  TANDEM_CUDA_TRY(launch(conv3x3_loss_backward_sum_kernel,
                         LaunchShape{sum_blocks, kSumWeights * kSumParts}, stream, partial, blocks,
                         count, dw));
}

template void conv3x3_loss_backward(const Conv3x3LossShape&, const float*, const float*,
                                    const float*, float*, float*, void*, cudaStream_t);
template void conv3x3_loss_backward(const Conv3x3LossShape&, const bf16*, const bf16*, const bf16*,
                                    bf16*, float*, void*, cudaStream_t);

}  // namespace tandem::cuda
