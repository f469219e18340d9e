// SPDX-License-Identifier: Apache-2.0
// Failed cuBLASLt and cuDNN calls as exceptions. Private to the CUDA half.
#pragma once

namespace tandem {

/// Take a cublasStatus_t and a cudnnStatus_t. Throw Error{run_failed}, or Error{out_of_memory}
/// where the status says so, with file, line, the call's text and the status by name.
void check_cublas(int status, const char* call, const char* file, int line);
void check_cudnn(int status, const char* call, const char* file, int line);

}  // namespace tandem

#define TANDEM_CUBLAS_TRY(call) \
  ::tandem::check_cublas(static_cast<int>(call), #call, __FILE__, __LINE__)
#define TANDEM_CUDNN_TRY(call) \
  ::tandem::check_cudnn(static_cast<int>(call), #call, __FILE__, __LINE__)
