// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <fmt/format.h>

#include <tandem/engine/cuda_info.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/library_check.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/cuda_context.hpp>

namespace tandem {
namespace {

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string library_version(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

/// As the driver's tools print it.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

std::string describe(const char* call, cudaError_t error) {
  return fmt::format("{} failed: {} ({}, {})", call, cudaGetErrorString(error),
                     cudaGetErrorName(error), static_cast<int>(error));
}

CudaInfo query_on_this_thread() {
  CudaInfo info;
  info.cudnn = library_version(cudnnGetVersion());
  info.cublaslt = library_version(cublasLtGetVersion());

  int runtime = 0, driver = 0, count = 0;
  if (const cudaError_t error = cudaRuntimeGetVersion(&runtime); error == cudaSuccess)
    info.runtime = cuda_version(runtime);
  // 0, with success, means that no driver is installed.
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0)
    info.driver = cuda_version(driver);

  switch (const cudaError_t error = cudaGetDeviceCount(&count)) {
    case cudaSuccess:
      if (count == 0) info.reason = "the driver reports no CUDA device";
      break;
    case cudaErrorNoDevice:  // 100
      info.reason = "there is no CUDA device";
      break;
    case cudaErrorInsufficientDriver:  // 35
      info.reason = info.driver.empty()
                        ? "there is no NVIDIA driver"
                        : fmt::format("the driver runs CUDA up to {}, this is built with {}",
                                      info.driver, info.runtime);
      break;
    default:
      info.reason = describe("cudaGetDeviceCount", error);
  }

  for (int index = 0; info.reason.empty() && index < count; ++index) {
    cudaDeviceProp properties{};
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, index);
        error != cudaSuccess) {
      info.devices.clear();
      info.reason = describe("cudaGetDeviceProperties", error);
      break;
    }
    info.devices.push_back({index, properties.name, properties.major, properties.minor,
                            properties.multiProcessorCount, properties.maxThreadsPerMultiProcessor,
                            properties.totalGlobalMem,
                            fmt::format("{:08X}:{:02X}:{:02X}.0", properties.pciDomainID,
                                        properties.pciBusID, properties.pciDeviceID),
                            uuid_text(properties.uuid)});
  }
  return info;
}

}  // namespace

CudaInfo query_cuda() {
  // The current device and the last error belong to a thread, and a failed call would overwrite an
  // error of the caller's that cannot be put back. So ask from a thread of our own.
  CudaInfo info;
  try {
    in_new_thread([&info] { info = query_on_this_thread(); });
  } catch (const CudaError& error) {
    throw Error(cuda_error_code(error.status()), fmt::format("looking for GPUs: {}", error.what()));
  }
  return info;
}

std::size_t free_device_memory(int device) {
  std::size_t free = 0, total = 0;
  try {
    in_device_thread(device, [&] { TANDEM_CUDA_TRY(cudaMemGetInfo(&free, &total)); });
  } catch (const CudaError& error) {
    throw Error(
        ErrorCode::no_device,
        fmt::format("cuda:{}: its free memory cannot be asked for: {}", device, error.what()));
  }
  return free;
}

}  // namespace tandem
