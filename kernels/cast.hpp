// SPDX-License-Identifier: Apache-2.0
// Conversion between float and bf16 storage.
#pragma once

#include <cstdint>
#include <tandem/kernels/bf16.hpp>

struct CUstream_st;  // what a cudaStream_t points to

namespace tandem {

namespace host {

/// y[i] = x[i], rounded to nearest, ties to even.
void cast(const float* x, bf16* y, std::int64_t count);
/// y[i] = x[i], exact.
void cast(const bf16* x, float* y, std::int64_t count);

}  // namespace host

namespace cuda {

/// The same bits, but for the payload of a NaN. Pointers are device memory; queued on the stream;
/// CudaError if it cannot be launched.
void cast(const float* x, bf16* y, std::int64_t count, CUstream_st* stream);
void cast(const bf16* x, float* y, std::int64_t count, CUstream_st* stream);

}  // namespace cuda

}  // namespace tandem
