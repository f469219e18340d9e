// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <fmt/format.h>

#include <tandem/engine/error.hpp>
#include <tandem/engine/library_check.hpp>

namespace tandem {

ErrorCode cuda_error_code(int status) noexcept {
  return status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::run_failed;
}

ErrorCode cublas_error_code(int status) noexcept {
  return status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::out_of_memory : ErrorCode::run_failed;
}

ErrorCode cudnn_error_code(int status) noexcept {
  // CUDNN_STATUS_ALLOC_FAILED is an older name of the first alone.
  return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                 status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
             ? ErrorCode::out_of_memory
             : ErrorCode::run_failed;
}

void check_cublas(int code, const char* call, const char* file, int line) {
  const auto status = static_cast<cublasStatus_t>(code);
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(cublas_error_code(code),
              fmt::format("{}:{}: {}: {}: {}", file, line, call, cublasLtGetStatusName(status),
                          cublasLtGetStatusString(status)));
}

void check_cudnn(int code, const char* call, const char* file, int line) {
  const auto status = static_cast<cudnnStatus_t>(code);
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(cudnn_error_code(code),
              fmt::format("{}:{}: {}: {}", file, line, call, cudnnGetErrorString(status)));
}

}  // namespace tandem
