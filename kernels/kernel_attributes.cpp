// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <future>
#include <map>
#include <mutex>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/kernel_attributes.hpp>
#include <utility>

namespace tandem {

void allow_shared_memory(const void* kernel, std::size_t bytes) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, std::size_t> allowed;
  int device = 0;
  TANDEM_CUDA_TRY(cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  std::size_t& most = allowed[{kernel, device}];
  if (bytes <= most) return;
  std::async(std::launch::async, [&] {
    TANDEM_CUDA_TRY(cudaSetDevice(device));
    TANDEM_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(bytes)));
  }).get();
  most = bytes;
}

}  // namespace tandem
