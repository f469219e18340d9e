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

}  // namespace

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
