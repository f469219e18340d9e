// SPDX-License-Identifier: Apache-2.0
// `tandem tune`: times the algorithms that the GPU's libraries offer for a training plan, and
// writes the fastest into a plan file.
#include <fmt/format.h>

#include <tandem/engine/error.hpp>
#if defined(TANDEM_HAS_CUDA)
#include <tandem/engine/tuner.hpp>
#endif

#include "common.hpp"
#include "progress.hpp"
#include "published.hpp"

namespace tandem::program {
namespace {

/// The engine of a workload for a picture side, a number of classes and a batch size.
using MakeConfig = EngineConfig (*)(std::int64_t, std::int64_t, std::int64_t);

struct TuneOptions {
  std::vector<std::int64_t> batches{8};
  std::vector<std::string> precisions{"fp32"}, fuse{"all"};
  std::int64_t image = 256, classes = 10;
  std::string device = "auto", out, json;
  bool quiet = false;
};

#if defined(TANDEM_HAS_CUDA)

std::vector<Plan> plans(const TuneOptions& options, const Device& device, MakeConfig make) {
  std::vector<Plan> plans;
  for (const std::int64_t batch : options.batches) {
    EngineConfig config = make(options.image, options.classes, batch);
    config.fuse = fuse_options(options.fuse);
    for (const std::string& name : options.precisions) {
      config.precision = precision(name, device);
      for (const bool momentum : {false, true}) {  // without it updates are part of products
        config.momentum = momentum;
        plans.push_back(plan_training(config));
      }
    }
  }
  return plans;
}

void print_result(const TuneResult& result, const std::string& path) {
  fmt::print("{:<48} {:>10} {:>11} {:>10} {:>6}\n", "problem", "candidates", "default us",
             "chosen us", "gain");
  for (const TunedProblem& p : result.problems)
    fmt::print("{:<48} {:>10} {:>11.1f} {:>10.1f} {:>6.2f}\n", p.problem, p.candidates,
               p.default_us, p.chosen_us, p.default_us / p.chosen_us);
  fmt::print(
      "Times: medians, with a cold L2 cache. default: what runs without a plan file.\n"
      "{} for {}\nwritten to {}, algorithms {}\n",
      count_of(static_cast<std::int64_t>(result.problems.size()), "problem"),
      result.table.environment, path, algorithms_hash(result.table));
}

void run(const TuneOptions& options, const Options& declared, MakeConfig make) {
  const Device device = open_gpu(options.device, "tune");
  const std::vector<Plan> all = plans(options, device, make);
  check_replaceable("--out", options.out);
  check_json(options.json);
  announce(device, 1, options.quiet);
  watch_interrupt();
  std::optional<Progress> progress;
  const TuneResult result = tune_algorithms(
      all, device.index, [&](std::size_t done, std::size_t total, const std::string& problem) {
        if (interrupted()) throw Error(ErrorCode::interrupted, "interrupted; no plan was written");
        if (!progress) progress.emplace("tune", total, options.quiet);
        progress->update(done + 1, problem);
      });
  progress.reset();
  write_algorithms(options.out, result.table);

  Json json;
  json["schema"] = 1;
  json["environment"] = environment();
  json["config"] = declared.effective();
  json["gpu"] = device.gpu;
  json["driver"] = device.driver;
  json["algorithms_hash"] = algorithms_hash(result.table);
  json["problems"] = Json::array();
  for (const TunedProblem& p : result.problems)
    json["problems"].push_back({{"problem", p.problem},
                                {"algorithm", p.algorithm},
                                {"candidates", p.candidates},
                                {"default_us", p.default_us},
                                {"chosen_us", p.chosen_us}});
  write_json(options.json, json);
  if (options.json != "-") print_result(result, options.out);
}

#else

void run(const TuneOptions& options, const Options&, MakeConfig) {
  open_gpu(options.device, "tune");  // throws: there is none
}

#endif

void add_workload(CLI::App& tune, Command& selected, const char* name, const char* help,
                  MakeConfig make) {
  CLI::App* app = tune.add_subcommand(name, help);
  auto values = std::make_shared<TuneOptions>();
  auto options = std::make_shared<Options>(*app);
  TuneOptions& o = *values;
  options->numbers("--batch", o.batches, 1, kMaxBatch, "samples a step");
  options->image(o.image);
  options->number("--classes", o.classes, 2, 254, "classes");
  add_precisions_option(*options, o.precisions);
  add_fuse_option(*options, o.fuse);
  add_device_option(*options, o.device);
  options->text("--out", o.out, "FILE.json", "the plan file, for --plan of train and bench")
      ->required();
  options->text("--json", o.json, "FILE|-", "times of each problem, as JSON");
  options->flag("--quiet", o.quiet, "no progress and no notes on standard error");
  app->callback([&selected, values, options, make] {
    selected = [values, options, make] { run(*values, *options, make); };
  });
}

}  // namespace

void add_tune(CLI::App& root, Command& selected) {
  CLI::App* app = root.add_subcommand("tune", "Times the GPU libraries' algorithms");
  add_workload(*app, selected, "segment", "The fastest algorithms for training the segmenter",
               segmenter_config);
  add_workload(*app, selected, "classify", "The fastest algorithms for training the classifier",
               published_classifier);
  add_later_command(*app, "resnet18");
}

}  // namespace tandem::program
