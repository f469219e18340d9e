// SPDX-License-Identifier: Apache-2.0
#include "result_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/file_bytes.hpp>
#include <tandem/engine/score_spread.hpp>
#include <tuple>

namespace tandem::program {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
// Of any value here, in any of its units; what is smaller is 0.
constexpr double kSmallest = 1e-9, kLargest = 1e15;
// What a whole may be exceeded by where its parts were rounded.
constexpr double kRounding = 1 + 1e-6;
// Objects and lists within each other. Writing JSON, for messages, recurses.
constexpr int kDeepest = 32;

/// `why` may hold texts of the file.
[[noreturn]] void refuse(const std::string& file, std::string why) {
  std::replace_if(
      why.begin(), why.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
  throw Error(ErrorCode::data, fmt::format("{}: {}", file, why));
}

/// A value of a file that knows its place there, for messages.
class Node {
 public:
  Node(const std::string& file, std::string place, const Json& value)
      : file_(file), place_(std::move(place)), value_(value) {}

  Node at(const std::string& key) const {
    static const Json missing;
    if (!value_.is_object()) wrong("an object");
    const auto found = value_.find(key);
    return {file_, place_.empty() ? key : place_ + "." + key,
            found == value_.end() ? missing : *found};
  }
  std::vector<Node> items() const {
    if (!value_.is_array()) wrong("a list");
    std::vector<Node> nodes;
    for (const Json& item : value_)
      nodes.emplace_back(file_, fmt::format("{}[{}]", place_, nodes.size()), item);
    return nodes;
  }
  std::vector<std::pair<std::string, Node>> members() const {
    if (!value_.is_object()) wrong("an object");
    std::vector<std::pair<std::string, Node>> nodes;
    for (const auto& [key, value] : value_.items()) nodes.emplace_back(key, at(key));
    return nodes;
  }

  /// Missing, or null.
  bool none() const { return value_.is_null(); }
  std::string text() const {
    if (!value_.is_string()) wrong("a text");
    return value_.get<std::string>();
  }
  std::string one_of(const std::vector<std::string>& words) const {
    if (!value_.is_string() || std::find(words.begin(), words.end(), text()) == words.end())
      wrong(fmt::format("{}", fmt::join(words, ", ")));
    return text();
  }
  std::string text_or_empty() const { return none() ? std::string() : text(); }
  bool yes() const {
    if (!value_.is_boolean()) wrong("true or false");
    return value_.get<bool>();
  }
  double number() const {
    if (!value_.is_number()) wrong("a number");
    return value_.get<double>();
  }
  double at_least_0() const {
    if (!value_.is_number() || !(number() >= 0 && number() <= kLargest))
      wrong(fmt::format("a number from 0 to {:g}", kLargest));
    return number() < kSmallest ? 0 : number();
  }
  double above_0() const {
    if (!value_.is_number() || !(number() >= kSmallest && number() <= kLargest))
      wrong(fmt::format("a number from {:g} to {:g}", kSmallest, kLargest));
    return number();
  }
  std::optional<double> percent_or_none() const {
    if (none()) return std::nullopt;
    if (!value_.is_number() || !(number() >= 0 && number() <= 100 * kRounding))
      wrong("a number from 0 to 100");
    return number();
  }
  std::optional<double> share_or_none() const {
    if (none()) return std::nullopt;
    if (!value_.is_number() || !(number() >= 0 && number() <= kRounding))
      wrong("a number from 0 to 1");
    return number();
  }
  std::optional<double> at_least_0_or_none() const {
    return none() ? std::nullopt : std::optional(at_least_0());
  }
  std::optional<double> above_0_or_none() const {
    return none() ? std::nullopt : std::optional(above_0());
  }
  /// What `of` gives, whose terms are of size `scale`.
  double equal_to(double expected, double scale, const char* of) const {
    if (!value_.is_number() || !(std::abs(number() - expected) <= (kRounding - 1) * scale))
      wrong(fmt::format("{}, {:g}", of, expected));
    return number();
  }
  std::int64_t whole(std::int64_t low) const {
    // As unsigned only what a signed number does not hold.
    const bool fits = value_.is_number_integer() &&
                      !(value_.is_number_unsigned() &&
                        value_.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max());
    if (!fits || value_.get<std::int64_t>() < low)
      wrong(fmt::format("a whole number from {}", low));
    return value_.get<std::int64_t>();
  }
  /// As a person would write it: texts without quotes, lists with commas.
  std::string shown() const {
    if (value_.is_string()) return text();
    if (!value_.is_array()) return dump();
    std::string all;
    for (const Node& item : items()) all += (all.empty() ? "" : ", ") + item.shown();
    return all;
  }

  [[noreturn]] void wrong(const std::string& allowed) const {
    std::string seen = dump();
    if (seen.size() > 40) seen = seen.substr(0, 40) + "...";
    refuse(file_, fmt::format("{} is {}; allowed: {}", place_.empty() ? "the whole" : place_,
                              none() ? "missing" : seen, allowed));
  }
  /// `what`: of its parts, with a space before it, or nothing.
  [[noreturn]] void wrong_sum(const char* what, double sum, const std::string& allowed) const {
    refuse(file_, fmt::format("{}{} adds up to {:g}; allowed: {}", place_, what, sum, allowed));
  }

 private:
  std::string dump() const {
    return value_.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  }

  const std::string& file_;
  std::string place_;
  const Json& value_;
};

NamedTexts shown_members(const Node& object) {
  NamedTexts texts;
  for (const auto& [key, value] : object.members()) texts.emplace_back(key, value.shown());
  return texts;
}

/// `count`: of the windows or trials, missing in results of before it was written.
Spread read_spread(const Node& median, const Node& min, const Node& max, const Node& count) {
  const bool alone = !count.none() && count.whole(1) == 1;
  const Spread spread{median.above_0(), min.above_0(), max.above_0(), alone};
  if (spread.min > spread.median) min.wrong("no more than the median");
  if (spread.max < spread.median) max.wrong("no less than the median");
  return spread;
}

/// Empty where there is nothing.
NamedValues read_values(const Node& node) {
  NamedValues values;
  if (node.none()) return values;
  for (const auto& [name, value] : node.members()) values.emplace_back(name, value.at_least_0());
  return values;
}

/// A bound on what overlapping the stages can gain.
std::optional<double> read_bound(const Node& node, const NamedValues& stages) {
  if (node.none()) return std::nullopt;
  double sum = 0, longest = 0;
  for (const auto& [name, ms] : stages) {
    sum += ms;
    longest = std::max(longest, ms);
  }
  if (longest == 0) node.wrong("nothing without stage_ms");
  return node.equal_to(sum / longest, sum / longest, "the sum of stage_ms / the longest");
}

/// read_values(), each within a step.
NamedValues read_parts(const Node& node, double step_ms) {
  const NamedValues parts = read_values(node);
  for (const auto& [name, ms] : parts)
    if (ms > step_ms * kRounding)
      node.at(name).wrong(fmt::format("a number from 0 to step_ms, {:g}", step_ms));
  return parts;
}

/// And which a step is divided into.
NamedValues read_split(const Node& node, double step_ms) {
  const NamedValues parts = read_parts(node, step_ms);
  double sum = 0;
  for (const auto& [name, ms] : parts) sum += ms;
  if (sum > step_ms * kRounding)
    node.wrong_sum("", sum, fmt::format("at most step_ms, {:g}", step_ms));
  return parts;
}

// What the options of these names take.
std::string read_schedule(const Node& node) { return node.one_of({"serial", "overlap", "graph"}); }
std::string read_precision(const Node& node) { return node.one_of({"fp32", "tf32", "bf16"}); }
std::string read_input(const Node& node) { return node.one_of({"loader", "device"}); }

std::vector<std::string> read_texts(const Node& list) {
  std::vector<std::string> texts;
  for (const Node& item : list.items()) texts.push_back(item.text());
  return texts;
}

std::vector<Node> rows_of(const Node& root) {
  std::vector<Node> rows = root.at("rows").items();
  if (rows.empty()) root.at("rows").wrong("at least one row");
  return rows;
}

/// Two rows of one name are refused.
template <class Row, class Name>
void refuse_twins(const std::string& file, const std::vector<Row>& rows, const Name& name_of) {
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string name = name_of(rows[i]);
    const auto [other, is_new] = places.emplace(name, i);
    if (!is_new)
      refuse(file,
             fmt::format("rows[{}] and rows[{}] are one row twice: {}", other->second, i, name));
  }
}

BenchRow read_bench_row(const Node& node) {
  BenchRow row;
  Job& job = row.job;
  job.workload = node.at("workload").text();
  job.image = node.at("image").whole(1);
  job.classes = node.at("classes").whole(1);
  job.batch = node.at("batch").whole(1);
  job.schedule = read_schedule(node.at("schedule"));
  job.precision = read_precision(node.at("precision"));
  job.input = read_input(node.at("input"));
  job.workers = node.at("workers").whole(0);
  job.augment = node.at("augment").text_or_empty();
  const Node rate = node.at("steps_per_s");
  row.steps_per_s =
      read_spread(rate.at("median"), rate.at("min"), rate.at("max"), node.at("windows"));
  row.images_per_s = node.at("images_per_s").above_0();
  const double images = row.steps_per_s.median * static_cast<double>(job.batch);
  node.at("images_per_s").equal_to(images, images, "steps_per_s.median x batch");
  row.memory_bytes = node.at("memory_bytes").at_least_0();
  row.stages = read_values(node.at("stage_ms"));
  row.bound = read_bound(node.at("bound"), row.stages);
  row.gpu_busy_pct = node.at("gpu_busy_pct").percent_or_none();
  row.nvml_util_pct = node.at("nvml_util_pct").percent_or_none();
  row.sm_clock_mhz = node.at("sm_clock_mhz").at_least_0_or_none();
  row.verified = node.at("verified").yes();
  return row;
}

BenchResult read_bench(const std::string& file, const Node& root) {
  BenchResult result;
  for (const Node& node : rows_of(root)) {
    result.rows.push_back(read_bench_row(node));
    if (result.rows.back().job.workload != result.rows.front().job.workload)
      node.at("workload").wrong("the workload of the first row");
  }
  refuse_twins(file, result.rows, [](const BenchRow& row) { return describe(row.job); });
  return result;
}

/// Of trainings with each of the seeds.
void read_scores(const Node& node, std::int64_t seeds, FoundRow& row) {
  const std::vector<Node> all = node.at("scores").items();
  if (static_cast<std::int64_t>(all.size()) != seeds)
    node.at("scores").wrong(fmt::format("one for each of the {} seeds", seeds));
  std::vector<double> scores;
  for (const Node& score : all)
    if (const std::optional<double> share = score.share_or_none()) scores.push_back(*share);
  row.diverged = node.at("diverged").whole(0);
  const std::int64_t diverged = seeds - static_cast<std::int64_t>(scores.size());
  if (row.diverged != diverged)
    node.at("diverged").wrong(fmt::format("the seeds without a score, {}", diverged));

  const auto figure = [&](const char* name, std::optional<double> expected) {
    const Node read = node.at(name);
    if (expected) return std::optional(read.equal_to(*expected, 1, "that of scores"));
    if (!read.none()) read.wrong("nothing of so few scores");
    return std::optional<double>();
  };
  const std::optional<tandem::Spread> spread = spread_of(scores);
  const auto of_any = [&](double value) { return spread ? std::optional(value) : std::nullopt; };
  row.score_mean = figure("score_mean", of_any(spread ? spread->mean : 0));
  row.score_min = figure("score_min", of_any(spread ? spread->min : 0));
  row.score_max = figure("score_max", of_any(spread ? spread->max : 0));
  row.score_deviation = figure("score_stddev", spread ? spread->deviation : std::nullopt);
}

/// `seeds`: 0 without scores.
FoundRow read_found_row(const Node& node, const Job& of_all, std::int64_t seeds) {
  FoundRow row;
  row.job = of_all;
  row.job.batch = node.at("global_batch").whole(1);
  row.status = node.at("status").one_of({"ok", "oom", "skipped"});
  row.reason = node.at("reason").text_or_empty();
  row.predicted_bytes = node.at("predicted_bytes").at_least_0();
  if (!row.ok()) return row;
  node.at("steps_run").whole(1);
  row.samples_per_s = read_spread(node.at("throughput_median"), node.at("throughput_min"),
                                  node.at("throughput_max"), node.at("repeats"));
  row.step_ms = node.at("step_ms_mean").above_0();
  const double step_ms = 1e3 * static_cast<double>(row.job.batch) / row.samples_per_s.median;
  node.at("step_ms_mean").equal_to(step_ms, step_ms, "1000 x global_batch / throughput_median");
  row.held_bytes = node.at("mem_peak_bytes").at_least_0();
  row.stages = read_values(node.at("stage_ms"));
  row.serial_ms = node.at("serial_ms").above_0_or_none();
  row.overlap_ms = node.at("overlap_ms").above_0_or_none();
  row.bound = read_bound(node.at("predicted_speedup"), row.stages);
  row.speedup = node.at("measured_speedup").above_0_or_none();
  if (row.speedup) {
    if (!row.serial_ms || !row.overlap_ms)
      node.at("measured_speedup").wrong("nothing without serial_ms and overlap_ms");
    const double speedup = *row.serial_ms / *row.overlap_ms;
    node.at("measured_speedup").equal_to(speedup, speedup, "serial_ms / overlap_ms");
  }
  row.overlap = node.at("overlap").text_or_empty();
  for (const char* name : {"gpu_busy_pct", "nvml_util_pct"}) node.at(name).percent_or_none();
  if (seeds > 0) read_scores(node, seeds, row);
  return row;
}

FoundResult read_found(const std::string& file, const Node& root) {
  Job of_all;
  of_all.workload = root.at("workload").text();
  of_all.image = root.at("image").whole(0);  // 0: rows of numbers
  const Node config = root.at("config");
  of_all.schedule = read_schedule(config.at("schedule"));
  of_all.precision = read_precision(config.at("precision"));
  of_all.input = read_input(config.at("input"));
  if (of_all.input == "loader") of_all.workers = config.at("workers").whole(1);
  if (!config.at("classes").none()) of_all.classes = config.at("classes").whole(1);
  of_all.augment = config.at("augment").text_or_empty();

  FoundResult result;
  result.memory_bytes = root.at("memory_bytes").at_least_0();
  if (!root.at("accuracy").none()) {
    const Node accuracy = root.at("accuracy");
    result.accuracy =
        FoundAccuracy{accuracy.at("score").text(), accuracy.at("seeds").whole(1),
                      accuracy.at("train_samples").whole(1), accuracy.at("comparison").text()};
  }
  for (const Node& node : rows_of(root))
    result.rows.push_back(
        read_found_row(node, of_all, result.accuracy ? result.accuracy->seeds : 0));
  refuse_twins(file, result.rows, [](const FoundRow& row) { return describe(row.job); });
  result.notes = read_texts(root.at("notes"));
  const auto answer = [&](const char* name) {
    const Node batch = root.at(name).at("batch");
    const FoundAnswer read{batch.whole(1), root.at(name).at("reason").text()};
    if (std::none_of(result.rows.begin(), result.rows.end(),
                     [&](const FoundRow& row) { return row.ok() && row.job.batch == read.batch; }))
      batch.wrong("the batch of a row that is ok");
    return read;
  };
  result.largest_feasible = answer("largest_feasible");
  result.best_throughput = answer("best_throughput");
  result.recommended = answer("recommended");
  return result;
}

OverlapResult read_overlap(const std::string& file, const Node& root) {
  OverlapResult result;
  for (const Node& node : rows_of(root)) {
    OverlapRow& row = result.rows.emplace_back();
    row.balance = node.at("balance").text();
    if (!node.at("grid_fill").none()) row.grid_fill = node.at("grid_fill").whole(1);
    row.t_a_ms = node.at("t_a_ms").above_0();
    row.t_b_ms = node.at("t_b_ms").above_0();
    row.serial_ms = node.at("serial_ms").above_0();
    row.overlap_ms = node.at("overlap_ms").above_0();
    const auto [shorter, longer] = std::minmax(row.t_a_ms, row.t_b_ms);
    const double bound = (shorter + longer) / longer, speedup = row.serial_ms / row.overlap_ms;
    row.bound = node.at("bound").equal_to(bound, bound, "(t_a_ms + t_b_ms) / the longer");
    row.speedup = node.at("speedup").equal_to(speedup, speedup, "serial_ms / overlap_ms");
    row.efficiency = node.at("efficiency")
                         .equal_to((row.serial_ms - row.overlap_ms) / shorter,
                                   (row.serial_ms + row.overlap_ms) / shorter,
                                   "(serial_ms - overlap_ms) / the shorter stage");
    row.verdict = node.at("verdict").one_of({"pays", "does nothing", "hurts", "unclear"});
  }
  refuse_twins(file, result.rows, [](const OverlapRow& row) {
    return fmt::format("balance {}{}", row.balance,
                       row.grid_fill ? fmt::format(", grid fill {} %", *row.grid_fill) : "");
  });
  result.sentences = read_texts(root.at("sentences"));
  return result;
}

/// Parts of the memory on the device and of the pinned one, each at most the whole that it is of.
NamedValues read_memory(const Node& list, double device_bytes, double pinned_bytes) {
  NamedValues parts;
  double on_device = 0, pinned = 0;
  for (const Node& part : list.items()) {
    const bool is_pinned = part.at("pinned").yes();
    const Node bytes = part.at("bytes");
    const double whole = is_pinned ? pinned_bytes : device_bytes;
    const char* const name = is_pinned ? "pinned_bytes" : "device_bytes";
    if (bytes.at_least_0() > whole * kRounding)
      bytes.wrong(fmt::format("a number from 0 to {}, {:g}", name, whole));
    (is_pinned ? pinned : on_device) += bytes.at_least_0();
    parts.emplace_back(part.at("purpose").text(), bytes.at_least_0());
  }
  if (on_device > device_bytes * kRounding)
    list.wrong_sum(" on the device", on_device,
                   fmt::format("at most device_bytes, {:g}", device_bytes));
  if (pinned > pinned_bytes * kRounding)
    list.wrong_sum(" that is pinned", pinned,
                   fmt::format("at most pinned_bytes, {:g}", pinned_bytes));
  return parts;
}

/// Of `steps` steps that took `step_ms` each, with `records` of all kinds where that is known.
std::vector<KernelRow> read_kernels(const Node& list, double steps, double step_ms,
                                    const Node& records) {
  std::vector<KernelRow> kernels;
  double calls = 0;
  for (const Node& kernel : list.items()) {
    const KernelRow& row = kernels.emplace_back(KernelRow{kernel.at("name").text(),
                                                          kernel.at("count_per_step").above_0(),
                                                          kernel.at("ms_per_step").at_least_0()});
    // Several may run at once, but none longer than all that was recorded.
    const double most = row.calls * steps * step_ms;
    if (row.ms > most * kRounding)
      kernel.at("ms_per_step")
          .wrong(fmt::format("at most count_per_step times the whole recording, {:g}", most));
    calls += row.calls * steps;
  }
  if (records.none()) return kernels;
  const auto most = static_cast<double>(records.whole(0));
  if (calls > most * kRounding)
    list.wrong_sum("", calls, fmt::format("at most records, {:g}", most));
  return kernels;
}

ProfileRow read_profile_row(const Node& node) {
  ProfileRow row;
  row.batch = node.at("batch").whole(1);
  const auto steps = static_cast<double>(node.at("steps").whole(1));
  row.step_ms = node.at("step_ms").above_0();
  row.plain_step_ms = node.at("plain_step_ms").above_0_or_none();
  row.split = read_split(node.at("split_ms"), row.step_ms);
  row.hidden = read_parts(node.at("hidden_ms"), row.step_ms);
  row.stages = read_parts(node.at("stage_ms"), row.step_ms);
  row.kernel_busy_pct = node.at("kernel_busy_pct").percent_or_none();
  // Of both lists, where they tell it.
  double kernel_ms = 0;
  bool known = false;
  for (const NamedValues* parts : {&row.split, &row.hidden})
    for (const auto& [name, ms] : *parts)
      if (name == "kernel") kernel_ms += ms, known = true;
  if (row.kernel_busy_pct && known)
    node.at("kernel_busy_pct")
        .equal_to(100 * kernel_ms / row.step_ms, 100, "the kernels' part of step_ms");
  row.overlap_pct = node.at("overlap_pct").percent_or_none();
  row.sm_fill_pct = node.at("sm_fill_pct").percent_or_none();
  row.nvml_util_pct = node.at("nvml_util_pct").percent_or_none();
  row.device_bytes = node.at("memory").at("device_bytes").at_least_0();
  row.pinned_bytes = node.at("memory").at("pinned_bytes").at_least_0();
  row.memory = read_memory(node.at("memory").at("parts"), row.device_bytes, row.pinned_bytes);
  row.kernels = read_kernels(node.at("top_kernels"), steps, row.step_ms, node.at("records"));
  for (const Node& finding : node.at("findings").items())
    row.findings.push_back(finding.at("text").text());
  return row;
}

ProfileResult read_profile(const std::string& file, const Node& root) {
  ProfileResult result;
  result.workload = root.at("workload").text();
  for (const Node& node : rows_of(root)) result.rows.push_back(read_profile_row(node));
  refuse_twins(file, result.rows,
               [](const ProfileRow& row) { return fmt::format("batch {}", row.batch); });
  return result;
}

}  // namespace

std::string describe(const Job& job) {
  std::vector<std::string> parts;
  if (!job.workload.empty()) parts.push_back(job.workload);
  if (job.image > 0) parts.push_back(fmt::format("image {}", job.image));
  if (job.classes > 0) parts.push_back(fmt::format("{} classes", job.classes));
  if (job.batch > 0) parts.push_back(fmt::format("batch {}", job.batch));
  if (!job.schedule.empty()) parts.push_back(job.schedule);
  if (!job.precision.empty()) parts.push_back(job.precision);
  if (!job.augment.empty()) parts.push_back("augment " + job.augment);
  if (job.input == "loader")
    parts.push_back(fmt::format("loader with {} workers", job.workers));
  else if (!job.input.empty())
    parts.push_back("input " + job.input);
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool operator==(const Job& a, const Job& b) {
  const auto all = [](const Job& job) {
    return std::tie(job.workload, job.image, job.classes, job.batch, job.schedule, job.precision,
                    job.input, job.workers, job.augment);
  };
  return all(a) == all(b);
}

Result parse_result(const std::string& file, const std::string& text) {
  Json json;
  try {
    json = Json::parse(text, [&](int depth, Json::parse_event_t, const Json&) {
      if (depth > kDeepest)
        refuse(file, fmt::format("is nested deeper than the allowed {} levels", kDeepest));
      return true;
    });
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string what = error.what();
    const std::size_t begin = what.find("] ");
    refuse(file, fmt::format("is not JSON: {}",
                             begin == std::string::npos ? what : what.substr(begin + 2)));
  }
  const std::string results =
      "a result that bench, bench overlap, find-batch or profile wrote with --json";
  if (!json.is_object()) refuse(file, fmt::format("is not an object; allowed: {}", results));
  const Node root(file, "", json);
  if (json.value("schema", Json()) != Json(kSchema))
    root.at("schema").wrong(fmt::format("{}, {}", kSchema, results));

  Result result;
  result.file = file;
  if (root.at("command").none()) root.at("command").wrong(results);
  result.command = root.at("command").text();
  // A row of bench says it, as the others' files do.
  const Node of_device = result.command == "bench" ? rows_of(root).front() : root;
  if (result.command == "bench")
    result.content = read_bench(file, root);
  else if (result.command == "find-batch")
    result.content = read_found(file, root);
  else if (result.command == "bench overlap")
    result.content = read_overlap(file, root);
  else if (result.command == "profile")
    result.content = read_profile(file, root);
  else
    root.at("command").wrong(results);
  result.environment = shown_members(root.at("environment"));
  result.config = shown_members(root.at("config"));
  result.device = of_device.at("device").text();
  result.gpu = of_device.at("gpu").text_or_empty();
  result.driver = of_device.at("driver").text_or_empty();
  return result;
}

Result read_result(const std::string& file) {
  const std::vector<std::uint8_t> bytes = read_file_bytes(file);
  return parse_result(file, std::string(bytes.begin(), bytes.end()));
}

}  // namespace tandem::program
