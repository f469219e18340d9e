// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <tandem/engine/algorithms.hpp>
#include <tandem/engine/atomic_file.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/sha256.hpp>

namespace tandem {
namespace {

constexpr int kSchema = 1;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::data, fmt::format("{}: {}", path, what));
}

}  // namespace

std::string algorithms_hash(const AlgorithmTable& table) {
  Sha256 hash;
  for (const auto& [problem, algorithm] : table.entries) {
    const std::string line = problem + " -> " + algorithm + "\n";
    hash.update(line.data(), line.size());
  }
  return hash.hex().substr(0, 16);
}

AlgorithmTable read_algorithms(const std::string& path, const std::string& environment) {
  std::ifstream file(path);
  if (!file) refuse(path, "cannot be read");
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object()) refuse(path, "is not a JSON object");
  if (json.value("schema", 0) != kSchema)
    refuse(path, fmt::format("schema is not {}: not a plan file of this version", kSchema));
  AlgorithmTable table;
  const auto name = json.find("environment"), entries = json.find("algorithms");
  if (name == json.end() || !name->is_string()) refuse(path, "environment is not a string");
  if (entries == json.end() || !entries->is_object()) refuse(path, "algorithms is not an object");
  table.environment = *name;
  if (table.environment != environment)
    refuse(path, fmt::format("was made for '{}', this is '{}'", table.environment, environment));
  for (const auto& [problem, algorithm] : entries->items()) {
    if (!algorithm.is_string())
      refuse(path, fmt::format("algorithm of '{}' is not a string", problem));
    table.entries[problem] = algorithm;
  }
  return table;
}

void write_algorithms(const std::string& path, const AlgorithmTable& table) {
  const nlohmann::json json = {
      {"schema", kSchema}, {"environment", table.environment}, {"algorithms", table.entries}};
  const std::string text = json.dump(1) + "\n";
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace tandem
