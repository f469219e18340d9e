// SPDX-License-Identifier: Apache-2.0
// `tandem bench segment`: steps a second over batch sizes, schedules and precisions; every row is
// checked against an untimed serial run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <tandem/engine/error.hpp>
#include <vector>

#include "common.hpp"
#include "progress.hpp"

namespace tandem::program {
namespace {

struct BenchOptions {
  std::vector<std::int64_t> batches{8};
  std::vector<std::string> schedules{"serial", "overlap"}, precisions{"fp32"};
  std::int64_t image = 256, classes = 10, workers = 8, warmup = 10, steps = 100, windows = 5;
  std::int64_t slots = 2, seed = 0;
  double learning_rate = 1e-3, momentum = 0;
  std::string input = "loader", scheme = "torch", device = "auto", json;
  bool quiet = false;
};

using Clock = std::chrono::steady_clock;

struct BenchRun {
  std::vector<double> losses;
  std::string trained_sha256, frozen_sha256;
  std::vector<double>
      step_ends;  // seconds from the start until the host heard that a step was complete
  std::vector<std::pair<std::string, double>> stage_seconds;  // each stage alone, one execution
  std::size_t memory_bytes = 0;
  std::string plan_hash;
};

/// Same results to the last bit.
bool same_results(const BenchRun& a, const BenchRun& b) {
  return a.losses.size() == b.losses.size() &&
         std::memcmp(a.losses.data(), b.losses.data(), a.losses.size() * sizeof(double)) == 0 &&
         a.trained_sha256 == b.trained_sha256 && a.frozen_sha256 == b.frozen_sha256;
}

/// Flips one bit of one weight. For the test that shows `verified` can be false.
void flip_weight_bit(Parameters& parameters) {
  float& weight = parameters.front().data.front();
  std::uint32_t bits;
  std::memcpy(&bits, &weight, sizeof bits);
  bits ^= 1u << 12;
  std::memcpy(&weight, &bits, sizeof bits);
}

/// Fills every input slot once, through host memory; they are then used in turn.
void fill_inputs(Trainer& trainer, const EngineConfig& config,
                 const std::shared_ptr<const SegmentationData>& data, LoaderOptions options) {
  Scheduler& scheduler = trainer.scheduler();
  const Plan& plan = scheduler.plan();
  const auto pixels = static_cast<std::size_t>(config.batch * config.image * config.image);
  std::vector<std::uint8_t> images(3 * pixels), labels(pixels);
  // 64-bit words, as the header and the sample ids behind it want their alignment.
  std::vector<std::uint64_t> header((batch_header_bytes(config.batch) + 7) / 8);
  const InputSlot staging{images.data(), labels.data(),
                          reinterpret_cast<BatchHeader*>(header.data())};
  const std::map<std::string, const void*> sources{{"input.images", images.data()},
                                                   {"input.labels", labels.data()},
                                                   {"input.header", header.data()}};

  options.steps = static_cast<std::uint64_t>(plan.input_slots);
  Loader loader(data, options, {staging}, [](int) {});
  for (int slot = 0; loader.next() >= 0; ++slot) {
    for (std::size_t b = 0; b < plan.buffers.size(); ++b)
      if (plan.buffers[b].scope == Scope::input)
        scheduler.write(static_cast<BufferId>(b), sources.at(plan.buffers[b].name), slot);
    loader.submitted(0);
  }
}

void check_interrupt() {
  if (interrupted()) throw Error(ErrorCode::interrupted, "interrupted; no results were written");
}

/// Seconds of each stage alone. Overwrites what the slots hold and trains on it, so it comes last.
std::vector<std::pair<std::string, double>> time_stages(Scheduler& scheduler) {
  constexpr double kSeconds = 0.2;
  constexpr int kMostRepeats = 1000;
  std::vector<std::pair<std::string, double>> seconds;
  for (std::size_t i = 0; i < scheduler.plan().stages.size(); ++i) {
    check_interrupt();
    const int stage = static_cast<int>(i);
    const double once = scheduler.time_stage(stage, 1);
    const int repeats =
        std::clamp(static_cast<int>(kSeconds / std::max(once, 1e-6)), 3, kMostRepeats);
    seconds.emplace_back(scheduler.plan().stages[i].name,
                         scheduler.time_stage(stage, repeats) / repeats);
  }
  return seconds;
}

BenchRun run_once(Backend& backend, const EngineConfig& config, const SegmenterWeights& weights,
                  const std::shared_ptr<const SegmentationData>& data,
                  const LoaderOptions& loader_options, const std::string& label, bool quiet,
                  bool with_stage_times) {
  BenchRun run;
  const auto steps = static_cast<std::size_t>(loader_options.steps);
  run.losses.reserve(steps);
  run.step_ends.reserve(steps);
  Clock::time_point start;
  Progress progress(label, loader_options.steps, quiet);
  Trainer trainer(backend, config, [&](const StepResult& result) {
    run.step_ends.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    run.losses.push_back(result.loss);
    progress.update(run.losses.size(), "");
  });
  trainer.set_frozen(weights.encoder);
  trainer.set_trained(weights.decoder);
  run.plan_hash = plan_hash(trainer.scheduler().plan());
  run.memory_bytes =
      trainer.scheduler().memory().device_bytes + trainer.scheduler().memory().pinned_bytes;

  if (config.input_memory == MemoryKind::device) {
    fill_inputs(trainer, config, data, loader_options);
    start = Clock::now();
    for (std::size_t step = 0; step < steps; ++step) {
      check_interrupt();
      trainer.step(static_cast<int>(step % static_cast<std::size_t>(config.input_slots)));
    }
  } else {
    start = Clock::now();
    Loader loader(data, loader_options, trainer.inputs(),
                  [&trainer](int slot) { trainer.wait_input_free(slot); });
    for (int slot; (slot = loader.next()) >= 0;) {
      check_interrupt();
      trainer.step(slot);
      loader.submitted(slot);
    }
  }
  trainer.finish();
  run.trained_sha256 = parameters_sha256(trainer.trained());
  run.frozen_sha256 = parameters_sha256(trainer.frozen());
  if (with_stage_times) run.stage_seconds = time_stages(trainer.scheduler());
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

Json make_row(const BenchOptions& options, std::int64_t batch, const std::string& schedule_name,
              const std::string& precision, const std::string& device, const BenchRun& run,
              bool verified) {
  const Rate rate = steps_per_second(run.step_ends, static_cast<std::size_t>(options.warmup),
                                     static_cast<std::size_t>(options.steps),
                                     static_cast<std::size_t>(options.windows));
  Json stages = Json::object();
  double sum = 0, longest = 0;
  for (const auto& [name, seconds] : run.stage_seconds) {
    stages[name] = 1e3 * seconds;
    sum += seconds;
    longest = std::max(longest, seconds);
  }
  Json row;
  row["workload"] = "segment";
  row["batch"] = batch;
  row["image"] = options.image;
  row["classes"] = options.classes;
  row["schedule"] = schedule_name;
  row["precision"] = precision;
  row["device"] = device;
  row["input"] = options.input;
  row["workers"] = options.input == "loader" ? options.workers : 0;
  row["warmup"] = options.warmup;
  row["steps"] = options.steps;
  row["windows"] = options.windows;
  row["steps_per_s"] = {{"median", rate.median}, {"min", rate.min}, {"max", rate.max}};
  row["images_per_s"] = rate.median * static_cast<double>(batch);
  row["stage_ms"] = stages;
  row["bound"] = sum / longest;
  row["gain"] = nullptr;  // known once all rows of the batch have run
  row["memory_bytes"] = run.memory_bytes;
  row["plan_hash"] = run.plan_hash;
  row["weights_sha256"] = run.trained_sha256;
  row["verified"] = verified;
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

void print_table(const Json& rows) {
  std::string stages;
  for (const auto& [name, ms] : rows.front()["stage_ms"].items())
    stages += fmt::format("{:>11}", name + " ms");
  fmt::print("{:>5} {:>5} {:<8} {:<9}{:>9} {:>19} {:>9}{}{:>7}{:>7}{:>10}  {}\n", "batch", "image",
             "schedule", "precision", "steps/s", "(min .. max)", "images/s", stages, "bound",
             "gain", "MiB", "verified");
  for (const Json& row : rows) {
    const Json& rate = row["steps_per_s"];
    stages.clear();
    for (const auto& [name, ms] : row["stage_ms"].items())
      stages += fmt::format("{:>11.3f}", ms.get<double>());
    fmt::print(
        "{:>5} {:>5} {:<8} {:<9}{:>9.2f} {:>19} {:>9.1f}{}{:>7.2f}{:>7}{:>10.1f}  {}\n",
        row["batch"].get<std::int64_t>(), row["image"].get<std::int64_t>(),
        row["schedule"].get<std::string>(), row["precision"].get<std::string>(),
        rate["median"].get<double>(),
        fmt::format("({:.2f} .. {:.2f})", rate["min"].get<double>(), rate["max"].get<double>()),
        row["images_per_s"].get<double>(), stages, row["bound"].get<double>(),
        row["gain"].is_null() ? "-" : fmt::format("{:.2f}", row["gain"].get<double>()),
        row["memory_bytes"].get<double>() / (1 << 20), row["verified"].get<bool>() ? "yes" : "NO");
  }
  fmt::print(
      "A step: copy, encode, train (forward, loss, backward, update), in the steady state.\n"
      "Stage times: each stage alone.\n"
      "bound: sum of the stage times / the longest. gain: over the serial row of the same batch.\n"
      "verified: losses and weights have the bits of an untimed serial run on the same data.\n");
}

void run(const BenchOptions& options, const Options& declared) {
  if (options.steps < options.windows)
    throw Error(ErrorCode::usage, fmt::format("--steps is {}; allowed: at least --windows, {}",
                                              options.steps, options.windows));
  const Device device = open_device(options.device);
  if (!options.json.empty() && options.json != "-") check_writable("--json", options.json);
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const std::shared_ptr<const SegmentationData> data =
      make_synthetic(options.image, options.classes, seed);
  const char* flip = std::getenv("TANDEM_TEST_FLIP_WEIGHT_BIT");
  const bool flip_bit = flip != nullptr && std::strcmp(flip, "1") == 0;
  if (!options.quiet) fmt::print(stderr, "device {}: {}\n", device.name, device.reason);
  watch_interrupt();

  Json rows = Json::array();
  for (const std::int64_t batch : options.batches) {
    EngineConfig config = segmenter_config(options.image, options.classes, batch);
    config.momentum = options.momentum != 0;
    config.slots = static_cast<int>(options.slots);
    config.input_memory = options.input == "device" ? MemoryKind::device : MemoryKind::pinned;
    // The article feeds the bytes as they are.
    if (options.scheme == "torch") config.input_scale = 1.0f;
    const SegmenterWeights weights = initial_segmenter(config, init_scheme(options.scheme), seed);
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

    for (const std::string& precision : options.precisions) {
      config.scheduler.schedule = Schedule::serial;
      const BenchRun reference =
          run_once(*device.backend, config, weights, data, loader,
                   fmt::format("batch {} reference", batch), options.quiet, false);
      for (const std::string& schedule_name : options.schedules) {
        config.scheduler.schedule = schedule(schedule_name);
        SegmenterWeights start = weights;
        if (flip_bit) flip_weight_bit(start.decoder);
        const BenchRun timed =
            run_once(*device.backend, config, start, data, loader,
                     fmt::format("batch {} {}", batch, schedule_name), options.quiet, true);
        rows.push_back(make_row(options, batch, schedule_name, precision, device.name, timed,
                                same_results(timed, reference)));
      }
    }
  }
  fill_gains(rows);

  Json json;
  json["schema"] = 1;
  json["environment"] = environment();
  json["config"] = declared.effective();
  json["rows"] = rows;
  write_json(options.json, json);
  if (options.json != "-") print_table(rows);
  const auto wrong = std::count_if(rows.begin(), rows.end(),
                                   [](const Json& row) { return !row["verified"].get<bool>(); });
  if (wrong > 0)
    throw Error(ErrorCode::run_failed,
                fmt::format("{} of {} differ from an untimed serial run on the same data", wrong,
                            count_of(static_cast<std::int64_t>(rows.size()), "row")));
}

}  // namespace

void add_bench(CLI::App& root, Command& selected) {
  CLI::App* bench_app = root.add_subcommand("bench", "Measures throughput");
  CLI::App* app =
      bench_app->add_subcommand("segment", "Partial training of the segmenter on random pictures");
  for (const char* name : {"classify", "resnet18", "overlap"}) add_later_command(*bench_app, name);

  auto values = std::make_shared<BenchOptions>();
  auto options = std::make_shared<Options>(*app);
  BenchOptions& o = *values;
  options->numbers("--batch", o.batches, 1, 65536, "samples a step");
  options->choices("--schedule", o.schedules, {"serial", "overlap"}, "orders of the stages",
                   {"graph", "auto"});
  options->choices("--precision", o.precisions, {"fp32"}, "arithmetic", {"tf32", "bf16"});
  options->image(o.image);
  options->number("--classes", o.classes, 2, 254, "classes");
  options->choice("--input", o.input, {"loader", "device"},
                  "loader threads, or a few batches that already lie on the device");
  options->number("--workers", o.workers, 1, 256, "loader threads");
  options->number("--warmup", o.warmup, 1, 1'000'000, "steps before the measured ones");
  options->number("--steps", o.steps, 3, 1'000'000, "measured steps");
  options->number("--windows", o.windows, 3, 1000,
                  "parts of the measured steps, for median, min and max");
  add_device_option(*options, o.device);
  options->number("--slots", o.slots, 1, 16, "batches that may wait between two stages");
  options->number("--seed", o.seed, 0, INT64_MAX, "of weights and data");
  options->choice("--init-scheme", o.scheme, {"torch", "he"},
                  "torch: the article's weights and bytes as they are; he: bytes / 255");
  options->real("--lr", o.learning_rate, 0, 1e38, "learning rate");
  options->real("--momentum", o.momentum, 0, 1, "factor of the old velocity");
  options->text("--json", o.json, "FILE|-", "rows with the environment, as JSON");
  options->flag("--quiet", o.quiet, "no progress and no notes on standard error");
  app->callback(
      [&selected, values, options] { selected = [values, options] { run(*values, *options); }; });
}

}  // namespace tandem::program
