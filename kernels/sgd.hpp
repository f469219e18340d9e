// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with PyTorch's meaning, without dampening or Nesterov:
//   g = dw / count + weight_decay * w;  v = momentum * v + g;  w -= lr * v
// and w -= lr * g without momentum. The numbers come from the batch header. Where its count is 0
// nothing is written. 4 roundings without and 6 with momentum, one more where the count itself is
// not representable (above 2^24 in float).
#pragma once

#include <cstdint>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/bf16.hpp>

struct CUstream_st;  // what a cudaStream_t points to

namespace tandem {

/// Most tensors that one call of sgd_many takes.
inline constexpr int kMaxSgdTensors = 32;

/// One tensor of many: sums of gradients, velocities (null: none), weights, and the bf16 copy of
/// the weights that layers read (null: none). All [elements].
template <class T>
struct SgdTensor {
  const T* dw = nullptr;
  T* v = nullptr;
  T* w = nullptr;
  bf16* copy = nullptr;
  std::int64_t elements = 0;
};

namespace host {

/// sgd or sgd_momentum of each tensor, and copy = bf16(w). T is float or double. Nothing is written
/// where the header's count is 0.
template <class T>
void sgd_many(const BatchHeader& header, const SgdTensor<T>* tensors, int count);

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

/// One kernel for all of them. `tensors` is host memory, at most kMaxSgdTensors; what it points to
/// starts at multiples of 16 bytes.
void sgd_many(const BatchHeader* header, const SgdTensor<float>* tensors, int count,
              CUstream_st* stream);

}  // namespace cuda

}  // namespace tandem
