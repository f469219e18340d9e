// SPDX-License-Identifier: Apache-2.0
// Failed cuBLASLt and cuDNN calls as exceptions, and what a failure means. Private to the CUDA
// half.
#pragma once

#include <tandem/engine/error.hpp>

namespace tandem {

/// Of a cudaError_t, a cublasStatus_t and a cudnnStatus_t that is not success: out_of_memory where
/// the status says that memory could not be had, which a smaller batch may cure, else run_failed.
/// By the status alone, never by a text.
ErrorCode cuda_error_code(int status) noexcept;
ErrorCode cublas_error_code(int status) noexcept;
ErrorCode cudnn_error_code(int status) noexcept;

/// Take a cublasStatus_t and a cudnnStatus_t. Throw Error{run_failed}, or Error{out_of_memory}
/// where the status says so, with file, line, the call's text and the status by name.
void check_cublas(int status, const char* call, const char* file, int line);
void check_cudnn(int status, const char* call, const char* file, int line);

}  // namespace tandem

#define TANDEM_CUBLAS_TRY(call) \
  ::tandem::check_cublas(static_cast<int>(call), #call, __FILE__, __LINE__)
#define TANDEM_CUDNN_TRY(call) \
  ::tandem::check_cudnn(static_cast<int>(call), #call, __FILE__, __LINE__)
