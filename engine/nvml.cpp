// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fmt/format.h>

#include <tandem/engine/nvml.hpp>
#include <type_traits>

namespace tandem {

NvmlLibrary load_nvml(const char* file) {
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {std::nullopt, fmt::format("NVML is not there: {}", dlerror())};
  NvmlFunctions nvml;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    void* const symbol = dlsym(library, name);
    if (symbol == nullptr && missing.empty()) missing = name;
    function = reinterpret_cast<std::decay_t<decltype(function)>>(symbol);
  };
  find(nvml.init, "nvmlInit_v2");
  find(nvml.shutdown, "nvmlShutdown");
  find(nvml.error_string, "nvmlErrorString");
  find(nvml.driver_version, "nvmlSystemGetDriverVersion");
  find(nvml.by_pci_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
  find(nvml.by_uuid, "nvmlDeviceGetHandleByUUID");
  find(nvml.utilisation, "nvmlDeviceGetUtilizationRates");
  find(nvml.clock, "nvmlDeviceGetClockInfo");
  const auto find_optional = [&](auto& function, const char* name) {
    if (function == nullptr)
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
  };
  find_optional(nvml.power, "nvmlDeviceGetPowerUsage");
  find_optional(nvml.clock_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
  find_optional(nvml.clock_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  if (!missing.empty()) return {std::nullopt, fmt::format("{} has no function {}", file, missing)};
  return {nvml, {}};
}

GpuMonitor::GpuMonitor(const NvmlLibrary& library, const std::string& pci_bus_id,
                       const std::string& uuid)
    : nvml_(library.functions), reason_(library.reason) {
  if (!nvml_) return;
  if (!succeeded("nvmlInit", nvml_->init())) {
    nvml_.reset();
    return;
  }
  found_ = nvml_->by_pci_bus_id(pci_bus_id.c_str(), &device_) == 0 ||
           succeeded("nvmlDeviceGetHandleByUUID", nvml_->by_uuid(uuid.c_str(), &device_));
  if (!found_) reason_ = fmt::format("NVML knows no GPU {} or {} ({})", pci_bus_id, uuid, reason_);
}

GpuMonitor::~GpuMonitor() {
  if (nvml_) nvml_->shutdown();
}

bool GpuMonitor::succeeded(const char* function, int status) {
  if (status == 0) return true;
  reason_ = fmt::format("{}: {}", function, nvml_->error_string(status));
  return false;
}

std::optional<unsigned> GpuMonitor::utilisation_percent() {
  if (!found_) return std::nullopt;
  NvmlFunctions::Utilisation value;
  if (!succeeded("nvmlDeviceGetUtilizationRates", nvml_->utilisation(device_, &value)))
    return std::nullopt;
  return value.gpu;
}

std::optional<unsigned> GpuMonitor::clock(int type) {
  if (!found_) return std::nullopt;
  unsigned mhz = 0;
  if (!succeeded("nvmlDeviceGetClockInfo", nvml_->clock(device_, type, &mhz))) return std::nullopt;
  return mhz;
}

std::optional<unsigned> GpuMonitor::sm_clock_mhz() { return clock(NvmlFunctions::kSmClock); }
std::optional<unsigned> GpuMonitor::memory_clock_mhz() {
  return clock(NvmlFunctions::kMemoryClock);
}

std::optional<unsigned> GpuMonitor::power_milliwatts() {
  if (!found_ || nvml_->power == nullptr) return std::nullopt;
  unsigned milliwatts = 0;
  if (!succeeded("nvmlDeviceGetPowerUsage", nvml_->power(device_, &milliwatts)))
    return std::nullopt;
  return milliwatts;
}

std::optional<bool> GpuMonitor::throttled() {
  // Software power cap, hardware slowdown, software and hardware heat, hardware power brake. Not:
  // idle 0x1, a setting 0x2, sync boost 0x10, display 0x100.
  constexpr unsigned long long kHeldDown = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;
  if (!found_ || nvml_->clock_reasons == nullptr) return std::nullopt;
  unsigned long long bits = 0;
  if (!succeeded("nvmlDeviceGetCurrentClocksEventReasons", nvml_->clock_reasons(device_, &bits)))
    return std::nullopt;
  return (bits & kHeldDown) != 0;
}

std::optional<std::string> GpuMonitor::driver_version() {
  if (!nvml_) return std::nullopt;
  char text[96] = {};
  if (!succeeded("nvmlSystemGetDriverVersion", nvml_->driver_version(text, sizeof text - 1)))
    return std::nullopt;
  return text;
}

}  // namespace tandem
