// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/launch.hpp>
#include <tandem/kernels/spin.hpp>

namespace tandem::cuda {

namespace {

__global__ void spin_kernel(std::int64_t ticks) {
  const std::int64_t start = clock64();
  while (clock64() - start < ticks) {
  }
}

}  // namespace

void spin(std::int64_t ticks, unsigned grid, unsigned block, cudaStream_t stream) {
  TANDEM_CUDA_TRY(launch(spin_kernel, LaunchShape{grid, block}, stream, ticks));
}

}  // namespace tandem::cuda
