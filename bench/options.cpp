// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <tandem/engine/error.hpp>
#include <tandem/models/segmenter.hpp>

namespace tandem::program {
namespace {

constexpr const char* kLater = "is not in this version";

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

template <class T>
std::optional<T> parse(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The items of a list; between two commas there is an empty one.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> items(1);
  for (const char c : text) {
    if (c == ',')
      items.emplace_back();
    else
      items.back() += c;
  }
  return items;
}

/// Refuses values outside [low, high], NaN included.
template <class T>
CLI::Validator in_range(T low, T high, const std::vector<std::string>& later = {}) {
  const std::string kind = std::is_integral_v<T> ? "a whole number" : "a number";
  const std::string range = fmt::format("{} to {}", low, high);
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        if (contains(later, text)) return fmt::format("'{}' {}", text, kLater);
        const std::optional<T> value = parse<T>(text);
        if (value && *value >= low && *value <= high) return {};
        return fmt::format("'{}' is not allowed; allowed: {} from {}", text, kind, range);
      },
      range);
}

CLI::Validator one_of(const std::vector<std::string>& allowed,
                      const std::vector<std::string>& later) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        if (contains(allowed, text)) return {};
        if (contains(later, text))
          return fmt::format("'{}' {}; allowed: {}", text, kLater, fmt::join(allowed, ", "));
        return fmt::format("'{}' is not allowed; allowed: {}", text, fmt::join(allowed, ", "));
      },
      fmt::format("{}", fmt::join(allowed, "|")));
}

/// Levenshtein distance.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string nearest(const std::string& word, const std::vector<std::string>& names) {
  const auto best =
      std::min_element(names.begin(), names.end(), [&](const auto& left, const auto& right) {
        return edit_distance(word, left) < edit_distance(word, right);
      });
  return best == names.end() ? std::string() : *best;
}

/// Of a file that can be read, but says no options.
[[noreturn]] void refuse_config(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::usage, fmt::format("--config {}: {}", path, why));
}

/// Of two values one would be lost.
class EachOnce {
 public:
  explicit EachOnce(const std::string& path) : path_(path) {}
  void add(const std::string& name) {
    if (!seen_.insert(name).second)
      refuse_config(path_, fmt::format("{} is there twice; allowed: each option once", name));
  }

 private:
  const std::string& path_;
  std::set<std::string> seen_;
};

/// "name=value" pairs of a JSON object.
std::vector<std::pair<std::string, std::string>> read_json_config(const std::string& path,
                                                                  const std::string& text) {
  using Event = Json::parse_event_t;
  EachOnce names(path);
  std::string name_here;
  const auto is_no_object = [&](const std::string& what) {
    refuse_config(path,
                  fmt::format("is a JSON {}; allowed: an object, {{\"batch\": 8}}, or TOML", what));
  };
  // While it is read: what is nested deeper could not be taken apart again, since that recurses.
  const auto on_part = [&](int depth, Event event, const Json& part) {
    if (depth == 0 && event == Event::array_start) is_no_object("list");
    if ((depth > 0 && event == Event::object_start) || (depth > 1 && event == Event::array_start))
      refuse_config(path, fmt::format("{} is an object, or a list of such or of lists; allowed: a "
                                      "text, a number, true, false, or a list of these",
                                      name_here));
    if (event == Event::key) names.add(name_here = part.get<std::string>());
    return true;
  };
  const Json object = Json::parse(text, on_part, /*allow_exceptions=*/false);
  if (object.is_discarded())
    throw Error(ErrorCode::data, fmt::format("--config {}: not a JSON object", path));
  if (!object.is_object()) is_no_object(object.type_name());
  std::vector<std::pair<std::string, std::string>> pairs;
  const auto to_text = [](const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;
    std::vector<std::string> parts;
    if (value.is_array())
      std::transform(value.begin(), value.end(), std::back_inserter(parts), to_text);
    else
      parts.push_back(to_text(value));
    pairs.emplace_back(name, fmt::format("{}", fmt::join(parts, ",")));
  }
  return pairs;
}

std::vector<std::pair<std::string, std::string>> read_toml_config(const std::string& path,
                                                                  const std::string& text) {
  // The parser makes one list of two lines of one name.
  EachOnce names(path);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    std::string name;
    std::istringstream(line.substr(0, equals)) >> name;
    const bool is_name = !name.empty() && name.find_first_of("#;['\"") == std::string::npos;
    if (is_name) names.add(name);
  }
  std::istringstream stream(text);
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const CLI::ConfigItem& item : CLI::ConfigBase().from_config(stream)) {
    if (!item.parents.empty())
      throw Error(ErrorCode::data,
                  fmt::format("--config {}: section '{}'; allowed: lines of name = value", path,
                              item.parents.front()));
    pairs.emplace_back(item.name, fmt::format("{}", fmt::join(item.inputs, ",")));
  }
  return pairs;
}

}  // namespace

Options::Options(CLI::App& app) : app_(&app) {
  // As in GNU tools: the last of several wins.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--config", config_file_,
                 "JSON or TOML file of options; those on the command line win")
      ->type_name("FILE");
}

template <class T>
CLI::Option* Options::add(const std::string& name, T& value, const std::string& type,
                          const std::string& help) {
  values_.emplace_back(name.substr(2), [&value] { return Json(value); });
  return app_->add_option(name, value, help)->type_name(type)->capture_default_str();
}

CLI::Option* Options::number(const std::string& name, std::int64_t& value, std::int64_t low,
                             std::int64_t high, const std::string& help,
                             const std::vector<std::string>& later) {
  CLI::Option* option = add(name, value, "N", help)->check(in_range(low, high, later));
  values_.back().second = [&value, low] { return value < low ? Json(nullptr) : Json(value); };
  return option;
}

CLI::Option* Options::number_or_auto(const std::string& name, std::int64_t& value, std::int64_t low,
                                     std::int64_t high, const std::string& help) {
  const std::string range = fmt::format("{} to {}|auto", low, high);
  CLI::Option* option =
      add(name, value, "N", help)
          ->transform(CLI::Validator(
              [=](std::string& text) -> std::string {
                const std::optional<std::int64_t> number = parse<std::int64_t>(text);
                if (number && *number >= low && *number <= high) return {};
                if (text != "auto")
                  return fmt::format(
                      "'{}' is not allowed; allowed: a whole number from {} to {}, or auto", text,
                      low, high);
                text = "0";
                return {};
              },
              range));
  values_.back().second = [&value] { return value == 0 ? Json("auto") : Json(value); };
  return option;
}

// CLI11 would split the list itself, but passes over empty items.
template <class T>
CLI::Option* Options::list(const std::string& name, std::vector<T>& values, const std::string& type,
                           const std::string& help, const CLI::Validator& item) {
  values_.emplace_back(name.substr(2),
                       [&values] { return values.empty() ? Json(nullptr) : Json(values); });
  const auto check = [item](const std::string& text) {
    std::string wrong;
    for (std::string part : split(text))
      if (wrong.empty()) wrong = item(part);
    return wrong;
  };
  const auto store = [&values](const std::vector<std::string>& lists) {
    values.clear();
    for (const std::string& text : lists) {
      for (const std::string& part : split(text)) {
        if constexpr (std::is_same_v<T, std::string>)
          values.push_back(part);
        else
          values.push_back(parse<T>(part).value());
      }
    }
  };
  return app_->add_option_function<std::vector<std::string>>(name, store, help)
      ->type_name(type)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->default_str(fmt::format("{}", fmt::join(values, ",")))
      ->check(CLI::Validator(check, item.get_description()));
}

CLI::Option* Options::numbers(const std::string& name, std::vector<std::int64_t>& values,
                              std::int64_t low, std::int64_t high, const std::string& help) {
  return list(name, values, "N,N,..", help, in_range(low, high, {"auto"}));
}

CLI::Option* Options::real(const std::string& name, double& value, double low, double high,
                           const std::string& help) {
  CLI::Option* option = add(name, value, "X", help)->check(in_range(low, high));
  values_.back().second = [&value, low] { return value < low ? Json(nullptr) : Json(value); };
  return option;
}

CLI::Option* Options::reals(const std::string& name, std::vector<double>& values, double low,
                            double high, const std::string& help) {
  return list(name, values, "X,X,..", help, in_range(low, high));
}

CLI::Option* Options::choice(const std::string& name, std::string& value,
                             const std::vector<std::string>& allowed, const std::string& help,
                             const std::vector<std::string>& later) {
  CLI::Option* option = add(name, value, "WORD", help)->check(one_of(allowed, later));
  values_.back().second = [&value] { return value.empty() ? Json(nullptr) : Json(value); };
  return option;
}

CLI::Option* Options::choices(const std::string& name, std::vector<std::string>& values,
                              const std::vector<std::string>& allowed, const std::string& help,
                              const std::vector<std::string>& later) {
  return list(name, values, "WORD,..", help, one_of(allowed, later));
}

CLI::Option* Options::checked_texts(const std::string& name, std::vector<std::string>& values,
                                    const std::string& type, const std::string& help,
                                    const std::function<bool(const std::string&)>& is_allowed,
                                    const std::string& allowed) {
  const auto check = [=](std::string& text) -> std::string {
    if (is_allowed(text)) return {};
    return fmt::format("'{}' is not allowed; allowed: {}", text, allowed);
  };
  return list(name, values, type, help, CLI::Validator(check, ""));
}

CLI::Option* Options::text(const std::string& name, std::string& value, const std::string& type,
                           const std::string& help) {
  const auto not_empty = [name](const std::string& given) -> std::string {
    if (given.empty()) throw Error(ErrorCode::usage, fmt::format("{} needs a value", name));
    return {};
  };
  CLI::Option* option = add(name, value, type, help)->check(CLI::Validator(not_empty, ""));
  values_.back().second = [&value] { return value.empty() ? Json(nullptr) : Json(value); };
  return option;
}

CLI::Option* Options::flag(const std::string& name, bool& value, const std::string& help) {
  values_.emplace_back(name.substr(2), [&value] { return Json(value); });
  return app_->add_flag(name, value, help);
}

CLI::Option* Options::image(std::int64_t& value) {
  const auto check = [](std::string& text) -> std::string {
    try {
      check_image_size(parse<std::int64_t>(text).value_or(0));
      return {};
    } catch (const Error&) {
      return fmt::format("'{}' is not allowed; allowed: a power of two from 32 to 512", text);
    }
  };
  CLI::Option* option = add("--image", value, "S", "side of the pictures in pixels, a power of two")
                            ->check(CLI::Validator(check, "32 to 512"));
  values_.back().second = [&value] { return value == 0 ? Json(nullptr) : Json(value); };
  return option;
}

Json Options::effective() const {
  Json config = Json::object();
  for (const auto& [name, value] : values_) config[name] = value();
  return config;
}

CLI::Option* add_fuse_option(Options& options, std::vector<std::string>& fuse) {
  return options.choices("--fuse", fuse,
                         {"all", "none", "pointwise", "update", "many", "head", "products"},
                         "what is put together: bias with ReLU, SGD with the product that makes a "
                         "gradient, the updates that are left, the 3x3 layer with the loss; "
                         "products: kernels of our own where a library's are slow");
}

FuseOptions fuse_options(const std::vector<std::string>& names) {
  if (names.size() > 1 && contains(names, "none"))
    throw Error(ErrorCode::usage,
                fmt::format("--fuse {}: none goes with nothing else; allowed: none, or the others",
                            fmt::join(names, ",")));
  FuseOptions options;
  for (const std::string& name : names) {
    options.pointwise |= name == "pointwise" || name == "all";
    options.update |= name == "update" || name == "all";
    options.many |= name == "many" || name == "all";
    options.head |= name == "head" || name == "all";
    options.products |= name == "products" || name == "all";
  }
  return options;
}

void add_later_option(CLI::App& app, const std::string& name) {
  app.add_option_function<std::vector<std::string>>(
         name,
         [name](const std::vector<std::string>&) {
           throw Error(ErrorCode::usage, fmt::format("{} {}", name, kLater));
         },
         "(later version)")
      ->expected(0, 1)
      ->type_name("")
      ->group("Not in this version");
}

void add_later_command(CLI::App& app, const std::string& name) {
  const std::string parent = app.get_parent() == nullptr ? "" : app.get_name() + " ";
  app.add_subcommand(name)->allow_extras()->group("Not in this version")->callback([parent, name] {
    throw Error(ErrorCode::usage, fmt::format("'{}{}' {}", parent, name, kLater));
  });
}

std::vector<std::string> with_config_file(const std::vector<std::string>& arguments) {
  const std::string option = "--config";
  std::optional<std::string> path;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == option && i + 1 < arguments.size()) path = arguments[i + 1];
    if (arguments[i].rfind(option + "=", 0) == 0) path = arguments[i].substr(option.size() + 1);
  }
  if (!path) return arguments;

  if (std::filesystem::is_directory(*path))
    throw Error(ErrorCode::data, fmt::format("--config {}: is a folder, not a file", *path));
  if (std::filesystem::exists(*path) && !std::filesystem::is_regular_file(*path))
    throw Error(ErrorCode::data, fmt::format("--config {}: is not a regular file", *path));
  std::ifstream file(*path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad())
    throw Error(ErrorCode::data, fmt::format("--config {}: cannot be read", *path));
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos)
    refuse_config(*path, "holds no options; allowed: JSON, {\"batch\": 8}, or TOML, batch = 8");
  // What begins as an object is meant as one also where it is none.
  const bool json = text[first] == '{' || Json::accept(text);

  std::vector<std::string> all = arguments;
  for (const auto& [name, value] :
       json ? read_json_config(*path, text) : read_toml_config(*path, text)) {
    if (name.empty()) refuse_config(*path, "has an option without a name");
    const std::string full = "--" + name;
    if (full == option)
      refuse_config(*path, "config is for the command line; allowed: the other options");
    // "--name=" would take the next argument.
    if (value.empty())
      refuse_config(*path,
                    fmt::format("{0} has no value; allowed: one, null, or no {0} at all", name));
    const bool given = std::any_of(arguments.begin(), arguments.end(), [&](const auto& argument) {
      return argument == full || argument.rfind(full + "=", 0) == 0;
    });
    if (!given) all.push_back(full + "=" + value);
  }
  return all;
}

const CLI::App& chosen_command(const CLI::App& root) {
  const std::vector<CLI::App*> chosen = root.get_subcommands();
  return chosen.empty() ? root : chosen_command(*chosen.front());
}

void refuse_unknown(const CLI::App& root) {
  const CLI::App& command = chosen_command(root);
  const std::vector<std::string> left = root.remaining(/*recurse=*/true);
  const std::string word = left.empty() ? std::string() : left.front();
  std::vector<std::string> names;
  std::string what = "command";
  if (word.rfind('-', 0) == 0) {
    what = "option";
    for (const CLI::Option* option : command.get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  } else {
    for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(sub->get_name());
    if (names.empty()) what = "argument";
  }
  const std::string name = word.substr(0, word.find('='));
  const std::string near = nearest(name, names);
  throw Error(ErrorCode::usage, fmt::format("unknown {} '{}'", what, name),
              near.empty() ? std::string() : fmt::format("did you mean '{}'?", near));
}

}  // namespace tandem::program
