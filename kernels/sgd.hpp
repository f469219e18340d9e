// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with PyTorch's meaning, without dampening or Nesterov:
//   g = dw / count + weight_decay * w;  v = momentum * v + g;  w -= lr * v
// and w -= lr * g without momentum. The numbers come from the batch header. Where its count is 0
// nothing is written. 4 roundings without and 6 with momentum, one more where the count itself is
// not representable (above 2^24 in float).
#pragma once

#include <cstdint>
#include <tandem/kernels/batch_header.hpp>

struct CUstream_st;  // what a cudaStream_t points to

namespace tandem {

namespace host {

/// dw, w [count]. T is float or double.
template <class T>
void sgd(const BatchHeader& header, const T* dw, T* w, std::int64_t count);

/// dw, v, w [count]. T is float or double.
template <class T>
void sgd_momentum(const BatchHeader& header, const T* dw, T* v, T* w, std::int64_t count);

}  // namespace host

namespace cuda {

/// The same bits as the twins for float. All pointers are device memory, the header too. Queued on
/// the stream. Throws CudaError if it cannot be launched.
void sgd(const BatchHeader* header, const float* dw, float* w, std::int64_t count,
         CUstream_st* stream);
void sgd_momentum(const BatchHeader* header, const float* dw, float* v, float* w,
                  std::int64_t count, CUstream_st* stream);

}  // namespace cuda

}  // namespace tandem
