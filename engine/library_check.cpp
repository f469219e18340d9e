// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <cudnn.h>
#include <fmt/format.h>

#include <tandem/engine/error.hpp>
#include <tandem/engine/library_check.hpp>

namespace tandem {

void check_cublas(int code, const char* call, const char* file, int line) {
  const auto status = static_cast<cublasStatus_t>(code);
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(
      status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::out_of_memory : ErrorCode::run_failed,
      fmt::format("{}:{}: {}: {}: {}", file, line, call, cublasLtGetStatusName(status),
                  cublasLtGetStatusString(status)));
}

void check_cudnn(int code, const char* call, const char* file, int line) {
  const auto status = static_cast<cudnnStatus_t>(code);
  if (status == CUDNN_STATUS_SUCCESS) return;
  const bool memory = status == CUDNN_STATUS_ALLOC_FAILED;
  throw Error(memory ? ErrorCode::out_of_memory : ErrorCode::run_failed,
              fmt::format("{}:{}: {}: {}", file, line, call, cudnnGetErrorString(status)));
}

}  // namespace tandem
