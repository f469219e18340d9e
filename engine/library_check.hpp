// SPDX-License-Identifier: Apache-2.0
// Failed cuBLASLt and cuDNN calls as exceptions. Private to the CUDA half.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

namespace tandem {

/// Throw Error{run_failed}, or Error{out_of_memory} where the status says so, with file, line, the
/// call's text and the status by name.
void check_cublas(cublasStatus_t status, const char* call, const char* file, int line);
void check_cudnn(cudnnStatus_t status, const char* call, const char* file, int line);

}  // namespace tandem

#define TANDEM_CUBLAS_TRY(call) ::tandem::check_cublas(call, #call, __FILE__, __LINE__)
#define TANDEM_CUDNN_TRY(call) ::tandem::check_cudnn(call, #call, __FILE__, __LINE__)
