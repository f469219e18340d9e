// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/device.cuh>
#include <tandem/kernels/sgd.hpp>
#include <tandem/kernels/sgd_math.hpp>

namespace tandem::cuda {

namespace {

template <int N>
__global__ void sgd_kernel(const BatchHeader* header, const float* dw, float* w,
                           std::int64_t count) {
  if (header->valid_count == 0) return;
  const SgdParameters<float> p = sgd_parameters<float>(*header);
  for_each_pack<N>(count, [&](std::int64_t first, auto width) {
    constexpr int n = width.value;
    const Pack<float, n> g = load_pack<n>(dw + first);
    Pack<float, n> weight = load_pack<n>(w + first);
    for (int j = 0; j < n; ++j) {
      float& value = weight.element[j];
      value = sgd_weight(p, sgd_gradient(p, g.element[j], value), value);
    }
    store_pack(w + first, weight);
  });
}

template <int N>
__global__ void sgd_momentum_kernel(const BatchHeader* header, const float* dw, float* v, float* w,
                                    std::int64_t count) {
  if (header->valid_count == 0) return;
  const SgdParameters<float> p = sgd_parameters<float>(*header);
  for_each_pack<N>(count, [&](std::int64_t first, auto width) {
    constexpr int n = width.value;
    const Pack<float, n> g = load_pack<n>(dw + first);
    Pack<float, n> velocity = load_pack<n>(v + first), weight = load_pack<n>(w + first);
    for (int j = 0; j < n; ++j) {
      float &speed = velocity.element[j], &value = weight.element[j];
      speed = sgd_velocity(p, sgd_gradient(p, g.element[j], value), speed);
      value = sgd_weight(p, speed, value);
    }
    store_pack(v + first, velocity);
    store_pack(w + first, weight);
  });
}

/// What the kernel for many tensors is told; an argument, so that it needs no memory.
struct SgdTensors {
  int count;
  std::uint32_t first_block[kMaxSgdTensors + 1];  ///< tensor i has blocks first_block[i] and on
  SgdTensor<float> tensor[kMaxSgdTensors];
};

constexpr int kPack = kPackElements<float>;

/// Blocks of a tensor: four packs a thread, and no more than keep a large GPU busy.
std::uint32_t blocks_of(std::int64_t elements) {
  constexpr std::int64_t kElementsABlock = 4 * kPack * kBlockThreads, kMostBlocks = 4096;
  return static_cast<std::uint32_t>(std::min(ceil_div(elements, kElementsABlock), kMostBlocks));
}

__global__ void __launch_bounds__(kBlockThreads)
    sgd_many_kernel(const BatchHeader* header, const __grid_constant__ SgdTensors tensors) {
  if (header->valid_count == 0) return;
  const SgdParameters<float> p = sgd_parameters<float>(*header);
  int i = 0;
  while (blockIdx.x >= tensors.first_block[i + 1]) ++i;
  const SgdTensor<float>& t = tensors.tensor[i];
  const std::uint32_t first = tensors.first_block[i], blocks = tensors.first_block[i + 1] - first;
  const std::int64_t thread = std::int64_t{blockIdx.x - first} * blockDim.x + threadIdx.x;
  // The arena aligns tensors by 256 bytes, so that packs are aligned too.
  for_each_pack<kPack>(
      thread, std::int64_t{blocks} * blockDim.x, t.elements, [&](std::int64_t at, auto width) {
        constexpr int n = width.value;
        const Pack<float, n> g = load_pack<n>(t.dw + at);
        Pack<float, n> weight = load_pack<n>(t.w + at), velocity;
        if (t.v != nullptr) velocity = load_pack<n>(t.v + at);
        for (int j = 0; j < n; ++j) {
          float& value = weight.element[j];
          float step = sgd_gradient(p, g.element[j], value);
          if (t.v != nullptr)
            step = velocity.element[j] = sgd_velocity(p, step, velocity.element[j]);
          value = sgd_weight(p, step, value);
        }
        if (t.v != nullptr) store_pack(t.v + at, velocity);
        store_pack(t.w + at, weight);
        if (t.copy == nullptr) return;
        Pack<bf16, n> narrow;
        for (int j = 0; j < n; ++j) narrow.element[j] = bf16(weight.element[j]);
        store_pack(t.copy + at, narrow);
      });
}

}  // namespace

void sgd_many(const BatchHeader* header, const SgdTensor<float>* tensors, int count,
              cudaStream_t stream) {
  SgdTensors all = {};
  for (int i = 0; i < count; ++i) {
    if (tensors[i].elements == 0) continue;
    all.tensor[all.count] = tensors[i];
    all.first_block[all.count + 1] = all.first_block[all.count] + blocks_of(tensors[i].elements);
    ++all.count;
  }
  if (all.count == 0) return;
  const LaunchShape shape = {all.first_block[all.count], kBlockThreads};
  TANDEM_CUDA_TRY(launch(sgd_many_kernel, shape, stream, header, all));
}

void sgd(const BatchHeader* header, const float* dw, float* w, std::int64_t count,
         cudaStream_t stream) {
  if (count == 0) return;
  with_width<kPackElements<float>>(is_aligned(dw, w), [&](auto width) {
    const LaunchShape shape = elementwise_shape(ceil_div<std::int64_t>(count, width.value));
    TANDEM_CUDA_TRY(launch(sgd_kernel<width.value>, shape, stream, header, dw, w, count));
  });
}

void sgd_momentum(const BatchHeader* header, const float* dw, float* v, float* w,
                  std::int64_t count, cudaStream_t stream) {
  if (count == 0) return;
  with_width<kPackElements<float>>(is_aligned(dw, v, w), [&](auto width) {
    const LaunchShape shape = elementwise_shape(ceil_div<std::int64_t>(count, width.value));
    TANDEM_CUDA_TRY(
        launch(sgd_momentum_kernel<width.value>, shape, stream, header, dw, v, w, count));
  });
}

}  // namespace tandem::cuda
