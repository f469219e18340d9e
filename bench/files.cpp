// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>

#include "common.hpp"

namespace tandem::program {
namespace {

namespace fs = std::filesystem;

enum class Role : std::uint8_t {
  none,     // neither a file nor a folder
  input,    // a file that is read
  initial,  // the same, but a training may put its result there
  weights,  // a folder that `train --out` wrote
  data,     // a file, a folder of data, or NAME:DIR, NAME:FILE
  output,
};

constexpr struct {
  const char* name;
  Role role;
} kRoles[] = {{"config", Role::input},    {"model", Role::input}, {"plan", Role::input},
              {"init", Role::initial},    {"in", Role::data},     {"data", Role::data},
              {"weights", Role::weights}, {"json", Role::output}, {"csv", Role::output},
              {"log", Role::output},      {"out", Role::output},  {"trace", Role::output}};

/// What `predict` and `eval` read in a folder of --weights.
constexpr const char* kOfWeights[] = {"encoder.safetensors", "decoder.safetensors",
                                      "classifier.safetensors", kLogFile};

Role role_of(const CLI::Option& option) {
  if (option.get_positional()) return Role::input;
  for (const auto& known : kRoles)
    if (option.check_lname(known.name)) return known.role;
  const std::string type = option.get_type_name();
  if (type.find("FILE") != std::string::npos || type.find("DIR") != std::string::npos)
    throw std::logic_error(
        fmt::format("{}: not known whether it is read or written", option.get_name()));
  return Role::none;
}

struct GivenFile {
  Role role = Role::none;
  NamedFile file;
};

/// Of the command and of those above it, which have --config too.
std::vector<GivenFile> given_files(const CLI::App& command) {
  std::vector<GivenFile> files;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent())
    for (const CLI::Option* option : app->get_options()) {
      const Role role = role_of(*option);
      if (role == Role::none || option->count() == 0) continue;
      for (const std::string& path : option->reduced_results())
        files.push_back({role, {option->get_name(), path}});
    }
  return files;
}

/// Without the name of the data set; empty where there is none but that.
std::string place_of(const std::string& data) {
  std::error_code ignored;
  if (fs::exists(data, ignored)) return data;
  const std::size_t colon = data.find(':');
  return colon == std::string::npos ? "" : data.substr(colon + 1);
}

/// By its name: a picture, or a file of Fashion-MNIST or CIFAR-10. Others may lie beside them.
bool is_data(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg" ||
         extension == ".bin" || path.filename().string().find("-ubyte") != std::string::npos;
}

/// Throws where the file, which is there, is one of data in the folder or below it. Links are
/// followed, each folder is looked into once.
void check_no_data(const fs::path& folder, const std::string& name, const NamedFile& output,
                   std::set<fs::path>& seen) {
  std::error_code error, ignored;
  if (!seen.insert(fs::weakly_canonical(folder, ignored)).second) return;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->is_directory(ignored))
      check_no_data(it->path(), name, output, seen);
    else if (is_data(it->path()) && fs::equivalent(it->path(), output.path, ignored))
      check_distinct({{name, it->path().string()}, output});
}

void check_pair(const GivenFile& input, const NamedFile& output) {
  const auto& [name, path] = input.file;
  std::error_code ignored;
  if (input.role == Role::weights) {
    for (const char* file : kOfWeights)
      check_distinct({{name, (fs::path(path) / file).string()}, output});
  } else if (input.role == Role::data) {
    const std::string place = place_of(path);
    std::set<fs::path> seen;
    if (!fs::is_directory(place, ignored))
      check_distinct({{name, place}, output});
    else if (fs::is_regular_file(output.path, ignored))
      check_no_data(place, name, output, seen);
  } else {
    check_distinct({input.file, output});
  }
}

}  // namespace

void check_files(const CLI::App& command) {
  const std::vector<GivenFile> files = given_files(command);
  std::vector<NamedFile> outputs;
  for (const GivenFile& output : files) {
    if (output.role != Role::output) continue;
    outputs.push_back(output.file);
    for (const GivenFile& input : files)
      if (input.role != Role::output) check_pair(input, output.file);
  }
  check_distinct(outputs);
}

std::vector<NamedFile> input_files(const CLI::App& command) {
  std::vector<NamedFile> files;
  for (const auto& [role, file] : given_files(command)) {
    const std::string path = role == Role::data ? place_of(file.path) : file.path;
    std::error_code ignored;
    if ((role == Role::input || role == Role::data) && fs::is_regular_file(path, ignored))
      files.push_back({file.name, path});
  }
  return files;
}

}  // namespace tandem::program
