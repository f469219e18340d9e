// SPDX-License-Identifier: Apache-2.0
#include "report_page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "chart.hpp"
#include "comparison.hpp"
#include "html.hpp"

namespace tandem::program {
namespace {

using html::escape;
using html::number;

constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
/// A speed within this part of the best is as good, and an overlap that can gain less has little to
/// gain.
constexpr double kAsGood = 0.05;

constexpr const char* kHead = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Tandem report</title>
<style>
:root {
  color-scheme: light dark;
  --page: #ffffff; --text: #1c2024; --quiet: #59636e; --line: #d8dee4; --panel: #f5f7f9;
  --shade: #c3cad2; --link: #0b5cad; --good: #0f6b3a; --bad: #a4231b;
  --s0: #2f6db5; --s1: #c2571a; --s2: #26835a; --s3: #7b4fb0; --s4: #a63060; --s5: #7a6a1f;
  --s6: #6a7480; --s7: #1795a3;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --text: #e4e7ea; --quiet: #9aa5b1; --line: #343b43; --panel: #1d2227;
    --shade: #48525c; --link: #7db7f5; --good: #63cf94; --bad: #ff8f85;
    --s0: #6ea8ee; --s1: #f0955a; --s2: #58c596; --s3: #b797ea; --s4: #ee83ab; --s5: #cfbd61;
    --s6: #8d98a4; --s7: #4cc3d0;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.75rem 0 .5rem; }
p { margin: .4rem 0; }
a { color: var(--link); }
.quiet, caption, .spread { color: var(--quiet); }
.quiet { font-size: .9rem; }
.advice { background: var(--panel); border: 1px solid var(--line); border-radius: .5rem;
  padding: .25rem 1rem .75rem; margin-top: 1rem; }
.advice h2 { border: 0; margin: .25rem 0 0; padding-top: .5rem; }
.advice h3 { margin: .9rem 0 .2rem; }
.advice ul { margin: 0; padding-left: 1.2rem; }
/* Shaded where there is more to scroll to. */
.scroll { overflow-x: auto; margin: .75rem 0; background:
  linear-gradient(to right, var(--page) 1.5rem, transparent) left / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--page) 1.5rem, transparent) right / 3rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), transparent) left / 1rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), transparent) right / 1rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .25rem; font-size: .875rem; white-space: nowrap; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: baseline; font-weight: normal; overflow-wrap: normal; }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom; font-weight: 600; max-width: 11rem; }
thead .n { white-space: normal; }
tbody th { font-weight: 600; }
.n { text-align: right; white-space: nowrap; }
.spread { display: block; font-size: .75rem; }
.sentence { display: block; min-width: 16rem; }
.good { color: var(--good); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1rem 2rem; align-items: start; }
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; margin-top: .75rem; }
figure > svg { display: block; width: 100%; max-width: 34rem; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--quiet); }
.grid, .tick { stroke: var(--line); }
.chosen { stroke: var(--quiet); stroke-dasharray: 2 3; }
.limit { stroke: var(--bad); stroke-dasharray: 6 3; }
.line { fill: none; stroke-width: 1.75; } .line.s0 { stroke-width: 4; stroke-opacity: .55; }
.range { stroke-width: 5; stroke-opacity: .35; }
.mark { stroke: var(--page); stroke-width: .75; }
.part { stroke: var(--page); }
.line.s0, .range.s0 { stroke: var(--s0); } .mark.s0, .part.s0 { fill: var(--s0); }
.line.s1, .range.s1 { stroke: var(--s1); } .mark.s1, .part.s1 { fill: var(--s1); }
.line.s2, .range.s2 { stroke: var(--s2); } .mark.s2, .part.s2 { fill: var(--s2); }
.part.s3 { fill: var(--s3); } .part.s4 { fill: var(--s4); } .part.s5 { fill: var(--s5); }
.part.s6 { fill: var(--s6); } .part.s7 { fill: var(--s7); }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; list-style: none; margin: .25rem 0 0;
  padding: 0; font-size: .875rem; }
summary { cursor: pointer; color: var(--link); margin: .75rem 0 .25rem; }
dt { font-weight: 600; } dd { margin: 0 0 .4rem; }
</style>
</head>
<body>
)";

constexpr const char* kWords = R"(<section>
<h2>Words</h2>
<dl class="quiet">
<dt>small print under a speed</dt><dd>its slowest and fastest window, or trial</dd>
<dt>bound</dt><dd>the most that overlapping can gain: the sum of the stages' times, each alone, over the longest</dd>
<dt>gain, speed-up</dt><dd>speed over that of the serial schedule at the same batch</dd>
<dt>verified</dt><dd>losses and weights have the bits of an untimed serial run on the same data</dd>
<dt>busy</dt><dd>share of time in which a stage was under way, in a run of its own</dd>
<dt>NVML</dt><dd>the driver's counter in that run: share of time in which a kernel was running</dd>
</dl>
</section>
)";

// --- pieces

std::string element(const char* name, const std::string& content) {
  return fmt::format("<{0}>{1}</{0}>\n", name, content);
}

std::string spread_cell(const Spread& spread, double factor, int digits) {
  return fmt::format("{}<span class=\"spread\">{} .. {}</span>",
                     number(factor * spread.median, digits), number(factor * spread.min, digits),
                     number(factor * spread.max, digits));
}

std::string batch_cell(std::int64_t batch) { return number(static_cast<double>(batch), 0); }

std::string coloured(bool good, bool bad, const std::string& text) {
  const char* kind = good ? "good" : bad ? "bad" : "";
  return fmt::format("<span class=\"{}\">{}</span>", kind, escape(text));
}

std::string table_of_texts(const std::string& caption, const NamedTexts& texts) {
  html::Table table{caption, {"name", "value"}, {}, 2};
  for (const auto& [name, value] : texts) table.rows.push_back({escape(name), escape(value)});
  return render(table);
}

std::string figure(const std::string& caption, const std::string& chart, const html::Table& table) {
  return fmt::format("<figure>\n<figcaption>{}</figcaption>\n{}{}</figure>\n", escape(caption),
                     chart, render(table));
}

/// Name of a unit and its bytes.
std::pair<std::string, double> memory_unit(double largest) {
  return largest < 10 * kGiB ? std::pair("MiB", kMiB) : std::pair("GiB", kGiB);
}

double sum_of(const NamedValues& stages) {
  return std::accumulate(stages.begin(), stages.end(), 0.0,
                         [](double sum, const auto& stage) { return sum + stage.second; });
}

/// What the parts of a whole are at one batch size.
struct ShareRow {
  std::int64_t batch = 0;
  NamedValues parts;
};

/// So many columns of parts have room beside each other; more stand one below the other.
constexpr std::size_t kPartColumns = 4;

/// Rows of which all parts are 0 are left out; empty where none is left.
std::string share_figure(const std::string& caption, const std::string& unit, double unit_size,
                         std::vector<ShareRow> rows) {
  rows.erase(std::remove_if(rows.begin(), rows.end(),
                            [](const ShareRow& row) { return !(sum_of(row.parts) > 0); }),
             rows.end());
  if (rows.empty()) return {};
  ShareChart chart{caption + ", shares by batch size", unit, {}, {}};
  for (const ShareRow& row : rows)
    for (const auto& [name, value] : row.parts)
      if (std::find(chart.parts.begin(), chart.parts.end(), name) == chart.parts.end())
        chart.parts.push_back(name);
  std::vector<std::vector<std::string>> cells;  // of each row: its parts, and their sum
  for (const ShareRow& row : rows) {
    const double sum = sum_of(row.parts);
    ShareChart::Bar& bar = chart.bars.emplace_back(
        ShareChart::Bar{fmt::format("{}", row.batch), std::vector<double>(chart.parts.size())});
    std::vector<std::string>& shown = cells.emplace_back();
    for (std::size_t part = 0; part < chart.parts.size(); ++part) {
      for (const auto& [name, value] : row.parts)
        if (name == chart.parts[part]) bar.values[part] += value / unit_size;
      shown.push_back(fmt::format("{}<span class=\"spread\">{:.1f} %</span>",
                                  number(bar.values[part], 3),
                                  100 * bar.values[part] * unit_size / sum));
    }
    shown.push_back(number(sum / unit_size, 3));
  }
  std::vector<std::string> names = chart.parts;
  names.push_back("sum");

  html::Table table{fmt::format("{}, {}", caption, unit), {}, {}, 0};
  if (chart.parts.size() <= kPartColumns) {
    table.header = {"batch"};
    table.header.insert(table.header.end(), names.begin(), names.end());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      table.rows.push_back({batch_cell(rows[i].batch)});
      table.rows.back().insert(table.rows.back().end(), cells[i].begin(), cells[i].end());
    }
  } else {
    table.header = {""};
    table.text_columns = 1;
    for (const ShareRow& row : rows) table.header.push_back(fmt::format("batch {}", row.batch));
    for (std::size_t part = 0; part < names.size(); ++part) {
      table.rows.push_back({escape(names[part])});
      for (const std::vector<std::string>& shown : cells) table.rows.back().push_back(shown[part]);
    }
  }
  return figure(caption, render(with_few_parts(chart, kPartColours)), table);
}

constexpr const char* kStages = "Each stage alone";

// --- bench

/// Rows that differ in batch and schedule only.
struct BenchGroup {
  Job job;  // without the two
  std::vector<const BenchRow*> rows;

  const BenchRow* find(std::int64_t batch, const std::string& schedule) const {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const BenchRow* row) {
      return row->job.batch == batch && row->job.schedule == schedule;
    });
    return found == rows.end() ? nullptr : *found;
  }
  std::set<std::int64_t> batches() const {
    std::set<std::int64_t> all;
    for (const BenchRow* row : rows) all.insert(row->job.batch);
    return all;
  }
  /// In the order of the rows.
  std::vector<std::string> schedules() const {
    std::vector<std::string> all;
    for (const BenchRow* row : rows)
      if (std::find(all.begin(), all.end(), row->job.schedule) == all.end())
        all.push_back(row->job.schedule);
    return all;
  }
};

std::vector<BenchGroup> groups_of(const BenchResult& result) {
  std::vector<BenchGroup> groups;
  for (const BenchRow& row : result.rows) {
    Job job = row.job;
    job.batch = 0;
    job.schedule.clear();
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const BenchGroup& other) { return other.job == job; });
    if (group == groups.end()) group = groups.insert(groups.end(), BenchGroup{job, {}});
    group->rows.push_back(&row);
  }
  return groups;
}

std::size_t colour_of(const std::string& schedule) {
  if (schedule == "serial") return 0;
  return schedule == "overlap" ? 1 : 2;
}

/// Whether overlapping paid at one batch size: the windows' verdict on overlap beside serial.
struct OverlapAnswer {
  Verdict verdict;
  double gain;
  std::optional<double> bound;
};

std::optional<OverlapAnswer> overlap_answer(const BenchGroup& group, std::int64_t batch) {
  const BenchRow* serial = group.find(batch, "serial");
  const BenchRow* overlap = group.find(batch, "overlap");
  if (serial == nullptr || overlap == nullptr || !serial->verified || !overlap->verified)
    return std::nullopt;
  return OverlapAnswer{compare_speeds(serial->steps_per_s, overlap->steps_per_s, kSameSpeed),
                       overlap->steps_per_s.median / serial->steps_per_s.median, overlap->bound};
}

std::string overlap_word(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "pays";
    case Verdict::slower:
      return "loses";
    case Verdict::same:
      return "does nothing";
    case Verdict::ambiguous:
      break;
  }
  return "unclear";
}

/// Steps a second by batch size, as the published tables have them; with what overlap did where it
/// was measured beside serial.
html::Table speed_table(const BenchGroup& group) {
  html::Table table{"Steps a second by batch size", {"batch"}, {}, 0};
  const std::set<std::int64_t> batches = group.batches();
  const std::vector<std::string> schedules = group.schedules();
  const bool judged = std::any_of(batches.begin(), batches.end(), [&](std::int64_t batch) {
    return overlap_answer(group, batch).has_value();
  });
  for (const std::string& schedule : schedules) table.header.push_back(schedule);
  if (judged)
    for (const char* name : {"overlap / serial", "bound", "overlapping"})
      table.header.push_back(name);
  for (const std::int64_t batch : batches) {
    std::vector<std::string> cells{batch_cell(batch)};
    for (const std::string& schedule : schedules) {
      const BenchRow* row = group.find(batch, schedule);
      cells.push_back(row == nullptr ? "-" : spread_cell(row->steps_per_s, 1, 2));
    }
    if (const std::optional<OverlapAnswer> answer = overlap_answer(group, batch)) {
      cells.push_back(number(answer->gain, 2));
      cells.push_back(number(answer->bound, 2));
      cells.push_back(coloured(answer->verdict == Verdict::faster,
                               answer->verdict == Verdict::slower, overlap_word(answer->verdict)));
    } else {
      cells.resize(table.header.size(), "-");
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

/// A value of each row: a line of the chart and a column of the table for each schedule.
template <class PointOf>
std::string schedule_figure(const BenchGroup& group, const std::string& caption, LineChart chart,
                            const PointOf& point_of) {
  html::Table table{fmt::format("{}, {}", caption, chart.unit), {"batch"}, {}, 0};
  for (const std::int64_t batch : group.batches()) table.rows.push_back({batch_cell(batch)});
  for (const std::string& schedule : group.schedules()) {
    table.header.push_back(schedule);
    Series series{schedule, colour_of(schedule), {}};
    auto cells = table.rows.begin();
    for (const std::int64_t batch : group.batches()) {
      const BenchRow* row = group.find(batch, schedule);
      if (row != nullptr) series.points.push_back(point_of(*row));
      (cells++)->push_back(row == nullptr ? "-"
                                          : number(series.points.back().y / chart.unit_size, 1));
    }
    chart.series.push_back(std::move(series));
  }
  return figure(caption, render(chart), table);
}

std::string throughput_figure(const BenchGroup& group) {
  LineChart chart;
  chart.label = "Images a second by batch size, one line a schedule";
  chart.unit = "images/s";
  return schedule_figure(group, "Throughput", chart, [](const BenchRow& row) {
    const auto batch = static_cast<double>(row.job.batch);
    return ChartPoint{batch, row.images_per_s,
                      std::pair(batch * row.steps_per_s.min, batch * row.steps_per_s.max)};
  });
}

std::string memory_figure(const BenchGroup& group) {
  double largest = 0;
  for (const BenchRow* row : group.rows) largest = std::max(largest, row->memory_bytes);
  LineChart chart;
  chart.label = "Memory of a training by batch size, one line a schedule";
  std::tie(chart.unit, chart.unit_size) = memory_unit(largest);
  return schedule_figure(group, "Memory", chart, [](const BenchRow& row) {
    return ChartPoint{static_cast<double>(row.job.batch), row.memory_bytes, std::nullopt};
  });
}

std::string stage_figure(const BenchGroup& group) {
  std::vector<ShareRow> rows;
  for (const std::int64_t batch : group.batches()) {
    const BenchRow* chosen = group.find(batch, "overlap");  // whose bound is in the table of speeds
    for (const BenchRow* row : group.rows)
      if (chosen == nullptr && row->job.batch == batch) chosen = row;
    rows.push_back({batch, chosen->stages});
  }
  return share_figure(kStages, "ms", 1, std::move(rows));
}

html::Table all_rows(const BenchGroup& group) {
  const bool on_gpu = std::any_of(group.rows.begin(), group.rows.end(), [](const BenchRow* row) {
    return row->gpu_busy_pct || row->nvml_util_pct;
  });
  html::Table table{"Every row", {"batch", "schedule", "steps/s", "images/s", "MiB"}, {}, 2};
  if (on_gpu)
    for (const char* name : {"busy %", "NVML %", "SM MHz"}) table.header.push_back(name);
  table.header.push_back("verified");
  for (const BenchRow* row : group.rows) {
    std::vector<std::string> cells{
        batch_cell(row->job.batch), escape(row->job.schedule), spread_cell(row->steps_per_s, 1, 2),
        number(row->images_per_s, 1), number(row->memory_bytes / kMiB, 1)};
    if (on_gpu) {
      cells.push_back(number(row->gpu_busy_pct, 1));
      cells.push_back(number(row->nvml_util_pct, 1));
      cells.push_back(number(row->sm_clock_mhz, 0));
    }
    cells.push_back(row->verified ? "yes" : coloured(false, true, "NO"));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string section_of(const BenchResult& result) {
  std::string out;
  for (const BenchGroup& group : groups_of(result)) {
    out += element("h3", escape(describe(group.job)));
    out += render(speed_table(group));
    out += "<div class=\"charts\">\n" + throughput_figure(group) + memory_figure(group) +
           stage_figure(group) + "</div>\n";
    out += render(all_rows(group));
  }
  return out;
}

/// The smallest batch whose fastest schedule is within kAsGood of the fastest of all.
std::string batch_advice(const BenchGroup& group) {
  std::map<std::int64_t, const BenchRow*> fastest;
  for (const BenchRow* row : group.rows) {
    if (!row->verified) continue;
    const BenchRow*& best = fastest[row->job.batch];
    if (best == nullptr || row->images_per_s > best->images_per_s) best = row;
  }
  if (fastest.empty()) return {};
  const BenchRow& best =
      *std::max_element(fastest.begin(), fastest.end(), [](const auto& a, const auto& b) {
         return a.second->images_per_s < b.second->images_per_s;
       })->second;
  const BenchRow& taken = *std::find_if(fastest.begin(), fastest.end(), [&](const auto& entry) {
                             return entry.second->images_per_s >= (1 - kAsGood) * best.images_per_s;
                           })->second;
  std::string text = fmt::format(
      "Take batch <strong>{}</strong> with <code>--schedule {}</code>: {} images/s, ",
      batch_cell(taken.job.batch), escape(taken.job.schedule), number(taken.images_per_s, 1));
  if (fastest.size() == 1)
    text += "the fastest schedule at the only size measured";
  else if (&taken == &best)
    text += "the fastest that was measured";
  else
    text += fmt::format("within {:.0f} % of the fastest that was measured, {} at batch {}",
                        100 * kAsGood, number(best.images_per_s, 1), batch_cell(best.job.batch));
  return element("li", text + ".");
}

std::string overlap_advice(const BenchGroup& group) {
  std::map<Verdict, std::vector<std::string>> sizes;
  for (const std::int64_t batch : group.batches()) {
    const std::optional<OverlapAnswer> answer = overlap_answer(group, batch);
    if (!answer) continue;
    std::string seen =
        fmt::format("{} ({} times as fast as serial", batch_cell(batch), number(answer->gain, 2));
    if (answer->bound) {
      seen += fmt::format(", at most {}", number(answer->bound, 2));
      if (*answer->bound < 1 + kAsGood) seen += ": the stages are too unequal to gain";
    }
    sizes[answer->verdict].push_back(seen + ")");
  }
  std::string out;
  for (const auto& [verdict, sentence] :
       {std::pair(Verdict::faster, "Overlap pays at batch {}."),
        std::pair(Verdict::same, "Overlap does nothing at batch {}."),
        std::pair(Verdict::slower, "Overlap loses at batch {}; train serially there."),
        std::pair(Verdict::ambiguous,
                  "Whether overlap pays is unclear at batch {}: the windows spread too much, so "
                  "measure more --steps.")})
    if (!sizes[verdict].empty())
      out += element("li", fmt::format(fmt::runtime(sentence),
                                       fmt::format("{}", fmt::join(sizes[verdict], ", "))));
  return out;
}

std::string advice_of(const BenchResult& result) {
  std::string out;
  const std::vector<BenchGroup> groups = groups_of(result);
  for (const BenchGroup& group : groups) {
    const auto wrong = std::count_if(group.rows.begin(), group.rows.end(),
                                     [](const BenchRow* row) { return !row->verified; });
    std::string items = batch_advice(group) + overlap_advice(group);
    if (wrong > 0)
      items += element(
          "li", coloured(false, true,
                         fmt::format("{} of {} rows are not verified: their results are not those "
                                     "of serial training, and nothing here is based on them.",
                                     wrong, group.rows.size())));
    out += fmt::format("<p>{}</p>\n<ul>\n{}</ul>\n", escape(describe(group.job)), items);
  }
  return out +
         "<p class=\"quiet\"><code>tandem find-batch</code> tries more sizes, and knows which "
         "fit.</p>\n";
}

// --- several results of bench

/// Rows of one workload, picture size and number of classes; a column for each file and way to run.
struct SideBySide {
  struct Column {
    std::size_t result = 0;
    std::string name;
    std::map<std::pair<std::string, std::int64_t>, const BenchRow*> rows;  // precision, batch
  };
  Job job;
  std::vector<Column> columns;

  void add(std::size_t result, const BenchRow& row) {
    Job way;  // what is left to tell columns apart
    way.schedule = row.job.schedule;
    way.augment = row.job.augment;
    way.input = row.job.input;
    way.workers = row.job.workers;
    const std::string name = fmt::format("{}. {}", result + 1, describe(way));
    auto column = std::find_if(columns.begin(), columns.end(),
                               [&](const Column& other) { return other.name == name; });
    if (column == columns.end()) column = columns.insert(columns.end(), Column{result, name, {}});
    column->rows[{row.job.precision, row.job.batch}] = &row;
  }
  bool of_several() const { return columns.front().result != columns.back().result; }
};

std::string speed_and_use(const BenchRow& row) {
  if (!row.verified) return coloured(false, true, "not verified");
  std::string cell = spread_cell(row.steps_per_s, 1, 2);
  if (row.gpu_busy_pct)
    cell += fmt::format("<span class=\"spread\">busy {} %</span>", number(row.gpu_busy_pct, 1));
  return cell;
}

html::Table to_table(const SideBySide& side_by_side) {
  html::Table table{
      fmt::format("Steps a second: {}", describe(side_by_side.job)), {"precision", "batch"}, {}, 1};
  std::set<std::pair<std::string, std::int64_t>> keys;
  for (const SideBySide::Column& column : side_by_side.columns) {
    table.header.push_back(column.name);
    for (const auto& [key, row] : column.rows) keys.insert(key);
  }
  for (const auto& key : keys) {
    std::vector<std::string> cells{escape(key.first), batch_cell(key.second)};
    for (const SideBySide::Column& column : side_by_side.columns) {
      const auto row = column.rows.find(key);
      cells.push_back(row == column.rows.end() ? "-" : speed_and_use(*row->second));
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

/// What several files measured of one workload, such as augmentation in both places. Empty where
/// no two did.
std::string side_by_side_section(const std::vector<Result>& results) {
  std::vector<SideBySide> groups;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto* bench = std::get_if<BenchResult>(&results[i].content);
    if (bench == nullptr) continue;
    for (const BenchRow& row : bench->rows) {
      Job job;
      job.workload = row.job.workload;
      job.image = row.job.image;
      job.classes = row.job.classes;
      auto group = std::find_if(groups.begin(), groups.end(),
                                [&](const SideBySide& other) { return other.job == job; });
      if (group == groups.end()) group = groups.insert(groups.end(), SideBySide{job, {}});
      group->add(i, row);
    }
  }
  std::string tables;
  for (const SideBySide& group : groups)
    if (group.of_several()) tables += render(to_table(group));
  if (tables.empty()) return {};
  return "<section id=\"beside\">\n<h2>Side by side</h2>\n" + tables + "</section>\n";
}

// --- find-batch

html::Table speed_table(const FoundResult& result) {
  html::Table table{
      "Steps a second by batch size", {"batch", "serial", "overlap", "speed-up", "bound"}, {}, 0};
  for (const FoundRow& row : result.rows) {
    if (!row.serial_ms || !row.overlap_ms) continue;
    table.rows.push_back({batch_cell(row.job.batch), number(1e3 / *row.serial_ms, 2),
                          number(1e3 / *row.overlap_ms, 2), number(row.speedup, 2),
                          number(row.bound, 2)});
  }
  return table;
}

html::Table all_rows(const FoundResult& result) {
  html::Table table{"Every size that was looked at",
                    {"batch", "status", "samples/s", "step ms", "MiB planned", "MiB held"},
                    {},
                    2};
  for (const FoundRow& row : result.rows) {
    const std::string size = batch_cell(row.job.batch);
    const std::string planned = number(row.predicted_bytes / kMiB, 1);
    if (row.ok())
      table.rows.push_back({size, "ok", spread_cell(row.samples_per_s, 1, 1),
                            number(row.step_ms, 3), planned, number(row.held_bytes / kMiB, 1)});
    else
      table.rows.push_back({size, coloured(false, true, row.status), "-", "-", planned, "-"});
  }
  return table;
}

/// Scores, for what was trained with several seeds at each size.
std::string accuracy_section(const FoundResult& result) {
  if (!result.accuracy) return {};
  const FoundAccuracy& of_all = *result.accuracy;
  html::Table table{
      fmt::format("Held-out {} by batch size: {} after {} samples each", escape(of_all.score),
                  of_all.seeds == 1 ? "one seed" : fmt::format("{} seeds", of_all.seeds),
                  of_all.train_samples),
      {"batch", "mean", "standard deviation", "lowest", "highest", "diverged"},
      {},
      0};
  for (const FoundRow& row : result.rows)
    if (row.ok())
      table.rows.push_back({batch_cell(row.job.batch), number(row.score_mean, 4),
                            number(row.score_deviation, 4), number(row.score_min, 4),
                            number(row.score_max, 4),
                            number(static_cast<double>(row.diverged), 0)});
  return render(table) + element("p", escape(of_all.comparison));
}

std::string throughput_figure(const FoundResult& result) {
  LineChart chart;
  chart.label = "Samples a second by batch size";
  chart.unit = "samples/s";
  html::Table table{
      "Samples a second by batch size", {"batch", "median", "lowest", "highest"}, {}, 0};
  Series series{result.rows.front().job.schedule, colour_of(result.rows.front().job.schedule), {}};
  for (const FoundRow& row : result.rows) {
    if (!row.ok()) continue;
    const Spread& speed = row.samples_per_s;
    series.points.push_back(
        {static_cast<double>(row.job.batch), speed.median, std::pair(speed.min, speed.max)});
    table.rows.push_back({batch_cell(row.job.batch), number(speed.median, 1), number(speed.min, 1),
                          number(speed.max, 1)});
  }
  chart.series.push_back(std::move(series));
  chart.chosen = ChartLine{"recommended", static_cast<double>(result.recommended.batch)};
  return figure("Throughput", render(chart), table);
}

std::string memory_figure(const FoundResult& result) {
  LineChart chart;
  chart.label = "Memory of a training by batch size, planned and held";
  Series planned{"planned", 0, {}}, held{"held", 1, {}};
  double largest = 0;
  for (const FoundRow& row : result.rows) {
    const auto batch = static_cast<double>(row.job.batch);
    planned.points.push_back({batch, row.predicted_bytes, std::nullopt});
    if (row.ok()) held.points.push_back({batch, row.held_bytes, std::nullopt});
    largest = std::max({largest, row.predicted_bytes, row.held_bytes});
  }
  std::tie(chart.unit, chart.unit_size) = memory_unit(largest);
  chart.series = {std::move(planned), std::move(held)};
  // Far above the sizes it would only make them small; the table says it.
  if (result.memory_bytes <= 2 * largest) chart.limit = ChartLine{"limit", result.memory_bytes};
  html::Table table{fmt::format("Memory by batch size, {}; limit {:.1f}", chart.unit,
                                result.memory_bytes / chart.unit_size),
                    {"batch", "planned", "held"},
                    {},
                    0};
  for (const FoundRow& row : result.rows)
    table.rows.push_back(
        {batch_cell(row.job.batch), number(row.predicted_bytes / chart.unit_size, 2),
         row.ok() ? number(row.held_bytes / chart.unit_size, 2) : std::string("-")});
  return figure("Memory", render(chart), table);
}

std::string stage_figure(const FoundResult& result) {
  std::vector<ShareRow> rows;
  for (const FoundRow& row : result.rows) rows.push_back({row.job.batch, row.stages});
  return share_figure(kStages, "ms", 1, std::move(rows));
}

std::string section_of(const FoundResult& result) {
  Job job = result.rows.front().job;
  job.batch = 0;
  std::string out = element("h3", escape(describe(job)));
  if (const html::Table table = speed_table(result); !table.rows.empty()) out += render(table);
  out += "<div class=\"charts\">\n" + throughput_figure(result) + memory_figure(result) +
         stage_figure(result) + "</div>\n";
  out += render(all_rows(result));
  out += accuracy_section(result);
  html::Table why{"What was found at each size", {"batch", "finding"}, {}, 2};
  for (const FoundRow& row : result.rows) {
    const std::string& finding = row.ok() ? row.overlap : row.reason;
    if (!finding.empty())
      why.rows.push_back({batch_cell(row.job.batch),
                          fmt::format("<span class=\"sentence\">{}</span>", escape(finding))});
  }
  if (!why.rows.empty()) out += render(why);
  return out;
}

std::string advice_of(const FoundResult& result) {
  const auto answer = [](const char* words, const FoundAnswer& found) {
    return element("li", fmt::format("{} <strong>{}</strong>. {}", words, batch_cell(found.batch),
                                     escape(found.reason)));
  };
  std::string out = answer("Take batch", result.recommended);
  for (const FoundRow& row : result.rows)
    if (row.job.batch == result.recommended.batch && !row.overlap.empty())
      out += element("li", escape(row.overlap));
  out += answer("Fastest: batch", result.best_throughput);
  out += answer("Largest that runs: batch", result.largest_feasible);
  if (result.accuracy) out += element("li", escape(result.accuracy->comparison));
  for (const std::string& note : result.notes) out += element("li", escape(note));
  return element("ul", "\n" + out) + (result.accuracy
                                          ? ""
                                          : "<p class=\"quiet\">This says what is fast, not what "
                                            "learns well: a larger batch makes "
                                            "fewer updates an epoch.</p>\n");
}

// --- bench overlap

std::string section_of(const OverlapResult& result) {
  // In the order of the rows.
  std::vector<std::string> balances;
  std::vector<std::optional<std::int64_t>> fills;
  const auto remember = [](auto& values, const auto& value) {
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  };
  for (const OverlapRow& row : result.rows) {
    remember(balances, row.balance);
    remember(fills, row.grid_fill);
  }
  html::Table map{"Speed-up of overlapping, serial / overlapped", {"balance"}, {}, 1};
  for (const auto& fill : fills)
    map.header.push_back(fill ? fmt::format("{} %", *fill) : "speed-up");
  for (const std::string& balance : balances) {
    std::vector<std::string> cells{escape(balance)};
    for (const auto& fill : fills) {
      const auto row = std::find_if(result.rows.begin(), result.rows.end(), [&](const auto& other) {
        return other.balance == balance && other.grid_fill == fill;
      });
      cells.push_back(row == result.rows.end()
                          ? "-"
                          : fmt::format("{} {}", number(row->speedup, 2),
                                        coloured(row->verdict == "pays", row->verdict == "hurts",
                                                 row->verdict)));
    }
    map.rows.push_back(std::move(cells));
  }
  html::Table table{"Every case",
                    {"balance", "fill %", "t_A ms", "t_B ms", "serial ms", "overlap ms", "bound",
                     "speed-up", "efficiency", "overlapping"},
                    {},
                    1};
  for (const OverlapRow& row : result.rows)
    table.rows.push_back(
        {escape(row.balance),
         row.grid_fill ? number(static_cast<double>(*row.grid_fill), 0) : std::string("-"),
         number(row.t_a_ms, 3), number(row.t_b_ms, 3), number(row.serial_ms, 3),
         number(row.overlap_ms, 3), number(row.bound, 2), number(row.speedup, 2),
         number(row.efficiency, 2), escape(row.verdict)});
  return "<p class=\"quiet\">Two stages that only take time. Balance: how long one is beside the "
         "other. Columns: blocks of each for 100 multiprocessors, 800 % fill a GPU. Efficiency: "
         "(serial - overlap) / the shorter stage, 1 where all of it is hidden.</p>\n" +
         render(map) + "<details><summary>Every case</summary>\n" + render(table) + "</details>\n";
}

std::string advice_of(const OverlapResult& result) {
  std::string items;
  for (const std::string& sentence : result.sentences) items += element("li", escape(sentence));
  return element("ul", "\n" + items);
}

// --- profile

std::string throughput_figure(const ProfileResult& result) {
  LineChart chart;
  chart.label = "Steps a second by batch size, without and with profiling";
  chart.unit = "steps/s";
  Series plain{"without profiling", 0, {}}, profiled{"with profiling", 1, {}};
  html::Table table{"Steps a second by batch size", {"batch", plain.name, profiled.name}, {}, 0};
  for (const ProfileRow& row : result.rows) {
    const auto batch = static_cast<double>(row.batch);
    if (row.plain_step_ms) plain.points.push_back({batch, 1e3 / *row.plain_step_ms, std::nullopt});
    profiled.points.push_back({batch, 1e3 / row.step_ms, std::nullopt});
    table.rows.push_back({batch_cell(row.batch),
                          row.plain_step_ms ? number(plain.points.back().y, 2) : std::string("-"),
                          number(profiled.points.back().y, 2)});
  }
  if (!plain.points.empty()) chart.series.push_back(std::move(plain));
  chart.series.push_back(std::move(profiled));
  return figure("Throughput", render(chart), table);
}

std::string memory_figure(const ProfileResult& result) {
  double largest = 0;
  std::vector<ShareRow> rows;
  for (const ProfileRow& row : result.rows) {
    rows.push_back({row.batch, row.memory});
    largest = std::max(largest, sum_of(row.memory));
  }
  const auto [unit, unit_size] = memory_unit(largest);
  return share_figure("Memory by purpose", unit, unit_size, std::move(rows));
}

std::string section_of(const ProfileResult& result) {
  html::Table use{"How busy the device was",
                  {"batch", "step ms", "kernel-busy %", "two streams or more %", "SM fill %",
                   "NVML %", "MiB on the device", "MiB pinned"},
                  {},
                  0};
  std::vector<ShareRow> splits, hidden, stages;
  for (const ProfileRow& row : result.rows) {
    use.rows.push_back({batch_cell(row.batch), number(row.step_ms, 3),
                        number(row.kernel_busy_pct, 1), number(row.overlap_pct, 1),
                        number(row.sm_fill_pct, 1), number(row.nvml_util_pct, 1),
                        number(row.device_bytes / kMiB, 1), number(row.pinned_bytes / kMiB, 1)});
    splits.push_back({row.batch, row.split});
    hidden.push_back({row.batch, row.hidden});
    stages.push_back({row.batch, row.stages});
  }
  std::string out = render(use) + "<div class=\"charts\">\n" + throughput_figure(result) +
                    memory_figure(result) +
                    share_figure("Where a step's time goes", "ms", 1, std::move(splits)) +
                    share_figure("Hidden behind other work", "ms", 1, std::move(hidden)) +
                    share_figure("Each stage under way", "ms", 1, std::move(stages)) + "</div>\n";
  for (const ProfileRow& row : result.rows) {
    html::Table kernels{fmt::format("Kernels of batch {}, longest first", row.batch),
                        {"kernel", "ms a step", "calls a step"},
                        {},
                        1};
    for (const KernelRow& kernel : row.kernels)
      kernels.rows.push_back({escape(kernel.name), number(kernel.ms, 3), number(kernel.calls, 1)});
    if (!kernels.rows.empty())
      out += fmt::format("<details><summary>Kernels of batch {}</summary>\n{}</details>\n",
                         row.batch, render(kernels));
  }
  return out;
}

std::string advice_of(const ProfileResult& result) {
  std::string items;
  for (const ProfileRow& row : result.rows)
    for (const std::string& finding : row.findings)
      items += element("li", fmt::format("Batch {}: {}", batch_cell(row.batch), escape(finding)));
  return items.empty() ? element("p", "No finding.") : element("ul", "\n" + items);
}

// --- the page

std::string title_of(const Result& result) {
  struct {
    std::string operator()(const BenchResult& bench) {
      return " " + bench.rows.front().job.workload;
    }
    std::string operator()(const FoundResult& found) {
      return " " + found.rows.front().job.workload;
    }
    std::string operator()(const OverlapResult&) { return {}; }
    std::string operator()(const ProfileResult& profile) { return " " + profile.workload; }
  } workload;
  return result.command + std::visit(workload, result.content);
}

/// What a reader looks for first; the whole is in the table of the environment.
std::string key_facts(const Result& result) {
  std::string facts = result.gpu.empty() ? result.device
                                         : fmt::format("{} ({}), driver {}", result.gpu,
                                                       result.device, result.driver);
  for (const char* name : {"cpu", "commit", "date"})
    for (const auto& [key, value] : result.environment)
      if (key == name) facts += fmt::format(" · {}{}", key == "commit" ? "commit " : "", value);
  return facts;
}

}  // namespace

std::string report_page(const std::vector<Result>& results) {
  std::string advice, sections;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Result& result = results[i];
    const std::string title = escape(fmt::format("{}. {}", i + 1, title_of(result)));
    advice += fmt::format("<h3><a href=\"#result{}\">{}</a></h3>\n", i + 1, title);
    advice += std::visit([](const auto& content) { return advice_of(content); }, result.content);
    sections +=
        fmt::format("<section id=\"result{}\">\n<h2>{}</h2>\n<p class=\"quiet\">{}<br>{}</p>\n",
                    i + 1, title, escape(result.file), escape(key_facts(result)));
    sections += std::visit([](const auto& content) { return section_of(content); }, result.content);
    sections += "<details><summary>Environment and options</summary>\n" +
                table_of_texts("Environment", result.environment) +
                table_of_texts("Options", result.config) + "</details>\n</section>\n";
  }
  return std::string(kHead) +
         "<header>\n<h1>Tandem report</h1>\n<p class=\"quiet\">Measured speed, memory and time of "
         "stages, and what follows from them.</p>\n</header>\n<main>\n<section class=\"advice\">\n"
         "<h2>Advice</h2>\n" +
         advice + "</section>\n" + side_by_side_section(results) + sections + kWords +
         "</main>\n</body>\n</html>\n";
}

}  // namespace tandem::program
