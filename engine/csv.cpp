// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/file_bytes.hpp>
#include <vector>

namespace tandem {
namespace {

constexpr std::int64_t kMostClasses = 254, kMostColumns = 65537;
constexpr std::int64_t kHeldOutEvery = 5;  // of each class's rows

[[noreturn]] void fail(const std::string& place, const std::string& what) {
  throw Error(ErrorCode::data, fmt::format("{}: {}", place, what));
}

/// A cell, fit for one line of a message.
std::string shown(std::string_view cell) {
  std::string text;
  for (const char c : cell.substr(0, 40)) text += c >= ' ' && c <= '~' ? c : '?';
  return cell.size() > 40 ? text + "..." : text;
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// The whole cell as a number that a float holds, in C's form whatever the locale is.
std::optional<double> number(std::string_view cell) {
  if (!cell.empty() && cell.front() == '+') cell.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc{} || end != cell.data() + cell.size() ||
      !std::isfinite(static_cast<float>(value)))
    return std::nullopt;
  return value;
}

/// The rows of a file.
struct Table {
  std::vector<std::string> columns;  // the last one is the label's
  std::vector<float> values;         // [rows, features]
  std::vector<std::uint8_t> labels;  // [rows]

  std::size_t features() const { return columns.size() - 1; }
};

std::vector<std::string> read_columns(const std::string& path, std::string_view line) {
  const std::string place = fmt::format("{}: line 1", path);
  const std::vector<std::string_view> cells = split(line, ',');
  if (cells.size() < 2 || static_cast<std::int64_t>(cells.size()) > kMostColumns)
    fail(place, fmt::format("{} columns; allowed: 2 to {}, features and then a label", cells.size(),
                            kMostColumns));
  if (std::all_of(cells.begin(), cells.end(), [](auto cell) { return number(cell).has_value(); }))
    fail(place, "numbers where the names of the columns belong");
  std::vector<std::string> columns;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].empty()) fail(place, fmt::format("column {} has no name", i + 1));
    columns.emplace_back(cells[i]);
  }
  return columns;
}

void read_row(const std::string& place, std::string_view line, Table& table) {
  if (trimmed(line).empty()) fail(place, "is empty, with rows behind it");
  const std::vector<std::string_view> cells = split(line, ',');
  if (cells.size() != table.columns.size())
    fail(place, fmt::format("{} columns; line 1 names {}", cells.size(), table.columns.size()));
  for (std::size_t i = 0; i < table.features(); ++i) {
    const std::optional<double> value = number(cells[i]);
    if (!value)
      fail(place, fmt::format("{} is '{}'; allowed: finite numbers", shown(table.columns[i]),
                              shown(cells[i])));
    table.values.push_back(static_cast<float>(*value));
  }
  const std::optional<double> label = number(cells.back());
  if (!label || !(*label >= 0 && *label < kMostClasses) || *label != std::floor(*label))
    fail(place, fmt::format("{} is '{}'; allowed as a label: whole numbers from 0 to {}",
                            shown(table.columns.back()), shown(cells.back()), kMostClasses - 1));
  table.labels.push_back(static_cast<std::uint8_t>(*label));
}

Table read_table(const std::string& path) {
  const std::vector<std::uint8_t> bytes = read_file_bytes(path);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark)
    text.remove_prefix(kByteOrderMark.size());
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  text = text.substr(0, end == std::string_view::npos ? 0 : end + 1);

  Table table;
  for (std::int64_t line = 1; line == 1 || !text.empty(); ++line) {
    const std::size_t newline = std::min(text.find('\n'), text.size());
    const std::string_view row = text.substr(0, newline);
    text.remove_prefix(std::min(newline + 1, text.size()));
    if (line == 1)
      table.columns = read_columns(path, row);
    else
      read_row(fmt::format("{}: line {}", path, line), row, table);
  }
  if (table.labels.empty()) fail(path, "no rows behind line 1");
  return table;
}

/// Those of the split; every fifth of a class is held out.
Table part_of(const Table& all, Split split) {
  Table part;
  part.columns = all.columns;
  std::vector<std::int64_t> seen(kMostClasses, 0);
  for (std::size_t row = 0; row < all.labels.size(); ++row) {
    const bool held_out = ++seen[all.labels[row]] % kHeldOutEvery == 0;
    if (held_out != (split == Split::held_out)) continue;
    const float* const values = all.values.data() + row * all.features();
    part.values.insert(part.values.end(), values, values + all.features());
    part.labels.push_back(all.labels[row]);
  }
  return part;
}

class Csv final : public Dataset {
 public:
  Csv(Table table, int classes) : table_(std::move(table)) {
    for (int c = 0; c < classes; ++c)
      names_.push_back(fmt::format("{} {}", table_.columns.back(), c));
  }

  std::int64_t image() const noexcept override { return 1; }
  std::int64_t features() const noexcept override {
    return static_cast<std::int64_t>(table_.features());
  }
  std::int64_t epoch_size() const noexcept override {
    return static_cast<std::int64_t>(table_.labels.size());
  }
  const std::vector<std::string>& class_names() const noexcept override { return names_; }
  std::int64_t label_count() const noexcept override { return 1; }
  std::int64_t record(std::int64_t index) const override { return index % epoch_size(); }

  void sample(std::int64_t index, std::uint8_t* row, std::uint8_t* labels) const override {
    if (index < 0)
      throw Error(ErrorCode::usage, fmt::format("sample index {}; at least 0 is allowed", index));
    const auto at = static_cast<std::size_t>(record(index));
    std::memcpy(row, table_.values.data() + at * table_.features(),
                static_cast<std::size_t>(sample_bytes()));
    labels[0] = table_.labels[at];
  }

 private:
  Table table_;
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<Dataset> make_csv(const std::string& path, Split split) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::vector<Table> tables;
  if (fs::is_directory(path, ignored)) {
    const auto file = [&](const char* name) { return (fs::path(path) / name).string(); };
    const std::string held_out = fs::exists(file("test.csv"), ignored) ? "test.csv" : "val.csv";
    for (const std::string& name : {std::string("train.csv"), held_out})
      if (!fs::exists(file(name.c_str()), ignored))
        fail(path, fmt::format("there is no {}", name == "val.csv" ? "test.csv or val.csv" : name));
    for (const std::string& name : {std::string("train.csv"), held_out})
      tables.push_back(read_table(file(name.c_str())));
    if (tables[0].columns != tables[1].columns)
      fail(path, fmt::format("line 1 of {} names other columns than that of train.csv", held_out));
  } else {
    const Table all = read_table(path);
    for (const Split one : {Split::train, Split::held_out}) tables.push_back(part_of(all, one));
    if (split == Split::held_out && tables[1].labels.empty())
      fail(path, fmt::format("no row to hold out: every {}th row of a class is, and no class has "
                             "that many",
                             kHeldOutEvery));
  }
  int classes = 0;
  for (const Table& table : tables)
    for (const std::uint8_t label : table.labels) classes = std::max(classes, label + 1);
  return std::make_unique<Csv>(std::move(tables[split == Split::train ? 0 : 1]), classes);
}

}  // namespace tandem
