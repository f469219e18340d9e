// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/cuda_context.hpp>
#include <tandem/kernels/kernel_attributes.hpp>
#include <utility>

namespace tandem {

void allow_shared_memory(const void* kernel, std::size_t bytes) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, std::uint64_t>, std::size_t> allowed;
  CUctx_st* context = current_context();
  if (context == nullptr) {  // the launch will make that of the thread's device
    int device = 0;
    TANDEM_CUDA_TRY(cudaGetDevice(&device));
    context = primary_context(device);
  }
  const std::uint64_t id = context_id(context);
  const std::lock_guard lock(mutex);
  std::size_t& most = allowed[{kernel, id}];
  if (bytes <= most) return;
  in_new_thread([&] {
    push_context(context);
    TANDEM_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(bytes)));
  });
  most = bytes;
}

}  // namespace tandem
