// SPDX-License-Identifier: Apache-2.0
// Owners of CUDA's handles. Private to the CUDA half.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <tandem/engine/unique_handle.hpp>

namespace tandem {

/// A handle type, its null value and the call that ends it. A destructor can do nothing about a
/// status, and at the end of the process the driver may be gone already: it is ignored.
template <class HandleType, auto destroy_call>
struct CudaHandleTraits {
  using Handle = HandleType;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle handle) noexcept { static_cast<void>(destroy_call(handle)); }
};

using CudaStreamHandle = UniqueHandle<CudaHandleTraits<cudaStream_t, cudaStreamDestroy>>;
using CudaEventHandle = UniqueHandle<CudaHandleTraits<cudaEvent_t, cudaEventDestroy>>;
using CublasLtHandle = UniqueHandle<CudaHandleTraits<cublasLtHandle_t, cublasLtDestroy>>;
using CudnnHandle = UniqueHandle<CudaHandleTraits<cudnnHandle_t, cudnnDestroy>>;

}  // namespace tandem
