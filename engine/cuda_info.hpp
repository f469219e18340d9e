// SPDX-License-Identifier: Apache-2.0
// What CUDA there is: versions of the libraries at run time, and the devices. Needs no CUDA header;
// defined in the CUDA half of the engine (tandem::engine).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tandem {

struct CudaDevice {
  int index = 0;     ///< N of cuda:N
  std::string name;  ///< "NVIDIA H200"
  int major = 0;     ///< compute capability, for example 9.0
  int minor = 0;
  int multiprocessors = 0;
  int threads_per_multiprocessor = 0;  ///< most that can be resident
  std::size_t memory_bytes = 0;        ///< in all, not what is free now
  std::string pci_bus_id;              ///< "00000000:1B:00.0"
  std::string uuid;                    ///< "GPU-8a1d...": 36 characters behind the dash
};

struct CudaInfo {
  std::string runtime;   ///< version of the CUDA runtime, "13.0"
  std::string driver;    ///< newest CUDA version the driver can run; empty without a driver
  std::string cudnn;     ///< "9.19.0"
  std::string cublaslt;  ///< "13.1.0"
  std::vector<CudaDevice> devices;
  std::string reason;  ///< why there are no devices; empty if there are
};

/// Asks the libraries and the driver. No device, or no driver, is a result with a reason and not an
/// error; so this never throws because of the machine it runs on. Leaves the caller's current
/// device and last CUDA error as they were. Creates no context. Thread-safe.
CudaInfo query_cuda();

/// Bytes of the device that nobody holds now. Creates the device's context, which takes some.
/// Leaves the caller's current device and last CUDA error as they were. Throws Error{no_device}.
std::size_t free_device_memory(int device);

}  // namespace tandem
