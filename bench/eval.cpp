// SPDX-License-Identifier: Apache-2.0
// `tandem eval`: scores of trained weights on held-out data.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <tandem/engine/error.hpp>

#include "augmentation.hpp"
#include "common.hpp"
#include "data.hpp"
#include "held_out.hpp"
#include "progress.hpp"
#include "weights.hpp"

namespace tandem::program {
namespace {

struct EvalOptions {
  Labels labels = Labels::pixels;
  DataChoice data;
  AugmentChoice frame;
  std::int64_t count = -1, seed = 0, batch = 64, workers = 1;
  std::string weights, device = "auto", precision = "fp32", json;
  bool quiet = false;
};

/// What the run that wrote the weights was told, from the last line of its log; an empty object
/// where there is no such line.
Json trained_with(const std::string& folder) {
  std::ifstream file(std::filesystem::path(folder) / kLogFile);
  std::string line;
  for (std::string next; std::getline(file, next);) line = std::move(next);
  const Json last = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!last.is_object() || !last.contains("summary") || !last["summary"].is_object() ||
      !last["summary"].contains("config") || !last["summary"]["config"].is_object())
    return Json::object();
  return last["summary"]["config"];
}

/// Pictures are framed as in training, unless the user says otherwise.
void take_frame(const Json& config, const Options& options, AugmentChoice& frame) {
  const auto take = [&](const char* name, auto& value) {
    const auto found = config.find(name);
    if (options.given(std::string("--") + name) || found == config.end() || found->is_null())
      return;
    try {
      found->get_to(value);
    } catch (const Json::exception&) {
      throw Error(ErrorCode::data, fmt::format("{}: '{}' of the run's configuration is {}",
                                               kLogFile, name, to_text(*found)));
    }
  };
  take("crop", frame.crop);
  take("padding", frame.padding);
  take("fill", frame.fill);
  take("mean", frame.mean);
  take("std", frame.deviation);
}

/// What the middle of a picture goes through; nothing where it fits as it is.
std::optional<LoaderAugment> framing(EngineConfig& config, AugmentChoice& frame, std::int64_t in) {
  if (frame.crop <= 0) return set_augmentation(config, frame, "", in, 0);
  AugmentChoice still = frame;
  still.where = "gpu";
  still.degrees = still.flip = 0;
  still.blur_taps = 0;
  return set_augmentation(config, still, "", in, 0);
}

void run(EvalOptions& options, const Options& declared) {
  const Device device = open_device(options.device);
  const Precision chosen_precision = precision(options.precision, device);
  if (!options.json.empty() && options.json != "-") check_writable("--json", options.json);
  const bool of_pixels = options.labels == Labels::pixels;
  TrainedNetwork network = of_pixels ? read_segmenter(options.weights, options.batch)
                                     : read_classifier(options.weights, options.batch);
  network.config.precision = chosen_precision;
  DataRequest request;
  request.labels = options.labels;
  request.split = Split::held_out;
  request.image = network.config.image;
  request.classes = network.classes;
  request.who = options.weights;
  request.says_classes =
      fmt::format("the number of classes of the weights in {} is", options.weights);
  request.seed = static_cast<std::uint64_t>(options.seed);
  const auto broken = std::make_shared<BrokenFiles>();
  request.broken = broken;
  const auto data = open_data(options.data, request);
  const bool finite = !is_generated(options.data);
  if (options.count < 0) options.count = finite ? data->epoch_size() : 512;
  if (finite && options.count > data->epoch_size())
    throw Error(ErrorCode::usage,
                fmt::format("--count is {}; allowed: 1 to {}, what {} has held out", options.count,
                            data->epoch_size(), options.data.data));
  Samples samples{data, options.count, static_cast<int>(options.workers), {}};
  if (!of_pixels) {
    take_frame(trained_with(options.weights), declared, options.frame);
    samples.augment = framing(network.config, options.frame, data->image());
  }

  if (!options.quiet)
    announce(device,
             stream_count(plan_prediction(network.config), network.config.scheduler.schedule));
  watch_interrupt();
  const std::unique_ptr<Backend> backend = make_backend(device);
  SamplePredictor predictor(*backend, network.config, samples);
  const Json found = scores(options.labels, predictor.score(network.frozen, network.trained));

  Json json;
  json["schema"] = 1;
  json["environment"] = environment();
  json["workload"] = of_pixels ? "segment" : "classify";
  json["device"] = device.name;
  json["precision"] = options.precision;
  json["image"] = network.config.image;
  json["classes"] = network.classes;
  json["class_names"] = data->class_names();
  json["eval"] = options.count;
  json.update(found);
  json["broken_files"] = broken->json();
  json["config"] = declared.effective();
  write_json(options.json, json);
  if (options.json != "-")
    print_scores(options.labels, found, data->class_names(),
                 count_of(options.count, of_pixels ? "scene" : "picture"));
}

void add_workload(CLI::App& eval, Command& selected, const char* name, const char* help,
                  Labels labels) {
  CLI::App* app = eval.add_subcommand(name, help);
  auto values = std::make_shared<EvalOptions>();
  auto options = std::make_shared<Options>(*app);
  EvalOptions& o = *values;
  o.labels = labels;
  options->text("--weights", o.weights, "DIR", "folder that 'train --out' wrote")->required();
  if (labels == Labels::pixels) {
    o.data.data = "fashion-scenes";
    add_scene_options(*options, o.data);
    options->number("--seed", o.seed, 0, INT64_MAX, "of the scenes");
  } else {
    o.data.data = "fashion-mnist";
    add_picture_options(*options, o.data);
    add_frame_options(*options, o.frame);
    add_normalise_options(*options, o.frame);
    for (const char* setting : {"--crop", "--padding", "--fill", "--mean", "--std"})
      app->get_option(setting)->default_str("the run's");
  }
  options->number("--count", o.count, 1, 1'000'000'000, "held-out samples")
      ->default_str("all; 512 scenes");
  options->number("--batch", o.batch, 1, kMaxBatch, "samples at a time");
  add_device_option(*options, o.device);
  add_precision_option(*options, o.precision);
  options->number("--workers", o.workers, 1, 256, "loader threads");
  options->text("--json", o.json, "FILE|-", "scores with the environment, as JSON");
  options->flag("--quiet", o.quiet, "no notes on standard error");
  app->callback(
      [&selected, values, options] { selected = [values, options] { run(*values, *options); }; });
}

}  // namespace

void add_eval(CLI::App& root, Command& selected) {
  CLI::App* app = root.add_subcommand("eval", "Scores trained weights on held-out data");
  add_workload(*app, selected, "segment", "Accuracy and IoU of pixels", Labels::pixels);
  add_workload(*app, selected, "classify", "Accuracy of each class, and what is taken for what",
               Labels::pictures);
  add_later_command(*app, "resnet18");
}

}  // namespace tandem::program
