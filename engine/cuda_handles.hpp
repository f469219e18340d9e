// SPDX-License-Identifier: Apache-2.0
// Owners of CUDA's handles. Private to the CUDA half.
#pragma once

#include <tandem/engine/unique_handle.hpp>

// What a cudaStream_t, a cudaEvent_t, a cudaGraph_t, a cudaGraphExec_t, a cublasLtHandle_t and a
// cudnnHandle_t point to.
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct cublasLtContext;
struct cudnnContext;

namespace tandem {

/// Ends a handle. A destructor can do nothing about a status, and at the end of the process the
/// driver may be gone already: it is ignored.
void destroy_handle(CUstream_st* stream) noexcept;
void destroy_handle(CUevent_st* event) noexcept;
void destroy_handle(CUgraph_st* graph) noexcept;
void destroy_handle(CUgraphExec_st* graph) noexcept;
void destroy_handle(cublasLtContext* cublaslt) noexcept;
void destroy_handle(cudnnContext* cudnn) noexcept;

template <class Object>
struct CudaHandleTraits {
  using Handle = Object*;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle handle) noexcept { destroy_handle(handle); }
};

using CudaStreamHandle = UniqueHandle<CudaHandleTraits<CUstream_st>>;
using CudaEventHandle = UniqueHandle<CudaHandleTraits<CUevent_st>>;
using CudaGraphHandle = UniqueHandle<CudaHandleTraits<CUgraph_st>>;
using CudaGraphExecHandle = UniqueHandle<CudaHandleTraits<CUgraphExec_st>>;
using CublasLtHandle = UniqueHandle<CudaHandleTraits<cublasLtContext>>;
using CudnnHandle = UniqueHandle<CudaHandleTraits<cudnnContext>>;

}  // namespace tandem
