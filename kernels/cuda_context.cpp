// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <exception>
#include <functional>
#include <future>
#include <string>
#include <system_error>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/cuda_context.hpp>

namespace tandem {
namespace {

/// The driver's functions, by the names under which its binary interface keeps them.
struct Driver {
  int (*current)(CUctx_st** context) = nullptr;
  int (*id)(CUctx_st* context, unsigned long long* id) = nullptr;
  int (*push)(CUctx_st* context) = nullptr;
  int (*pop)(CUctx_st** context) = nullptr;

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // the runtime has it open
    if (library == nullptr)
      throw CudaError(cudaErrorInsufficientDriver, "there is no NVIDIA driver: libcuda.so.1");
    find(library, "cuCtxGetCurrent", current);
    find(library, "cuCtxGetId", id);
    find(library, "cuCtxPushCurrent_v2", push);
    find(library, "cuCtxPopCurrent_v2", pop);
  }

 private:
  template <class Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr)
      throw CudaError(cudaErrorInsufficientDriver, std::string("the driver has no ") + name);
  }
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

/// The driver numbers its errors as the runtime does.
void check_driver(int status, const char* call) {
  if (status != 0)
    throw CudaError(status, std::string(call) + ": error " + std::to_string(status) + " (" +
                                cudaGetErrorName(static_cast<cudaError_t>(status)) + ")");
}

}  // namespace

CUctx_st* current_context() {
  CUctx_st* context = nullptr;
  check_driver(driver().current(&context), "cuCtxGetCurrent");
  return context;
}

std::uint64_t context_id(CUctx_st* context) {
  unsigned long long id = 0;
  check_driver(driver().id(context, &id), "cuCtxGetId");
  return id;
}

void push_context(CUctx_st* context) { check_driver(driver().push(context), "cuCtxPushCurrent"); }

void pop_context() {
  CUctx_st* popped = nullptr;
  check_driver(driver().pop(&popped), "cuCtxPopCurrent");
}

void in_new_thread(const std::function<void()>& body) {
  std::future<void> done;
  try {
    done = std::async(std::launch::async, std::cref(body));
  } catch (const std::system_error& error) {
    throw CudaError(cudaErrorMemoryAllocation,
                    std::string("a thread cannot be started: ") + error.what());
  }
  done.get();
}

void in_device_thread(int device, const std::function<void()>& body) {
  in_new_thread([&] {
    TANDEM_CUDA_TRY(cudaSetDevice(device));
    body();
  });
}

void destroy_in_device_thread(int device, const std::function<void()>& body) noexcept {
  try {
    in_device_thread(device, body);
  } catch (const std::exception&) {
  }
}

CUctx_st* primary_context(int device) {
  CUctx_st* context = nullptr;
  in_device_thread(device, [&context] {
    TANDEM_CUDA_TRY(cudaFree(nullptr));  // makes it where setting the device did not
    context = current_context();
  });
  return context;
}

}  // namespace tandem
