// SPDX-License-Identifier: Apache-2.0
// `tandem eval`: scores of trained weights on held-out data.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <tandem/engine/error.hpp>
#include <type_traits>

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

constexpr const char* kFrameOptions[] = {"--crop", "--padding", "--fill", "--mean", "--std"};

/// The summary of the run that wrote the weights, or why there is none.
struct RunSummary {
  std::string path;  // of the log
  Json summary;
  std::string missing;

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::data, fmt::format("{}: {}", path, what));
  }
};

RunSummary read_summary(const std::string& folder, const Parameters& trained) {
  RunSummary run;
  run.path = (std::filesystem::path(folder) / kLogFile).string();
  std::ifstream file(run.path);
  std::string line;
  for (std::string next; std::getline(file, next);) line = std::move(next);
  const Json last = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!file.is_open())
    run.missing = "cannot be read";
  else if (!last.is_object() || !last.contains("summary") || !last["summary"].is_object() ||
           !last["summary"].contains("config") || !last["summary"]["config"].is_object())
    run.missing = "its last line is no summary of a run";
  else if (last["summary"].value("weights_sha256", Json()) != parameters_sha256(trained))
    run.missing = "it is the log of other weights";
  else
    run.summary = last["summary"];
  return run;
}

/// A number of the run's configuration, as the option of that name takes it.
template <class T>
void take_number(const RunSummary& run, const std::string& name, const Json& found, T low, T high,
                 T& value) {
  constexpr bool kWhole = std::is_integral_v<T>;
  if ((kWhole ? found.is_number_integer() : found.is_number()) && found >= low && found <= high)
    value = found.get<T>();
  else
    run.refuse(fmt::format("'{}' of the run's configuration is {}; allowed: {} from {} to {}", name,
                           to_text(found), kWhole ? "a whole number" : "a number", low, high));
}

/// Pictures are framed as in training, unless the user says otherwise.
void take_frame(const RunSummary& run, const Options& options, AugmentChoice& frame) {
  std::string needed;
  for (const char* option : kFrameOptions)
    if (!options.given(option)) needed += (needed.empty() ? "" : ", ") + std::string(option);
  if (needed.empty()) return;
  if (!run.missing.empty())
    run.refuse(
        fmt::format("{}, so how pictures were framed in training is not known; these options "
                    "say it: {}",
                    run.missing, needed));

  const Json& config = run.summary["config"];
  // Null where nothing was cropped, padded or filled.
  const auto take = [&](const std::string& name, auto low, auto high, auto& value) {
    if (options.given("--" + name)) return;
    const Json found = config.value(name, Json());
    if (!found.is_null()) take_number(run, name, found, low, high, value);
  };
  const auto take_channels = [&](const std::string& name, std::vector<double>& values) {
    if (options.given("--" + name)) return;
    const Json found = config.value(name, Json());
    if (!found.is_array() || (found.size() != 1 && found.size() != kAugmentChannels))
      run.refuse(
          fmt::format("'{}' of the run's configuration is {}; allowed: a list of 1 or {} "
                      "numbers",
                      name, to_text(found), kAugmentChannels));
    values.assign(found.size(), 0);
    for (std::size_t i = 0; i < values.size(); ++i)
      take_number(run, name, found[i], -1e6, 1e6, values[i]);
  };
  take("crop", std::int64_t{1}, std::int64_t{8192}, frame.crop);
  take("padding", std::int64_t{0}, std::int64_t{8192}, frame.padding);
  take("fill", 0.0, 255.0, frame.fill);
  take_channels("mean", frame.mean);
  take_channels("std", frame.deviation);
  if (frame.crop <= 0 && config.value("augment", Json()) != "none")
    run.refuse("'crop' of the run's configuration is null; allowed: a whole number from 1 to 8192");
}

/// The class of a number has to be the one that was learnt under it.
void check_classes(const RunSummary& run, const Dataset& data, const std::string& name) {
  if (!run.missing.empty()) return;
  const Json learnt = run.summary.value("class_names", Json());
  const std::vector<std::string> names = data.class_names();
  if (!learnt.is_array() || learnt.size() != names.size())
    run.refuse(fmt::format("the run learnt {} classes, but {} has {}",
                           learnt.is_array() ? learnt.size() : 0, name, names.size()));
  // As they were written: bytes that are not UTF-8 are replaced there.
  const Json here = Json::parse(to_text(Json(names)));
  for (std::size_t c = 0; c < names.size(); ++c)
    if (learnt[c] != here[c])
      run.refuse(fmt::format("class {} was {} in training, but is {} in {}", c, to_text(learnt[c]),
                             to_text(here[c]), name));
}

/// What the middle of a picture goes through; nothing where it fits as it is.
std::optional<LoaderAugment> framing(EngineConfig& config, AugmentChoice& frame, std::int64_t in) {
  AugmentChoice still = frame;
  if (frame.crop <= 0) {
    if (frame.padding > 0)
      throw Error(ErrorCode::usage, "--padding does nothing without --crop; allowed: both");
    still.fill = -1;
    return set_augmentation(config, still, "", in, 0);
  }
  still.where = "gpu";
  still.degrees = still.flip = 0;
  still.blur_taps = 0;
  return set_augmentation(config, still, "", in, 0);
}

void run(EvalOptions& options, const Options& declared) {
  const Device device = open_device(options.device);
  const Precision chosen_precision = precision(options.precision, device);
  check_json(options.json);
  if (!has_held_out(options.data))
    throw Error(ErrorCode::usage,
                fmt::format("--data {}: has nothing held out to score", options.data.data));
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
    const RunSummary trained_by = read_summary(options.weights, network.trained);
    check_classes(trained_by, *data, options.data.data);
    take_frame(trained_by, declared, options.frame);
    samples.augment = framing(network.config, options.frame, data->image());
  }

  announce(device, stream_count(plan_prediction(network.config), network.config.scheduler),
           options.quiet);
  watch_interrupt();
  const std::unique_ptr<Backend> backend = make_backend(device);
  SamplePredictor predictor(*backend, network.config, samples);
  const Confusion confusion = predictor.score(network.frozen, network.trained);
  const Json found = scores(options.labels, confusion);
  const std::int64_t scored = scored_samples(options.labels, confusion, options.count);

  Json json;
  json["schema"] = 1;
  json["environment"] = environment();
  json["workload"] = of_pixels ? "segment" : "classify";
  json["device"] = device.name;
  json["precision"] = options.precision;
  json["image"] = network.config.image;
  json["classes"] = network.classes;
  json["class_names"] = data->class_names();
  json["eval"] = scored;
  json.update(found);
  json["broken_files"] = broken->json();
  json["config"] = declared.effective();
  write_json(options.json, json);
  if (options.json != "-")
    print_scores(options.labels, found, data->class_names(),
                 count_of(scored, of_pixels ? "scene" : "picture"));
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
