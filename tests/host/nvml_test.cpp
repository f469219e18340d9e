// SPDX-License-Identifier: Apache-2.0
// NVML readings, from a library of our own: the right GPU is read, and a missing library or GPU is
// a reason.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <tandem/engine/nvml.hpp>

namespace tandem {
namespace {

constexpr int kNotFound = 6, kNotSupported = 3;

/// Four GPUs in NVML's order, reading 10, 20, 30 and 40.
struct FakeGpu {
  const char *pci_bus_id, *uuid;
  unsigned utilisation;
};
constexpr FakeGpu kGpus[] = {{"00000000:1B:00.0", "GPU-a", 10},
                             {"00000000:43:00.0", "GPU-b", 20},
                             {"00000000:86:00.0", "GPU-c", 30},
                             {"00000000:CA:00.0", "GPU-d", 40}};
int alive = 0;  // init minus shutdown
int init_status = 0;
unsigned long long clock_reasons = 0;

/// Finds a GPU by one of its names.
int find(const char* FakeGpu::*name, const char* id, NvmlFunctions::Device* device) {
  for (const FakeGpu& gpu : kGpus) {
    if (std::strcmp(gpu.*name, id) != 0) continue;
    *device = const_cast<FakeGpu*>(&gpu);
    return 0;
  }
  return kNotFound;
}

NvmlLibrary fake_library() {
  NvmlFunctions f;
  f.init = [] { return init_status != 0 ? init_status : (++alive, 0); };
  f.shutdown = [] { return --alive, 0; };
  f.error_string = [](int status) {
    return status == kNotFound ? "Not Found" : status == kNotSupported ? "Not Supported" : "?";
  };
  f.driver_version = [](char* text, unsigned length) {
    std::strncpy(text, "580.1", length);
    return 0;
  };
  f.by_pci_bus_id = [](const char* id, NvmlFunctions::Device* device) {
    return find(&FakeGpu::pci_bus_id, id, device);
  };
  f.by_uuid = [](const char* id, NvmlFunctions::Device* device) {
    return find(&FakeGpu::uuid, id, device);
  };
  f.utilisation = [](NvmlFunctions::Device device, NvmlFunctions::Utilisation* value) {
    value->gpu = static_cast<const FakeGpu*>(device)->utilisation;
    return 0;
  };
  f.clock = [](NvmlFunctions::Device, int type, unsigned* mhz) {
    *mhz = type == NvmlFunctions::kSmClock ? 1980 : 3201;
    return 0;
  };
  f.power = [](NvmlFunctions::Device, unsigned* milliwatts) {
    *milliwatts = 312'500;
    return 0;
  };
  f.clock_reasons = [](NvmlFunctions::Device, unsigned long long* bits) {
    *bits = clock_reasons;
    return 0;
  };
  return {f, {}};
}

// CUDA_VISIBLE_DEVICES=2,3: CUDA's 0 and 1 are NVML's 2 and 3.
TEST(Nvml, ReadsTheGpuThatCudaNames) {
  const FakeGpu cuda[] = {kGpus[2], kGpus[3]};
  const unsigned expected[] = {30, 40};
  for (int i = 0; i < 2; ++i) {
    GpuMonitor by_bus(fake_library(), cuda[i].pci_bus_id, "GPU-unknown");
    EXPECT_EQ(by_bus.utilisation_percent(), expected[i]);
    EXPECT_EQ(by_bus.reason(), "");
    GpuMonitor by_uuid(fake_library(), "00000000:00:00.0", cuda[i].uuid);
    EXPECT_EQ(by_uuid.utilisation_percent(), expected[i]);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Nvml, ReadsClocksAndDriver) {
  GpuMonitor monitor(fake_library(), kGpus[1].pci_bus_id, kGpus[1].uuid);
  EXPECT_EQ(monitor.sm_clock_mhz(), 1980u);
  EXPECT_EQ(monitor.memory_clock_mhz(), 3201u);
  EXPECT_EQ(monitor.driver_version(), "580.1");
}

TEST(Nvml, ReadsPowerAndWhatHoldsTheClocksDown) {
  GpuMonitor monitor(fake_library(), kGpus[1].pci_bus_id, kGpus[1].uuid);
  EXPECT_EQ(monitor.power_milliwatts(), 312'500u);
  // None, idle, a setting, sync boost, display; then with each that is somebody's fault.
  for (const unsigned long long bits : {0x0, 0x1, 0x2, 0x10, 0x100, 0x113}) {
    clock_reasons = bits;
    EXPECT_EQ(monitor.throttled(), false) << bits;
    for (const unsigned long long held_down : {0x4, 0x8, 0x20, 0x40, 0x80}) {
      clock_reasons = bits | held_down;
      EXPECT_EQ(monitor.throttled(), true) << clock_reasons;
    }
  }
  NvmlLibrary old = fake_library();
  old.functions->power = nullptr;
  old.functions->clock_reasons = nullptr;
  GpuMonitor without(old, kGpus[1].pci_bus_id, kGpus[1].uuid);
  EXPECT_EQ(without.power_milliwatts(), std::nullopt);
  EXPECT_EQ(without.throttled(), std::nullopt);
  EXPECT_EQ(without.utilisation_percent(), 20u);
}

TEST(Nvml, AnUnknownGpuHasAReason) {
  GpuMonitor monitor(fake_library(), "00000000:00:00.0", "MIG-e");
  EXPECT_EQ(monitor.utilisation_percent(), std::nullopt);
  EXPECT_EQ(monitor.sm_clock_mhz(), std::nullopt);
  EXPECT_EQ(monitor.power_milliwatts(), std::nullopt);
  EXPECT_EQ(monitor.throttled(), std::nullopt);
  for (const char* part : {"00000000:00:00.0", "MIG-e", "Not Found"})
    EXPECT_NE(monitor.reason().find(part), std::string::npos) << monitor.reason();
  EXPECT_EQ(monitor.driver_version(), "580.1");  // belongs to no GPU
}

TEST(Nvml, AReadingThatFailsHasAReason) {
  NvmlLibrary library = fake_library();
  library.functions->utilisation = [](NvmlFunctions::Device, NvmlFunctions::Utilisation*) {
    return kNotSupported;
  };
  GpuMonitor monitor(library, kGpus[0].pci_bus_id, kGpus[0].uuid);
  EXPECT_EQ(monitor.utilisation_percent(), std::nullopt);
  EXPECT_NE(monitor.reason().find("Not Supported"), std::string::npos) << monitor.reason();
  EXPECT_EQ(monitor.sm_clock_mhz(), 1980u);
}

TEST(Nvml, IsNotUsedOrEndedIfItDoesNotStart) {
  init_status = kNotSupported;
  {
    GpuMonitor monitor(fake_library(), kGpus[0].pci_bus_id, kGpus[0].uuid);
    EXPECT_EQ(monitor.utilisation_percent(), std::nullopt);
    EXPECT_EQ(monitor.driver_version(), std::nullopt);
    EXPECT_NE(monitor.reason().find("nvmlInit"), std::string::npos) << monitor.reason();
  }
  init_status = 0;
  EXPECT_EQ(alive, 0);
}

TEST(Nvml, AMissingLibraryOrFunctionHasAReason) {
  const NvmlLibrary none = load_nvml("libtandem-there-is-none.so.1");
  EXPECT_FALSE(none.functions);
  EXPECT_NE(none.reason.find("libtandem-there-is-none.so.1"), std::string::npos) << none.reason;
  GpuMonitor monitor(none, kGpus[0].pci_bus_id, kGpus[0].uuid);
  EXPECT_EQ(monitor.utilisation_percent(), std::nullopt);
  EXPECT_EQ(monitor.driver_version(), std::nullopt);
  EXPECT_EQ(monitor.reason(), none.reason);

  const NvmlLibrary other = load_nvml("libm.so.6");
  EXPECT_FALSE(other.functions);
  EXPECT_NE(other.reason.find("nvmlInit_v2"), std::string::npos) << other.reason;
}

}  // namespace
}  // namespace tandem
