// SPDX-License-Identifier: Apache-2.0
// `tandem profile`: where the time of a step goes, in scheduled cycles, with a trace of each.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <tandem/engine/atomic_file.hpp>
#include <tandem/engine/chrome_trace.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/nvtx.hpp>
#include <tandem/engine/profile_memory.hpp>
#include <tandem/engine/profile_schedule.hpp>
#include <tandem/engine/profile_source.hpp>
#include <tandem/engine/profile_summary.hpp>
#include <utility>

#include "common.hpp"
#include "files.hpp"
#include "profile_session.hpp"
#include "progress.hpp"
#include "training.hpp"
#include "workload.hpp"

namespace tandem::program {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kTopKernels = 10;

struct ProfileOptions {
  ProfileOptions() { work.input = "loader"; }

  WorkloadOptions work;
  std::vector<std::int64_t> batches{8};
  std::int64_t wait = 6, warmup = 1, active = 3, repeat = 2, skip_first = 0, steps = 0;
  std::int64_t trace_limit = 64;  // MiB
  std::string trace, source = "auto", json;
  bool shapes = false, memory = false, with_path = false, gzip = false, quiet = false;
};

ProfileSchedule schedule_of(const ProfileOptions& options) {
  const auto steps = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  ProfileSchedule schedule;
  schedule.skip_first = steps(options.skip_first);
  schedule.wait = steps(options.wait);
  schedule.warmup = steps(options.warmup);
  schedule.active = steps(options.active);
  schedule.repeat = steps(options.repeat);
  return schedule;
}

// --- results

Json memory_json(const Scheduler& scheduler) {
  Json parts = Json::array();
  for (const MemoryPart& part : memory_parts(scheduler.plan(), scheduler.memory()))
    parts.push_back({{"purpose", part.purpose}, {"bytes", part.bytes}, {"pinned", part.pinned}});
  return {{"device_bytes", scheduler.memory().device_bytes},
          {"pinned_bytes", scheduler.memory().pinned_bytes},
          {"parts", parts}};
}

Json make_row(const ProfileSession& session, std::int64_t batch) {
  const ProfileSummary& s = session.summary();
  Json row;
  row["batch"] = batch;
  row["cycles"] = s.cycles;
  row["steps"] = s.steps;
  row["step_ms"] = milliseconds_a_step(s.wall, s);
  add_split(row, s);
  row["kernel_busy_pct"] = s.kernel_busy_percent();
  row["overlap_pct"] = s.overlap_percent();
  row["sm_fill_pct"] = s.fill_known ? Json(s.sm_fill_percent()) : Json(nullptr);
  Json stages = Json::object();
  for (std::size_t i = 0; i < s.stages.size(); ++i)
    stages[s.stages[i]] = milliseconds_a_step(s.stage[i], s);
  row["stage_ms"] = stages;
  row["top_kernels"] = Json::array();
  for (const auto& [name, times] : top_kernels(s, kTopKernels))
    row["top_kernels"].push_back(
        {{"name", name},
         {"count_per_step", static_cast<double>(times.count) / static_cast<double>(s.steps)},
         {"ms_per_step", milliseconds_a_step(times.nanoseconds, s)},
         {"mean_us",
          1e-3 * static_cast<double>(times.nanoseconds) / static_cast<double>(times.count)}});
  row["records"] = s.records;
  row["dropped_records"] = s.dropped;
  row["traces"] = Json::array();
  for (const CycleFile& cycle : session.files())
    row["traces"].push_back({{"file", cycle.file.empty() ? Json(nullptr) : Json(cycle.file)},
                             {"first_step", cycle.window.first_step},
                             {"last_step", cycle.window.last_step},
                             {"events", cycle.events},
                             {"dropped_events", cycle.dropped}});
  return row;
}

void print_row(const Json& row) {
  const double step = row["step_ms"];
  const auto line = [&](const std::string& name, double ms, const std::string& behind = {}) {
    fmt::print("  {:<24}{:>10.3f} ms{:>8.1f} %{}\n", name, ms, 100 * ms / step, behind);
  };
  fmt::print("batch {}: {} steps in {} cycles, seen by {}\n", row["batch"].dump(),
             row["steps"].dump(), row["cycles"].dump(), row["source"].get<std::string>());
  line("step", step,
       row["plain_step_ms"].is_null()
           ? ""
           : fmt::format("   ({:.3f} ms without profiling)", row["plain_step_ms"].get<double>()));
  for (const auto& [name, ms] : row["split_ms"].items()) {
    const double hidden = row["hidden_ms"].value(name, 0.0);
    line("  " + name, ms, hidden > 0 ? fmt::format("   and {:.3f} ms hidden", hidden) : "");
  }
  fmt::print("  stages:");
  for (const auto& [name, ms] : row["stage_ms"].items())
    fmt::print(" {} {:.3f} ms", name, ms.get<double>());
  fmt::print("\n");
  const auto percent = [&](const char* label, const char* key, const char* reason) {
    if (row[key].is_null()) {
      fmt::print("  {:<24}not known: {}\n", label, row[reason].get<std::string>());
    } else {
      fmt::print("  {:<24}{:>10.1f} %\n", label, row[key].get<double>());
    }
  };
  percent("kernel-busy", "kernel_busy_pct", "");
  percent("two or more streams", "overlap_pct", "");
  percent("SM fill", "sm_fill_pct", "sm_fill_reason");
  percent("NVML's counter", "nvml_util_pct", "nvml_util_reason");
  fmt::print("  memory: {:.1f} MiB on the device, {:.1f} MiB pinned\n",
             row["memory"]["device_bytes"].get<double>() / kMiB,
             row["memory"]["pinned_bytes"].get<double>() / kMiB);
  for (const Json& part : row["memory"]["parts"])
    fmt::print("    {:<24}{:>10.2f} MiB{}\n", part["purpose"].get<std::string>(),
               part["bytes"].get<double>() / kMiB, part["pinned"].get<bool>() ? "  pinned" : "");
  fmt::print("  {:<30}{:>10}{:>10}{:>10}\n", "kernels, longest first", "ms a step", "calls",
             "mean us");
  for (const Json& kernel : row["top_kernels"]) {
    std::string name = kernel["name"];
    constexpr std::size_t kMostName = 60;
    if (name.size() > kMostName) name = name.substr(0, kMostName - 3) + "...";
    fmt::print("    {:<28}{:>10.3f}{:>10.1f}{:>10.1f}\n", name, kernel["ms_per_step"].get<double>(),
               kernel["count_per_step"].get<double>(), kernel["mean_us"].get<double>());
  }
  if (row["findings"].empty()) fmt::print("  no finding\n");
  for (const Json& finding : row["findings"])
    fmt::print("  {}: {}\n", finding["rule"].get<std::string>(),
               finding["text"].get<std::string>());
  for (const Json& trace : row["traces"])
    if (!trace["file"].is_null())
      fmt::print("  trace of steps {} to {}: {}\n", trace["first_step"].dump(),
                 trace["last_step"].dump(), trace["file"].get<std::string>());
}

void print_result(const Json& json) {
  for (const Json& row : json["rows"])
    if (row["source"] == "none")
      fmt::print("batch {}: {} steps in {} cycles, marked with the range 'profile'\n",
                 row["batch"].dump(), row["steps"].dump(), row["cycles"].dump());
    else
      print_row(row);
  if (json["rows"].front()["source"] == "none") return;
  fmt::print(
      "step: wall time of the recorded steps in the steady state. Each moment of it counts for the "
      "first\nthat is under way of: kernel, copy, memset, runtime (calls that queue work), "
      "data_loader (the next\nbatch is waited for), host (a step is issued), rest. hidden: under "
      "way, behind one before it.\n"
      "kernel-busy: a kernel runs on any stream. SM fill: blocks over multiprocessors, weighted by "
      "time.\nNVML's counter: of the driver, over the whole run. No one of them says that the "
      "device is full.\n");
}

// --- a run

/// A name that is good for a file.
std::string file_name(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && std::strchr("._-", c) == nullptr)
      c = '_';
  return name;
}

/// Where the traces of a batch size go; empty if there are none.
std::string trace_folder(const ProfileOptions& options, const std::string& workload,
                         std::int64_t batch) {
  if (options.trace.empty() || options.batches.size() == 1) return options.trace;
  return fmt::format("{}/{}_batchsize{}", options.trace, file_name(workload), batch);
}

/// Throws Error{usage} where a trace would be --json or one of the files.
void check_traces(const ProfileOptions& options, const std::string& workload, std::uint64_t cycles,
                  std::vector<NamedFile> files) {
  namespace fs = std::filesystem;
  files.push_back({"--json", options.json});
  for (const std::int64_t batch : options.batches) {
    const std::string folder = trace_folder(options, workload, batch);
    const auto check = [&](const fs::path& name, const NamedFile& file) {
      std::uint64_t cycle = 0;
      if (std::sscanf(name.c_str(), "cycle%" SCNu64, &cycle) == 1 && cycle > 0 && cycle <= cycles)
        check_distinct({{"--trace", trace_file(folder, cycle, options.gzip)}, file});
    };
    // There may be very many cycles: only those that the file's name is of, or that have a name in
    // the folder already, which may be a link to the file.
    std::error_code error;
    for (const NamedFile& file : files) check(fs::path(end_of_links(file.path)).filename(), file);
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
      for (const NamedFile& file : files) check(it->path().filename(), file);
  }
}

/// The folder, made if it is not there.
std::string make_trace_folder(const ProfileOptions& options, const std::string& workload,
                              std::int64_t batch) {
  const std::string folder = trace_folder(options, workload, batch);
  if (folder.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw Error(ErrorCode::data,
                fmt::format("--trace {}: cannot be made: {}", folder, error.message()));
  check_replaceable("--trace", trace_file(folder, 1, options.gzip));
  return folder;
}

Json profile_batch(const ProfileOptions& options, const Device& device, const Workload& workload,
                   std::int64_t batch, std::uint64_t steps) {
  const ProbeJob& job = workload.job;
  EngineConfig config = job.config;
  config.batch = batch;
  const std::string folder = make_trace_folder(options, workload.name, batch);
  const std::size_t free_bytes = free_memory(device);
  const Plan plan = plan_training(config);

  std::vector<std::string> stages;
  for (const Stage& stage : plan.stages) stages.push_back(stage.name);
  Recorder recorder(std::move(stages));
  const ProfileView view = make_profile_view(device, options.source, recorder, options.shapes);
  if (!view.warning.empty() && batch == options.batches.front())  // once
    say(fmt::format("warning: {}\n", view.warning));
  const std::unique_ptr<Backend> backend = make_backend(device, view.source.get());
  const std::uint64_t all_steps = steps + steps_behind(plan);
  Progress progress(fmt::format("profile batch {}", batch), all_steps, options.quiet);
  std::uint64_t done = 0;
  Trainer trainer(*backend, config, [&](const StepResult&) { progress.update(++done, ""); });
  LoaderOptions loader = make_ready(trainer, config, job);

  ProfileSession::Setup setup;
  setup.schedule = schedule_of(options);
  setup.steps = steps;
  setup.folder = folder;
  setup.trace.device = device.is_cuda() ? fmt::format("{} {}", device.name, device.gpu) : "host";
  setup.trace.paths = options.with_path;
  setup.trace.most_bytes = static_cast<std::size_t>(options.trace_limit) * kMiB;
  setup.gzip = options.gzip;
  setup.memory = options.memory;
  setup.multiprocessors = device.multiprocessors;
  ProfileSession session(setup, view.source.get(), recorder, trainer);
  GpuReadings nvml(device, 0);
  loader.steps = all_steps;
  try {
    run_steps(
        trainer, config, job.data, loader,
        [&] {
          session.before_step();
          nvml.on_step();
        },
        [&] { session.before_batch(); });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::interrupted) throw;
    trainer.finish();
    session.finish();
    throw Error(ErrorCode::interrupted, fmt::format("interrupted; traces written: {}",
                                                    folder.empty() ? 0 : session.files().size()));
  }
  session.finish();

  if (view.source == nullptr)
    return {{"batch", batch},
            {"source", "none"},
            {"cycles", session.summary().cycles},
            {"steps", session.summary().steps}};
  Json row = make_row(session, batch);
  row["source"] = view.source->name();
  row["source_note"] = view.warning.empty() ? Json(nullptr) : Json(view.warning);
  row["plain_step_ms"] = nullptr;
  if (row["sm_fill_pct"].is_null())
    row["sm_fill_reason"] =
        device.is_cuda() ? "not every kernel told its blocks" : "the host backend uses no GPU";
  row["sm_clock_mhz"] = nvml.sm_clock();
  row["memory_clock_mhz"] = nvml.memory_clock();
  row["plan_hash"] = full_plan_hash(plan, *backend);
  row["nvml_util_pct"] = nvml.utilisation();
  if (row["nvml_util_pct"].is_null()) row["nvml_util_reason"] = nvml.reason();
  row["memory"] = memory_json(trainer.scheduler());
  ProfileFacts facts;
  facts.gpu = device.is_cuda();
  facts.overlap = config.scheduler.schedule != Schedule::serial;
  facts.strict_products = config.precision == Precision::fp32;
  facts.memory_needed = memory_need(device, plan, config.scheduler);
  facts.memory_there = free_bytes;
  row["findings"] = Json::array();
  for (const Finding& finding : findings_of(session.summary(), facts))
    row["findings"].push_back({{"rule", finding.rule}, {"text", finding.text}});
  return row;
}

/// Seconds a step without a listener, over as many steps as were recorded, at least 5.
double plain_step_seconds(const Device& device, const ProbeJob& job, std::int64_t batch,
                          const ProfileSchedule& schedule, std::uint64_t steps) {
  constexpr std::int64_t kWarmup = 5, kFewest = 5, kMost = 100;
  const std::int64_t measured =
      std::clamp(static_cast<std::int64_t>(schedule.recorded(steps)), kFewest, kMost);
  TrainingProbe probe(device, job, [](std::int64_t) {});
  const BatchTrial trial = probe.run(batch, kWarmup, measured, 0);
  return std::accumulate(trial.step_seconds.begin(), trial.step_seconds.end(), 0.0) /
         static_cast<double>(trial.step_seconds.size());
}

void check(const ProfileOptions& options, const ProfileSchedule& schedule, std::uint64_t steps) {
  if (steps == 0)
    throw Error(ErrorCode::usage,
                "--repeat 0 goes on to the end of the run; --steps N says where that is");
  if (schedule.recorded(steps) == 0)
    throw Error(ErrorCode::usage,
                fmt::format("--steps {} ends before the first recorded step, number {} (behind "
                            "--skip-first, --wait and --warmup): nothing would be recorded",
                            steps, schedule.skip_first + schedule.wait + schedule.warmup));
  if (options.source == "none" && !options.trace.empty())
    throw Error(ErrorCode::usage, "--source none records nothing that --trace could write");
  if (options.trace.empty())
    for (const auto& [name, given] :
         {std::pair("--memory", options.memory), std::pair("--with-path", options.with_path),
          std::pair("--shapes", options.shapes), std::pair("--gzip", options.gzip)})
      if (given)
        throw Error(ErrorCode::usage,
                    fmt::format("{} is for the trace: --trace DIR says where it goes", name));
}

void run(const ProfileOptions& options, const Options& declared, MakeWorkload make_workload) {
  const ProfileSchedule schedule = schedule_of(options);
  const std::uint64_t steps =
      options.steps > 0 ? static_cast<std::uint64_t>(options.steps) : schedule.steps();
  check(options, schedule, steps);
  require_each_once("--batch", options.batches);
  const Device device = open_device(options.work.device, options.work.plan);
  if (options.source == "events" && !device.is_cuda())
    throw Error(ErrorCode::usage,
                fmt::format("--source events: only a GPU has them; this runs on the host ({})",
                            device.reason));
  check_json(options.json);
  const Workload workload = complete_workload(options.work, device, make_workload);
  if (!options.trace.empty())
    check_traces(options, workload.name,
                 schedule.cycle_at(steps - 1).value_or(schedule.repeat - 1) + 1,
                 input_files(declared.app()));
  const EngineConfig& config = workload.job.config;
  announce(device, stream_count(plan_training(config), config.scheduler), options.quiet);
  watch_interrupt();

  Json json = begin_result("profile", declared, workload, device);
  json["rows"] = Json::array();
  for (const std::int64_t batch : options.batches) {
    Json row = profile_batch(options, device, workload, batch, steps);
    if (row.contains("traces")) {
      row["plain_step_ms"] = 1e3 * plain_step_seconds(device, workload.job, batch, schedule, steps);
      for (const Json& trace : row["traces"])
        if (trace["dropped_events"] > 0)
          say(fmt::format("warning: {}: {} events were dropped for --trace-limit {} MiB\n",
                          trace["file"].get<std::string>(), trace["dropped_events"].dump(),
                          options.trace_limit));
    }
    json["rows"].push_back(std::move(row));
  }
  write_json(options.json, json);
  if (options.json != "-") print_result(json);
}

void add_profile_options(Options& options, ProfileOptions& o) {
  options.numbers("--batch", o.batches, 1, kMaxBatch,
                  "samples a step; of several sizes each is profiled, with a folder of its own");
  options.number("--skip-first", o.skip_first, 0, 1'000'000, "steps before the first cycle");
  options.number(
      "--wait", o.wait, 0, 1'000'000,
      "steps of a cycle before its warm-up; with 6 or more its edges are in the steady state");
  options.number("--warmup", o.warmup, 0, 1'000'000,
                 "steps that are seen but not counted, before the recorded ones of a cycle");
  options.number("--active", o.active, 1, 100'000, "recorded steps of a cycle");
  options.number("--repeat", o.repeat, 0, 1'000'000, "cycles; 0: as many as --steps have room for");
  options
      .number(
          "--steps", o.steps, 1, 1'000'000'000,
          "steps of the run, those of --skip-first, --wait and --warmup among them; ends it also "
          "within a cycle")
      ->default_str("the end of the last cycle");
  options.text("--trace", o.trace, "DIR", "a trace of each cycle, for Perfetto, in this folder");
  options.number("--trace-limit", o.trace_limit, 1, 1024,
                 "MiB of a trace, unpacked; what comes later is left out and counted");
  options.flag("--gzip", o.gzip, "traces as .json.gz, which viewers open as they are");
  options.flag("--shapes", o.shapes, "shapes of every operation's operands in the trace");
  options.flag("--memory", o.memory, "curves of the scratch memory in use in the trace");
  options.flag("--with-path", o.with_path, "stage and operation of every kernel in the trace");
  options.choice("--source", o.source, {"auto", "events", "none"},
                 "how a GPU is seen: by CUPTI where it can be had, or by timed events; none: the "
                 "cycles are only marked, for another tool");
  add_training_options(options, o.work, {"serial", "overlap"}, {"graph", "auto"});
  options.number("--seed", o.work.seed, 0, INT64_MAX, "of weights and data");
  options.text("--json", o.json, "FILE|-", "the summary with the environment, as JSON");
  options.flag("--quiet", o.quiet, "no progress and no notes on standard error");
}

void add_workload(CLI::App& profile, Command& selected, const char* name, const char* help,
                  MakeWorkload make) {
  CLI::App* app = profile.add_subcommand(name, help);
  auto values = std::make_shared<ProfileOptions>();
  auto options = std::make_shared<Options>(*app);
  add_network_options(*options, values->work, std::strcmp(name, "classify") == 0);
  add_profile_options(*options, *values);
  app->callback([&selected, values, options, make] {
    selected = [values, options, make] { run(*values, *options, make); };
  });
}

}  // namespace

void add_profile(CLI::App& root, Command& selected) {
  CLI::App* app = root.add_subcommand(
      "profile", "Records some steps: where their time goes, a trace, what to do about it");
  add_workload(*app, selected, "segment", "Partial training of the segmenter", segment_workload);
  add_workload(*app, selected, "classify", "Training of the classifier on augmented pictures",
               classify_workload);
  add_later_command(*app, "resnet18");
  auto values = std::make_shared<ProfileOptions>();
  auto options = std::make_shared<Options>(*app);
  CLI::Option* model = options->text("--model", values->work.model, "FILE",
                                     "a network of your own, as JSON, in place of a name");
  add_profile_options(*options, *values);
  choose_model(*app, model, selected,
               [values, options] { run(*values, *options, model_workload); });
}

}  // namespace tandem::program
