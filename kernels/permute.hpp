// SPDX-License-Identifier: Apache-2.0
// Moves an image tensor from one order of memory to another.
#pragma once

#include <tandem/kernels/permute_math.hpp>

struct CUstream_st;  // what a cudaStream_t points to

namespace tandem {

namespace host {

/// x and y hold the same elements [n,h,w,c], x in the order `from`, y in the order `to`. They must
/// not overlap. T is std::uint8_t, float, bf16 or double.
template <class T>
void permute(const ImageShape& shape, ImageOrder from, const T* x, ImageOrder to, T* y);

}  // namespace host

namespace cuda {

/// The same bits. T is std::uint8_t, float or bf16. Pointers are device memory; queued on the
/// stream; CudaError if it cannot be launched. Near the memory rate between nhwc and zorder, where
/// x and y start at a multiple of 16 bytes and a pixel is one as well; planes are slower.
template <class T>
void permute(const ImageShape& shape, ImageOrder from, const T* x, ImageOrder to, T* y,
             CUstream_st* stream);

}  // namespace cuda

}  // namespace tandem
