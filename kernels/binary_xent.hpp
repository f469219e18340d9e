// SPDX-License-Identifier: Apache-2.0
// Sigmoid, binary cross-entropy and its gradient in one pass: every class is a yes or a no of its
// own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/host_device.hpp>

struct CUstream_st;  // what a cudaStream_t points to

namespace tandem {

namespace host {

/// logits [pixels, classes], labels [pixels], dlogits [pixels, classes]. The target of a pixel's
/// class is 1 if it is the label, else 0; a pixel's loss is the mean over its classes, as Keras and
/// PyTorch have it. dlogits = (sigmoid(logits) - target) / classes, not divided by the count; 0
/// where the label is `ignore_label`. result.loss = sum of the pixels' losses / header.valid_count,
/// or 0 where that count is 0; each logit's loss in Accumulator<T>, their sum in double in the
/// order of the logits. A label that is neither a class nor ignored makes the loss and its row of
/// dlogits a NaN. T is float, bf16 or double; 1 <= classes <= kMaxClasses.
template <class T>
void binary_cross_entropy(const BatchHeader& header, const Accumulator<T>* logits,
                          const std::uint8_t* labels, int ignore_label, std::int64_t pixels,
                          std::int64_t classes, T* dlogits, StepResult* result);

}  // namespace host

namespace cuda {

/// Blocks of binary_cross_entropy; each leaves a partial loss.
constexpr std::int64_t binary_blocks(std::int64_t pixels, std::int64_t classes) {
  constexpr std::int64_t kThreads = 256, kMostBlocks = 1024;
  return std::min(ceil_div(pixels * classes, kThreads), kMostBlocks);
}

/// Bytes of the partial losses; at most 8 KiB.
constexpr std::size_t binary_workspace_bytes(std::int64_t pixels, std::int64_t classes) {
  return static_cast<std::size_t>(binary_blocks(pixels, classes)) * sizeof(double);
}

/// As host::binary_cross_entropy<T>, within the same bounds: the sum of the losses has another
/// order, a function of the shape. T is float or bf16. Pointers are device memory, the header too;
/// queued on the stream; CudaError if a launch fails. `workspace` holds
/// binary_workspace_bytes(pixels, classes) bytes, aligned for double; it is written before it is
/// read.
template <class T>
void binary_cross_entropy(const BatchHeader* header, const float* logits,
                          const std::uint8_t* labels, int ignore_label, std::int64_t pixels,
                          std::int64_t classes, T* dlogits, StepResult* result, void* workspace,
                          CUstream_st* stream);

}  // namespace cuda
}  // namespace tandem
