// SPDX-License-Identifier: Apache-2.0
// L2 regularisation of a layer's weights, as Keras' regularizers.l2: l2 * sum of w^2 is added to
// the loss, and so 2 * l2 * w to the gradient.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/host_device.hpp>

struct CUstream_st;  // what a cudaStream_t points to

namespace tandem {

namespace host {

/// w, dw [count]. dw += header.valid_count * 2 * l2 * w, since dw is a sum over the labels;
/// result.loss += l2 * sum of w^2. 3 roundings in T for dw; the sum in double, in the order of the
/// weights. Nothing is written where the header's count is 0. T is float or double.
template <class T>
void l2_penalty(const BatchHeader& header, float l2, const T* w, T* dw, std::int64_t count,
                StepResult* result);

}  // namespace host

namespace cuda {

/// Blocks of l2_penalty; each leaves a partial sum.
constexpr std::int64_t l2_blocks(std::int64_t count) {
  constexpr std::int64_t kWeightsABlock = 4096, kMostBlocks = 1024;
  return std::min(ceil_div(count, kWeightsABlock), kMostBlocks);
}

/// Bytes of the partial sums; at most 8 KiB.
constexpr std::size_t l2_workspace_bytes(std::int64_t count) {
  return static_cast<std::size_t>(l2_blocks(count)) * sizeof(double);
}

/// The bits of host::l2_penalty<float> in dw; the sum has another order, a function of the count.
/// Pointers are device memory, the header too; queued on the stream; CudaError if a launch fails.
/// `workspace` holds l2_workspace_bytes(count) bytes, aligned for double; it is written before it
/// is read.
void l2_penalty(const BatchHeader* header, float l2, const float* w, float* dw, std::int64_t count,
                StepResult* result, void* workspace, CUstream_st* stream);

}  // namespace cuda
}  // namespace tandem
