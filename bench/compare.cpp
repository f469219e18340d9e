// SPDX-License-Identifier: Apache-2.0
// `tandem compare`: two results of one benchmark, row by row.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tandem/engine/error.hpp>

#include "common.hpp"
#include "comparison.hpp"

namespace tandem::program {
namespace {

struct CompareOptions {
  std::string a, b, json;
  double tolerance = kSameSpeed;
};

/// A row with a speed, or without one and why.
struct Measured {
  Job job;
  std::optional<Spread> speed;
  std::string why_none;
};

std::vector<Measured> measured_rows(const Result& result) {
  std::vector<Measured> rows;
  if (const auto* bench = std::get_if<BenchResult>(&result.content)) {
    for (const BenchRow& row : bench->rows) {
      if (!row.verified)
        throw Error(ErrorCode::data,
                    fmt::format("{}: row '{}' is not verified: its results are not those of serial "
                                "training, so its speed says nothing",
                                result.file, describe(row.job)));
      rows.push_back({row.job, row.steps_per_s, {}});
    }
  } else if (const auto* found = std::get_if<FoundResult>(&result.content)) {
    for (const FoundRow& row : found->rows) {
      if (row.ok())
        rows.push_back({row.job, row.samples_per_s, {}});
      else
        rows.push_back({row.job, std::nullopt, fmt::format("{}: {}", row.status, row.reason)});
    }
  } else {
    throw Error(ErrorCode::data,
                fmt::format("{}: a result of {}, whose rows have no spread; allowed: results of "
                            "bench segment, bench classify, find-batch",
                            result.file, result.command));
  }
  return rows;
}

void check_comparable(const Result& a, const Result& b, const Job& of_a, const Job& of_b) {
  const auto name = [](const Result& result, const Job& job) {
    return fmt::format("{} is of {} {}", result.file, result.command, job.workload);
  };
  if (a.command != b.command || of_a.workload != of_b.workload)
    throw Error(ErrorCode::data, fmt::format("{} and {}; allowed: one command and workload",
                                             name(a, of_a), name(b, of_b)));
}

/// Entries that are not the same in both, each "name: value of a | value of b".
std::vector<std::string> differences(NamedTexts a, const NamedTexts& b,
                                     const std::vector<std::string>& passed_over) {
  const auto value_in = [](const NamedTexts& texts, const std::string& name) {
    for (const auto& [key, value] : texts)
      if (key == name) return value;
    return std::string();
  };
  for (const auto& [name, value] : b)
    if (value_in(a, name).empty()) a.emplace_back(name, "");
  std::vector<std::string> lines;
  for (const auto& [name, value] : a) {
    if (std::find(passed_over.begin(), passed_over.end(), name) != passed_over.end()) continue;
    const std::string other = value_in(b, name);
    const auto shown = [](const std::string& text) { return text.empty() ? "-" : text; };
    if (value != other)
      lines.push_back(fmt::format("{}: {} | {}", name, shown(value), shown(other)));
  }
  return lines;
}

std::vector<std::string> all_differences(const Result& a, const Result& b) {
  const auto device = [](const Result& result) {
    return NamedTexts{{"device", result.device}, {"gpu", result.gpu}, {"driver", result.driver}};
  };
  std::vector<std::string> lines = differences(device(a), device(b), {});
  for (std::string& line : differences(a.environment, b.environment, {"date"}))
    lines.push_back(std::move(line));
  // What rows are told apart by, and where results went.
  for (std::string& line :
       differences(a.config, b.config,
                   {"batch", "image", "classes", "schedule", "precision", "input", "workers",
                    "augment", "device", "json", "quiet", "config"}))
    lines.push_back(std::move(line));
  return lines;
}

const Measured* row_of(const std::vector<Measured>& rows, const Job& job) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const Measured& row) { return row.job == job; });
  return found == rows.end() ? nullptr : &*found;
}

/// "only in a.json: segment, ..., and why there is no speed on the other side
std::vector<std::string> rows_without_partner(const std::vector<Measured>& rows,
                                              const std::string& file,
                                              const std::vector<Measured>& others,
                                              const std::string& other_file) {
  std::vector<std::string> lines;
  for (const Measured& row : rows) {
    if (!row.speed) continue;
    const Measured* other = row_of(others, row.job);
    if (other != nullptr && other->speed) continue;
    lines.push_back(fmt::format("only in {}: {}", file, describe(row.job)));
    if (other != nullptr) lines.back() += fmt::format(" (in {} {})", other_file, other->why_none);
  }
  return lines;
}

std::string shown(const Spread& speed) {
  return fmt::format("{:.2f} ({:.2f} .. {:.2f})", speed.median, speed.min, speed.max);
}

Json to_json(const Spread& speed) {
  return {{"median", speed.median}, {"min", speed.min}, {"max", speed.max}};
}

Json to_json(const Job& job) {
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  return {{"workload", job.workload},
          {"image", job.image},
          {"classes", job.classes > 0 ? Json(job.classes) : Json()},
          {"batch", job.batch},
          {"schedule", job.schedule},
          {"precision", job.precision},
          {"input", job.input},
          {"workers", job.workers},
          {"augment", text(job.augment)}};
}

void run(const CompareOptions& options) {
  check_json(options.json);
  const Result a = read_result(options.a), b = read_result(options.b);
  const std::vector<Measured> rows_a = measured_rows(a), rows_b = measured_rows(b);
  check_comparable(a, b, rows_a.front().job, rows_b.front().job);

  Json json;
  json["schema"] = 1;
  json["command"] = "compare";
  json["a"] = a.file;
  json["b"] = b.file;
  json["tolerance"] = options.tolerance;
  json["rows"] = Json::array();
  std::map<Verdict, int> counts;
  std::string table =
      fmt::format("{:<10} {:>30} {:>30} {:>7}  {}\n", "b is",
                  std::holds_alternative<BenchResult>(a.content) ? "a: steps/s (min .. max)"
                                                                 : "a: samples/s (min .. max)",
                  "b", "b / a", "row");
  for (const Measured& row : rows_a) {
    const Measured* other = row_of(rows_b, row.job);
    if (!row.speed || other == nullptr || !other->speed) continue;
    const Verdict verdict = compare_speeds(*row.speed, *other->speed, options.tolerance);
    ++counts[verdict];
    const double ratio = other->speed->median / row.speed->median;
    table += fmt::format("{:<10} {:>30} {:>30} {:>7.3f}  {}\n", name_of(verdict), shown(*row.speed),
                         shown(*other->speed), ratio, printable(describe(row.job)));
    Json line = to_json(row.job);
    line["a"] = to_json(*row.speed);
    line["b"] = to_json(*other->speed);
    line["ratio"] = ratio;
    line["verdict"] = name_of(verdict);
    json["rows"].push_back(std::move(line));
  }
  if (json["rows"].empty())
    throw Error(
        ErrorCode::data,
        fmt::format("{} and {} have no row in common: the first has '{}', the second '{}'", a.file,
                    b.file, describe(rows_a.front().job), describe(rows_b.front().job)));

  json["differences"] = all_differences(a, b);
  json["only_in_a"] = rows_without_partner(rows_a, a.file, rows_b, b.file);
  json["only_in_b"] = rows_without_partner(rows_b, b.file, rows_a, a.file);
  write_json(options.json, json);
  if (options.json != "-") {
    fmt::print("a: {}\nb: {}\n", printable(a.file), printable(b.file));
    for (const Json& line : json["differences"])
      fmt::print("  {}\n", printable(line.get<std::string>()));
    fmt::print("{}", table);
    for (const char* side : {"only_in_a", "only_in_b"})
      for (const Json& line : json[side]) fmt::print("{}\n", printable(line.get<std::string>()));
    fmt::print("{} faster, {} same, {} ambiguous, {} slower\n", counts[Verdict::faster],
               counts[Verdict::same], counts[Verdict::ambiguous], counts[Verdict::slower]);
  }
  if (counts[Verdict::slower] > 0)
    throw Error(ErrorCode::run_failed,
                fmt::format("{} of {} slower in {} than in {}", counts[Verdict::slower],
                            count_of(static_cast<std::int64_t>(json["rows"].size()), "row"), b.file,
                            a.file));
}

}  // namespace

void add_compare(CLI::App& root, Command& selected) {
  CLI::App* app = root.add_subcommand(
      "compare", "Two results of one benchmark, row by row: same, faster, slower or ambiguous");
  auto values = std::make_shared<CompareOptions>();
  auto options = std::make_shared<Options>(*app);
  CompareOptions& o = *values;
  app->add_option("a.json", o.a, "what bench or find-batch wrote with --json, before")
      ->required()
      ->type_name("");
  app->add_option("b.json", o.b, "the same, after")->required()->type_name("");
  options->real("--tolerance", o.tolerance, 0.001, 0.5,
                "part by which two speeds may differ and still be the same");
  options->text("--json", o.json, "FILE|-", "the rows with their verdicts, as JSON");
  app->footer(
      "b is faster where its median is above a's by more than the tolerance and its slowest\n"
      "window above a's fastest; slower where it is the other way round; same where the medians\n"
      "differ by no more than the tolerance and neither speed spreads (max - min over the\n"
      "median) by more than twice that; else ambiguous, as is a difference where one of them is\n"
      "of one window alone. Rows that only one file has are named.\n"
      "Exit codes: 0 nothing is slower, 1 something is, 2 usage, 3 a file is no such result, a\n"
      "row is not verified, or there is no row to compare.");
  app->callback([&selected, values, options] { selected = [values, options] { run(*values); }; });
}

}  // namespace tandem::program
