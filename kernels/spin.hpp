// SPDX-License-Identifier: Apache-2.0
// A kernel that only takes time: a stage whose length and size can be chosen, for measurements.
#pragma once

#include <cstdint>

struct CUstream_st;  // what a cudaStream_t points to

namespace tandem::cuda {

/// Queues `grid` blocks of `block` threads, each of which stays for `ticks` ticks of its
/// multiprocessor's clock. Touches no memory. Throws CudaError if it cannot be launched.
void spin(std::int64_t ticks, unsigned grid, unsigned block, CUstream_st* stream);

}  // namespace tandem::cuda
