// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <tandem/engine/cuda_handles.hpp>

namespace tandem {

void destroy_handle(CUstream_st* stream) noexcept { static_cast<void>(cudaStreamDestroy(stream)); }
void destroy_handle(CUevent_st* event) noexcept { static_cast<void>(cudaEventDestroy(event)); }
void destroy_handle(CUgraph_st* graph) noexcept { static_cast<void>(cudaGraphDestroy(graph)); }
void destroy_handle(CUgraphExec_st* graph) noexcept {
  static_cast<void>(cudaGraphExecDestroy(graph));
}
void destroy_handle(cublasLtContext* cublaslt) noexcept {
  static_cast<void>(cublasLtDestroy(cublaslt));
}
void destroy_handle(cudnnContext* cudnn) noexcept { static_cast<void>(cudnnDestroy(cudnn)); }

}  // namespace tandem
