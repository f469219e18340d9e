// SPDX-License-Identifier: Apache-2.0
// 1x1 convolutions of few channels: a network's first layer, which sees three. As a product one
// side of it is so short that a library reads it element by element; here a thread has the channels
// of a pixel, and the filter, in registers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/bf16.hpp>

struct CUstream_st;  // what a cudaStream_t points to

namespace tandem {

/// x [pixels, channels] -> y [pixels, outputs], w [outputs, channels]; channels last, dense.
struct Conv1x1FewShape {
  std::int64_t pixels, channels, outputs;
};

inline constexpr std::int64_t kFewChannels = 4;  ///< most channels of x
inline constexpr std::int64_t kFewOutputs = 16;  ///< most channels of y

constexpr bool conv1x1_few_takes(const Conv1x1FewShape& s) {
  return s.pixels > 0 && s.channels > 0 && s.channels <= kFewChannels && s.outputs > 0 &&
         s.outputs <= kFewOutputs;
}

namespace cuda {

// For shapes that conv1x1_few_takes(), as host::conv_forward, host::conv_backward_weights and
// host::gemm_update with windows of one pixel: products and sums in float, also where T is float
// and the plan allows TF32. The orders of the sums are functions of the shape, so the bits repeat.
// T is float or bf16, Out is T or float. All pointers are device memory. Queued on the stream.
// Throws CudaError if a launch fails.

/// y = x w^T, rounded once to Out.
template <class T, class Out>
void conv1x1_few_forward(const Conv1x1FewShape& shape, const T* x, const T* w, Out* y,
                         CUstream_st* stream);

/// Blocks of the first pass of a sum over pixels: four a multiprocessor of an H200.
constexpr std::int64_t conv1x1_few_blocks(const Conv1x1FewShape& s) {
  return std::min((s.pixels + 255) / 256, std::int64_t{528});
}

/// Bytes of the blocks' sums; at most 132 KB.
constexpr std::size_t conv1x1_few_workspace_bytes(const Conv1x1FewShape& s) {
  return static_cast<std::size_t>(conv1x1_few_blocks(s) * s.channels * s.outputs) * sizeof(float);
}

/// dw [outputs, channels] = dy^T x. Sums of a block's pixels in float, those of the blocks in
/// double, rounded once. `workspace` is written before it is read.
template <class T>
void conv1x1_few_backward_weights(const Conv1x1FewShape& shape, const T* x, const T* dy, float* dw,
                                  void* workspace, CUstream_st* stream);

/// w = keep * w + minus_rate_over_count * dy^T x with both factors from the header, the gradient
/// being rounded as above, and copy = bf16(w) where `copy` is not null.
template <class T>
void conv1x1_few_update(const Conv1x1FewShape& shape, const BatchHeader* header, const T* x,
                        const T* dy, float* w, bf16* copy, void* workspace, CUstream_st* stream);

}  // namespace cuda

}  // namespace tandem
