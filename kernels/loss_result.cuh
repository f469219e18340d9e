// SPDX-License-Identifier: Apache-2.0
// The end of every loss that blocks leave partial sums of. For .cu files.
#pragma once

#include <cstdint>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/device.cuh>

namespace tandem {

#if defined(__CUDACC__)

/// Sum of the partial sums, in an order that depends on their number alone; thread 0 gets it. For
/// one block of kBlockThreads, all of which must call, at most once a kernel.
__device__ inline double sum_of_partials(const double* partial, std::int64_t blocks) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < blocks; i += kBlockThreads) sum += partial[i];
  return block_sum(sum);
}

/// result.loss = sum / (valid count * terms a label), or 0 where there is no valid label.
__device__ inline void write_mean_loss(const BatchHeader& header, double sum, double terms,
                                       StepResult* result) {
  result->step = header.step;
  result->valid_count = header.valid_count;
  result->loss =
      header.valid_count == 0 ? 0.0 : sum / (static_cast<double>(header.valid_count) * terms);
}

#endif  // __CUDACC__

}  // namespace tandem
