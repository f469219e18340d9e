// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <tandem/kernels/check.hpp>

namespace tandem {

void check_cuda(int status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  // The runtime keeps one error, the newest, which is the one of this call; one that is reported
  // without being recorded leaves an older one of the application's alone.
  if (cudaPeekAtLastError() == status) cudaGetLastError();
  const cudaError_t error = static_cast<cudaError_t>(status);
  throw CudaError(status, std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                              cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}

}  // namespace tandem
