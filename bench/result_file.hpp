// SPDX-License-Identifier: Apache-2.0
// What `tandem bench`, `bench overlap`, `find-batch` and `profile` wrote with --json, read back and
// checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tandem::program {

/// Of several measurements of one speed. 0 < min <= median <= max.
struct Spread {
  double median = 0, min = 0, max = 0;
  bool alone = false;  ///< of one window or trial: how far others would be is not known
};

using NamedTexts = std::vector<std::pair<std::string, std::string>>;
using NamedValues = std::vector<std::pair<std::string, double>>;

/// What one speed was measured on; equal for rows that may be compared. Empty texts, and 0, are not
/// said.
struct Job {
  std::string workload;
  std::int64_t image = 0, classes = 0, batch = 0;
  std::string schedule, precision, input;
  std::int64_t workers = 0;
  std::string augment;
};
/// "segment, image 64, 10 classes, batch 8, overlap, fp32, loader with 8 workers"
std::string describe(const Job& job);
bool operator==(const Job& a, const Job& b);

struct BenchRow {
  Job job;
  Spread steps_per_s;
  double images_per_s = 0, memory_bytes = 0;
  NamedValues stages;  // ms, each alone
  std::optional<double> bound, gpu_busy_pct, nvml_util_pct, sm_clock_mhz;
  bool verified = false;
};

struct BenchResult {
  std::vector<BenchRow> rows;
};

/// A batch size with its measurements where its status is "ok", and the reason where it is not.
struct FoundRow {
  Job job;
  std::string status, reason;
  double predicted_bytes = 0;

  Spread samples_per_s;
  double step_ms = 0, held_bytes = 0;
  NamedValues stages;  // ms, each alone; empty after --no-overlap, as are the next
  std::optional<double> serial_ms, overlap_ms, bound, speedup;
  std::string overlap;  // a sentence

  std::optional<double> score_mean, score_deviation, score_min, score_max;  // --with-accuracy
  std::int64_t diverged = 0;                                                // of its seeds

  bool ok() const { return status == "ok"; }
};

struct FoundAnswer {
  std::int64_t batch = 0;
  std::string reason;
};

/// What --with-accuracy adds.
struct FoundAccuracy {
  std::string score;  // "accuracy", "miou"
  std::int64_t seeds = 0, train_samples = 0;
  std::string comparison;
};

struct FoundResult {
  double memory_bytes = 0;
  std::optional<FoundAccuracy> accuracy;
  std::vector<FoundRow> rows;
  std::vector<std::string> notes;
  FoundAnswer largest_feasible, best_throughput, recommended;
};

struct OverlapRow {
  std::string balance;
  std::optional<std::int64_t> grid_fill;  // percent
  double t_a_ms = 0, t_b_ms = 0, serial_ms = 0, overlap_ms = 0, bound = 0, speedup = 0;
  double efficiency = 0;
  std::string verdict;  // pays, does nothing, hurts, unclear
};

struct OverlapResult {
  std::vector<OverlapRow> rows;
  std::vector<std::string> sentences;
};

struct KernelRow {
  std::string name;
  double calls = 0, ms = 0;  // a step
};

struct ProfileRow {
  std::int64_t batch = 0;
  double step_ms = 0;
  std::optional<double> plain_step_ms;  // without profiling
  NamedValues split, hidden, stages;    // ms a step; the split adds up to it
  std::optional<double> kernel_busy_pct, overlap_pct, sm_fill_pct, nvml_util_pct;
  double device_bytes = 0, pinned_bytes = 0;
  NamedValues memory;  // bytes by purpose
  std::vector<KernelRow> kernels;
  std::vector<std::string> findings;
};

struct ProfileResult {
  std::string workload;
  std::vector<ProfileRow> rows;
};

struct Result {
  std::string file;     // as it was named
  std::string command;  // "bench", "bench overlap", "find-batch", "profile"
  NamedTexts environment;
  NamedTexts config;                // every option with its value, as JSON has it
  std::string device, gpu, driver;  // the last two are empty on the host
  std::variant<BenchResult, FoundResult, OverlapResult, ProfileResult> content;
};

/// Throws Error{data} with the file and the place in it for text that is not JSON, not a result of
/// these commands in this version's schema, has no row, one row twice, or a value that cannot be:
/// outside its range, a share above 100 %, a word that no option has, parts that exceed their whole
/// (of a step, of the memory, of what was recorded), or a ratio or a score that is not that of its
/// terms: docs/report.md lists them. Fields that it does not know are passed over.
Result parse_result(const std::string& file, const std::string& text);

/// As parse_result(), and Error{data} for a file that cannot be read.
Result read_result(const std::string& file);

}  // namespace tandem::program
