// SPDX-License-Identifier: Apache-2.0
#include "common.hpp"

#include <cblas.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <tandem/engine/atomic_file.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/models/classifier.hpp>
#include <tandem/models/segmenter.hpp>
#include <thread>
#include <vector>

namespace tandem::program {
namespace {

namespace fs = std::filesystem;

volatile std::sig_atomic_t interrupt_seen = 0;

/// Value of the first line "key<separator>value" of a text file; empty if there is none.
std::string value_in_file(const char* path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::size_t at = line.find(separator);
    if (at == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t\"", at + 1);
    const std::size_t end = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? std::string() : line.substr(begin, end - begin + 1);
  }
  return {};
}

/// True for two names of one file that holds text, or would; a device takes any number of writers.
bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  if (fs::exists(a, ignored) && !fs::is_regular_file(a, ignored)) return false;
  const auto place = [&](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(end_of_links(path)), ignored);
  };
  return fs::equivalent(a, b, ignored) || place(a) == place(b);
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

/// Empty where the file is there and can be written to, or can be created.
std::string why_not_writable(const std::string& path) {
  const fs::path folder = folder_of(path);
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) return fmt::format("there is no folder {}", folder.string());
  if (!fs::is_directory(folder, ignored)) return fmt::format("{} is not a folder", folder.string());
  if (fs::is_directory(path, ignored)) return "it is a folder";
  if (access(fs::exists(path, ignored) ? path.c_str() : folder.c_str(), W_OK) != 0)
    return std::strerror(errno);
  return {};
}

void refuse_if(const std::string& why_not, const std::string& option, const std::string& path) {
  if (!why_not.empty())
    throw Error(ErrorCode::data,
                fmt::format("{} {}: cannot be written: {}", option, path, why_not));
}

std::string or_unknown(const std::string& text) { return text.empty() ? "unknown" : text; }

}  // namespace

// --- model ---

InitScheme init_scheme(const std::string& name) {
  return name == "torch" ? InitScheme::torch : InitScheme::he;
}

Schedule schedule(const std::string& name) {
  if (name == "graph") return Schedule::graph;
  return name == "serial" ? Schedule::serial : Schedule::overlap;
}

EngineConfig segmenter_config(std::int64_t image, std::int64_t classes, std::int64_t batch) {
  EngineConfig config;
  config.frozen = segmenter_encoder(image);
  config.trained = segmenter_decoder(image, classes);
  config.image = image;
  config.batch = batch;
  return config;
}

EngineConfig classifier_config(std::int64_t image, std::int64_t classes, std::int64_t batch) {
  EngineConfig config;
  config.frozen = Sequential(3);
  config.trained = classifier(image, classes);
  config.image = image;
  config.batch = batch;
  return config;
}

SegmenterWeights initial_segmenter(const EngineConfig& config, InitScheme scheme,
                                   std::uint64_t seed) {
  return {initialise(config.frozen, scheme, seed, 0), initialise(config.trained, scheme, seed, 1)};
}

// --- results ---

Json environment() {
  Json json;
  json["cpu"] = or_unknown(value_in_file("/proc/cpuinfo", "model name", ':'));
  json["cores"] = std::thread::hardware_concurrency();
  json["compiler"] = "g++ " __VERSION__;
  json["openblas"] = fmt::format("{} ({})", openblas_get_config(), openblas_get_corename());
  json.update(cuda_versions());
  utsname kernel{};
  uname(&kernel);
  json["os"] =
      fmt::format("{}, {} {}", or_unknown(value_in_file("/etc/os-release", "PRETTY_NAME=", '=')),
                  kernel.sysname, kernel.release);
  json["version"] = TANDEM_VERSION;
  const std::string commit = TANDEM_COMMIT;
  json["commit"] = commit.empty() ? Json(nullptr) : Json(commit);
  json["date"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  return json;
}

std::string to_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string printable(const std::string& text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      shown += "\\n";
    else if (byte < 0x20 || byte == 0x7f)
      shown += fmt::format("\\x{:02x}", byte);
    else
      shown += c;
  }
  return shown;
}

void check_distinct(const std::vector<NamedFile>& files) {
  const auto is_file = [](const NamedFile& file) { return !file.path.empty() && file.path != "-"; };
  for (std::size_t i = 0; i < files.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (is_file(files[i]) && is_file(files[j]) && same_file(files[i].path, files[j].path))
        throw Error(ErrorCode::usage, fmt::format("{} and {} are one file, {}; allowed: two files",
                                                  files[j].name, files[i].name, files[i].path));
}

void check_writable(const std::string& option, const std::string& path) {
  refuse_if(why_not_writable(path), option, path);
}

void check_replaceable(const std::string& option, const std::string& path) {
  std::error_code ignored;
  std::string why = why_not_writable(path);
  if (why.empty() && fs::exists(path, ignored)) {
    const fs::path folder = folder_of(end_of_links(path));  // where write_file() makes the new one
    if (!fs::is_regular_file(path, ignored))
      why = "it is not a plain file";
    else if (access(folder.c_str(), W_OK) != 0)
      why = fmt::format("a new file in {}: {}", folder.string(), std::strerror(errno));
  }
  refuse_if(why, option, path);
}

void check_json(const std::string& path) {
  if (!path.empty() && path != "-") check_replaceable("--json", path);
}

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void write_text(const std::string& path, const std::string& text) {
  if (path == "-")
    fmt::print("{}", text);
  else
    write_file(path, text);
}

void write_json(const std::string& path, const Json& value) {
  if (!path.empty()) write_text(path, to_text(value, 2) + "\n");
}

std::string count_of(std::int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// --- stopping ---

void watch_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupt_seen = 1; };
  // The second one finds the default action, which ends the process.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() noexcept { return interrupt_seen != 0; }

}  // namespace tandem::program
