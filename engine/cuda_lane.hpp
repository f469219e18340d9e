// SPDX-License-Identifier: Apache-2.0
// What an operation needs to run on a CUDA stream. Private to the CUDA half.
#pragma once

#include <cstddef>
#include <tandem/engine/operation.hpp>
#include <tandem/engine/registry.hpp>

// What a cudaStream_t, a cublasLtHandle_t and a cudnnHandle_t point to.
struct CUstream_st;
struct cublasLtContext;
struct cudnnContext;

namespace tandem {

class AlgorithmCache;

/// A stream with its own library handles and workspace: two lanes never share either, so that what
/// runs on one cannot change the bits of the other.
struct CudaLane {
  CUstream_st* stream = nullptr;
  cublasLtContext* cublaslt = nullptr;
  cudnnContext* cudnn = nullptr;
  void* workspace =
      nullptr;  ///< kLaneWorkspace bytes, 256-aligned; contents mean nothing between operations
  AlgorithmCache* algorithms = nullptr;
};

/// Queues the operation's kernels and library calls on the lane. Throws Error or CudaError.
void run_on_cuda(const Operation& operation, void* const* pointers, const CudaLane& lane);

/// Chooses the algorithm of every library call of the operation, so that none is chosen later.
void choose_algorithms(const Operation& operation, const CudaLane& lane);

}  // namespace tandem
