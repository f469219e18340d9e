// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/l2_penalty.hpp>
#include <tandem/kernels/l2_penalty_math.hpp>
#include <tandem/kernels/loss_result.cuh>

namespace tandem::cuda {

namespace {

template <int N>
__global__ void __launch_bounds__(kBlockThreads)
    l2_penalty_kernel(const BatchHeader* header, float l2, const float* __restrict__ w,
                      float* __restrict__ dw, std::int64_t count, double* partial) {
  if (header->valid_count == 0) return;
  const float factor = l2_factor<float>(*header, l2);
  double sum = 0;
  for_each_pack<N>(count, [&](std::int64_t first, auto width) {
    constexpr int n = width.value;
    const Pack<float, n> weight = load_pack<n>(w + first);
    Pack<float, n> gradient = load_pack<n>(dw + first);
    for (int j = 0; j < n; ++j) {
      const float value = weight.element[j];
      gradient.element[j] = l2_gradient(factor, value, gradient.element[j]);
      sum += static_cast<double>(value) * static_cast<double>(value);
    }
    store_pack(dw + first, gradient);
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kBlockThreads)
    l2_penalty_result_kernel(const BatchHeader* header, float l2, const double* partial,
                             std::int64_t blocks, StepResult* result) {
  if (header->valid_count == 0) return;
  const double sum = sum_of_partials(partial, blocks);
  if (threadIdx.x == 0) result->loss += static_cast<double>(l2) * sum;
}

}  // namespace

void l2_penalty(const BatchHeader* header, float l2, const float* w, float* dw, std::int64_t count,
                StepResult* result, void* workspace, cudaStream_t stream) {
  if (count == 0) return;
  double* partial = static_cast<double*>(workspace);
  const std::int64_t blocks = l2_blocks(count);
  with_width<kPackElements<float>>(is_aligned(w, dw), [&](auto width) {
    const LaunchShape shape = {static_cast<unsigned>(blocks), kBlockThreads};
    TANDEM_CUDA_TRY(
        launch(l2_penalty_kernel<width.value>, shape, stream, header, l2, w, dw, count, partial));
  });
  TANDEM_CUDA_TRY(launch(l2_penalty_result_kernel, LaunchShape{1, kBlockThreads}, stream, header,
                         l2, partial, blocks, result));
}

}  // namespace tandem::cuda
