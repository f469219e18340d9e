// SPDX-License-Identifier: Apache-2.0
// Options of a sub-command: CLI11 parses, this adds our messages, ranges and the configuration that
// is stored with every result.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <tandem/engine/error.hpp>
#include <tandem/engine/fuse.hpp>
#include <utility>
#include <vector>

namespace tandem::program {

using Json = nlohmann::ordered_json;

/// An option, or what else names a file, and the file.
struct NamedFile {
  std::string name, path;
};

/// Adds options to one sub-command. Values outside their range are refused with the option, the
/// value and the range; values that a later version will know are refused with those words.
/// The variables must live until the command has run.
class Options {
 public:
  explicit Options(CLI::App& app);

  CLI::App& app() noexcept { return *app_; }
  const CLI::App& app() const noexcept { return *app_; }

  /// A whole number in [low, high]. A default below `low` stands for "not given".
  CLI::Option* number(const std::string& name, std::int64_t& value, std::int64_t low,
                      std::int64_t high, const std::string& help,
                      const std::vector<std::string>& later = {});
  /// As number(), or "auto", which is 0. `low` is at least 1.
  CLI::Option* number_or_auto(const std::string& name, std::int64_t& value, std::int64_t low,
                              std::int64_t high, const std::string& help);
  /// Several whole numbers, separated by commas. An empty default stands for "not given", as for
  /// all lists.
  CLI::Option* numbers(const std::string& name, std::vector<std::int64_t>& values, std::int64_t low,
                       std::int64_t high, const std::string& help);
  /// A number in [low, high]. A default below `low` stands for "not given".
  CLI::Option* real(const std::string& name, double& value, double low, double high,
                    const std::string& help);
  /// Several numbers, separated by commas.
  CLI::Option* reals(const std::string& name, std::vector<double>& values, double low, double high,
                     const std::string& help);
  /// One of some words. An empty default stands for "not given".
  CLI::Option* choice(const std::string& name, std::string& value,
                      const std::vector<std::string>& allowed, const std::string& help,
                      const std::vector<std::string>& later = {});
  /// Several of some words, separated by commas.
  CLI::Option* choices(const std::string& name, std::vector<std::string>& values,
                       const std::vector<std::string>& allowed, const std::string& help,
                       const std::vector<std::string>& later = {});
  /// Several texts, separated by commas, each of which `is_allowed`; `allowed` says what is, in
  /// messages.
  CLI::Option* checked_texts(const std::string& name, std::vector<std::string>& values,
                             const std::string& type, const std::string& help,
                             const std::function<bool(const std::string&)>& is_allowed,
                             const std::string& allowed);
  /// Any text but none. An empty default stands for "not given".
  CLI::Option* text(const std::string& name, std::string& value, const std::string& type,
                    const std::string& help);
  CLI::Option* flag(const std::string& name, bool& value, const std::string& help);
  /// --image: a picture side that the segmenter takes.
  CLI::Option* image(std::int64_t& value);

  bool has(const std::string& name) const { return app_->get_option_no_throw(name) != nullptr; }
  /// True if the user gave the option, on the command line or in a file.
  bool given(const std::string& name) const { return app_->get_option(name)->count() > 0; }

  /// Every option with the value in force, null where there is none. Can be read by --config.
  Json effective() const;

 private:
  template <class T>
  CLI::Option* add(const std::string& name, T& value, const std::string& type,
                   const std::string& help);
  /// Several values, separated by commas, each of which `item` has to accept.
  template <class T>
  CLI::Option* list(const std::string& name, std::vector<T>& values, const std::string& type,
                    const std::string& help, const CLI::Validator& item);

  CLI::App* app_;
  std::string config_file_;  // read by main() before parsing; here for the help text
  std::vector<std::pair<std::string, std::function<Json()>>> values_;
};

/// Throws Error{usage} that names the option if a list holds a value twice.
template <class T>
void require_each_once(const std::string& option, const std::vector<T>& values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::find(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(i), values[i]) !=
        values.begin() + static_cast<std::ptrdiff_t>(i))
      throw Error(ErrorCode::usage,
                  fmt::format("{} names {} twice; allowed: each once", option, values[i]));
}

/// --fuse: which operations of a plan are put together.
CLI::Option* add_fuse_option(Options& options, std::vector<std::string>& fuse);
/// Throws Error{usage} for "none" among others.
FuseOptions fuse_options(const std::vector<std::string>& names);

/// An option that a later version will have: giving it is an error that says so.
void add_later_option(CLI::App& app, const std::string& name);

/// A sub-command that a later version will have.
void add_later_command(CLI::App& app, const std::string& name);

/// Arguments with what the file of `--config` adds: options that are not given in `arguments`.
/// The file is JSON ({"batch": 8}) or TOML (batch = 8). Throws Error{data} for one that cannot be
/// read, Error{usage} for one that says no options, one twice, or the file to read.
std::vector<std::string> with_config_file(const std::vector<std::string>& arguments);

/// Throws Error{usage} for arguments that nothing took: unknown options and commands, with the
/// nearest name as a hint.
[[noreturn]] void refuse_unknown(const CLI::App& root);

/// The deepest sub-command that was given; the root if none was.
const CLI::App& chosen_command(const CLI::App& root);

}  // namespace tandem::program
