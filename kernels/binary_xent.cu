// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/binary_xent.hpp>
#include <tandem/kernels/binary_xent_math.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/loss_result.cuh>

namespace tandem::cuda {

namespace {

/// A thread a logit, so that neighbours read neighbours whatever the number of classes is.
template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    binary_cross_entropy_kernel(const float* __restrict__ logits,
                                const std::uint8_t* __restrict__ labels, int ignore_label,
                                std::int64_t count, int classes, T* __restrict__ dlogits,
                                double* partial) {
  const float nan = __int_as_float(0x7fc00000);
  double loss = 0;
  const std::int64_t threads = std::int64_t{gridDim.x} * kBlockThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < count;
       i += threads) {
    const std::int64_t pixel = i / classes;
    const int label = labels[pixel];
    if (label == ignore_label || label >= classes) {
      const float value = label == ignore_label ? 0.0f : nan;
      dlogits[i] = T(value);
      loss += static_cast<double>(value);
      continue;
    }
    const bool is_label = i - pixel * classes == label;
    const float s = against_target(logits[i], is_label);
    dlogits[i] = T(binary_gradient(s, is_label, static_cast<float>(classes)));
    loss += static_cast<double>(binary_loss(s));
  }
  loss = block_sum(loss);
  if (threadIdx.x == 0) partial[blockIdx.x] = loss;
}

__global__ void __launch_bounds__(kBlockThreads)
    binary_cross_entropy_result_kernel(const BatchHeader* header, const double* partial,
                                       std::int64_t blocks, double classes, StepResult* result) {
  const double loss = sum_of_partials(partial, blocks);
  if (threadIdx.x == 0) write_mean_loss(*header, loss, classes, result);
}

}  // namespace

template <class T>
void binary_cross_entropy(const BatchHeader* header, const float* logits,
                          const std::uint8_t* labels, int ignore_label, std::int64_t pixels,
                          std::int64_t classes, T* dlogits, StepResult* result, void* workspace,
                          cudaStream_t stream) {
  double* partial = static_cast<double*>(workspace);
  const std::int64_t blocks = binary_blocks(pixels, classes);
  if (pixels > 0) {
    const LaunchShape shape = {static_cast<unsigned>(blocks), kBlockThreads};
    TANDEM_CUDA_TRY(launch(binary_cross_entropy_kernel<T>, shape, stream, logits, labels,
                           ignore_label, pixels * classes, static_cast<int>(classes), dlogits,
                           partial));
  }
  TANDEM_CUDA_TRY(launch(binary_cross_entropy_result_kernel, LaunchShape{1, kBlockThreads}, stream,
                         header, partial, blocks, static_cast<double>(classes), result));
}

template void binary_cross_entropy(const BatchHeader*, const float*, const std::uint8_t*, int,
                                   std::int64_t, std::int64_t, float*, StepResult*, void*,
                                   cudaStream_t);
template void binary_cross_entropy(const BatchHeader*, const float*, const std::uint8_t*, int,
                                   std::int64_t, std::int64_t, bf16*, StepResult*, void*,
                                   cudaStream_t);

}  // namespace tandem::cuda
