// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/conv1x1_few.hpp>
#include <tandem/kernels/device.cuh>
#include <tandem/kernels/rounded.hpp>

namespace tandem::cuda {

namespace {

constexpr int kOutputs = static_cast<int>(kFewOutputs);

/// The `count` channels of a pixel, in packs where they fill packs. What lies behind them is left.
template <bool kPacked, class T>
__device__ void load_outputs(const T* from, int count, float (&to)[kOutputs]) {
  if constexpr (kPacked) {
    constexpr int kPack = kPackElements<T>;
#pragma unroll
    for (int first = 0; first < kOutputs; first += kPack) {
      const Pack<T, kPack> pack = load_pack<kPack>(from + first);
#pragma unroll
      for (int j = 0; j < kPack; ++j) to[first + j] = float(pack.element[j]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kOutputs; ++k)
      if (k < count) to[k] = float(from[k]);
  }
}

template <bool kPacked, class Out>
__device__ void store_outputs(const float (&from)[kOutputs], int count, Out* to) {
  if constexpr (kPacked) {
    constexpr int kPack = kPackElements<Out>;
#pragma unroll
    for (int first = 0; first < kOutputs; first += kPack) {
      Pack<Out, kPack> pack;
#pragma unroll
      for (int j = 0; j < kPack; ++j) pack.element[j] = Out(from[first + j]);
      store_pack(to + first, pack);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kOutputs; ++k)
      if (k < count) to[k] = Out(from[k]);
  }
}

/// A thread a pixel.
template <int kChannels, bool kPacked, class T, class Out>
__global__ void __launch_bounds__(kBlockThreads)
    conv1x1_few_forward_kernel(const T* x, const T* w, Out* y, std::int64_t pixels, int outputs) {
  __shared__ float filter[kOutputs][kChannels];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < outputs * kChannels)
    filter[thread / kChannels][thread % kChannels] = float(w[thread]);
  __syncthreads();
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t p = std::int64_t{blockIdx.x} * blockDim.x + thread; p < pixels; p += threads) {
    float channel[kChannels], sum[kOutputs];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) channel[c] = float(x[p * kChannels + c]);
#pragma unroll
    for (int k = 0; k < kOutputs; ++k) {
      sum[k] = 0;
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sum[k] += channel[c] * filter[k][c];
    }
    store_outputs<kPacked>(sum, outputs, y + p * outputs);
  }
}

/// partial [blocks, outputs, channels]: sums over the pixels of each block, by thread, by halves of
/// a warp, warp by warp.
template <int kChannels, bool kPacked, class T>
__global__ void __launch_bounds__(kBlockThreads, 2)
    conv1x1_few_sum_kernel(const T* x, const T* dy, float* partial, std::int64_t pixels,
                           int outputs) {
  constexpr int kWarps = kBlockThreads / 32, kSums = kOutputs * kChannels;
  const int thread = static_cast<int>(threadIdx.x);
  float sum[kOutputs][kChannels] = {};
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t p = std::int64_t{blockIdx.x} * blockDim.x + thread; p < pixels; p += threads) {
    float channel[kChannels], gradient[kOutputs] = {};
#pragma unroll
    for (int c = 0; c < kChannels; ++c) channel[c] = float(x[p * kChannels + c]);
    load_outputs<kPacked>(dy + p * outputs, outputs, gradient);
#pragma unroll
    for (int k = 0; k < kOutputs; ++k)
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sum[k][c] += gradient[k] * channel[c];
  }
  __shared__ float warp_sums[kWarps][kSums];
#pragma unroll
  for (int k = 0; k < kOutputs; ++k)
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      float total = sum[k][c];
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        total += __shfl_xor_sync(0xffffffffu, total, distance);
      if (thread % 32 == 0) warp_sums[thread / 32][k * kChannels + c] = total;
    }
  __syncthreads();
  const int count = outputs * kChannels;
  if (thread >= count) return;
  float total = 0;
  for (int warp = 0; warp < kWarps; ++warp) total += warp_sums[warp][thread];
  partial[std::int64_t{blockIdx.x} * count + thread] = total;
}

/// A warp a weight: its lanes add every 32nd block in their order, then the lanes by halves. With a
/// header the sum is a gradient that updates the weight, else it is the result.
__global__ void conv1x1_few_finish_kernel(const BatchHeader* header, const float* partial,
                                          std::int64_t blocks, std::int64_t count, float* w,
                                          bf16* copy) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t i = thread / 32;
  if (i >= count) return;
  double total = 0;
  for (std::int64_t b = thread % 32; b < blocks; b += 32) total += partial[b * count + i];
  const auto sum = static_cast<float>(warp_sum(total));
  if (thread % 32 != 0) return;
  const float value = header == nullptr ? sum
                                        : add_rn(mul_rn(header->keep, w[i]),
                                                 mul_rn(header->minus_rate_over_count, sum));
  w[i] = value;
  if (copy != nullptr) copy[i] = bf16(value);
}

/// Calls body(Width<channels>, packed): the constants that the kernels are made for.
template <class Body>
void with_channels(const Conv1x1FewShape& shape, bool aligned, Body body) {
  const auto packed = [&](auto channels) {
    if (aligned && shape.outputs == kFewOutputs) return body(channels, Width<1>{});
    body(channels, Width<0>{});
  };
  switch (shape.channels) {
    case 1:
      return packed(Width<1>{});
    case 2:
      return packed(Width<2>{});
    case 3:
      return packed(Width<3>{});
    default:
      return packed(Width<4>{});
  }
}

template <class T>
void sum_pixels(const Conv1x1FewShape& shape, const BatchHeader* header, const T* x, const T* dy,
                float* w, bf16* copy, void* workspace, cudaStream_t stream) {
  auto* partial = static_cast<float*>(workspace);
  const std::int64_t blocks = conv1x1_few_blocks(shape), count = shape.channels * shape.outputs;
  with_channels(shape, is_aligned(dy), [&](auto channels, auto packed) {
    TANDEM_CUDA_TRY(launch(conv1x1_few_sum_kernel<channels.value, packed.value != 0, T>,
                           {static_cast<unsigned>(blocks), kBlockThreads}, stream, x, dy, partial,
                           shape.pixels, static_cast<int>(shape.outputs)));
  });
  const auto warps = static_cast<unsigned>(ceil_div<std::int64_t>(count * 32, kBlockThreads));
  TANDEM_CUDA_TRY(launch(conv1x1_few_finish_kernel, {warps, kBlockThreads}, stream, header, partial,
                         blocks, count, w, copy));
}

}  // namespace

template <class T, class Out>
void conv1x1_few_forward(const Conv1x1FewShape& shape, const T* x, const T* w, Out* y,
                         cudaStream_t stream) {
  with_channels(shape, is_aligned(y), [&](auto channels, auto packed) {
    TANDEM_CUDA_TRY(launch(conv1x1_few_forward_kernel<channels.value, packed.value != 0, T, Out>,
                           elementwise_shape(shape.pixels), stream, x, w, y, shape.pixels,
                           static_cast<int>(shape.outputs)));
  });
}

template <class T>
void conv1x1_few_backward_weights(const Conv1x1FewShape& shape, const T* x, const T* dy, float* dw,
                                  void* workspace, cudaStream_t stream) {
  sum_pixels(shape, nullptr, x, dy, dw, nullptr, workspace, stream);
}

template <class T>
void conv1x1_few_update(const Conv1x1FewShape& shape, const BatchHeader* header, const T* x,
                        const T* dy, float* w, bf16* copy, void* workspace, cudaStream_t stream) {
  sum_pixels(shape, header, x, dy, w, copy, workspace, stream);
}

template void conv1x1_few_forward(const Conv1x1FewShape&, const float*, const float*, float*,
                                  cudaStream_t);
template void conv1x1_few_forward(const Conv1x1FewShape&, const bf16*, const bf16*, bf16*,
                                  cudaStream_t);
template void conv1x1_few_forward(const Conv1x1FewShape&, const bf16*, const bf16*, float*,
                                  cudaStream_t);
#define TANDEM_INSTANTIATE(T)                                                                      \
  template void conv1x1_few_backward_weights(const Conv1x1FewShape&, const T*, const T*, float*,   \
                                             void*, cudaStream_t);                                 \
  template void conv1x1_few_update(const Conv1x1FewShape&, const BatchHeader*, const T*, const T*, \
                                   float*, bf16*, void*, cudaStream_t)
TANDEM_INSTANTIATE(float);
TANDEM_INSTANTIATE(bf16);
#undef TANDEM_INSTANTIATE

}  // namespace tandem::cuda
