// SPDX-License-Identifier: Apache-2.0
// Failed CUDA runtime calls as exceptions. The header needs no CUDA.
#pragma once

#include <stdexcept>
#include <string>

namespace tandem {

/// A CUDA runtime call failed. what() names file, line, the call, and the error by name and text.
class CudaError : public std::runtime_error {
 public:
  CudaError(int status, const std::string& message)
      : std::runtime_error(message), status_(status) {}

  /// The cudaError_t.
  int status() const noexcept { return status_; }

 private:
  int status_;
};

/// Throws CudaError for a status that is not success, after clearing it from the runtime's record
/// of the last error. A status of success touches nothing: an error that the application left
/// pending is still pending.
void check_cuda(int status, const char* call, const char* file, int line);

}  // namespace tandem

/// Evaluates a CUDA runtime call and throws CudaError if it fails.
#define TANDEM_CUDA_TRY(call) \
  ::tandem::check_cuda(static_cast<int>(call), #call, __FILE__, __LINE__)
