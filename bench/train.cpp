// SPDX-License-Identifier: Apache-2.0
// `tandem train segment`: real training, with a log, held-out scores and weights.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <tandem/engine/error.hpp>
#include <tandem/engine/metrics.hpp>

#include "common.hpp"
#include "progress.hpp"

namespace tandem::program {
namespace {

namespace fs = std::filesystem;

struct TrainOptions {
  DataChoice data;
  std::int64_t image = 32, classes = 0, batch = 32, steps = 2000, epochs = 0;
  std::int64_t seed = 0, workers = 1, slots = 2, held_out = 512;
  double learning_rate = 0.1, momentum = 0.9, weight_decay = 0;
  std::string schedule = "overlap", precision = "fp32", device = "auto", init, scheme = "he";
  std::string plan, out, log, json;
  bool quiet = false;
};

/// Two runs that write to one folder would mix their files.
class FolderLock {
 public:
  void take(const std::string& folder) {
    descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw Error(ErrorCode::data, fmt::format("--out {}: another run writes there", folder));
  }
  FolderLock() = default;
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

/// Writes each line to several files at once, so that an interrupted run leaves its losses.
class Log {
 public:
  /// Refuses what could not be written to. Creates nothing.
  static void check_all(const TrainOptions& options) {
    if (!options.log.empty()) check_writable("--log", options.log);
    if (!options.json.empty() && options.json != "-") check_writable("--json", options.json);
    if (options.out.empty()) return;
    std::error_code ignored;
    fs::path existing = fs::absolute(options.out);
    while (!fs::exists(existing, ignored) && existing.has_relative_path())
      existing = existing.parent_path();
    if (!fs::is_directory(existing, ignored) || ::access(existing.c_str(), W_OK) != 0)
      throw Error(ErrorCode::data,
                  fmt::format("--out {}: cannot be created: {} is no folder to write to",
                              options.out, existing.string()));
  }

  /// Opens everything training will write to.
  void open_all(const TrainOptions& options) {
    check_all(options);
    if (!options.out.empty()) {
      std::error_code error;
      fs::create_directories(options.out, error);
      if (error)
        throw Error(ErrorCode::data,
                    fmt::format("--out {}: cannot be created: {}", options.out, error.message()));
      lock_.take(options.out);
      for (const char* name : {"encoder.safetensors", "decoder.safetensors", "log.jsonl"})
        check_writable("--out", (fs::path(options.out) / name).string());
      open((fs::path(options.out) / "log.jsonl").string());
    }
    if (!options.log.empty()) open(options.log);
  }

  void write(const Json& line) {
    const std::string text = to_text(line) + "\n";
    for (std::size_t i = 0; i < files_.size(); ++i)
      if (!(files_[i] << text << std::flush))
        throw Error(ErrorCode::data,
                    fmt::format("{}: cannot be written: {}", paths_[i], std::strerror(errno)));
  }

 private:
  void open(const std::string& path) {
    files_.emplace_back(path, std::ios::trunc);
    if (!files_.back())
      throw Error(ErrorCode::data,
                  fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
    paths_.push_back(path);
  }

  FolderLock lock_;
  std::vector<std::ofstream> files_;
  std::vector<std::string> paths_;
};

/// Processor seconds of the whole process so far.
double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Mean of the losses that there are; null if there are none.
Json mean_loss(const std::vector<std::optional<double>>& losses, std::size_t begin,
               std::size_t end) {
  double sum = 0;
  int count = 0;
  for (std::size_t i = begin; i < end; ++i)
    if (losses[i]) sum += *losses[i], ++count;
  return count == 0 ? Json(nullptr) : Json(sum / count);
}

struct TrainRun {
  std::vector<std::optional<double>> losses;  // nothing where a batch had no valid label
  double seconds = 0, processor_seconds = 0;
  Parameters decoder;
  std::string plan_hash;
};

TrainRun train(Backend& backend, const EngineConfig& config, const SegmenterWeights& weights,
               const std::shared_ptr<const Dataset>& data,
               const LoaderOptions& loader_options, const TrainOptions& options, Log& log) {
  const bool quiet = options.quiet;
  TrainRun run;
  Progress progress("train", loader_options.steps, quiet);
  const auto on_step = [&](const StepResult& result) {
    const bool valid = result.valid_count > 0;
    run.losses.push_back(valid ? std::optional(result.loss) : std::nullopt);
    log.write({{"step", result.step}, {"loss", valid ? Json(result.loss) : Json(nullptr)}});
    progress.update(run.losses.size(),
                    valid ? fmt::format("loss {:.4f}", result.loss) : "no valid label");
  };

  Trainer trainer(backend, config, on_step);
  trainer.set_frozen(weights.encoder);
  trainer.set_trained(weights.decoder);
  run.plan_hash = full_plan_hash(trainer.scheduler().plan(), backend);
  const MemoryPlan& memory = trainer.scheduler().memory();
  if (!quiet)
    say(fmt::format("memory {:.1f} MiB device, {:.1f} MiB pinned; plan {}\n",
                    static_cast<double>(memory.device_bytes) / (1 << 20),
                    static_cast<double>(memory.pinned_bytes) / (1 << 20), run.plan_hash));
  // Only now: a run that cannot start leaves nothing behind.
  log.open_all(options);

  const auto start = std::chrono::steady_clock::now();
  const double processor_start = processor_seconds();
  Loader loader(data, loader_options, trainer.inputs(),
                [&trainer](int slot) { trainer.wait_input_free(slot); });
  bool stopped = false;
  for (int slot; !(stopped = interrupted()) && (slot = loader.next()) >= 0;) {
    trainer.step(slot);
    loader.submitted(slot);
  }
  trainer.finish();
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  run.processor_seconds = processor_seconds() - processor_start;
  if (stopped)
    throw Error(ErrorCode::interrupted,
                fmt::format("interrupted after {} of {}; no weights were written",
                            run.losses.size(), count_of(loader_options.steps, "step")));
  run.decoder = trainer.trained();
  return run;
}

/// Scores on held-out scenes, or null for each where there are none.
Json scores(const std::optional<Confusion>& confusion) {
  Json json;
  for (const char* key : {"pixel_accuracy", "miou", "garment_miou", "background_pixel_accuracy",
                          "background_miou", "background_garment_miou", "garment_iou"})
    json[key] = nullptr;
  if (!confusion) return json;
  const Confusion background = confusion->all_background();
  json["pixel_accuracy"] = confusion->pixel_accuracy();
  json["miou"] = confusion->mean_iou();
  json["garment_miou"] = confusion->mean_iou(1);
  json["background_pixel_accuracy"] = background.pixel_accuracy();
  json["background_miou"] = background.mean_iou();
  json["background_garment_miou"] = background.mean_iou(1);
  json["garment_iou"] = Json::array();
  for (std::int64_t c = 1; c < confusion->classes(); ++c) {
    const std::optional<double> iou = confusion->iou(c);
    json["garment_iou"].push_back(iou ? Json(*iou) : Json(nullptr));
  }
  return json;
}

void print_summary(const Json& summary) {
  const auto number = [&](const char* key, int digits) {
    const Json& value = summary[key];
    return value.is_null() ? std::string("none")
                           : fmt::format("{:.{}f}", value.get<double>(), digits);
  };
  fmt::print("segment     {} x {} pixels, {} classes, batch {}, {}\n", summary["image"].dump(),
             summary["image"].dump(), summary["classes"].dump(), summary["batch"].dump(),
             count_of(summary["steps"].get<std::int64_t>(), "step"));
  fmt::print("schedule    {} on {}, {}, {} cores used\n", summary["schedule"].get<std::string>(),
             summary["device"].get<std::string>(), summary["precision"].get<std::string>(),
             number("cores", 2));
  fmt::print("speed       {} steps/s, {} images/s\n", number("steps_per_s", 2),
             number("images_per_s", 1));
  fmt::print("loss        {} -> {} (means of the first and last 10 % of the steps)\n",
             number("first_loss", 4), number("last_loss", 4));
  if (!summary["miou"].is_null()) {
    fmt::print("held out    {}   (background everywhere)\n",
               count_of(summary["eval"].get<std::int64_t>(), "scene"));
    const auto score = [&](const char* name, const std::string& key) {
      fmt::print("  {:<16}{}   ({})\n", name, number(key.c_str(), 4),
                 number(("background_" + key).c_str(), 4));
    };
    score("pixel accuracy", "pixel_accuracy");
    score("mIoU", "miou");
    score("garment mIoU", "garment_miou");
    for (std::size_t i = 0; i < summary["garment_iou"].size(); ++i) {
      const Json& iou = summary["garment_iou"][i];
      fmt::print("    {:<14}{}\n", summary["class_names"][i + 1].get<std::string>(),
                 iou.is_null() ? "none here" : fmt::format("{:.4f}", iou.get<double>()));
    }
  }
  fmt::print("weights     sha256 {}\n", summary["weights_sha256"].get<std::string>());
}

void run(TrainOptions& options, const Options& declared) {
  watch_interrupt();
  const Device device = open_device(options.device, options.plan);
  const Precision chosen_precision = precision(options.precision, device);
  const std::uint64_t seed = static_cast<std::uint64_t>(options.seed);
  const auto data = open_data(options.data, Split::train, options.image, options.classes, seed);
  options.classes = data->classes();
  const bool evaluates = options.held_out > 0 && has_held_out(options.data);
  const auto held_out =
      evaluates ? open_data(options.data, Split::held_out, options.image, options.classes, seed)
                : nullptr;

  EngineConfig config = segmenter_config(options.image, options.classes, options.batch);
  config.precision = chosen_precision;
  config.momentum = options.momentum != 0;
  config.slots = static_cast<int>(options.slots);
  config.scheduler.schedule = schedule(options.schedule);
  SegmenterWeights weights = initial_segmenter(config, init_scheme(options.scheme), seed);
  if (!options.init.empty()) {
    weights.encoder = read_safetensors(options.init);
    check_parameters(config.frozen, weights.encoder, options.init);
  }

  LoaderOptions loader;
  loader.workers = static_cast<int>(options.workers);
  loader.batch = options.batch;
  if (options.epochs > 0) {
    loader.samples = options.epochs * data->epoch_size();
    options.steps = (loader.samples + options.batch - 1) / options.batch;
  }
  loader.steps = static_cast<std::uint64_t>(options.steps);
  loader.classes = options.classes;
  loader.learning_rate = static_cast<float>(options.learning_rate);
  loader.momentum = static_cast<float>(options.momentum);
  loader.weight_decay = static_cast<float>(options.weight_decay);

  Log::check_all(options);
  if (!options.quiet)
    announce(device, stream_count(plan_training(config), config.scheduler.schedule));
  Log log;
  const std::unique_ptr<Backend> backend = make_backend(device);
  TrainRun result = train(*backend, config, weights, data, loader, options, log);
  weights.decoder = std::move(result.decoder);
  if (!options.out.empty()) {
    write_safetensors((fs::path(options.out) / "encoder.safetensors").string(), weights.encoder);
    write_safetensors((fs::path(options.out) / "decoder.safetensors").string(), weights.decoder);
  }

  std::optional<Confusion> confusion;
  if (evaluates) {
    confusion.emplace(options.classes);
    if (!options.quiet)
      say(fmt::format("scoring {}\n", count_of(options.held_out, "held-out scene")));
    predict_samples(*backend, config, weights, held_out, options.held_out,
                    static_cast<int>(options.workers),
                    [&](std::int64_t, const std::uint8_t*, const std::uint8_t* truth,
                        const std::uint8_t* prediction) {
                      confusion->add(truth, prediction, options.image * options.image);
                    });
  }

  const std::size_t tenth = std::max<std::size_t>(1, result.losses.size() / 10);
  const double steps = static_cast<double>(options.steps);
  const std::int64_t samples = loader.samples >= 0 ? loader.samples : options.steps * options.batch;
  Json summary;
  summary["workload"] = "segment";
  summary["device"] = device.name;
  summary["gpu"] = device.is_cuda() ? Json(device.gpu) : Json(nullptr);
  summary["schedule"] = options.schedule;
  summary["precision"] = options.precision;
  summary["batch"] = options.batch;
  summary["image"] = options.image;
  summary["classes"] = options.classes;
  summary["steps"] = options.steps;
  summary["seed"] = options.seed;
  summary["eval"] = evaluates ? options.held_out : 0;
  summary["cores"] = result.processor_seconds / result.seconds;
  summary["first_loss"] = mean_loss(result.losses, 0, tenth);
  summary["last_loss"] =
      mean_loss(result.losses, result.losses.size() - tenth, result.losses.size());
  summary["steps_per_s"] = steps / result.seconds;
  summary["images_per_s"] = static_cast<double>(samples) / result.seconds;
  summary.update(scores(confusion));
  summary["class_names"] = data->class_names();
  summary["weights_sha256"] = parameters_sha256(weights.decoder);
  summary["plan_hash"] = result.plan_hash;
  summary["config"] = declared.effective();
  if (options.epochs > 0) summary["config"].erase("steps");  // it follows

  log.write({{"summary", summary}});
  write_json(options.json, {{"schema", 1}, {"environment", environment()}, {"summary", summary}});
  if (options.json != "-") print_summary(summary);
}

}  // namespace

void add_train(CLI::App& root, Command& selected) {
  CLI::App* train_app = root.add_subcommand("train", "Trains a model");
  add_later_option(*train_app, "--model");
  CLI::App* app = train_app->add_subcommand(
      "segment", "Labels every pixel: a frozen encoder, a trained decoder");
  add_later_command(*train_app, "classify");
  add_later_command(*train_app, "resnet18");

  auto values = std::make_shared<TrainOptions>();
  auto options = std::make_shared<Options>(*app);
  TrainOptions& o = *values;
  add_data_options(*options, o.data);
  options->image(o.image);
  options->number("--classes", o.classes, 2, 254, "classes")->default_str("the data's, or 10");
  options->number("--batch", o.batch, 1, kMaxBatch, "samples a step", {"auto"});
  CLI::Option* steps = options->number("--steps", o.steps, 1, 1'000'000'000, "optimizer steps");
  options->number("--epochs", o.epochs, 1, 1'000'000, "passes over the data, in place of --steps")
      ->default_str("")
      ->excludes(steps);
  options->number("--seed", o.seed, 0, INT64_MAX, "of weights and data");
  options->real("--lr", o.learning_rate, 0, 1e38, "learning rate");
  options->real("--momentum", o.momentum, 0, 1, "factor of the old velocity");
  options->real("--weight-decay", o.weight_decay, 0, 1e38,
                "factor of the weight that is added to its gradient");
  options->choice("--schedule", o.schedule, {"serial", "overlap"}, "order of the stages",
                  {"graph", "auto"});
  add_precision_option(*options, o.precision);
  add_device_option(*options, o.device);
  add_plan_option(*options, o.plan);
  options->number("--workers", o.workers, 1, 256, "loader threads");
  options->number("--slots", o.slots, 1, 16, "batches that may wait between two stages");
  options->text("--init", o.init, "FILE", "encoder weights, safetensors");
  options->choice("--init-scheme", o.scheme, {"he", "torch"}, "how other weights are drawn");
  options->number("--eval", o.held_out, 0, 1'000'000, "held-out scenes for the scores; 0: none");
  options->text("--out", o.out, "DIR",
                "folder for encoder.safetensors, decoder.safetensors and log.jsonl");
  options->text("--log", o.log, "FILE", "JSON lines: a loss a step, then a summary");
  options->text("--json", o.json, "FILE|-", "summary with the environment, as JSON");
  options->flag("--quiet", o.quiet, "no progress and no notes on standard error");
  add_later_option(*app, "--resume");
  app->callback(
      [&selected, values, options] { selected = [values, options] { run(*values, *options); }; });
}

}  // namespace tandem::program
