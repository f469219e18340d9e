// SPDX-License-Identifier: Apache-2.0
// `tandem bench segment` and `bench classify`: steps a second over batch sizes, schedules and
// precisions; every row is checked against an untimed serial run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <tandem/engine/error.hpp>
#include <utility>
#include <vector>

#include "common.hpp"
#include "measure.hpp"
#include "progress.hpp"
#include "published.hpp"

namespace tandem::program {
namespace {

struct BenchOptions {
  std::vector<std::int64_t> batches{8};
  std::vector<std::string> schedules{"serial", "overlap"}, precisions{"fp32"};
  std::int64_t image = 256, classes = 10, workers = 8, warmup = 10, steps = 100, windows = 5;
  std::int64_t slots = 2, seed = 0;
  double learning_rate = 1e-3, momentum = 0, observe = 2;
  std::string input = "loader", scheme = "torch", device = "auto", plan, json;
  std::string augment = "gpu";  // classify
  std::vector<std::string> fuse{"all"};
  bool side_lanes = false, quiet = false;
};

/// What is measured: the networks and their input.
struct Workload {
  const char* name;
  EngineConfig config;
  SegmenterWeights weights;  // of the frozen part, which may be empty, and of the trained one
  std::shared_ptr<const Dataset> data;
  std::optional<LoaderAugment> augment;
};

using Clock = std::chrono::steady_clock;
constexpr double kStageSeconds = 0.2;

/// The bytes of every buffer that outlives a step: weights, velocities, tables, and inputs that lie
/// on the device. One entry a copy of a buffer, in the plan's order.
using Snapshot = std::vector<std::vector<std::byte>>;

template <class Visit>
void for_each_lasting(const Plan& plan, bool inputs, Visit visit) {
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    if (buffer.scope != Scope::persistent && !(inputs && buffer.scope == Scope::input)) continue;
    for (int copy = 0; copy < copies(plan, buffer); ++copy)
      visit(static_cast<BufferId>(b), copy, buffer.bytes);
  }
}

Snapshot snapshot_of(Scheduler& scheduler, bool inputs) {
  Snapshot snapshot;
  for_each_lasting(scheduler.plan(), inputs, [&](BufferId b, int copy, std::size_t bytes) {
    scheduler.read(b, snapshot.emplace_back(bytes).data(), copy);
  });
  return snapshot;
}

void restore(Scheduler& scheduler, bool inputs, const Snapshot& snapshot) {
  auto next = snapshot.begin();
  for_each_lasting(scheduler.plan(), inputs, [&](BufferId b, int copy, std::size_t) {
    scheduler.write(b, (next++)->data(), copy);
  });
}

struct BenchRun {
  std::vector<double> losses;
  Snapshot end;
  std::string weights_sha256;
  std::vector<double>
      step_ends;  // seconds from the start until the host heard that a step was complete
  StageSeconds stage_seconds;
  std::size_t memory_bytes = 0;
  bool verified = false;
  int graphs = 0;
  std::string no_graph_reason, plan_hash;
};

/// Same results to the last bit: of the losses, which may hold a NaN, and of all that lasts.
bool same_results(const BenchRun& a, const BenchRun& b) {
  return a.losses.size() == b.losses.size() &&
         std::memcmp(a.losses.data(), b.losses.data(), a.losses.size() * sizeof(double)) == 0 &&
         a.end == b.end;
}

/// Flips one bit of one weight. For the test that shows `verified` can be false.
void flip_weight_bit(Parameters& parameters) {
  float& weight = parameters.front().data.front();
  std::uint32_t bits;
  std::memcpy(&bits, &weight, sizeof bits);
  bits ^= 1u << 12;
  std::memcpy(&weight, &bits, sizeof bits);
}

/// What a row is measured on.
struct Job {
  Backend& backend;
  EngineConfig config;
  SegmenterWeights weights;
  std::shared_ptr<const Dataset> data;
  LoaderOptions loader;
  bool quiet = false;
  std::optional<Snapshot> start;  // made by the first run, so that others need not make it again
};

/// Compares with `reference`, if there is one, whose hash of the weights is taken over where the
/// results are the same. `on_push` is called before each step; a run that is watched so keeps no
/// results.
BenchRun run_once(Job& job, const std::string& label, const BenchRun* reference,
                  bool with_stage_times, const std::function<void()>& on_push = {}) {
  const EngineConfig& config = job.config;
  BenchRun run;
  const auto steps = static_cast<std::size_t>(job.loader.steps);
  run.losses.reserve(steps);
  run.step_ends.reserve(steps);
  Clock::time_point start;
  Progress progress(label, job.loader.steps, job.quiet);
  Trainer trainer(job.backend, config, [&](const StepResult& result) {
    run.step_ends.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    run.losses.push_back(result.loss);
    progress.update(run.losses.size(), "");
  });
  const bool on_device = config.input_memory == MemoryKind::device;
  if (job.start) {
    restore(trainer.scheduler(), on_device, *job.start);
  } else {
    trainer.set_frozen(job.weights.encoder);
    trainer.set_trained(job.weights.decoder);
    if (on_device) fill_inputs(trainer, config, job.data, job.loader);
    job.start = snapshot_of(trainer.scheduler(), on_device);
  }
  run.plan_hash = full_plan_hash(trainer.scheduler().plan(), job.backend);
  run.memory_bytes =
      trainer.scheduler().memory().device_bytes + trainer.scheduler().memory().pinned_bytes;

  start = Clock::now();
  run_steps(trainer, config, job.data, job.loader, [&] {
    check_interrupt();
    if (on_push) on_push();
  });
  run.graphs = trainer.scheduler().graphs();
  run.no_graph_reason = trainer.scheduler().no_graph_reason();
  if (on_push) return run;
  run.end = snapshot_of(trainer.scheduler(), false);
  run.verified = reference != nullptr && same_results(run, *reference);
  run.weights_sha256 =
      run.verified ? reference->weights_sha256 : parameters_sha256(trainer.trained());
  if (with_stage_times) run.stage_seconds = time_stages(trainer.scheduler(), kStageSeconds);
  return run;
}

struct Rate {
  double median = 0, min = 0, max = 0;
};

/// Steps a second over equal windows of `steps` steps after the warm-up.
Rate steps_per_second(const std::vector<double>& step_ends, std::size_t warmup, std::size_t steps,
                      std::size_t windows) {
  std::vector<double> rates;
  for (std::size_t w = 0; w < windows; ++w) {
    const std::size_t begin = w * steps / windows, end = (w + 1) * steps / windows;
    const double seconds = step_ends[warmup + end - 1] - step_ends[warmup + begin - 1];
    rates.push_back(static_cast<double>(end - begin) / seconds);
  }
  std::sort(rates.begin(), rates.end());
  const std::size_t middle = rates.size() / 2;
  const double median =
      rates.size() % 2 == 1 ? rates[middle] : (rates[middle - 1] + rates[middle]) / 2;
  return {median, rates.front(), rates.back()};
}

/// The same job once more, for `seconds`, with timed events and NVML readings: the run that gave
/// the speed has neither.
Observation observe(Job& job, const Device& device, double rate, double seconds,
                    const std::string& label) {
  if (!device.is_cuda()) return not_observed("the host backend uses no GPU");
  if (seconds == 0) return not_observed("not asked for: --observe 0");
  constexpr int kSkipped = 10, kMostTimed = 200;
  const int steps = std::max(kSkipped + 10, static_cast<int>(rate * seconds));
  const int stages = static_cast<int>(plan_training(job.config).stages.size());
  Observer observer(device, stages, kSkipped, std::min(kMostTimed, steps - kSkipped), seconds / 2);
  job.config.scheduler.stage_timer = observer.timer();
  const std::uint64_t timed_steps =
      std::exchange(job.loader.steps, static_cast<std::uint64_t>(steps));
  run_once(job, label, nullptr, false, [&observer] { observer.on_step(); });
  job.config.scheduler.stage_timer = nullptr;
  job.loader.steps = timed_steps;
  return observer.result();
}

struct RowNames {
  std::string workload;
  std::int64_t batch = 0;
  std::string schedule, precision;
};

Json make_row(const BenchOptions& options, const RowNames& names, const Device& device,
              const BenchRun& run, const Rate& rate, const Observation& seen) {
  Json stages = Json::object();
  double sum = 0, longest = 0;
  for (const auto& [name, seconds] : run.stage_seconds) {
    stages[name] = 1e3 * seconds;
    sum += seconds;
    longest = std::max(longest, seconds);
  }
  Json row;
  row["workload"] = names.workload;
  row["batch"] = names.batch;
  row["image"] = options.image;
  row["classes"] = options.classes;
  row["schedule"] = names.schedule;
  row["precision"] = names.precision;
  row["device"] = device.name;
  row["gpu"] = device.is_cuda() ? Json(device.gpu) : Json(nullptr);
  row["driver"] = device.is_cuda() ? Json(device.driver) : Json(nullptr);
  row["sm_clock_mhz"] = seen.sm_clock_mhz;
  row["memory_clock_mhz"] = seen.memory_clock_mhz;
  row["input"] = options.input;
  row["workers"] = options.input == "loader" ? options.workers : 0;
  row["augment"] = names.workload == "classify" ? Json(options.augment) : Json(nullptr);
  row["warmup"] = options.warmup;
  row["steps"] = options.steps;
  row["windows"] = options.windows;
  row["steps_per_s"] = {{"median", rate.median}, {"min", rate.min}, {"max", rate.max}};
  row["images_per_s"] = rate.median * static_cast<double>(names.batch);
  row["stage_ms"] = stages;
  row["bound"] = run.stage_seconds.empty() ? Json(nullptr) : Json(sum / longest);
  row["gain"] = nullptr;  // known once all rows of the batch have run
  row["gpu_busy_pct"] = seen.gpu_busy_percent;
  row["nvml_util_pct"] = seen.nvml_percent;
  if (!seen.busy_reason.empty()) row["gpu_busy_reason"] = seen.busy_reason;
  if (!seen.nvml_reason.empty()) row["nvml_util_reason"] = seen.nvml_reason;
  row["fuse"] = options.fuse;
  row["side_lanes"] = options.side_lanes;
  row["graphs"] = run.graphs;
  if (!run.no_graph_reason.empty()) row["no_graph_reason"] = run.no_graph_reason;
  row["memory_bytes"] = run.memory_bytes;
  row["plan_hash"] = run.plan_hash;
  row["weights_sha256"] = run.weights_sha256;
  row["verified"] = run.verified;
  return row;
}

/// Speed of each row over that of the serial row with the same batch and precision.
void fill_gains(Json& rows) {
  std::map<std::pair<std::int64_t, std::string>, double> serial;
  const auto key = [](const Json& row) {
    return std::pair(row["batch"].get<std::int64_t>(), row["precision"].get<std::string>());
  };
  const auto speed = [](const Json& row) { return row["steps_per_s"]["median"].get<double>(); };
  for (const Json& row : rows)
    if (row["schedule"] == "serial") serial[key(row)] = speed(row);
  for (Json& row : rows)
    if (const auto found = serial.find(key(row)); found != serial.end())
      row["gain"] = speed(row) / found->second;
}

/// "97.3", or "-" for null.
std::string percent(const Json& value) {
  return value.is_null() ? "-" : fmt::format("{:.1f}", value.get<double>());
}

/// "1.22", or "-" for null.
std::string two_digits(const Json& value) {
  return value.is_null() ? "-" : fmt::format("{:.2f}", value.get<double>());
}

void print_table(const Json& rows) {
  const bool on_gpu = !rows.front()["gpu"].is_null();
  std::string stages;
  for (const auto& [name, ms] : rows.front()["stage_ms"].items())
    stages += fmt::format("{:>11}", name + " ms");
  const std::string gpu_columns = on_gpu ? fmt::format("{:>7}{:>7}", "busy %", "nvml %") : "";
  fmt::print("{:>5} {:>5} {:<8} {:<9}{:>9} {:>19} {:>9}{}{:>7}{:>7}{}{:>10}  {}\n", "batch",
             "image", "schedule", "precision", "steps/s", "(min .. max)", "images/s", stages,
             "bound", "gain", gpu_columns, "MiB", "verified");
  for (const Json& row : rows) {
    const Json& rate = row["steps_per_s"];
    stages.clear();
    for (const auto& [name, ms] : row["stage_ms"].items())
      stages += fmt::format("{:>11.3f}", ms.get<double>());
    fmt::print(
        "{:>5} {:>5} {:<8} {:<9}{:>9.2f} {:>19} {:>9.1f}{}{:>7}{:>7}{}{:>10.1f}  {}\n",
        row["batch"].get<std::int64_t>(), row["image"].get<std::int64_t>(),
        row["schedule"].get<std::string>(), row["precision"].get<std::string>(),
        rate["median"].get<double>(),
        fmt::format("({:.2f} .. {:.2f})", rate["min"].get<double>(), rate["max"].get<double>()),
        row["images_per_s"].get<double>(), stages, two_digits(row["bound"]),
        two_digits(row["gain"]),
        on_gpu
            ? fmt::format("{:>7}{:>7}", percent(row["gpu_busy_pct"]), percent(row["nvml_util_pct"]))
            : "",
        row["memory_bytes"].get<double>() / (1 << 20), row["verified"].get<bool>() ? "yes" : "NO");
  }
  fmt::print(
      "A step: the stages listed; train is forward, loss, backward, update. In the steady state.\n"
      "Stage times: each stage alone.\n"
      "bound: sum of the stage times / the longest. gain: over the serial row of the same batch.\n"
      "verified: losses and weights have the bits of an untimed serial run on the same data.\n");
  if (on_gpu)
    fmt::print(
        "busy: share of time in which a stage was under way, from timed events in a run of its "
        "own;\n"
        "gaps inside a stage count as busy, and it does not say how full the GPU was.\n"
        "nvml: the driver's counter in that run: share of time in which a kernel was running.\n");
}

Workload segment(const BenchOptions& options, std::int64_t batch) {
  const auto seed = static_cast<std::uint64_t>(options.seed);
  return {"segment",
          segmenter_config(options.image, options.classes, batch),
          {},
          make_synthetic(options.image, options.classes, seed),
          {}};
}

Workload classify(const BenchOptions& options, std::int64_t batch) {
  const auto seed = static_cast<std::uint64_t>(options.seed);
  Workload workload{"classify",
                    published_classifier(options.image, options.classes, batch),
                    {},
                    make_synthetic_classes(options.image, options.classes, seed),
                    {}};
  EngineConfig& config = workload.config;
  if (options.augment == "none") {
    config.augment.reset();
  } else {
    // The article feeds values of 0 to 255.
    if (options.scheme == "torch") config.augment->scale = 1.0f;
    config.augment_on_cpu = options.augment == "cpu";
    workload.augment =
        LoaderAugment{*config.augment, AugmentRanges{}, seed, config.augment_on_cpu, false};
  }
  return workload;
}

/// A workload for a batch size.
using MakeWorkload = Workload (*)(const BenchOptions& options, std::int64_t batch);

void run(const BenchOptions& options, const Options& declared, MakeWorkload make_workload) {
  if (options.steps < options.windows)
    throw Error(ErrorCode::usage, fmt::format("--steps is {}; allowed: at least --windows, {}",
                                              options.steps, options.windows));
  if (options.augment == "cpu" && options.input == "device")
    throw Error(ErrorCode::usage,
                "--augment cpu is done by loader threads; --input device has none");
  const Device device = open_device(options.device, options.plan);
  std::vector<Precision> precisions;
  for (const std::string& name : options.precisions) precisions.push_back(precision(name, device));
  if (!options.json.empty() && options.json != "-") check_writable("--json", options.json);
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const char* flip = std::getenv("TANDEM_TEST_FLIP_WEIGHT_BIT");
  const bool flip_bit = flip != nullptr && std::strcmp(flip, "1") == 0;
  const bool overlaps = std::any_of(options.schedules.begin(), options.schedules.end(),
                                    [](const std::string& name) { return name != "serial"; });
  if (!options.quiet)
    announce(device, stream_count(plan_training(make_workload(options, 1).config),
                                  overlaps ? Schedule::overlap : Schedule::serial));
  watch_interrupt();

  Json rows = Json::array();
  for (const std::int64_t batch : options.batches) {
    Workload workload = make_workload(options, batch);
    EngineConfig& config = workload.config;
    config.momentum = options.momentum != 0;
    config.slots = static_cast<int>(options.slots);
    config.fuse = fuse_options(options.fuse);
    config.scheduler.side_lanes = options.side_lanes;
    config.input_memory = options.input == "device" ? MemoryKind::device : MemoryKind::pinned;
    // The article feeds the bytes as they are.
    if (options.scheme == "torch") config.input_scale = 1.0f;
    workload.weights = initial_segmenter(config, init_scheme(options.scheme), seed);
    LoaderOptions loader;
    loader.workers = static_cast<int>(options.workers);
    loader.batch = batch;
    // The host hears of a step when it issues the one `window` later; with as many steps behind the
    // measured ones, every measured step is heard of equally late.
    const int behind = plan_training(config).window();
    loader.steps = static_cast<std::uint64_t>(options.warmup + options.steps + behind);
    loader.classes = options.classes;
    loader.learning_rate = static_cast<float>(options.learning_rate);
    loader.momentum = static_cast<float>(options.momentum);
    loader.augment = workload.augment;

    for (std::size_t p = 0; p < precisions.size(); ++p) {
      config.precision = precisions[p];
      config.scheduler.schedule = Schedule::serial;
      // A backend of its own, so that the plan's hash is of its own algorithms only.
      const std::unique_ptr<Backend> backend = make_backend(device);
      const std::string label = fmt::format("batch {} {}", batch, options.precisions[p]);
      Job job{*backend, config, workload.weights, workload.data, loader, options.quiet, {}};
      const BenchRun reference = run_once(job, label + " reference", nullptr, false);
      if (flip_bit) {
        flip_weight_bit(job.weights.decoder);
        job.start.reset();
      }
      for (const std::string& schedule_name : options.schedules) {
        job.config.scheduler.schedule = schedule(schedule_name);
        const BenchRun timed =
            run_once(job, label + " " + schedule_name, &reference, options.observe > 0);
        const Rate rate = steps_per_second(
            timed.step_ends, static_cast<std::size_t>(options.warmup),
            static_cast<std::size_t>(options.steps), static_cast<std::size_t>(options.windows));
        const Observation seen = observe(job, device, rate.median, options.observe,
                                         label + " " + schedule_name + " observed");
        rows.push_back(make_row(options,
                                {workload.name, batch, schedule_name, options.precisions[p]},
                                device, timed, rate, seen));
      }
    }
  }
  fill_gains(rows);

  Json json;
  json["schema"] = 1;
  json["command"] = "bench";
  json["environment"] = environment();
  json["config"] = declared.effective();
  json["rows"] = rows;
  write_json(options.json, json);
  if (options.json != "-") print_table(rows);
  for (const Json& row : rows) {
    if (!row.contains("no_graph_reason") || options.quiet) continue;
    say(fmt::format("schedule graph issues its steps without a graph: {}\n",
                    row["no_graph_reason"].get<std::string>()));
    break;
  }
  const auto wrong = std::count_if(rows.begin(), rows.end(),
                                   [](const Json& row) { return !row["verified"].get<bool>(); });
  if (wrong > 0)
    throw Error(ErrorCode::run_failed,
                fmt::format("{} of {} differ from an untimed serial run on the same data", wrong,
                            count_of(static_cast<std::int64_t>(rows.size()), "row")));
}

void add_workload(CLI::App& bench, Command& selected, const char* name, const char* help,
                  MakeWorkload make) {
  CLI::App* app = bench.add_subcommand(name, help);
  auto values = std::make_shared<BenchOptions>();
  auto options = std::make_shared<Options>(*app);
  BenchOptions& o = *values;
  options->numbers("--batch", o.batches, 1, kMaxBatch, "samples a step");
  options->choices("--schedule", o.schedules, {"serial", "overlap", "graph"},
                   "orders of the stages; graph: overlap, captured once and launched", {"auto"});
  add_fuse_option(*options, o.fuse);
  options->flag("--side-lanes", o.side_lanes, "weight updates on streams beside their stage's");
  add_precisions_option(*options, o.precisions);
  options->image(o.image);
  options->number("--classes", o.classes, 2, 254, "classes");
  options->choice("--input", o.input, {"loader", "device"},
                  "loader threads, or a few batches that already lie on the device");
  options->number("--workers", o.workers, 1, 256, "loader threads");
  options->number("--warmup", o.warmup, 1, 1'000'000, "steps before the measured ones");
  options->number("--steps", o.steps, 3, 1'000'000, "measured steps");
  options->number("--windows", o.windows, 3, 1000,
                  "parts of the measured steps, for median, min and max");
  if (std::strcmp(name, "classify") == 0)
    options->choice("--augment", o.augment, {"none", "cpu", "gpu"},
                    "no augmentation, in the loader's threads, or as a stage of its own");
  add_device_option(*options, o.device);
  add_plan_option(*options, o.plan);
  options->real("--observe", o.observe, 0, 3600,
                "seconds of an extra run for busy, NVML and clocks of a GPU; 0: none, and no "
                "times of the stages");
  options->number("--slots", o.slots, 1, 16, "batches that may wait between two stages");
  options->number("--seed", o.seed, 0, INT64_MAX, "of weights and data");
  options->choice("--init-scheme", o.scheme, {"torch", "he"},
                  "torch: the article's weights and bytes as they are; he: bytes / 255");
  options->real("--lr", o.learning_rate, 0, 1e38, "learning rate");
  options->real("--momentum", o.momentum, 0, 1, "factor of the old velocity");
  options->text("--json", o.json, "FILE|-", "rows with the environment, as JSON");
  options->flag("--quiet", o.quiet, "no progress and no notes on standard error");
  app->callback([&selected, values, options, make] {
    selected = [values, options, make] { run(*values, *options, make); };
  });
}

}  // namespace

void add_bench(CLI::App& root, Command& selected) {
  CLI::App* app = root.add_subcommand("bench", "Measures throughput");
  add_workload(*app, selected, "segment", "Partial training of the segmenter on random pictures",
               segment);
  add_workload(*app, selected, "classify",
               "Training of the classifier on random pictures, each augmented anew", classify);
  add_bench_overlap(*app, selected);
  add_later_command(*app, "resnet18");
}

}  // namespace tandem::program
