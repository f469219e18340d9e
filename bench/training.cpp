// SPDX-License-Identifier: Apache-2.0
#include "training.hpp"

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
#include <tandem/engine/error.hpp>
#include <tandem/engine/safetensors.hpp>
#include <utility>

#include "batch_probe.hpp"
#include "files.hpp"
#include "held_out.hpp"
#include "progress.hpp"

namespace tandem::program {
namespace {

namespace fs = std::filesystem;

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

std::string in_folder(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

/// Writes each line to several files at once, so that an interrupted run leaves its losses. The one
/// in the folder of --out gets its name when the weights do: what lies there belongs together.
class Log {
 public:
  /// Refuses what could not be written to, or is one of the files `all` that are read. Creates
  /// nothing.
  static void check_all(const TrainOptions& options, const std::vector<OutFile>& files,
                        std::vector<NamedFile> all = {}) {
    all.insert(all.end(), {{"--log", options.log}, {"--json", options.json}});
    if (!options.out.empty()) {
      for (const OutFile& file : files)
        all.push_back({"a file of --out", in_folder(options.out, file.name)});
      for (const char* name : {kLogFile, kUnfinishedLogFile})
        all.push_back({"a file of --out", in_folder(options.out, name)});
    }
    check_distinct(all);
    if (!options.log.empty()) check_writable("--log", options.log);
    check_json(options.json);
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
  void open_all(const TrainOptions& options, const std::vector<OutFile>& files) {
    check_all(options, files);
    if (!options.out.empty()) {
      std::error_code error;
      fs::create_directories(options.out, error);
      if (error)
        throw Error(ErrorCode::data,
                    fmt::format("--out {}: cannot be created: {}", options.out, error.message()));
      lock_.take(options.out);
      for (const OutFile& file : files)
        check_replaceable("--out", in_folder(options.out, file.name));
      log_ = in_folder(options.out, kLogFile);
      unfinished_ = in_folder(options.out, kUnfinishedLogFile);
      for (const std::string& path : {log_, unfinished_}) check_replaceable("--out", path);
      open(unfinished_);
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

  /// The weights and the whole log are written.
  void finish() {
    if (unfinished_.empty()) return;
    std::error_code error;
    fs::rename(unfinished_, log_, error);
    if (error)
      throw Error(ErrorCode::data, fmt::format("{}: cannot be written: {}", log_, error.message()));
    unfinished_.clear();
  }

  /// The file of --out that a run without weights leaves; empty if there is none.
  const std::string& unfinished() const noexcept { return unfinished_; }

 private:
  void open(const std::string& path) {
    files_.emplace_back(path, std::ios::trunc);
    if (!files_.back())
      throw Error(ErrorCode::data,
                  fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
    paths_.push_back(path);
  }

  FolderLock lock_;
  std::string log_, unfinished_;
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

std::string number(const Json& value, int digits, const char* none = "none") {
  return value.is_null() ? none : fmt::format("{:.{}f}", value.get<double>(), digits);
}

LastBatch last_batch(const std::string& name) {
  if (name == "drop") return LastBatch::drop;
  return name == "pad" ? LastBatch::pad : LastBatch::partial;
}

/// Steps between two looks at the held-out data, in the order of the samples.
struct Pass {
  std::uint64_t first_step = 0, steps = 0;
  std::int64_t first_sample = 0, samples = 0;
};

/// Cuts a run into passes: one an epoch, the last perhaps shorter, or a single one.
class Passes {
 public:
  Passes(const TrainOptions& options, const TrainJob& job) : batch_(options.batch) {
    const auto steps = static_cast<std::uint64_t>(options.steps);
    if (!job.in_epochs && options.epochs == 0) {
      total_ = steps_an_epoch_ = steps;
      epoch_size_ = options.steps * batch_;
      return;
    }
    epoch_size_ = job.data->epoch_size();
    steps_an_epoch_ = batches_of(epoch_size_, batch_, last_batch(options.last_batch));
    total_ =
        options.epochs > 0 ? static_cast<std::uint64_t>(options.epochs) * steps_an_epoch_ : steps;
  }

  std::uint64_t total() const { return total_; }

  /// The pass that starts at `step`.
  Pass at(std::uint64_t step) const {
    Pass pass;
    pass.first_step = step;
    pass.steps = std::min(steps_an_epoch_, total_ - step);
    pass.first_sample = static_cast<std::int64_t>(step / steps_an_epoch_) * epoch_size_;
    pass.samples = pass.steps == steps_an_epoch_ ? epoch_size_
                                                 : static_cast<std::int64_t>(pass.steps) * batch_;
    return pass;
  }

 private:
  std::int64_t batch_, epoch_size_ = 0;
  std::uint64_t steps_an_epoch_ = 0, total_ = 0;
};

constexpr const char* kAuto = "auto";
constexpr const char* kNoWeights = "no weights were written";

struct TrainRun {
  std::vector<std::optional<double>> losses;  // nothing where a batch had no valid label
  double seconds = 0, processor_seconds = 0;  // of the steps alone
  std::int64_t samples = 0;
  Parameters trained;
  std::string plan_hash;
  Json epochs = Json::array();
  std::optional<Confusion> confusion;  // after the last pass
  bool scored = true;                  // false: stopped while the last pass was scored
};

Error stopped(const TrainRun& run, const Passes& passes, const std::string& what) {
  return Error(ErrorCode::interrupted,
               fmt::format("interrupted after {} of {}; {}", run.losses.size(),
                           count_of(passes.total(), "step"), what));
}

/// Scores the weights so far; false if the user stopped it.
bool score(SamplePredictor& held_out, const TrainJob& job, TrainRun& run) {
  run.confusion.reset();
  try {
    run.confusion = held_out.score(job.frozen, run.trained);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::interrupted) throw;
  }
  return run.confusion.has_value();
}

LoaderOptions loader_options(const TrainOptions& options, const TrainJob& job) {
  LoaderOptions loader;
  loader.workers = static_cast<int>(options.workers);
  loader.batch = options.batch;
  loader.last_batch = last_batch(options.last_batch);
  loader.augment = job.augment;
  loader.classes = job.data->classes();
  loader.learning_rate = static_cast<float>(options.learning_rate);
  loader.momentum = static_cast<float>(options.momentum);
  loader.weight_decay = static_cast<float>(options.weight_decay);
  return loader;
}

/// What a sample is.
std::string noun(const TrainJob& job) {
  if (job.config.features > 0) return "row";
  return job.labels == Labels::pixels ? "scene" : "picture";
}

/// One line of an epoch for the log, and the same for people.
Json epoch_line(const TrainRun& run, Labels labels, std::size_t first_step) {
  const KeyScores keys = key_scores(labels);
  const Json all = scores(labels, run.confusion);
  Json line;
  line["epoch"] = run.epochs.size() + 1;
  line["steps"] = run.losses.size();
  line["mean_loss"] = mean_loss(run.losses, first_step, run.losses.size());
  for (const char* key : {keys.first, keys.second}) line[key] = all[key];
  return line;
}

std::string for_people(const Json& line, Labels labels) {
  std::string text =
      fmt::format("epoch {}: mean loss {}", line["epoch"].dump(), number(line["mean_loss"], 4));
  if (const Json& score = line[key_scores(labels).first]; !score.is_null())
    text += fmt::format(", held out {} {}", key_scores(labels).first, number(score, 4));
  return text;
}

/// The steps of a pass; false if the user stopped it.
bool run_pass(Trainer& trainer, const TrainJob& job, LoaderOptions loader_options,
              const Pass& pass) {
  loader_options.first_step = pass.first_step;
  loader_options.steps = pass.steps;
  loader_options.first_sample = pass.first_sample;
  loader_options.samples = pass.samples;
  Loader loader(job.data, loader_options, trainer.inputs(),
                [&trainer](int slot) { trainer.wait_input_free(slot); });
  bool stopped = false;
  for (int slot; !(stopped = interrupted()) && (slot = loader.next()) >= 0;) {
    trainer.step(slot);
    loader.submitted(slot);
  }
  trainer.finish();
  return !stopped;
}

TrainRun train(Backend& backend, const TrainJob& job, const TrainOptions& options,
               const Passes& passes, Log& log) {
  TrainRun run;
  Progress progress("train", passes.total(), options.quiet);
  const auto note = [&](const std::string& text) {
    if (!options.quiet) progress.note(text);
  };
  Trainer trainer(backend, job.config, [&](const StepResult& result) {
    const bool valid = result.valid_count > 0;
    run.losses.push_back(valid ? std::optional(result.loss) : std::nullopt);
    log.write({{"step", result.step}, {"loss", valid ? Json(result.loss) : Json(nullptr)}});
    progress.update(run.losses.size(),
                    valid ? fmt::format("loss {:.4f}", result.loss) : "no valid label");
  });
  trainer.set_frozen(job.frozen);
  trainer.set_trained(job.trained);
  run.plan_hash = full_plan_hash(trainer.scheduler().plan(), backend);
  const MemoryPlan& memory = trainer.scheduler().memory();
  note(fmt::format("memory {:.1f} MiB device, {:.1f} MiB pinned; plan {}",
                   static_cast<double>(memory.device_bytes) / (1 << 20),
                   static_cast<double>(memory.pinned_bytes) / (1 << 20), run.plan_hash));
  std::optional<SamplePredictor> held_out;
  if (job.held_out)
    held_out.emplace(
        backend, job.config,
        Samples{job.held_out, options.held_out, static_cast<int>(options.workers), job.augment});
  // Only now: a run that cannot start leaves nothing behind.
  log.open_all(options, job.files);

  const LoaderOptions loader = loader_options(options, job);
  bool told_reason = false;
  for (std::uint64_t step = 0; step < passes.total();) {
    const Pass pass = passes.at(step);
    const auto start = std::chrono::steady_clock::now();
    const double processor_start = processor_seconds();
    const bool done = run_pass(trainer, job, loader, pass);
    run.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    run.processor_seconds += processor_seconds() - processor_start;
    if (const std::string& reason = trainer.scheduler().no_graph_reason();
        !reason.empty() && !std::exchange(told_reason, true))
      note("schedule graph issues its steps without a graph: " + reason);
    run.samples += std::min(pass.samples, static_cast<std::int64_t>(pass.steps) * options.batch);
    step += pass.steps;
    if (!done) throw stopped(run, passes, kNoWeights);
    run.trained = trainer.trained();
    // Before the scores, which take a while.
    const bool wrote = step == passes.total() && !options.out.empty();
    if (wrote)
      for (const OutFile& file : job.files)
        file.write(in_folder(options.out, file.name), run.trained);
    if (held_out) {
      note(fmt::format("scoring {}{}", job.skips_broken ? "up to " : "",
                       count_of(options.held_out, "held-out " + noun(job))));
      run.scored = score(*held_out, job, run);
      if (!run.scored && !wrote) throw stopped(run, passes, kNoWeights);
    }
    if (job.in_epochs || options.epochs > 0) {
      run.epochs.push_back(epoch_line(run, job.labels, pass.first_step));
      log.write(run.epochs.back());
      note(for_people(run.epochs.back(), job.labels));
    }
  }
  return run;
}

void print_epochs(const Json& epochs, Labels labels) {
  const KeyScores keys = key_scores(labels);
  fmt::print("{:>5} {:>9} {:>10}  {:>14}  {}\n", "epoch", "steps", "mean loss", keys.first,
             keys.second);
  for (const Json& line : epochs)
    fmt::print("{:>5} {:>9} {:>10}  {:>14}  {}\n", line["epoch"].dump(), line["steps"].dump(),
               number(line["mean_loss"], 4), number(line[keys.first], 4),
               number(line[keys.second], 4));
}

void print_summary(const Json& summary, const TrainJob& job) {
  const auto value = [&](const char* key, int digits) { return number(summary[key], digits); };
  const std::string input = job.config.features > 0
                                ? count_of(job.config.features, "feature")
                                : fmt::format("{0} x {0} pixels", summary["image"].dump());
  fmt::print("{:<11} {}, {} classes, batch {}, {}\n", printable(job.workload), input,
             summary["classes"].dump(), summary["batch"].dump(),
             count_of(summary["steps"].get<std::int64_t>(), "step"));
  fmt::print("schedule    {} on {}, {}, {} cores used\n", summary["schedule"].get<std::string>(),
             summary["device"].get<std::string>(), summary["precision"].get<std::string>(),
             value("cores", 2));
  fmt::print("speed       {} steps/s, {} {}/s\n", value("steps_per_s", 2), value("images_per_s", 1),
             job.config.features > 0 ? "rows" : "images");
  fmt::print("loss        {} -> {} (means of the first and last 10 % of the steps)\n",
             value("first_loss", 4), value("last_loss", 4));
  if (!summary["epochs"].empty()) print_epochs(summary["epochs"], job.labels);
  if (job.held_out)
    print_scores(job.labels, summary, job.data->class_names(),
                 count_of(summary["eval"].get<std::int64_t>(), noun(job)));
  if (const Json& broken = summary["broken_files"]; !broken.empty()) {
    fmt::print("skipped     {}\n", count_of(static_cast<std::int64_t>(broken.size()), "file"));
    for (const Json& file : broken)
      fmt::print("  {}\n", printable(file["file"].get<std::string>()));
  }
  fmt::print("weights     sha256 {}\n", summary["weights_sha256"].get<std::string>());
}

Json summarise(const TrainOptions& options, const Device& device, const TrainJob& job,
               const TrainRun& run) {
  const std::size_t steps = run.losses.size();
  const std::size_t tenth = std::max<std::size_t>(1, steps / 10);
  Json summary;
  summary["workload"] = job.workload;
  summary["device"] = device.name;
  summary["gpu"] = device.is_cuda() ? Json(device.gpu) : Json(nullptr);
  summary["schedule"] = options.schedule;
  summary["precision"] = options.precision;
  summary["batch"] = options.batch;
  const std::int64_t features = job.config.features;
  summary["image"] = features > 0 ? Json(nullptr) : Json(job.config.image);
  summary["features"] = features > 0 ? Json(features) : Json(nullptr);
  summary["classes"] = job.data->classes();
  summary["steps"] = steps;
  summary["seed"] = options.seed;
  summary["eval"] =
      run.confusion ? scored_samples(job.labels, *run.confusion, options.held_out) : 0;
  summary["cores"] = run.processor_seconds / run.seconds;
  summary["first_loss"] = mean_loss(run.losses, 0, tenth);
  summary["last_loss"] = mean_loss(run.losses, steps - tenth, steps);
  summary["steps_per_s"] = static_cast<double>(steps) / run.seconds;
  summary["images_per_s"] = static_cast<double>(run.samples) / run.seconds;
  summary.update(scores(job.labels, run.confusion));
  summary["epochs"] = run.epochs;
  summary["class_names"] = job.data->class_names();
  summary["broken_files"] = job.broken ? job.broken->json() : Json::array();
  summary["weights_sha256"] = parameters_sha256(run.trained);
  summary["plan_hash"] = run.plan_hash;
  return summary;
}

/// The engine as the options want it; `auto` overlaps until it is known what pays.
void configure(const TrainOptions& options, const Device& device, EngineConfig& config) {
  config.batch = options.batch;
  config.precision = precision(options.precision, device);
  config.momentum = options.momentum != 0;
  config.slots = static_cast<int>(options.slots);
  config.scheduler.schedule =
      options.schedule == kAuto ? Schedule::overlap : schedule(options.schedule);
  config.fuse = fuse_options(options.fuse);
  config.scheduler.side_lanes = side_lanes(options.side_lanes, device);
}

/// Trials of this very job, with its data and its loader.
TrainingProbe probe_of(const TrainOptions& options, const TrainJob& job, const Device& device) {
  ProbeJob tried{job.config,
                 job.frozen,
                 job.trained,
                 job.data,
                 loader_options(options, job),
                 job.held_out != nullptr};
  tried.loader.learning_rate = 0;  // nothing is learnt in trials, nor can it diverge there
  return {device, std::move(tried), [quiet = options.quiet](std::int64_t batch) {
            if (!quiet) say(fmt::format("train: trial of batch {}\n", batch));
          }};
}

double trial_seconds(const TrainOptions& options) {
  return 1e-3 * static_cast<double>(options.trial_ms);
}

/// Tries batch sizes and takes the recommended one.
BatchAnswer recommended_batch(const TrainOptions& options, const TrainJob& job,
                              const Device& device) {
  FinderOptions finder;
  if (job.in_epochs || options.epochs > 0) finder.samples = job.data->epoch_size();
  finder.memory_bytes = free_memory(device);
  finder.refinements = 0;  // the edge of memory is not asked for
  finder.measured_seconds = trial_seconds(options);
  finder.trial_seconds = std::max(10.0, finder.measured_seconds);
  finder.may_be_narrower = device.is_cuda() && job.config.precision != Precision::bf16;
  finder.seed = static_cast<std::uint64_t>(options.seed);
  TrainingProbe probe = probe_of(options, job, device);
  finder.limit = probe.largest_batch();
  return find_batch(probe, finder).recommended;
}

/// What overlapping brings to this job: trials in both orders.
OverlapSeen try_overlap(const TrainOptions& options, const TrainJob& job, const Device& device) {
  constexpr std::int64_t kWarmup = 3, kSteps = 3, kRepeats = 3;
  return probe_of(options, job, device)
      .see_overlap(options.batch, kWarmup, kSteps, trial_seconds(options), kRepeats);
}

}  // namespace

void add_training_options(Options& options, TrainOptions& o) {
  options.number_or_auto("--batch", o.batch, 1, kMaxBatch,
                         "samples a step; auto: what the finder recommends for this training");
  CLI::Option* steps = options.number("--steps", o.steps, 1, 1'000'000'000, "optimizer steps");
  options.number("--epochs", o.epochs, 1, 1'000'000, "passes over the data, in place of --steps")
      ->default_str("")
      ->excludes(steps);
  options.choice("--last-batch", o.last_batch, {"partial", "pad", "drop"},
                 "what becomes of samples that do not fill an epoch's last batch: a smaller batch, "
                 "one filled up with copies that count nothing, or none");
  options.number("--seed", o.seed, 0, INT64_MAX, "of weights and data");
  options.real("--lr", o.learning_rate, 0, 1e38, "learning rate");
  options.real("--momentum", o.momentum, 0, 1, "factor of the old velocity");
  options.real("--weight-decay", o.weight_decay, 0, 1e38,
               "factor of the weight that is added to its gradient");
  options.choice("--schedule", o.schedule, {"serial", "overlap", "graph", kAuto},
                 "order of the stages; graph: overlap, captured once and launched; auto: overlap "
                 "where trials of this training say that it pays, else serial");
  options.number("--trial-ms", o.trial_ms, 0, 1'000'000,
                 "milliseconds that each trial for an option that is auto measures at least");
  add_fuse_option(options, o.fuse);
  add_side_lanes_option(options, o.side_lanes);
  add_precision_option(options, o.precision);
  add_device_option(options, o.device);
  add_plan_option(options, o.plan);
  options.number("--workers", o.workers, 1, 256, "loader threads");
  options.number("--slots", o.slots, 1, 16, "batches that may wait between two stages");
  options.choice("--init-scheme", o.scheme, {"he", "torch"}, "how other weights are drawn");
  options.text("--log", o.log, "FILE", "JSON lines: a loss a step, a line an epoch, a summary");
  options.text("--json", o.json, "FILE|-", "summary with the environment, as JSON");
  options.flag("--quiet", o.quiet, "no progress and no notes on standard error");
  add_later_option(options.app(), "--resume");
}

void add_training_options(Options& options, TrainOptions& values, AugmentChoice& augment) {
  options.flag("--no-shuffle", values.no_shuffle,
               "records in the order of their files in each epoch");
  add_augment_options(options, augment);
  add_training_options(options, values);
}

Device open_training_device(const TrainOptions& options) {
  watch_interrupt();
  Device device = open_device(options.device, options.plan);
  precision(options.precision, device);  // throws for what the device does not compute
  return device;
}

void open_training_data(TrainOptions& options, bool eval_given, const DataChoice& choice,
                        DataRequest request, TrainJob& job) {
  if (!has_held_out(choice)) {
    if (eval_given && options.held_out > 0)
      throw Error(ErrorCode::usage, fmt::format("--eval is {}, but {} has nothing held out; "
                                                "allowed: 0",
                                                options.held_out, choice.data));
    options.held_out = 0;
  }
  auto broken = std::make_shared<BrokenFiles>();
  request.broken = broken;
  job.broken = broken;
  job.skips_broken = data_name(choice) == "folder" && choice.broken == "skip";
  job.labels = request.labels;
  job.config.features = request.features;
  job.in_epochs = !is_generated(choice);
  request.split = Split::train;
  job.data = open_data(choice, request);
  if (job.in_epochs && !options.no_shuffle) job.data = shuffled(job.data, request.seed);
  if (options.held_out == 0) return;
  request.split = Split::held_out;
  job.held_out = open_data(choice, request);
  const std::int64_t all = job.held_out->epoch_size();
  if (options.held_out < 0) options.held_out = all;
  if (job.in_epochs && options.held_out > all)
    throw Error(ErrorCode::usage,
                fmt::format("--eval is {}, but {} has {} to score; allowed: 0 to "
                            "{}",
                            options.held_out, choice.data, count_of(all, noun(job)), all));
}

void put_initial(const std::string& path, const std::vector<Sequential>& models,
                 Parameters& values) {
  Parameters read = read_safetensors(path);
  const auto model = std::find_if(models.begin(), models.end() - 1, [&](const Sequential& one) {
    return one.parameters().size() == read.size();
  });
  check_parameters(*model, read, path);
  std::move(read.begin(), read.end(), values.begin());
}

void run_training(TrainOptions& options, const Options& declared, const Device& device,
                  TrainJob job) {
  EngineConfig& config = job.config;
  configure(options, device, config);
  Log::check_all(options, job.files, input_files(declared.app()));
  const auto note = [&](const std::string& text) {
    if (!options.quiet) say(text + "\n");
  };
  Json found = Json::object();  // what was found out for `auto`
  if (options.batch == 0) {
    const BatchAnswer answer = recommended_batch(options, job, device);
    options.batch = config.batch = answer.batch;
    found["batch_reason"] = answer.reason;
    note(fmt::format("batch {}: {}", answer.batch, answer.reason));
  }
  if (options.schedule == kAuto) {
    const OverlapSeen seen = try_overlap(options, job, device);
    const OverlapAnswer answer = judge_overlap(seen);
    options.schedule = answer.overlap_is_worth_it() ? "overlap" : "serial";
    config.scheduler.schedule = schedule(options.schedule);
    found["schedule_reason"] = answer.sentence;
    add_overlap(found["schedule_trials"], seen, answer);
    note(fmt::format("schedule {}: {}", options.schedule, answer.sentence));
  }
  const Passes passes(options, job);
  announce(device, stream_count(plan_training(config), config.scheduler), options.quiet);

  Log log;
  const std::unique_ptr<Backend> backend = make_backend(device);
  TrainRun run;
  try {
    run = train(*backend, job, options, passes, log);
  } catch (const Error& error) {
    if (log.unfinished().empty()) throw;
    throw Error(error.code(), fmt::format("{}; the log is {}", error.what(), log.unfinished()),
                error.hint());
  }
  Json summary = summarise(options, device, job, run);
  summary.update(found);
  summary["config"] = declared.effective();
  if (options.epochs > 0) summary["config"].erase("steps");  // it follows

  log.write({{"summary", summary}});
  log.finish();
  if (!run.scored)
    throw stopped(run, passes,
                  fmt::format("the weights were written to {}, without scores", options.out));
  write_json(options.json, {{"schema", 1}, {"environment", environment()}, {"summary", summary}});
  if (options.json != "-") print_summary(summary, job);
}

Confusion train_and_score(const TrainOptions& options, const Device& device, TrainJob job) {
  configure(options, device, job.config);
  Log log;
  const std::unique_ptr<Backend> backend = make_backend(device);
  const TrainRun run = train(*backend, job, options, Passes(options, job), log);
  return run.confusion.value();
}

}  // namespace tandem::program
