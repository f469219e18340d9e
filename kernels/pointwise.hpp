// SPDX-License-Identifier: Apache-2.0
// ReLU, sigmoid, bias and the conversion of pixels. T is float, bf16 or double; sums and gradients
// of a bias are Accumulator<T>.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/column_tiling.hpp>
#include <tandem/kernels/permute_math.hpp>

struct CUstream_st;  // what a cudaStream_t points to

namespace tandem {

namespace host {

/// y = scale * x, where x [n,h,w,c] lies in raster order and y in `order`, channels last.
template <class T>
void u8_to_float(const ImageShape& shape, const std::uint8_t* x, float scale, ImageOrder order,
                 T* y);

/// y [count] = y < 0 ? 0 : y. A NaN stays a NaN.
template <class T>
void relu_forward(T* y, std::int64_t count);

/// dy [count] = y <= 0 ? 0 : dy, with y the output of relu_forward.
template <class T>
void relu_backward(const T* y, T* dy, std::int64_t count);

/// y [count] = 1 / (1 + exp(-x)). A NaN stays a NaN. Computed in Accumulator<T>: an exponential, a
/// sum and a quotient.
template <class T>
void sigmoid_forward(const T* x, T* y, std::int64_t count);

/// dy [count] *= y * (1 - y), with y the output of sigmoid_forward; 3 roundings in Accumulator<T>.
template <class T>
void sigmoid_backward(const T* y, T* dy, std::int64_t count);

/// y [pixels, channels] += b [channels].
template <class T>
void bias_forward(const T* b, T* y, std::int64_t pixels, std::int64_t channels);

/// bias_forward and relu_forward in one pass, with their bits.
template <class T>
void bias_relu_forward(const T* b, T* y, std::int64_t pixels, std::int64_t channels);

/// relu_backward and bias_backward (of the new dy) in one pass, with their bits.
template <class T>
void relu_bias_backward(const T* y, T* dy, Accumulator<T>* db, std::int64_t pixels,
                        std::int64_t channels);

/// db [channels] = sum over pixels of dy [pixels, channels]. Summed in double in the order of the
/// pixels and rounded once, so that with S the sum of |dy| of a channel the error is at most
/// gamma(pixels - 1) * S with the roundoff of double, plus half an ulp of the result.
template <class T>
void bias_backward(const T* dy, Accumulator<T>* db, std::int64_t pixels, std::int64_t channels);

}  // namespace host

namespace cuda {

// The same bits as the twins, but for bias_backward and sigmoid_forward, whose exponential is
// another one with the same bound. T is float or bf16; pointers are device
// memory; queued on the stream; CudaError if a launch fails. Tensors that start at a multiple of 16
// bytes are moved 16 bytes at a time, others an element at a time, with the same results.

template <class T>
void u8_to_float(const ImageShape& shape, const std::uint8_t* x, float scale, ImageOrder order,
                 T* y, CUstream_st* stream);

template <class T>
void relu_forward(T* y, std::int64_t count, CUstream_st* stream);

template <class T>
void relu_backward(const T* y, T* dy, std::int64_t count, CUstream_st* stream);

template <class T>
void sigmoid_forward(const T* x, T* y, std::int64_t count, CUstream_st* stream);

template <class T>
void sigmoid_backward(const T* y, T* dy, std::int64_t count, CUstream_st* stream);

template <class T>
void bias_forward(const T* b, T* y, std::int64_t pixels, std::int64_t channels,
                  CUstream_st* stream);

template <class T>
void bias_relu_forward(const T* b, T* y, std::int64_t pixels, std::int64_t channels,
                       CUstream_st* stream);

/// How the first of two stages of the sum is shared out, for packs of `pack` elements. At most 1024
/// blocks: enough to fill the GPUs there are, few enough that the second stage is short.
constexpr ColumnTiling bias_backward_tiling(std::int64_t pixels, std::int64_t channels, int pack) {
  return column_tiling(pixels, channels, pack, 8, 1024);
}

/// Bytes of the partial sums for elements of `element_bytes`; at most 16 MiB up to 2^18 channels.
constexpr std::size_t bias_backward_workspace_bytes(std::int64_t pixels, std::int64_t channels,
                                                    std::size_t element_bytes) {
  std::int64_t sums = 0;
  for (const int pack : {kPackBytes / static_cast<int>(element_bytes), 1}) {
    const ColumnTiling tiling = bias_backward_tiling(pixels, channels, pack);
    sums = std::max(sums, tiling.row_chunks * tiling.columns * pack);
  }
  return static_cast<std::size_t>(sums) * sizeof(double);
}

/// db as host::bias_backward<T>, each sum in double in an order that depends on the shape and on
/// whether dy is aligned, rounded once: the twin's bound. `workspace` holds
/// bias_backward_workspace_bytes(pixels, channels, sizeof(T)) bytes, aligned for double; it is
/// written before it is read.
template <class T>
void bias_backward(const T* dy, float* db, std::int64_t pixels, std::int64_t channels,
                   void* workspace, CUstream_st* stream);

/// The bits of cuda::relu_backward and cuda::bias_backward where y and dy are aligned alike.
template <class T>
void relu_bias_backward(const T* y, T* dy, float* db, std::int64_t pixels, std::int64_t channels,
                        void* workspace, CUstream_st* stream);

}  // namespace cuda

}  // namespace tandem
