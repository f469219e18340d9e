// SPDX-License-Identifier: Apache-2.0
// ReLU, bias and the conversion of pixels. T is float, bf16 or double; sums and gradients of a bias
// are Accumulator<T>.
#pragma once

#include <cstdint>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/permute_math.hpp>

namespace tandem::host {

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

/// y [pixels, channels] += b [channels].
template <class T>
void bias_forward(const T* b, T* y, std::int64_t pixels, std::int64_t channels);

/// db [channels] = sum over pixels of dy [pixels, channels]. Summed in double in the order of the
/// pixels and rounded once, so that with S the sum of |dy| of a channel the error is at most
/// gamma(pixels - 1) * S with the roundoff of double, plus half an ulp of the result.
template <class T>
void bias_backward(const T* dy, Accumulator<T>* db, std::int64_t pixels, std::int64_t channels);

}  // namespace tandem::host
