// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/launch.hpp>
#include <tandem/kernels/sgd.hpp>
#include <tandem/kernels/sgd_math.hpp>

namespace tandem::cuda {

namespace {

__global__ void sgd_momentum_kernel(const BatchHeader* header, const float* dw, float* v, float* w,
                                    std::int64_t count) {
  if (header->valid_count == 0) return;
  const SgdParameters<float> p = sgd_parameters<float>(*header);
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const float velocity = sgd_velocity(p, sgd_gradient(p, dw[i], w[i]), v[i]);
    v[i] = velocity;
    w[i] = sgd_weight(p, velocity, w[i]);
  }
}

}  // namespace

void sgd_momentum(const BatchHeader* header, const float* dw, float* v, float* w,
                  std::int64_t count, cudaStream_t stream) {
  if (count == 0) return;
  const LaunchShape shape = elementwise_shape(count);
  TANDEM_CUDA_TRY(launch(sgd_momentum_kernel, shape, stream, header, dw, v, w, count));
}

}  // namespace tandem::cuda
