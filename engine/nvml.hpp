// SPDX-License-Identifier: Apache-2.0
// NVIDIA's management library, loaded at run time where the driver brings it. It numbers GPUs its
// own way, whatever CUDA_VISIBLE_DEVICES says, so a GPU is found by its PCI bus id or UUID.
#pragma once

#include <optional>
#include <string>

namespace tandem {

/// The few functions that are used, by the binary interface of libnvidia-ml.so.1. Each returns 0
/// for success. A test gives its own.
struct NvmlFunctions {
  struct Utilisation {
    unsigned gpu = 0;     ///< percent of the last sample period in which a kernel was running
    unsigned memory = 0;  ///< percent in which memory was being read or written
  };
  using Device = void*;
  static constexpr int kSmClock = 1, kMemoryClock = 2;

  int (*init)() = nullptr;                                          ///< nvmlInit_v2
  int (*shutdown)() = nullptr;                                      ///< nvmlShutdown
  const char* (*error_string)(int status) = nullptr;                ///< nvmlErrorString
  int (*driver_version)(char* text, unsigned length) = nullptr;     ///< nvmlSystemGetDriverVersion
  int (*by_pci_bus_id)(const char* id, Device* device) = nullptr;   ///< ..GetHandleByPciBusId_v2
  int (*by_uuid)(const char* id, Device* device) = nullptr;         ///< ..GetHandleByUUID
  int (*utilisation)(Device device, Utilisation* value) = nullptr;  ///< ..GetUtilizationRates
  int (*clock)(Device device, int type, unsigned* mhz) = nullptr;   ///< ..GetClockInfo
  // Drivers may lack these two; null then.
  int (*power)(Device device, unsigned* milliwatts) = nullptr;  ///< ..GetPowerUsage
  /// ..GetCurrentClocksEventReasons, in older drivers ..ThrottleReasons
  int (*clock_reasons)(Device device, unsigned long long* bits) = nullptr;
};

/// The functions, or why there are none.
struct NvmlLibrary {
  std::optional<NvmlFunctions> functions;
  std::string reason;
};

/// Loads the library for the rest of the process. A missing one is a reason and not an error.
NvmlLibrary load_nvml(const char* file = "libnvidia-ml.so.1");

/// Readings of one GPU. Whatever is missing, a reading is nothing and reason() says why; nothing
/// throws because of the machine. Not thread-safe.
class GpuMonitor {
 public:
  /// `pci_bus_id` and `uuid` as CudaDevice has them.
  GpuMonitor(const NvmlLibrary& library, const std::string& pci_bus_id, const std::string& uuid);
  ~GpuMonitor();

  /// Percent of the last sample period (1/6 to 1 second) in which a kernel was running.
  std::optional<unsigned> utilisation_percent();
  std::optional<unsigned> sm_clock_mhz();
  std::optional<unsigned> memory_clock_mhz();
  std::optional<unsigned> power_milliwatts();
  /// Whether the clocks are held down for power, heat or a fault, and not by anyone's setting or
  /// because nothing is to do.
  std::optional<bool> throttled();
  std::optional<std::string> driver_version();  ///< "580.159.04"

  /// Of the latest reading that was nothing; empty if there was none.
  const std::string& reason() const noexcept { return reason_; }

  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

 private:
  bool succeeded(const char* function, int status);
  std::optional<unsigned> clock(int type);

  std::optional<NvmlFunctions> nvml_;  // initialised
  NvmlFunctions::Device device_ = nullptr;
  bool found_ = false;
  std::string reason_;
};

}  // namespace tandem
