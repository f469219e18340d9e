// SPDX-License-Identifier: Apache-2.0
// Matrix products, and the convolutions that are nothing else.
#pragma once

#include <cstdint>
#include <tandem/kernels/bf16.hpp>

namespace tandem::host {

enum class Transpose : bool { no, yes };
enum class Beta : bool { overwrite, accumulate };

/// c [m,n] = op(a) op(b), or c += op(a) op(b). Row-major and dense; op(a) is [m,k], op(b) is [k,n],
/// and a transposed operand lies in memory as [k,m] or [n,k]. (In, Out) is (float, float), (bf16,
/// bf16), (bf16, float) or (double, double). Sums are Accumulator<In>: OpenBLAS for float and
/// double, the order of k for bf16, rounded once to Out. Overwritten contents of c are never read.
/// Throws std::length_error if a dimension is above 2^31 - 1.
template <class In, class Out>
void gemm(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n,
          std::int64_t k, const In* a, const In* b, Beta beta, Out* c);

/// c [m,n] = beta c + alpha op(a) op(b), with c and the sums Accumulator<In>: an update of weights.
template <class In>
void gemm_update(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n,
                 std::int64_t k, Accumulator<In> alpha, const In* a, const In* b,
                 Accumulator<In> beta, Accumulator<In>* c);

// Convolutions whose windows do not overlap. Channels are last, so the inputs of one window are D
// adjacent numbers and each of them meets all K outputs: a plain product, with no gather.
//   1x1:            a window is a pixel, D = C.
//   2x2, stride 2:  in Z-order the four pixels of a window are adjacent, in the order of the
//                   filter's [kh][kw], so D = 4C and the filter [K][2][2][C] is used as [K,D].
// `windows` is the number of output pixels.

/// y [windows,K] = x [windows,D] w^T, w [K,D].
template <class In, class Out>
void conv_forward(std::int64_t windows, std::int64_t d, std::int64_t k, const In* x, const In* w,
                  Out* y) {
  gemm(Transpose::no, Transpose::yes, windows, k, d, x, w, Beta::overwrite, y);
}

/// dx [windows,D] = dy [windows,K] w, w [K,D].
template <class T>
void conv_backward_data(std::int64_t windows, std::int64_t d, std::int64_t k, const T* dy,
                        const T* w, T* dx) {
  gemm(Transpose::no, Transpose::no, windows, d, k, dy, w, Beta::overwrite, dx);
}

/// dw [K,D] = dy^T x, with x [windows,D], dy [windows,K].
template <class T>
void conv_backward_weights(std::int64_t windows, std::int64_t d, std::int64_t k, const T* x,
                           const T* dy, Accumulator<T>* dw) {
  gemm(Transpose::yes, Transpose::no, k, d, windows, dy, x, Beta::overwrite, dw);
}

// Transposed 2x2 convolution with stride 2: each input pixel writes a window of its own, whose four
// pixels are adjacent in Z-order, so the filter [C][2][2][K] is used as [C,D] with D = 4K.
// `windows` is the number of input pixels.

/// y [windows,D] = x [windows,C] w, w [C,D].
template <class In, class Out>
void tconv_forward(std::int64_t windows, std::int64_t c, std::int64_t d, const In* x, const In* w,
                   Out* y) {
  gemm(Transpose::no, Transpose::no, windows, d, c, x, w, Beta::overwrite, y);
}

/// dx [windows,C] = dy [windows,D] w^T, w [C,D].
template <class T>
void tconv_backward_data(std::int64_t windows, std::int64_t c, std::int64_t d, const T* dy,
                         const T* w, T* dx) {
  gemm(Transpose::no, Transpose::yes, windows, c, d, dy, w, Beta::overwrite, dx);
}

/// dw [C,D] = x^T dy, with x [windows,C], dy [windows,D].
template <class T>
void tconv_backward_weights(std::int64_t windows, std::int64_t c, std::int64_t d, const T* x,
                            const T* dy, Accumulator<T>* dw) {
  gemm(Transpose::yes, Transpose::no, c, d, windows, x, dy, Beta::overwrite, dw);
}

}  // namespace tandem::host
