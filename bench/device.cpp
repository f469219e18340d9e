// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/cuda_lane.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/sha256.hpp>
#include <tandem/engine/stage_timer.hpp>

#include "progress.hpp"
#if defined(TANDEM_HAS_CUDA)
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/engine/cuda_events_source.hpp>
#include <tandem/engine/cuda_info.hpp>
#include <tandem/engine/cuda_timing.hpp>
#include <tandem/engine/cupti.hpp>
#endif

namespace tandem::program {
namespace {

/// GPUs as the CUDA runtime numbers them, or why there are none.
struct Gpus {
  std::vector<Device> devices;
  std::string reason;
};

#if defined(TANDEM_HAS_CUDA)
Gpus find_gpus() {
  const CudaInfo cuda = query_cuda();
  const NvmlLibrary nvml = load_nvml();
  Gpus gpus;
  gpus.reason = cuda.reason;
  for (const CudaDevice& found : cuda.devices) {
    Device device;
    device.name = fmt::format("cuda:{}", found.index);
    device.index = found.index;
    device.gpu = found.name;
    device.pci_bus_id = found.pci_bus_id;
    device.uuid = found.uuid;
    device.driver = GpuMonitor(nvml, found.pci_bus_id, found.uuid)
                        .driver_version()
                        .value_or("CUDA " + cuda.driver);
    device.multiprocessors = found.multiprocessors;
    device.threads_per_multiprocessor = found.threads_per_multiprocessor;
    gpus.devices.push_back(device);
  }
  return gpus;
}
#else
Gpus find_gpus() {
  return {{}, std::string("this program is built without CUDA (") + TANDEM_CUDA_REASON + ")"};
}
#endif

Device host(const std::string& reason) {
  Device device;
  device.name = "host";
  device.reason = reason;
  return device;
}

/// N of "cuda:N", or nothing.
std::optional<int> cuda_index(const std::string& name) {
  const std::string prefix = "cuda:";
  if (name.rfind(prefix, 0) != 0) return std::nullopt;
  int index = -1;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, index);
  if (error != std::errc{} || stop != end || index < 0) return std::nullopt;
  return index;
}

Device choose(const std::string& name) {
  if (name == "host") return host("asked for");
  const std::optional<int> index = cuda_index(name);
  if (name != "auto" && !index)
    throw Error(ErrorCode::usage,
                fmt::format("--device: '{}' is not allowed; allowed: auto, host, cuda:N", name));
  const Gpus gpus = find_gpus();
  const int count = static_cast<int>(gpus.devices.size());
  if (!index && count == 0) return host(gpus.reason);
  if (count == 0)
    throw Error(ErrorCode::no_device, fmt::format("--device {}: {}", name, gpus.reason),
                "--device host runs everything on the processor");
  if (index.value_or(0) >= count)
    throw Error(ErrorCode::no_device,
                fmt::format("--device {}: there is no such device; allowed: cuda:0 to cuda:{}",
                            name, count - 1));
  Device device = gpus.devices[static_cast<std::size_t>(index.value_or(0))];
  device.reason = device.gpu;
  return device;
}

}  // namespace

// --- options ---

CLI::Option* add_device_option(Options& options, std::string& device) {
  return options.text("--device", device, "auto|host|cuda:N", "what runs the operations");
}
CLI::Option* add_precision_option(Options& options, std::string& precision) {
  return options.choice("--precision", precision, {"fp32", "tf32", "bf16"},
                        "arithmetic; tf32 and bf16 need a GPU");
}
CLI::Option* add_precisions_option(Options& options, std::vector<std::string>& precisions) {
  return options.choices("--precision", precisions, {"fp32", "tf32", "bf16"},
                         "arithmetic; tf32 and bf16 need a GPU");
}
CLI::Option* add_plan_option(Options& options, std::string& plan_file) {
  return options.text("--plan", plan_file, "FILE", "algorithms that 'tandem tune' chose");
}

CLI::Option* add_side_lanes_option(Options& options, std::string& side_lanes) {
  return options.choice("--side-lanes", side_lanes, {"auto", "on", "off"},
                        "weight updates on streams beside their stage's, but for --schedule "
                        "serial; auto: on a GPU");
}

bool side_lanes(const std::string& word, const Device& device) {
  return word == "on" || (word == "auto" && device.is_cuda());
}

// --- device ---

Device open_device(const std::string& name, const std::string& plan_file) {
  Device device = choose(name);
  if (plan_file.empty()) return device;
  if (!device.is_cuda())
    throw Error(ErrorCode::usage,
                fmt::format("--plan {}: only a GPU has algorithms to choose; this runs on the host "
                            "({})",
                            plan_file, device.reason));
#if defined(TANDEM_HAS_CUDA)
  device.algorithms = read_algorithms(plan_file, cuda_environment(device.index));
#endif
  return device;
}

Device open_gpu(const std::string& name, const std::string& who) {
  Device device = open_device(name);
  if (!device.is_cuda())
    throw Error(ErrorCode::no_device,
                fmt::format("{} needs a GPU, but this runs on the host: {}", who, device.reason));
  return device;
}

std::unique_ptr<Backend> make_backend(const Device& device, OperationListener* listener) {
#if defined(TANDEM_HAS_CUDA)
  if (device.is_cuda()) {
    CudaOptions options;
    options.device = device.index;
    options.algorithms = device.algorithms;
    options.listener = listener;
    return make_cuda_backend(options);
  }
#else
  static_cast<void>(device);
#endif
  return make_host_backend(listener);
}

ProfileView make_profile_view(const Device& device, const std::string& which, Recorder& recorder,
                              bool shapes) {
  if (which == "none") return {};
#if defined(TANDEM_HAS_CUDA)
  if (device.is_cuda()) {
    if (which == "events") return {make_cuda_events_source(device.index, recorder, shapes), {}};
    CuptiSource cupti =
        make_cupti_source(load_cupti(std::atoi(query_cuda().runtime.c_str())), recorder, shapes);
    if (cupti.source != nullptr) return {std::move(cupti.source), {}};
    return {make_cuda_events_source(device.index, recorder, shapes),
            fmt::format("CUPTI cannot be used, {}: operations are timed with events, and kernels "
                        "are not told apart",
                        cupti.reason)};
  }
#else
  static_cast<void>(device);
#endif
  return {make_host_profile_source(recorder, shapes), {}};
}

std::size_t free_memory(const Device& device) {
#if defined(TANDEM_HAS_CUDA)
  if (device.is_cuda()) return free_device_memory(device.index);
#else
  static_cast<void>(device);
#endif
  return available_host_memory();
}

std::size_t memory_need(const Device& device, const Plan& plan, const SchedulerOptions& options) {
  const MemoryPlan memory = plan_memory(plan);
  if (!device.is_cuda()) return memory.device_bytes + memory.pinned_bytes;
  // One more while algorithms are chosen.
  const auto streams = static_cast<std::size_t>(stream_count(plan, options) + 1);
  return memory.device_bytes + streams * kLaneWorkspace;
}

Precision precision(const std::string& name) {
  if (name == "fp32") return Precision::fp32;
  return name == "tf32" ? Precision::tf32 : Precision::bf16;
}

Precision precision(const std::string& name, const Device& device) {
  const Precision named = precision(name);
  if (named != Precision::fp32 && !device.is_cuda())
    throw Error(ErrorCode::usage,
                fmt::format("--precision {}: needs a GPU, but this runs on the host ({}); allowed "
                            "there: fp32",
                            name, device.reason));
  return named;
}

std::string full_plan_hash(const Plan& plan, const Backend& backend) {
  const std::string hash = plan_hash(plan);
#if defined(TANDEM_HAS_CUDA)
  if (std::string(backend.name()) == "cuda") {
    const std::string both = hash + algorithms_hash(cuda_algorithms(backend));
    Sha256 sha;
    sha.update(both.data(), both.size());
    return sha.hex().substr(0, hash.size());
  }
#else
  static_cast<void>(backend);
#endif
  return hash;
}

std::vector<std::string> cuda_warnings(int streams) {
  std::vector<std::string> warnings;
  if (const char* value = std::getenv("NVIDIA_TF32_OVERRIDE"))
    warnings.push_back(
        fmt::format("NVIDIA_TF32_OVERRIDE={}: the libraries may use another precision than the one "
                    "asked for",
                    value));
  constexpr int kDefaultConnections = 8;
  const char* value = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const int connections = value != nullptr ? std::atoi(value) : kDefaultConnections;
  if (connections < streams)
    warnings.push_back(
        value != nullptr
            ? fmt::format("CUDA_DEVICE_MAX_CONNECTIONS={} is smaller than the {} streams in use: "
                          "they may wait for each other",
                          value, streams)
            : fmt::format("{} streams share the {} queues of CUDA_DEVICE_MAX_CONNECTIONS's "
                          "default: they may wait for each other",
                          streams, kDefaultConnections));
  return warnings;
}

void announce(const Device& device, int streams, bool quiet) {
  if (!quiet) say(fmt::format("device {}: {}\n", device.name, device.reason));
  if (!device.is_cuda()) return;
  for (const std::string& warning : cuda_warnings(streams))
    say(fmt::format("warning: {}\n", warning));
}

Json cuda_versions() {
  Json json = Json::object();
#if defined(TANDEM_HAS_CUDA)
  const CudaInfo cuda = query_cuda();
  json["cuda"] = cuda.runtime;
  json["cudnn"] = cuda.cudnn;
  json["cublaslt"] = cuda.cublaslt;
#endif
  return json;
}

// --- observing a run ---

Observation not_observed(const std::string& reason) {
  return {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, reason, reason};
}

void add_observation(Json& row, const Observation& seen) {
  row["sm_clock_mhz"] = seen.sm_clock_mhz;
  row["memory_clock_mhz"] = seen.memory_clock_mhz;
  row["power_w"] = seen.power_w;
  row["throttled"] = seen.throttled;
  row["gpu_busy_pct"] = seen.gpu_busy_percent;
  row["nvml_util_pct"] = seen.nvml_percent;
  if (!seen.busy_reason.empty()) row["gpu_busy_reason"] = seen.busy_reason;
  if (!seen.nvml_reason.empty()) row["nvml_util_reason"] = seen.nvml_reason;
}

namespace {

constexpr double kBetweenReadings = 0.1;  // seconds
/// The driver's counter is of its last sample period, 1/6 s to 1 s by product: what was before the
/// run would count as the run's. On an H200 a period of the run alone is seen after half a second.
constexpr double kSamplePeriod = 0.5;

Json mean(const std::vector<unsigned>& values) {
  if (values.empty()) return nullptr;
  double sum = 0;
  for (const unsigned value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

GpuReadings::GpuReadings(const Device& device, double quiet_seconds)
    : monitor_(device.is_cuda() ? load_nvml()
                                : NvmlLibrary{std::nullopt, "the host backend uses no GPU"},
               device.pci_bus_id, device.uuid),
      wait_(quiet_seconds) {}

void GpuReadings::on_step() {
  const auto now = std::chrono::steady_clock::now();
  const auto seconds_since = [now](std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  if (!first_) first_ = last_ = now;
  if (seconds_since(last_) < wait_) return;
  last_ = now;
  wait_ = kBetweenReadings;
  const auto keep = [](std::vector<unsigned>& values, std::optional<unsigned> value) {
    if (value) values.push_back(*value);
  };
  if (seconds_since(*first_) >= kSamplePeriod) keep(utilisation_, monitor_.utilisation_percent());
  keep(sm_clock_, monitor_.sm_clock_mhz());
  keep(memory_clock_, monitor_.memory_clock_mhz());
  keep(milliwatts_, monitor_.power_milliwatts());
  if (const std::optional<bool> held = monitor_.throttled())
    throttled_ = *held || throttled_.value_or(false);
}

Json GpuReadings::utilisation() const { return mean(utilisation_); }
Json GpuReadings::sm_clock() const { return mean(sm_clock_); }
Json GpuReadings::memory_clock() const { return mean(memory_clock_); }
Json GpuReadings::power() const {
  const Json milliwatts = mean(milliwatts_);
  return milliwatts.is_null() ? milliwatts : Json(1e-3 * milliwatts.get<double>());
}
Json GpuReadings::throttled() const { return throttled_ ? Json(*throttled_) : Json(nullptr); }
std::string GpuReadings::reason() const {
  return monitor_.reason().empty()
             ? fmt::format("the run was over before a sample period of {} s was", kSamplePeriod)
             : monitor_.reason();
}

#if defined(TANDEM_HAS_CUDA)

struct Observer::Impl {
  Impl(const Device& device, int stages, int skip, int count, double quiet_seconds)
      : timer(device.index, stages, skip, count), readings(device, quiet_seconds) {}

  CudaStageTimer timer;
  GpuReadings readings;
};

Observer::Observer(const Device& device, int stages, int skip, int count, double quiet_seconds)
    : impl_(std::make_unique<Impl>(device, stages, skip, count, quiet_seconds)) {}

StageTimer* Observer::timer() noexcept { return &impl_->timer; }

void Observer::on_step() { impl_->readings.on_step(); }

Observation Observer::result() {
  const GpuReadings& readings = impl_->readings;
  Observation seen;
  seen.gpu_busy_percent = busy_percent(impl_->timer.spans());
  seen.nvml_percent = readings.utilisation();
  seen.sm_clock_mhz = readings.sm_clock();
  seen.memory_clock_mhz = readings.memory_clock();
  seen.power_w = readings.power();
  seen.throttled = readings.throttled();
  if (seen.nvml_percent.is_null()) seen.nvml_reason = readings.reason();
  return seen;
}

#else

struct Observer::Impl {};
Observer::Observer(const Device&, int, int, int, double) {}
StageTimer* Observer::timer() noexcept { return nullptr; }
void Observer::on_step() {}
Observation Observer::result() { return not_observed("this program is built without CUDA"); }

#endif

Observer::~Observer() = default;

}  // namespace tandem::program
