// SPDX-License-Identifier: Apache-2.0
// What the batch-size finder and the profiler train: a workload by name or a network of one's own,
// on random pictures, with the options that say how.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "batch_probe.hpp"
#include "common.hpp"

namespace tandem::program {

struct WorkloadOptions {
  std::int64_t image = 256, classes = 10, workers = 8, slots = 2, seed = 0;
  double momentum = 0.9;
  std::string model, schedule = "overlap", precision = "fp32", device = "auto", plan;
  std::string input = "device", augment = "gpu";
  std::vector<std::string> fuse{"all"};
  std::string side_lanes = "auto";

  std::uint64_t seed_value() const { return static_cast<std::uint64_t>(seed); }
};

struct Workload {
  std::string name;
  ProbeJob job;
};

/// Makes the networks and the data; complete_workload() does the rest.
using MakeWorkload = Workload (*)(const WorkloadOptions& options);
Workload segment_workload(const WorkloadOptions& options);
Workload classify_workload(const WorkloadOptions& options);
Workload model_workload(const WorkloadOptions& options);  ///< of --model

/// Everything but batch and steps.
Workload complete_workload(const WorkloadOptions& options, const Device& device, MakeWorkload make);

/// --image and --classes, and for `classify` --augment.
void add_network_options(Options& options, WorkloadOptions& values, bool augments);
/// How it is trained: from --schedule, one of `schedules`, to --plan, and --seed.
void add_training_options(Options& options, WorkloadOptions& values,
                          const std::vector<std::string>& schedules,
                          const std::vector<std::string>& later);

/// What the JSON of a command on a workload begins with; its rows come behind.
Json begin_result(const char* command, const Options& declared, const Workload& workload,
                  const Device& device);

}  // namespace tandem::program
