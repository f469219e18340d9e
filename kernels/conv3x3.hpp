// SPDX-License-Identifier: Apache-2.0
// Convolution 3x3, stride 1, padding 1, channels last in raster order: the windows are gathered
// into a matrix (im2col), some rows of pixels at a time, and multiplied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tandem/kernels/bf16.hpp>

namespace tandem::host {

struct Conv3x3Shape {
  std::int64_t n, h, w;
  std::int64_t c;  ///< channels of x
  std::int64_t k;  ///< channels of y
};

/// Workspace of each pass in elements of T, whose size is `element_bytes`. Depends on the shape
/// alone, and so does the cutting into chunks that it implies: about a megabyte, but at least one
/// row of pixels.
std::size_t conv3x3_forward_workspace(const Conv3x3Shape& shape, std::size_t element_bytes);
std::size_t conv3x3_backward_data_workspace(const Conv3x3Shape& shape, std::size_t element_bytes);
std::size_t conv3x3_backward_weights_workspace(const Conv3x3Shape& shape,
                                               std::size_t element_bytes);

/// y [N,H,W,K] from x [N,H,W,C] and w [K,3,3,C]. (In, Out) as for gemm().
template <class In, class Out>
void conv3x3_forward(const Conv3x3Shape& shape, const In* x, const In* w, Out* y, In* workspace);

/// dx [N,H,W,C] from dy [N,H,W,K] and w [K,3,3,C].
template <class T>
void conv3x3_backward_data(const Conv3x3Shape& shape, const T* dy, const T* w, T* dx, T* workspace);

/// dw [K,3,3,C] from x [N,H,W,C] and dy [N,H,W,K]. The chunks are added in order.
template <class T>
void conv3x3_backward_weights(const Conv3x3Shape& shape, const T* x, const T* dy,
                              Accumulator<T>* dw, T* workspace);

}  // namespace tandem::host
