// SPDX-License-Identifier: Apache-2.0
// `tandem bench segment` and `bench classify`: steps a second over batch sizes, schedules and
// precisions; every row is checked against an untimed serial run. With --serve, block after block
// of the same rows, for a caller that measures something else in between.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tandem/engine/buffer.hpp>
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
  std::string side_lanes = "auto";
  bool serve = false, quiet = false;
};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
constexpr double kStageSeconds = 0.2;
constexpr std::int64_t kDepthsAWindow = 5;  // of the steps under way, for a window that says much
constexpr double kMostObserved = 3600;

/// What the rows of one batch size and precision share.
struct Job {
  std::string workload;
  std::int64_t batch = 0;
  std::string precision;
  std::unique_ptr<Backend> backend;
  double backend_seconds = 0;  // until it was there, with its algorithms chosen
  EngineConfig config;         // with the serial schedule
  std::shared_ptr<const SegmenterWeights> weights;
  std::shared_ptr<const Dataset> data;
  LoaderOptions loader;
  bool quiet = false;
  Stream copies;  // for what follows

  /// The bytes of every buffer that outlives a step: weights, velocities, tables, and, only at the
  /// start, inputs that lie on the device. One after the other, in the plan's order.
  Memory start;           // made by the first run
  Memory expected, seen;  // at the end: of the reference, and of the run that is compared with it
  std::vector<double> losses;  // of the reference
  std::string weights_sha256;  // likewise

  bool inputs_on_device() const { return config.input_memory == MemoryKind::device; }
};

template <class Visit>
void for_each_lasting(const Plan& plan, bool inputs, Visit visit) {
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    if (buffer.scope != Scope::persistent && !(inputs && buffer.scope == Scope::input)) continue;
    for (int copy = 0; copy < copies(plan, buffer); ++copy)
      visit(static_cast<BufferId>(b), copy, buffer.bytes);
  }
}

/// Fills `snapshot`, which is allocated at its first use.
void take_snapshot(const Job& job, const Scheduler& scheduler, bool inputs, Memory& snapshot) {
  std::size_t size = 0;
  for_each_lasting(scheduler.plan(), inputs,
                   [&](BufferId, int, std::size_t bytes) { size += bytes; });
  if (snapshot.bytes() == 0)
    snapshot = Memory(*job.backend, size, MemoryKind::pinned, "the state of a trainer");
  auto* next = static_cast<std::byte*>(snapshot.data());
  for_each_lasting(scheduler.plan(), inputs, [&](BufferId b, int copy, std::size_t bytes) {
    copy_and_wait(job.copies.get(), next, scheduler.address(b, copy), bytes);
    next += bytes;
  });
}

void restore_start(const Job& job, const Scheduler& scheduler) {
  const auto* next = static_cast<const std::byte*>(job.start.data());
  for_each_lasting(scheduler.plan(), job.inputs_on_device(),
                   [&](BufferId b, int copy, std::size_t bytes) {
                     copy_and_wait(job.copies.get(), scheduler.address(b, copy), next, bytes);
                     next += bytes;
                   });
}

/// The job's steps on one trainer, any number of times.
class Runner {
 public:
  Runner(std::shared_ptr<Job> the_job, const std::string& the_schedule, StageTimer* timer = nullptr)
      : job(std::move(the_job)),
        schedule(the_schedule),
        config_(config_of(*job, the_schedule, timer)),
        trainer_(*job->backend, config_, [this](const StepResult& result) { deliver(result); }),
        prepare_seconds_(job->backend_seconds + seconds_since(start_)) {}

  /// Trains the steps from the start. `on_push` is called before each.
  void run(std::uint64_t steps, const std::string& label,
           const std::function<void()>& on_push = {}) {
    LoaderOptions loader = job->loader;
    loader.steps = steps;
    losses.clear();
    step_ends.clear();
    losses.reserve(steps);
    step_ends.reserve(steps);
    if (job->start.bytes() > 0) {
      restore_start(*job, scheduler());
    } else {
      trainer_.set_frozen(job->weights->encoder);
      trainer_.set_trained(job->weights->decoder);
      if (job->inputs_on_device()) fill_inputs(trainer_, config_, job->data, loader);
      take_snapshot(*job, scheduler(), job->inputs_on_device(), job->start);
    }
    progress_.emplace(fmt::format("batch {} {} {}", job->batch, job->precision, label), steps,
                      job->quiet);
    start_ = Clock::now();
    run_steps(trainer_, config_, job->data, loader, [&] {
      check_interrupt();
      if (on_push) on_push();
    });
    progress_.reset();
  }

  /// Whether the last run has the losses, which may hold a NaN, and the end of the reference, to
  /// the last bit.
  bool same_as_reference() {
    take_snapshot(*job, scheduler(), false, job->seen);
    return losses.size() == job->losses.size() &&
           std::memcmp(losses.data(), job->losses.data(), losses.size() * sizeof(double)) == 0 &&
           std::memcmp(job->seen.data(), job->expected.data(), job->expected.bytes()) == 0;
  }

  std::string weights_sha256() const { return parameters_sha256(trainer_.trained()); }
  Scheduler& scheduler() { return trainer_.scheduler(); }
  const SchedulerOptions& options() const { return config_.scheduler; }
  /// From nothing, the backend included, to a trainer that could take its weights.
  double prepare_seconds() const { return prepare_seconds_; }

  const std::shared_ptr<Job> job;
  const std::string schedule;
  std::vector<double> losses;  // of the last run
  std::vector<double>
      step_ends;  // seconds from the start until the host heard that a step was complete

 private:
  static EngineConfig config_of(const Job& job, const std::string& name, StageTimer* timer) {
    EngineConfig config = job.config;
    config.scheduler.schedule = program::schedule(name);
    config.scheduler.stage_timer = timer;
    return config;
  }

  void deliver(const StepResult& result) {
    step_ends.push_back(seconds_since(start_));
    losses.push_back(result.loss);
    progress_->update(losses.size(), "");
  }

  const EngineConfig config_;
  std::optional<Progress> progress_;
  Clock::time_point start_ = Clock::now();  // of making the trainer; then of a run
  Trainer trainer_;
  const double prepare_seconds_;
};

/// Flips one bit of one weight. For the test that shows `verified` can be false.
void flip_weight_bit(Parameters& parameters) {
  float& weight = parameters.front().data.front();
  std::uint32_t bits;
  std::memcpy(&bits, &weight, sizeof bits);
  bits ^= 1u << 12;
  std::memcpy(&weight, &bits, sizeof bits);
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

/// Runs the row's steps once, from the start, and compares them with the reference.
Json measure(const BenchOptions& options, const Device& device, Runner& runner,
             bool with_stage_times) {
  const Job& job = *runner.job;
  runner.run(job.loader.steps, runner.schedule);
  const Rate rate = steps_per_second(runner.step_ends, static_cast<std::size_t>(options.warmup),
                                     static_cast<std::size_t>(options.steps),
                                     static_cast<std::size_t>(options.windows));
  const bool verified = runner.same_as_reference();
  const std::string weights_sha256 = verified ? job.weights_sha256 : runner.weights_sha256();
  StageSeconds stage_seconds;
  if (with_stage_times) stage_seconds = time_stages(runner.scheduler(), kStageSeconds);

  Json stages = Json::object();
  double sum = 0, longest = 0;
  for (const auto& [name, seconds] : stage_seconds) {
    stages[name] = 1e3 * seconds;
    sum += seconds;
    longest = std::max(longest, seconds);
  }
  const MemoryPlan& memory = runner.scheduler().memory();
  const std::string& no_graph_reason = runner.scheduler().no_graph_reason();
  Json row;
  row["workload"] = job.workload;
  row["batch"] = job.batch;
  row["image"] = options.image;
  row["classes"] = options.classes;
  row["schedule"] = runner.schedule;
  row["precision"] = job.precision;
  row["device"] = device.name;
  row["gpu"] = device.is_cuda() ? Json(device.gpu) : Json(nullptr);
  row["driver"] = device.is_cuda() ? Json(device.driver) : Json(nullptr);
  for (const char* name : {"sm_clock_mhz", "memory_clock_mhz"}) row[name] = nullptr;
  row["input"] = options.input;
  row["workers"] = options.input == "loader" ? options.workers : 0;
  row["augment"] = job.workload == "classify" ? Json(options.augment) : Json(nullptr);
  row["warmup"] = options.warmup;
  row["steps"] = options.steps;
  row["windows"] = options.windows;
  row["steps_per_s"] = {{"median", rate.median}, {"min", rate.min}, {"max", rate.max}};
  row["images_per_s"] = rate.median * static_cast<double>(job.batch);
  row["stage_ms"] = stages;
  row["bound"] = stage_seconds.empty() ? Json(nullptr) : Json(sum / longest);
  row["gain"] = nullptr;  // known once all rows of the batch have run
  for (const char* name : {"gpu_busy_pct", "nvml_util_pct"}) row[name] = nullptr;
  row["fuse"] = options.fuse;
  row["side_lanes"] = side_lanes(options.side_lanes, device);
  row["graphs"] = runner.scheduler().graphs();
  row["prepare_s"] = runner.prepare_seconds();
  row["capture_s"] =
      runner.scheduler().graphs() > 0 ? Json(runner.scheduler().capture_seconds()) : Json(nullptr);
  if (!no_graph_reason.empty()) row["no_graph_reason"] = no_graph_reason;
  row["memory_bytes"] = memory.device_bytes + memory.pinned_bytes;
  row["gpu_memory_bytes"] =
      device.is_cuda() ? Json(memory_need(device, runner.scheduler().plan(), runner.options()))
                       : Json(nullptr);
  row["plan_hash"] = full_plan_hash(runner.scheduler().plan(), *job.backend);
  row["weights_sha256"] = weights_sha256;
  row["verified"] = verified;
  return row;
}

/// The row's steps on a trainer of its own, for `seconds`, with timed events and NVML readings: the
/// run that gave the speed has neither.
Observation observe(const std::shared_ptr<Job>& job, const Device& device, const Json& row,
                    double seconds) {
  if (!device.is_cuda()) return not_observed("the host backend uses no GPU");
  if (seconds == 0) return not_observed("not asked for: --observe 0");
  constexpr int kSkipped = 10, kMostTimed = 200;
  const auto rate = row["steps_per_s"]["median"].get<double>();
  const auto name = row["schedule"].get<std::string>();
  const int steps = std::max(kSkipped + 10, static_cast<int>(rate * seconds));
  const int stages = static_cast<int>(plan_training(job->config).stages.size());
  Observer observer(device, stages, kSkipped, std::min(kMostTimed, steps - kSkipped), seconds / 2);
  Runner observed(job, name, observer.timer());
  observed.run(static_cast<std::uint64_t>(steps), name + " observed",
               [&observer] { observer.on_step(); });
  return observer.result();
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

/// One of the two, for a batch size; the row says the schedule and the precision.
using MakeJob = PublishedJob (*)(const PublishedChoice& choice);
PublishedJob make_job(MakeJob make, const BenchOptions& options, const Device& device,
                      std::int64_t batch) {
  PublishedJob job =
      make({options.image, options.classes, batch, static_cast<std::uint64_t>(options.seed),
            options.augment, options.input});
  EngineConfig& config = job.config;
  config.momentum = options.momentum != 0;
  config.slots = static_cast<int>(options.slots);
  config.fuse = fuse_options(options.fuse);
  config.scheduler.schedule = Schedule::serial;
  config.scheduler.side_lanes = side_lanes(options.side_lanes, device);
  config.input_memory = options.input == "device" ? MemoryKind::device : MemoryKind::pinned;
  if (options.scheme == "torch") {  // the article feeds the bytes as they are
    config.input_scale = 1.0f;
    if (job.augment) config.augment->scale = job.augment->spec.scale = 1.0f;
  }
  return job;
}

using UseRow = std::function<void(std::unique_ptr<Runner>)>;

/// Runs the job's reference, and gives each of its rows to `use`, which may keep it.
void for_each_row(const std::shared_ptr<Job>& job, const BenchOptions& options, const UseRow& use) {
  const char* flip = std::getenv("TANDEM_TEST_FLIP_WEIGHT_BIT");
  {
    Runner reference(job, "serial");
    reference.run(job->loader.steps, "reference");
    take_snapshot(*job, reference.scheduler(), false, job->expected);
    job->losses = reference.losses;
    job->weights_sha256 = reference.weights_sha256();
  }
  if (flip != nullptr && std::strcmp(flip, "1") == 0) {
    auto flipped = std::make_shared<SegmenterWeights>(*job->weights);
    flip_weight_bit(flipped->decoder);
    job->weights = std::move(flipped);
    job->start = Memory();
  }
  for (const std::string& name : options.schedules) use(std::make_unique<Runner>(job, name));
}

void for_each_row(const BenchOptions& options, const Device& device, MakeJob make,
                  const UseRow& use) {
  std::vector<Precision> precisions;
  for (const std::string& name : options.precisions) precisions.push_back(precision(name, device));
  for (const std::int64_t batch : options.batches) {
    PublishedJob published = make_job(make, options, device, batch);
    EngineConfig& config = published.config;
    const auto weights = std::make_shared<const SegmenterWeights>(initial_segmenter(
        config, init_scheme(options.scheme), static_cast<std::uint64_t>(options.seed)));
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
    loader.augment = published.augment;

    for (std::size_t p = 0; p < precisions.size(); ++p) {
      config.precision = precisions[p];
      const auto job = std::make_shared<Job>();
      job->workload = published.name;
      job->batch = batch;
      job->precision = options.precisions[p];
      // A backend of its own, so that the plan's hash is of its own algorithms only. It chooses
      // them here and not for the reference, so that each row can say how long that takes.
      const auto start = Clock::now();
      job->backend = make_backend(device);
      job->backend->prepare(plan_training(config));
      job->backend_seconds = seconds_since(start);
      job->config = config;
      job->weights = weights;
      job->data = published.data;
      job->loader = loader;
      job->quiet = options.quiet;
      job->copies = make_stream(*job->backend, "snapshots");
      for_each_row(job, options, use);
    }
  }
}

/// Throws Error{run_failed} where a row is not verified.
void check_verified(const Json& rows) {
  const auto wrong = std::count_if(rows.begin(), rows.end(),
                                   [](const Json& row) { return !row["verified"].get<bool>(); });
  if (wrong > 0)
    throw Error(ErrorCode::run_failed,
                fmt::format("{} of {} differ from an untimed serial run on the same data", wrong,
                            count_of(static_cast<std::int64_t>(rows.size()), "row")));
}

/// Of a request to --serve: how long to observe each row.
double seconds_observed(const std::string& line) {
  constexpr std::size_t kMostShown = 200;  // of a request that is refused
  const Json request = Json::parse(line, nullptr, false);
  if (request == Json::object()) return 0;
  if (request.is_object() && request.size() == 1 && request.contains("observe") &&
      request["observe"].is_number()) {
    const auto seconds = request["observe"].get<double>();
    if (seconds >= 0 && seconds <= kMostObserved) return seconds;
  }
  throw Error(
      ErrorCode::usage,
      fmt::format("--serve: the request '{}' is not allowed; allowed: {{}}, or "
                  "{{\"observe\": SECONDS}} from 0 to {}",
                  printable(line.size() > kMostShown ? line.substr(0, kMostShown) + "..." : line),
                  kMostObserved));
}

void print_line(const Json& value) {
  fmt::print("{}\n", to_text(value));
  if (std::fflush(stdout) != 0) throw Error(ErrorCode::data, "standard output cannot be written");
}

/// Keeps every row ready, and measures a block of each for every line of standard input.
void serve(const BenchOptions& options, const Device& device, MakeJob make) {
  std::vector<std::unique_ptr<Runner>> runners;
  for_each_row(options, device, make,
               [&](std::unique_ptr<Runner> runner) { runners.push_back(std::move(runner)); });
  print_line({{"ready", true}, {"environment", environment()}});
  Json all = Json::array();
  for (std::string line; std::getline(std::cin, line);) {
    const double observed = seconds_observed(line);
    Json rows = Json::array();
    for (const auto& runner : runners) {
      rows.push_back(measure(options, device, *runner, observed > 0));
      add_observation(rows.back(), observe(runner->job, device, rows.back(), observed));
    }
    fill_gains(rows);
    print_line({{"rows", rows}});
    all.insert(all.end(), rows.begin(), rows.end());
  }
  check_verified(all);
}

void run(const BenchOptions& options, const Options& declared, MakeJob make) {
  require_each_once("--batch", options.batches);
  require_each_once("--schedule", options.schedules);
  require_each_once("--precision", options.precisions);
  if (options.steps < options.windows)
    throw Error(ErrorCode::usage, fmt::format("--steps is {}; allowed: at least --windows, {}",
                                              options.steps, options.windows));
  for (const char* name : {"--json", "--observe"})
    if (options.serve && declared.given(name))
      throw Error(ErrorCode::usage, fmt::format("{} is not allowed beside --serve, which {}", name,
                                                std::strcmp(name, "--json") == 0
                                                    ? "writes its rows to standard output"
                                                    : "observes what a request asks for"));
  const Device device = open_device(options.device, options.plan);
  for (const std::string& name : options.precisions) precision(name, device);  // refuses
  check_json(options.json);
  const bool overlaps = std::any_of(options.schedules.begin(), options.schedules.end(),
                                    [](const std::string& name) { return name != "serial"; });
  {
    EngineConfig config = make_job(make, options, device, 1).config;
    if (overlaps) config.scheduler.schedule = Schedule::overlap;
    const Plan plan = plan_training(config);
    announce(device, stream_count(plan, config.scheduler), options.quiet);
    // A window ends when the host hears of its last step, and it may hear of as many at once as are
    // under way.
    const std::int64_t few = kDepthsAWindow * plan.window();
    if (overlaps && !options.quiet && options.steps < few * options.windows)
      say(
          fmt::format("note: windows of {} are short, and their speeds move a lot; take --steps {} "
                      "or more, or fewer --windows\n",
                      count_of(options.steps / options.windows, "step"), few * options.windows));
  }
  // Between requests nothing is under way that Ctrl-C would have to end in order.
  if (options.serve) return serve(options, device, make);
  watch_interrupt();

  Json rows = Json::array();
  for_each_row(options, device, make, [&](std::unique_ptr<Runner> runner) {
    const auto job = runner->job;
    rows.push_back(measure(options, device, *runner, options.observe > 0));
    runner.reset();  // its memory is for the one that is observed
    add_observation(rows.back(), observe(job, device, rows.back(), options.observe));
  });
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
  check_verified(rows);
}

void add_workload(CLI::App& bench, Command& selected, const char* name, const char* help,
                  MakeJob make) {
  CLI::App* app = bench.add_subcommand(name, help);
  auto values = std::make_shared<BenchOptions>();
  auto options = std::make_shared<Options>(*app);
  BenchOptions& o = *values;
  options->numbers("--batch", o.batches, 1, kMaxBatch, "samples a step");
  options->choices("--schedule", o.schedules, {"serial", "overlap", "graph"},
                   "orders of the stages; graph: overlap, captured once and launched", {"auto"});
  add_fuse_option(*options, o.fuse);
  add_side_lanes_option(*options, o.side_lanes);
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
  options->real("--observe", o.observe, 0, kMostObserved,
                "seconds of an extra run for busy, NVML and clocks of a GPU; 0: none, and no "
                "times of the stages");
  options->number("--slots", o.slots, 1, 16, "batches that may wait between two stages");
  options->number("--seed", o.seed, 0, INT64_MAX, "of weights and data");
  options->choice("--init-scheme", o.scheme, {"torch", "he"},
                  "torch: the article's weights and bytes as they are; he: bytes / 255");
  options->real("--lr", o.learning_rate, 0, 1e38, "learning rate");
  options->real("--momentum", o.momentum, 0, 1, "factor of the old velocity");
  options->text("--json", o.json, "FILE|-", "rows with the environment, as JSON");
  options->flag(
      "--serve", o.serve,
      "prepare once, then measure a block of every row for each line of standard input, {} "
      "or {\"observe\": SECONDS}; one line of JSON a block");
  options->flag("--quiet", o.quiet, "no progress and no notes on standard error");
  app->callback([&selected, values, options, make] {
    selected = [values, options, make] { run(*values, *options, make); };
  });
}

}  // namespace

void add_bench(CLI::App& root, Command& selected) {
  CLI::App* app = root.add_subcommand("bench", "Measures throughput");
  add_workload(*app, selected, "segment", "Partial training of the segmenter on random pictures",
               published_segment_job);
  add_workload(*app, selected, "classify",
               "Training of the classifier on random pictures, each augmented anew",
               published_classify_job);
  add_bench_overlap(*app, selected);
  add_later_command(*app, "resnet18");
}

}  // namespace tandem::program
