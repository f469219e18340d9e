// SPDX-License-Identifier: Apache-2.0
// `tandem plan`: the operations of a training step and the bytes of their operands, without running
// anything; bench/kernel_times.py puts them beside those that a GPU counts.
#include <fmt/format.h>

#include <map>
#include <tandem/engine/registry.hpp>

#include "augmentation.hpp"
#include "common.hpp"
#include "training.hpp"

namespace tandem::program {
namespace {

/// Those of `tandem train` that decide the plan, with the same defaults but for the data.
struct PlanOptions {
  std::int64_t batch = TrainOptions{}.batch, image = 32, classes = 0;
  double momentum = TrainOptions{}.momentum;
  std::string precision = TrainOptions{}.precision, json;
  std::vector<std::string> fuse = TrainOptions{}.fuse;
  DataChoice data{"synthetic"};
  AugmentChoice augment;  // classify
};

/// Bytes that operations read and write, each operand once. Scratch memory is none of them.
struct Traffic {
  std::int64_t operations = 0;
  std::size_t read = 0, written = 0;

  void add(const Operation& operation) {
    ++operations;
    for (const Operand& operand : operation.operands) {
      if (operand.workspace) continue;
      if (reads(operand.access)) read += operand.desc.bytes();
      if (writes(operand.access)) written += operand.desc.bytes();
    }
  }
};

std::shared_ptr<const Dataset> open(PlanOptions& options, const char* workload, Labels labels) {
  DataRequest request;
  request.labels = labels;
  request.image = options.image;
  request.classes = options.classes;
  request.who = workload;
  auto data = open_data(options.data, request);
  options.classes = data->classes();
  return data;
}

EngineConfig segment(PlanOptions& options) {
  open(options, "segment", Labels::pixels);
  return segmenter_config(options.image, options.classes, options.batch);
}

EngineConfig classify(PlanOptions& options) {
  const auto data = open(options, "classify", Labels::pictures);
  EngineConfig config = classifier_config(options.image, options.classes, options.batch);
  set_augmentation(config, options.augment, data_name(options.data), data->image(), 0);
  return config;
}

Json to_json(const Plan& plan) {
  Json stages = Json::array();
  for (const Stage& stage : plan.stages) {
    Json operations = Json::array();
    for (const Operation& operation : stage.operations) {
      Traffic traffic;
      traffic.add(operation);
      Json operands = Json::array();
      for (const Operand& operand : operation.operands) {
        if (operand.workspace) continue;
        const Buffer& buffer = plan.buffers[static_cast<std::size_t>(operand.buffer)];
        operands.push_back({{"name", operand.name},
                            {"tensor", to_string(operand.desc)},
                            {"bytes", operand.desc.bytes()},
                            {"lasting", buffer.scope == Scope::persistent},
                            {"read", reads(operand.access)},
                            {"written", writes(operand.access)}});
      }
      operations.push_back({{"name", operation.name},
                            {"kind", op_info(operation.kind).name},
                            {"bytes_read", traffic.read},
                            {"bytes_written", traffic.written},
                            {"operands", operands}});
    }
    stages.push_back({{"name", stage.name}, {"operations", operations}});
  }
  return stages;
}

void print_table(const Plan& plan) {
  std::map<std::string, Traffic> by_kind;
  Traffic all;
  for (const Stage& stage : plan.stages)
    for (const Operation& operation : stage.operations) {
      by_kind[op_info(operation.kind).name].add(operation);
      all.add(operation);
    }
  const auto line = [](const std::string& kind, const Traffic& t) {
    const auto mb = [](std::size_t bytes) { return static_cast<double>(bytes) / 1e6; };
    fmt::print("{:<28} {:>10} {:>10.1f} {:>10.1f}\n", kind, t.operations, mb(t.read),
               mb(t.written));
  };
  fmt::print("{:<28} {:>10} {:>10} {:>10}\n", "kind", "operations", "MB read", "MB written");
  for (const auto& [kind, traffic] : by_kind) line(kind, traffic);
  line("a step", all);
  const MemoryPlan memory = plan_memory(plan);
  fmt::print(
      "MB: 10^6 bytes of operands, each read once and written once.\n"
      "memory {:.1f} MiB device, {:.1f} MiB pinned; plan {}\n",
      static_cast<double>(memory.device_bytes) / (1 << 20),
      static_cast<double>(memory.pinned_bytes) / (1 << 20), plan_hash(plan));
}

/// The networks and their input for what was asked; resolves the number of classes.
using MakeConfig = EngineConfig (*)(PlanOptions&);

void run(PlanOptions& options, const Options& declared, MakeConfig make) {
  EngineConfig config = make(options);
  config.precision = precision(options.precision);
  config.momentum = options.momentum != 0;
  config.fuse = fuse_options(options.fuse);
  const Plan plan = plan_training(config);

  Json json;
  json["schema"] = 1;
  json["environment"] = environment();
  json["config"] = declared.effective();
  json["plan_hash"] = plan_hash(plan);
  json["stages"] = to_json(plan);
  write_json(options.json, json);
  if (options.json != "-") print_table(plan);
}

void add_workload(CLI::App& parent, Command& selected, const char* name, const char* help,
                  MakeConfig make) {
  CLI::App* app = parent.add_subcommand(name, help);
  auto values = std::make_shared<PlanOptions>();
  auto options = std::make_shared<Options>(*app);
  PlanOptions& o = *values;
  if (make == segment) {
    add_scene_options(*options, o.data);
  } else {
    add_picture_options(*options, o.data);
    add_augment_options(*options, o.augment);
  }
  options->number("--batch", o.batch, 1, kMaxBatch, "samples a step");
  options->image(o.image);
  options->number("--classes", o.classes, 2, 254, "classes")->default_str("the data's, or 10");
  options->real("--momentum", o.momentum, 0, 1, "0: no velocities");
  options->choice("--precision", o.precision, {"fp32", "tf32", "bf16"}, "arithmetic");
  add_fuse_option(*options, o.fuse);
  options->text("--json", o.json, "FILE|-", "every operation with its operands, as JSON");
  app->callback([&selected, values, options, make] {
    selected = [values, options, make] { run(*values, *options, make); };
  });
}

}  // namespace

void add_plan(CLI::App& root, Command& selected) {
  CLI::App* app =
      root.add_subcommand("plan", "What a training step does and moves, without running it");
  add_workload(*app, selected, "segment", "The operations of training the segmenter", segment);
  add_workload(*app, selected, "classify", "The operations of training the classifier", classify);
  add_later_command(*app, "resnet18");
}

}  // namespace tandem::program
