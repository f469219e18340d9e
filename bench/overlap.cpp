// SPDX-License-Identifier: Apache-2.0
// `tandem bench overlap`: where running two stages side by side pays, does nothing, hurts, or where
// that is unclear. Two synthetic stages that only take time, over how long one is beside the other
// and how much of the GPU each fills.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <optional>
#include <tandem/engine/error.hpp>
#include <tandem/engine/overlap.hpp>
#include <vector>
#if defined(TANDEM_HAS_CUDA)
#include <tandem/kernels/spin.hpp>
#endif

#include "common.hpp"
#include "progress.hpp"

namespace tandem::program {
namespace {

/// A stage is a grid of blocks, each an eighth of the threads that a multiprocessor holds: eight
/// times as many blocks as multiprocessors fill the GPU.
constexpr int kBlocksToFill = 8;
constexpr std::int64_t kFullGrid = 100 * kBlocksToFill;  // percent

struct OverlapOptions {
  std::vector<std::string> balances{"1:8", "1:4", "1:2", "1:1", "2:1", "4:1", "8:1"};
  std::vector<std::int64_t> fills{12, 25, 50, 100, 200, 400, 800};
  std::int64_t longest_us = 2000, warmup = 5, steps = 30;
  std::string device = "auto", json;
  bool quiet = false;
};

struct Balance {
  std::string text;
  int a = 1, b = 1;
};

constexpr int kLargestShare = 64;

std::optional<Balance> parse_balance(const std::string& text) {
  Balance balance{text, 0, 0};
  const char* const end = text.data() + text.size();
  const auto [colon, error] = std::from_chars(text.data(), end, balance.a);
  if (error != std::errc{} || colon == end || *colon != ':') return std::nullopt;
  const auto [stop, error_b] = std::from_chars(colon + 1, end, balance.b);
  const auto allowed = [](int share) { return share >= 1 && share <= kLargestShare; };
  if (error_b != std::errc{} || stop != end || !allowed(balance.a) || !allowed(balance.b))
    return std::nullopt;
  return balance;
}

/// What a stage does: it spins. Lives as long as its plan.
struct Spin {
  double seconds = 0;      // that it should take
  std::int64_t ticks = 0;  // on a GPU
  unsigned grid = 1, block = 1;
};

/// Seconds of processor time of this thread: two stages on one core take as long as they should.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void spin(void* user, void* const*, const CallContext& context) {
  const Spin& work = *static_cast<const Spin*>(user);
#if defined(TANDEM_HAS_CUDA)
  if (context.native_stream != nullptr)
    return cuda::spin(work.ticks, work.grid, work.block,
                      static_cast<CUstream_st*>(context.native_stream));
#else
  static_cast<void>(context);
#endif
  const double end = thread_seconds() + work.seconds;
  while (thread_seconds() < end && !interrupted()) {
  }
}

/// Stage a hands something over to stage b; neither touches it.
Plan plan_of(Spin& a, Spin& b) {
  PlanBuilder plan;
  const TensorDesc desc = byte_desc(256);
  const BufferId handover = plan.add_buffer("handover", desc, Scope::handover, 0);
  const auto add = [&](const char* name, Spin& work, Operand operand) {
    plan.begin_stage(name);
    Operation operation;
    operation.kind = OpKind::callable;
    operation.name = "spin";
    operation.operands = {std::move(operand)};
    operation.callable = {spin, &work};
    plan.add(std::move(operation));
  };
  add("a", a, plan.write(handover, desc));
  add("b", b, plan.read(handover, desc));
  return std::move(plan).build();
}

void check_interrupt() {
  if (interrupted()) throw Error(ErrorCode::interrupted, "interrupted; no results were written");
}

/// Seconds a batch in the steady state: between the host's hearing of the last batch of the warm-up
/// and of the last measured one.
double seconds_a_batch(Backend& backend, Spin& a, Spin& b, Schedule schedule,
                       const OverlapOptions& options) {
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> ends;
  SchedulerOptions scheduling;
  scheduling.schedule = schedule;
  Scheduler scheduler(backend, plan_of(a, b), scheduling,
                      [&](std::uint64_t, const void*) { ends.push_back(Clock::now()); });
  const auto warmup = static_cast<std::size_t>(options.warmup);
  const auto steps = static_cast<std::size_t>(options.steps);
  // As many behind the measured ones as the host hears of late.
  const std::size_t all = warmup + steps + static_cast<std::size_t>(scheduler.plan().window());
  for (std::size_t n = 0; n < all; ++n) {
    check_interrupt();
    scheduler.push(0, n);
  }
  scheduler.drain();
  check_interrupt();  // before the times are believed: what spins on the host ends early
  return std::chrono::duration<double>(ends[warmup + steps - 1] - ends[warmup - 1]).count() /
         static_cast<double>(steps);
}

/// Seconds of a stage alone. Waits, and looks for Ctrl-C, every quarter of a second or after each
/// run; `expected` is the length of one.
double seconds_alone(Scheduler& scheduler, int stage, std::int64_t repeats, double expected) {
  const auto at_once =
      static_cast<std::int64_t>(std::clamp(0.25 / expected, 1.0, static_cast<double>(repeats)));
  double seconds = 0;
  for (std::int64_t done = 0; done < repeats; done += at_once) {
    check_interrupt();
    seconds += scheduler.time_stage(stage, static_cast<int>(std::min(at_once, repeats - done)));
  }
  check_interrupt();
  return seconds / static_cast<double>(repeats);
}

OverlapTimes measure(Backend& backend, Spin& a, Spin& b, const OverlapOptions& options) {
  OverlapTimes times;
  {
    Scheduler alone(backend, plan_of(a, b), {});
    seconds_alone(alone, 0, options.warmup, a.seconds);
    seconds_alone(alone, 1, options.warmup, b.seconds);
    times.a = seconds_alone(alone, 0, options.steps, a.seconds);
    times.b = seconds_alone(alone, 1, options.steps, b.seconds);
  }
  times.serial = seconds_a_batch(backend, a, b, Schedule::serial, options);
  times.overlap = seconds_a_batch(backend, a, b, Schedule::overlap, options);
  return times;
}

/// Ticks of a multiprocessor's clock in a second, under load.
double ticks_per_second(Backend& backend) {
  constexpr std::int64_t kTicks = 2'000'000;
  constexpr int kRepeats = 50;
  Spin work, none;
  work.ticks = kTicks;
  work.block = none.block = 32;
  Scheduler scheduler(backend, plan_of(work, none), {});
  scheduler.time_stage(0, kRepeats);  // the clock rises
  return kTicks * kRepeats / scheduler.time_stage(0, kRepeats);
}

const char* name_of(OverlapVerdict verdict) {
  switch (verdict) {
    case OverlapVerdict::pays:
      return "pays";
    case OverlapVerdict::nothing:
      return "does nothing";
    case OverlapVerdict::hurts:
      return "hurts";
    case OverlapVerdict::unclear:
      break;
  }
  return "unclear";
}

/// One sentence: where the rows of one verdict lie, how much it is there, and why.
std::string sentence(const Json& rows, OverlapVerdict verdict) {
  std::vector<std::string> fills, balances;
  double low = 0, high = 0;
  std::int64_t count = 0;
  bool full = true, slow_serial = false, slow_stages = false;
  const auto remember = [](std::vector<std::string>& values, const std::string& value) {
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  };
  for (const Json& row : rows) {
    if (row["verdict"] != name_of(verdict)) continue;
    const double efficiency = row["efficiency"];
    low = count == 0 ? efficiency : std::min(low, efficiency);
    high = count == 0 ? efficiency : std::max(high, efficiency);
    ++count;
    const OverlapTimes times{row["t_a_ms"], row["t_b_ms"], row["serial_ms"], row["overlap_ms"]};
    slow_serial = slow_serial || serial_was_slowed(times);
    slow_stages = slow_stages || stage_was_slowed(times);
    remember(balances, row["balance"]);
    if (row["grid_fill"].is_null()) {
      full = false;
    } else {
      remember(fills, row["grid_fill"].dump());
      full = full && row["grid_fill"] >= kFullGrid;
    }
  }
  const bool unclear = verdict == OverlapVerdict::unclear;
  const std::string subject =
      unclear ? "What overlap does is unclear" : fmt::format("Overlap {}", name_of(verdict));
  if (count == 0) return fmt::format("{} nowhere here.", subject);
  std::string text = fmt::format("{} in {} of {} cases: balance {}", subject, count, rows.size(),
                                 fmt::join(balances, ", "));
  if (!fills.empty()) text += fmt::format(", grid fill {} %", fmt::join(fills, ", "));
  text += fmt::format("; efficiency {:.2f} to {:.2f}", low, high);
  if (unclear && slow_serial)
    text += fmt::format("; more than {} times the bound, so something else slowed the serial steps",
                        kMostOfBound);
  if (unclear && slow_stages)
    text += fmt::format(
        "; a stage alone took more than {} serial steps, so something else slowed the stage alone",
        kMostOfBound);
  if (unclear)
    text += ": measure again, with more steps or on a quiet machine";
  else if (full && verdict != OverlapVerdict::pays)
    text += "; each stage fills the GPU alone";
  return text + ".";
}

void print_table(const Json& rows, const Json& sentences) {
  fmt::print("{:>7} {:>7} {:>7} {:>9} {:>9} {:>10} {:>11} {:>6} {:>8} {:>11}  {}\n", "balance",
             "fill %", "blocks", "t_A ms", "t_B ms", "serial ms", "overlap ms", "bound", "speedup",
             "efficiency", "overlap");
  const auto whole = [](const Json& value) { return value.is_null() ? "-" : value.dump(); };
  for (const Json& row : rows)
    fmt::print(
        "{:>7} {:>7} {:>7} {:>9.3f} {:>9.3f} {:>10.3f} {:>11.3f} {:>6.2f} {:>8.2f} {:>11.2f}  {}\n",
        row["balance"].get<std::string>(), whole(row["grid_fill"]), whole(row["blocks"]),
        row["t_a_ms"].get<double>(), row["t_b_ms"].get<double>(), row["serial_ms"].get<double>(),
        row["overlap_ms"].get<double>(), row["bound"].get<double>(), row["speedup"].get<double>(),
        row["efficiency"].get<double>(), row["verdict"].get<std::string>());
  fmt::print(
      "t_A, t_B: each stage alone. bound: (t_A + t_B) / the longer. speedup: serial / overlap.\n"
      "efficiency: (serial - overlap) / the shorter stage: 1 where all of it is hidden.\n"
      "fill: blocks for each 100 multiprocessors; {} % fill the GPU.\n",
      kFullGrid);
  for (const Json& text : sentences) fmt::print("{}\n", text.get<std::string>());
}

void run(const OverlapOptions& options, const Options& declared) {
  require_each_once("--balance", options.balances);
  require_each_once("--grid-fill", options.fills);
  const Device device = open_device(options.device);
  std::vector<Balance> balances;
  for (const std::string& text : options.balances) balances.push_back(*parse_balance(text));
  check_json(options.json);
  // The host has no grids: one column of cases.
  const std::vector<std::int64_t> fills =
      device.is_cuda() ? options.fills : std::vector<std::int64_t>{0};
  announce(device, 2, options.quiet);
  watch_interrupt();

  const std::unique_ptr<Backend> backend = make_backend(device);
  const double ticks = device.is_cuda() ? ticks_per_second(*backend) : 0;
  Progress progress("overlap", fills.size() * balances.size(), options.quiet);
  Json rows = Json::array();
  for (const std::int64_t fill : fills) {
    for (const Balance& balance : balances) {
      check_interrupt();
      const auto stage = [&](int share) {
        Spin work;
        work.seconds =
            1e-6 * static_cast<double>(options.longest_us) * share / std::max(balance.a, balance.b);
        work.ticks = static_cast<std::int64_t>(work.seconds * ticks);
        work.grid = static_cast<unsigned>((fill * device.multiprocessors + 99) / 100);
        work.block = static_cast<unsigned>(device.threads_per_multiprocessor / kBlocksToFill);
        return work;
      };
      Spin a = stage(balance.a), b = stage(balance.b);
      const OverlapTimes times = measure(*backend, a, b, options);
      Json row;
      row["balance"] = balance.text;
      row["grid_fill"] = device.is_cuda() ? Json(fill) : Json(nullptr);
      row["blocks"] = device.is_cuda() ? Json(a.grid) : Json(nullptr);
      row["t_a_ms"] = 1e3 * times.a;
      row["t_b_ms"] = 1e3 * times.b;
      row["serial_ms"] = 1e3 * times.serial;
      row["overlap_ms"] = 1e3 * times.overlap;
      row["bound"] = overlap_bound(times);
      row["speedup"] = times.serial / times.overlap;
      row["efficiency"] = overlap_efficiency(times);
      row["verdict"] = name_of(overlap_verdict(times));
      rows.push_back(row);
      progress.update(rows.size(), "");
    }
  }

  Json json;
  json["schema"] = 1;
  json["command"] = "bench overlap";
  json["environment"] = environment();
  json["config"] = declared.effective();
  json["device"] = device.name;
  json["gpu"] = device.is_cuda() ? Json(device.gpu) : Json(nullptr);
  json["driver"] = device.is_cuda() ? Json(device.driver) : Json(nullptr);
  json["rows"] = rows;
  json["sentences"] = Json::array();
  for (const OverlapVerdict verdict : {OverlapVerdict::pays, OverlapVerdict::nothing,
                                       OverlapVerdict::hurts, OverlapVerdict::unclear})
    json["sentences"].push_back(sentence(rows, verdict));
  write_json(options.json, json);
  if (options.json != "-") print_table(rows, json["sentences"]);
}

}  // namespace

void add_bench_overlap(CLI::App& bench, Command& selected) {
  CLI::App* app =
      bench.add_subcommand("overlap", "Where overlapping two stages pays, on synthetic stages");
  auto values = std::make_shared<OverlapOptions>();
  auto options = std::make_shared<Options>(*app);
  OverlapOptions& o = *values;
  options->checked_texts(
      "--balance", o.balances, "A:B,..", "lengths of the two stages beside each other",
      [](const std::string& text) { return parse_balance(text).has_value(); },
      fmt::format("two whole numbers from 1 to {} with a colon", kLargestShare));
  options->numbers("--grid-fill", o.fills, 1, 100'000,
                   "blocks of each stage, in percent of the GPU's multiprocessors");
  options->number("--longest", o.longest_us, 1, 10'000'000, "length of the longer stage, us");
  options->number("--warmup", o.warmup, 1, 1'000'000, "batches before the measured ones");
  options->number("--steps", o.steps, 3, 1'000'000, "measured batches");
  add_device_option(*options, o.device);
  options->text("--json", o.json, "FILE|-", "rows with the environment, as JSON");
  options->flag("--quiet", o.quiet, "no progress and no notes on standard error");
  app->callback(
      [&selected, values, options] { selected = [values, options] { run(*values, *options); }; });
}

}  // namespace tandem::program
