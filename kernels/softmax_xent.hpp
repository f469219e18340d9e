// SPDX-License-Identifier: Apache-2.0
// Softmax, cross-entropy and its gradient in one pass, and the class a pixel is given.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/host_device.hpp>

struct CUstream_st;  // what a cudaStream_t points to

namespace tandem {

/// Labels are bytes, so there are at most this many classes.
inline constexpr std::int64_t kMaxClasses = 256;

namespace host {

/// logits [pixels, classes], labels [pixels], dlogits [pixels, classes].
/// dlogits = softmax(logits) - onehot(label), not divided by the count; 0 where the label is
/// `ignore_label`. result.loss = sum of -log softmax(logits)[label] / header.valid_count, or 0
/// where that count is 0; each pixel's loss in Accumulator<T>, their sum in double in the order of
/// the pixels. A label that is neither a class nor ignored makes the loss and its row of dlogits a
/// NaN. T is float, bf16 or double; 1 <= classes <= kMaxClasses.
template <class T>
void softmax_cross_entropy(const BatchHeader& header, const Accumulator<T>* logits,
                           const std::uint8_t* labels, int ignore_label, std::int64_t pixels,
                           std::int64_t classes, T* dlogits, StepResult* result);

/// y [pixels] = the first index of the largest of logits [pixels, classes]. T is float or double.
template <class T>
void argmax(const T* logits, std::int64_t pixels, std::int64_t classes, std::uint8_t* y);

}  // namespace host

namespace cuda {

// Pointers are device memory, the header too; queued on the stream; CudaError if a launch fails.

/// Pixels of a tile, which a block takes through shared memory: a thread a pixel, or 8 threads
/// where there are many classes.
constexpr int softmax_tile_pixels(std::int64_t classes) { return classes <= 32 ? 256 : 32; }

/// Blocks of softmax_cross_entropy; each leaves a partial loss.
constexpr std::int64_t softmax_blocks(std::int64_t pixels, std::int64_t classes) {
  return std::min(ceil_div<std::int64_t>(pixels, softmax_tile_pixels(classes)), std::int64_t{1024});
}

/// Bytes of the partial losses; at most 8 KiB.
constexpr std::size_t softmax_workspace_bytes(std::int64_t pixels, std::int64_t classes) {
  return static_cast<std::size_t>(softmax_blocks(pixels, classes)) * sizeof(double);
}

/// As host::softmax_cross_entropy<T>, within the same bounds: the sum over 33 or more classes has
/// another order, and so has that of the losses, both a function of the shape. T is float or bf16.
/// `workspace` holds softmax_workspace_bytes(pixels, classes) bytes, aligned for double; it is
/// written before it is read.
template <class T>
void softmax_cross_entropy(const BatchHeader* header, const float* logits,
                           const std::uint8_t* labels, int ignore_label, std::int64_t pixels,
                           std::int64_t classes, T* dlogits, StepResult* result, void* workspace,
                           CUstream_st* stream);

/// The same as host::argmax<float>, NaN included.
void argmax(const float* logits, std::int64_t pixels, std::int64_t classes, std::uint8_t* y,
            CUstream_st* stream);

}  // namespace cuda
}  // namespace tandem
