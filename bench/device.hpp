// SPDX-License-Identifier: Apache-2.0
// The device a command runs on: chosen, opened and asked in one place, with or without CUDA.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tandem/engine/algorithms.hpp>
#include <tandem/engine/backend.hpp>
#include <tandem/engine/nvml.hpp>
#include <tandem/engine/plan.hpp>
#include <tandem/engine/profile_source.hpp>
#include <tandem/engine/scheduler.hpp>
#include <tandem/models/trainer.hpp>
#include <vector>

#include "options.hpp"

namespace tandem::program {

struct Device {
  std::string name;           ///< "host", "cuda:0"
  std::string reason;         ///< why this one, for the log
  int index = -1;             ///< N of cuda:N; -1 on the host
  AlgorithmTable algorithms;  ///< from --plan

  // Of the GPU; empty on the host.
  std::string gpu, pci_bus_id, uuid;
  std::string driver;  ///< "580.159.04"; where only its CUDA version is known, "CUDA 13.0"
  int multiprocessors = 0, threads_per_multiprocessor = 0;

  bool is_cuda() const noexcept { return index >= 0; }
};

CLI::Option* add_device_option(Options& options, std::string& device);
CLI::Option* add_precision_option(Options& options, std::string& precision);
CLI::Option* add_precisions_option(Options& options, std::vector<std::string>& precisions);
CLI::Option* add_plan_option(Options& options, std::string& plan_file);
/// auto, on or off.
CLI::Option* add_side_lanes_option(Options& options, std::string& side_lanes);
/// auto: on a GPU. On the host each would be a thread more for what its stage waits for anyway.
bool side_lanes(const std::string& word, const Device& device);

/// auto is cuda:0 where that can be used, else the host. Throws Error{usage} for a name that is
/// none or a plan file for the host, Error{no_device} for a device that cannot be used, Error{data}
/// for a plan file that is none or was made elsewhere.
Device open_device(const std::string& name, const std::string& plan_file = {});

/// As open_device(), for commands that make no sense on the host: Error{no_device} says `who` needs
/// a GPU and why there is none.
Device open_gpu(const std::string& name, const std::string& who);

/// The listener, if there is one, must outlive the backend.
std::unique_ptr<Backend> make_backend(const Device& device, OperationListener* listener = nullptr);

/// What a run on the device is seen through.
struct ProfileView {
  std::unique_ptr<ProfileSource> source;  ///< null for "none"
  std::string warning;                    ///< why it sees less than it could; empty if it does not
};
/// The recorder must outlive the source. `which` is "auto", "none" or, on a GPU, "events".
ProfileView make_profile_view(const Device& device, const std::string& which, Recorder& recorder,
                              bool shapes);

/// Bytes that nobody holds: of the GPU's memory, or of the host's as its kernel estimates it.
std::size_t free_memory(const Device& device);

/// Bytes of that memory that a scheduler takes for a plan, known before anything runs: the arena,
/// and on a GPU the workspaces of the streams, on the host also what a GPU would find in pinned
/// memory.
std::size_t memory_need(const Device& device, const Plan& plan, const SchedulerOptions& options);

/// "fp32", "tf32", "bf16", whatever a device computes.
Precision precision(const std::string& name);

/// The same. Throws Error{usage} for what the device does not compute.
Precision precision(const std::string& name, const Device& device);

/// The plan and, on a GPU, the algorithms that the backend has chosen for it.
std::string full_plan_hash(const Plan& plan, const Backend& backend);

/// Variables of the environment that change how CUDA runs `streams` streams, one sentence each.
std::vector<std::string> cuda_warnings(int streams);
/// Writes the warnings for a GPU to standard error, and before them, unless `quiet`, the device's
/// name and reason.
void announce(const Device& device, int streams, bool quiet);

/// Versions of the libraries; empty object where CUDA is not built in.
Json cuda_versions();

/// NVML's readings of a GPU while a run goes on, every tenth of a second. On the host there are
/// none.
class GpuReadings {
 public:
  /// Reads from `quiet_seconds` after the first step on; utilisation not before a sample period of
  /// the driver's counter lies within the run.
  GpuReadings(const Device& device, double quiet_seconds);
  void on_step();
  Json utilisation() const;  ///< percent; as the others a mean, null if nothing was read
  Json sm_clock() const;     ///< MHz
  Json memory_clock() const;
  Json power() const;          ///< W
  Json throttled() const;      ///< whether any reading saw the clocks held down
  std::string reason() const;  ///< why there are none

 private:
  GpuMonitor monitor_;
  double wait_;  // seconds until the next reading
  std::optional<std::chrono::steady_clock::time_point> first_;
  std::chrono::steady_clock::time_point last_;
  std::vector<unsigned> utilisation_, sm_clock_, memory_clock_, milliwatts_;
  std::optional<bool> throttled_;
};

/// What a run of its own was seen to do on a GPU, beside its speed. Null values have a reason.
struct Observation {
  Json gpu_busy_percent, nvml_percent, sm_clock_mhz, memory_clock_mhz, power_w, throttled;
  std::string busy_reason, nvml_reason;
};

/// Watches such a run: gives the scheduler its timer, and is told of every step.
class Observer {
 public:
  /// Times `count` executions of each stage behind the first `skip`. Reads NVML from
  /// `quiet_seconds` after the first step on.
  Observer(const Device& device, int stages, int skip, int count, double quiet_seconds);
  ~Observer();
  StageTimer* timer() noexcept;
  void on_step();
  /// After the run, before the next.
  Observation result();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Where nothing was observed.
Observation not_observed(const std::string& reason);

/// gpu_busy_pct, nvml_util_pct, sm_clock_mhz, memory_clock_mhz, power_w, throttled, and the
/// reasons.
void add_observation(Json& row, const Observation& seen);

}  // namespace tandem::program
