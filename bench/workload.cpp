// SPDX-License-Identifier: Apache-2.0
#include "workload.hpp"

#include <algorithm>
#include <tandem/engine/error.hpp>
#include <tandem/models/model_json.hpp>
#include <utility>

#include "published.hpp"
#include "training.hpp"

namespace tandem::program {

namespace {

PublishedChoice published_choice(const WorkloadOptions& options) {
  return {options.image, options.classes, 1, options.seed_value(), options.augment, options.input};
}

Workload to_workload(PublishedJob published) {
  Workload workload;
  workload.name = std::move(published.name);
  workload.job.config = std::move(published.config);
  workload.job.data = std::move(published.data);
  workload.job.loader.augment = std::move(published.augment);
  return workload;
}

}  // namespace

Workload segment_workload(const WorkloadOptions& options) {
  return to_workload(published_segment_job(published_choice(options)));
}

Workload classify_workload(const WorkloadOptions& options) {
  return to_workload(published_classify_job(published_choice(options)));
}

Workload model_workload(const WorkloadOptions& options) {
  const Model model = read_model(options.model);
  const std::int64_t classes = model.trained.out_channels();
  Workload workload;
  workload.name = model.name;
  EngineConfig& config = workload.job.config;
  config.frozen = model.frozen;
  config.trained = model.trained;
  config.image = model.image;
  config.features = model.features;
  const Labels labels = labels_of(model, options.model);
  if (model.features > 0)
    workload.job.data = make_synthetic_rows(model.features, classes, options.seed_value());
  else if (labels == Labels::pixels)
    workload.job.data = make_synthetic(model.image, classes, options.seed_value());
  else
    workload.job.data = make_synthetic_classes(model.image, classes, options.seed_value());
  return workload;
}

Workload complete_workload(const WorkloadOptions& options, const Device& device,
                           MakeWorkload make) {
  Workload workload = make(options);
  ProbeJob& job = workload.job;
  EngineConfig& config = job.config;
  config.precision = precision(options.precision, device);
  config.scheduler.schedule = schedule(options.schedule);
  config.scheduler.side_lanes = side_lanes(options.side_lanes, device);
  config.fuse = fuse_options(options.fuse);
  config.momentum = options.momentum != 0;
  config.slots = static_cast<int>(options.slots);
  config.input_memory = options.input == "device" ? MemoryKind::device : MemoryKind::pinned;
  job.frozen = initialise(config.frozen, InitScheme::he, options.seed_value(), 0);
  job.trained = initialise(config.trained, InitScheme::he, options.seed_value(), 1);
  // The learning rate stays 0: random labels teach nothing, and the arithmetic is the same.
  job.loader.momentum = static_cast<float>(options.momentum);
  job.loader.workers = static_cast<int>(options.workers);
  job.loader.classes = job.data->classes();
  return workload;
}

void add_network_options(Options& options, WorkloadOptions& values, bool augments) {
  options.image(values.image);
  options.number("--classes", values.classes, 2, 254, "classes");
  if (augments)
    options.choice("--augment", values.augment, {"none", "cpu", "gpu"},
                   "no augmentation, in the loader's threads, or as a stage of its own");
}

void add_training_options(Options& options, WorkloadOptions& values,
                          const std::vector<std::string>& schedules,
                          const std::vector<std::string>& later) {
  const bool graphs = std::find(schedules.begin(), schedules.end(), "graph") != schedules.end();
  options.choice("--schedule", values.schedule, schedules,
                 graphs ? "order of the stages; graph: overlap, captured once and launched"
                        : "order of the stages",
                 later);
  add_side_lanes_option(options, values.side_lanes);
  add_fuse_option(options, values.fuse);
  add_precision_option(options, values.precision);
  options.real("--momentum", values.momentum, 0, 1, "factor of the old velocity; 0: none is kept");
  options.choice("--input", values.input, {"loader", "device"},
                 "loader threads, or a few batches that already lie on the device");
  options.number("--workers", values.workers, 1, 256, "loader threads");
  options.number("--slots", values.slots, 1, 16, "batches that may wait between two stages");
  add_device_option(options, values.device);
  add_plan_option(options, values.plan);
}

Json begin_result(const char* command, const Options& declared, const Workload& workload,
                  const Device& device) {
  Json json;
  json["schema"] = 1;
  json["command"] = command;
  json["environment"] = environment();
  json["config"] = declared.effective();
  json["workload"] = workload.name;
  json["device"] = device.name;
  json["gpu"] = device.is_cuda() ? Json(device.gpu) : Json(nullptr);
  json["driver"] = device.is_cuda() ? Json(device.driver) : Json(nullptr);
  json["image"] = workload.job.config.image;
  return json;
}

}  // namespace tandem::program
