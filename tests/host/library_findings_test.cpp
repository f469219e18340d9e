// SPDX-License-Identifier: Apache-2.0
// The table of findings, the measurement kept beside it, and the rule that follows from them: an
// epilogue whose finding does not hold is not used.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <tandem/engine/error.hpp>
#include <tandem/engine/library_findings.hpp>
#include <vector>

namespace tandem {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

const fs::path kSource = TANDEM_SOURCE_DIR;
const fs::path kMeasured = kSource / "engine/library_findings.json";

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Epilogues that a source text names and may not use.
Lines forbidden_epilogues(const std::string& text) {
  static const std::regex pattern("CUBLASLT_EPILOGUE_[A-Z_]*[A-Z]");
  Lines found;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
    if (!epilogue_allowed(match->str())) found.push_back(match->str());
  }
  return found;
}

/// What is wrong with a file that the GPU test wrote, held against the table.
Lines complaints(const json& file) {
  Lines found;
  if (!file.is_object()) return {"not an object"};
  const json environment = file.value("environment", json());
  for (const char* key : {"gpu", "driver", "cublaslt", "cudnn"}) {
    if (!environment.is_object() || !environment.contains(key) || !environment[key].is_string() ||
        environment[key].get<std::string>().empty()) {
      found.push_back(std::string("environment lacks the text ") + key);
    }
  }
  const json findings = file.value("findings", json());
  if (!findings.is_object()) return {"findings is no object"};
  for (const LibraryFinding& row : library_findings()) {
    const std::string name(row.name);
    if (!findings.contains(name)) {
      found.push_back(name + " is in the table only");
      continue;
    }
    const json& finding = findings[name];
    if (!finding.is_object() || finding.size() != 2 || !finding.contains("holds") ||
        !finding["holds"].is_boolean() || !finding.contains("detail") ||
        !finding["detail"].is_string()) {
      found.push_back(name + " is not {holds: true or false, detail: text}");
    } else if (row.state == FindingState::unknown ||
               finding["holds"].get<bool>() != (row.state == FindingState::holds)) {
      found.push_back(name + " differs from the table");
    }
  }
  for (const auto& item : findings.items()) {
    const auto& table = library_findings();
    if (std::none_of(table.begin(), table.end(),
                     [&](const LibraryFinding& row) { return row.name == item.key(); })) {
      found.push_back(item.key() + " is in the file only");
    }
  }
  return found;
}

/// A file that agrees with the table; an unknown finding cannot, and is reported by complaints().
json agreeing() {
  json file = {{"environment", {{"gpu", "g"}, {"driver", "1"}, {"cublaslt", "2"}, {"cudnn", "3"}}},
               {"findings", json::object()}};
  for (const LibraryFinding& row : library_findings()) {
    file["findings"][std::string(row.name)] = {{"holds", row.state == FindingState::holds},
                                               {"detail", "d"}};
  }
  return file;
}

TEST(LibraryFindings, NamesAreUniqueAndPlain) {
  std::set<std::string_view> names;
  for (const LibraryFinding& row : library_findings()) {
    EXPECT_TRUE(std::regex_match(std::string(row.name), std::regex("[a-z][a-z0-9_]*"))) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.meaning.empty()) << row.name;
  }
  EXPECT_FALSE(names.empty());
}

TEST(LibraryFindings, OnlyWhatHoldsHolds) {
  for (const LibraryFinding& row : library_findings())
    EXPECT_EQ(finding_holds(row.name), row.state == FindingState::holds) << row.name;
}

TEST(LibraryFindings, AnUnknownNameIsAnErrorThatNamesIt) {
  try {
    finding_holds("relu_is_fast");
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("relu_is_fast"), std::string::npos) << error.what();
  }
}

TEST(LibraryFindings, AnEpilogueNeedsItsFindings) {
  EXPECT_TRUE(epilogue_allowed("CUBLASLT_EPILOGUE_DEFAULT"));
  EXPECT_FALSE(epilogue_allowed("CUBLASLT_EPILOGUE_GELU")) << "nobody asked about it";
  const bool nan = finding_holds("relu_epilogue_keeps_nan");
  const bool mask =
      finding_holds("relu_mask_at_zero") && finding_holds("relu_mask_reinterpreted_c128");
  EXPECT_EQ(epilogue_allowed("CUBLASLT_EPILOGUE_RELU"), nan);
  EXPECT_EQ(epilogue_allowed("CUBLASLT_EPILOGUE_RELU_BIAS"), nan);
  EXPECT_EQ(epilogue_allowed("CUBLASLT_EPILOGUE_RELU_AUX_BIAS"), nan && mask);
  EXPECT_EQ(epilogue_allowed("CUBLASLT_EPILOGUE_DRELU"), mask);
  for (const char* gradient : {"CUBLASLT_EPILOGUE_BGRADA", "CUBLASLT_EPILOGUE_BGRADB"})
    EXPECT_EQ(epilogue_allowed(gradient), finding_holds("alpha_scales_bgrada"));
}

/// The plan's table with one finding found otherwise.
std::vector<LibraryFinding> table_where(std::string_view name, FindingState state) {
  std::vector<LibraryFinding> table = library_findings();
  for (LibraryFinding& row : table)
    if (row.name == name) row.state = state;
  return table;
}

/// What a call throws, with the hint; empty if it throws nothing.
template <class Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::run_failed);
    return std::string(error.what()) + " " + error.hint();
  }
  return {};
}

TEST(LibraryFindings, WhatNeedsAFindingIsRefusedWhereItDoesNotHold) {
  for (const LibraryFinding& row : library_findings()) {
    const auto ask = [&](FindingState state) {
      return refusal_of([&] { require_finding(row.name, "a plan", table_where(row.name, state)); });
    };
    EXPECT_EQ(ask(FindingState::holds), "");
    for (const FindingState state : {FindingState::fails, FindingState::unknown}) {
      const std::string text = ask(state), name(row.name);
      for (const std::string& part : {"a plan needs the library finding '" + name + "'",
                                      "findings." + name + " of engine/library_findings.json"})
        EXPECT_NE(text.find(part), std::string::npos) << text;
    }
    EXPECT_NE(ask(FindingState::fails), ask(FindingState::unknown)) << "which of the two it is";
  }
}

TEST(LibraryFindings, AnEpilogueWhoseFindingFailsIsRefusedByName) {
  const auto ask = [](std::string_view epilogue, const std::vector<LibraryFinding>& table) {
    return refusal_of([&] { require_epilogue(epilogue, table); });
  };
  for (const FindingState state : {FindingState::holds, FindingState::fails}) {
    const auto table = table_where("alpha_scales_bgrada", state);
    const std::string text = ask("CUBLASLT_EPILOGUE_BGRADA", table);
    EXPECT_EQ(text.empty(), state == FindingState::holds) << text;
    EXPECT_EQ(ask("CUBLASLT_EPILOGUE_DEFAULT", table), "");
    if (state == FindingState::holds) continue;
    for (const char* part : {"CUBLASLT_EPILOGUE_BGRADA", "findings.alpha_scales_bgrada"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_NE(ask("CUBLASLT_EPILOGUE_GELU", library_findings()).find("CUBLASLT_EPILOGUE_GELU"),
            std::string::npos);
  // Of the plan's own table both functions say the same.
  for (const char* epilogue :
       {"DEFAULT", "RELU", "RELU_BIAS", "RELU_AUX_BIAS", "DRELU", "BGRADA", "BGRADB", "GELU"}) {
    const std::string name = std::string("CUBLASLT_EPILOGUE_") + epilogue;
    EXPECT_EQ(ask(name, library_findings()).empty(), epilogue_allowed(name)) << name;
  }
}

TEST(LibraryFindings, TheSourcesUseAllowedEpiloguesOnly) {
  EXPECT_EQ(forbidden_epilogues("a = CUBLASLT_EPILOGUE_GELU; b = CUBLASLT_EPILOGUE_DEFAULT;"),
            Lines{"CUBLASLT_EPILOGUE_GELU"});
  int files = 0;
  Lines setters;  // where an epilogue reaches the library: behind require_epilogue() only
  for (const char* folder : {"kernels", "engine", "models", "bench"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kSource / folder)) {
      const fs::path& path = entry.path();
      const bool code = std::set<fs::path>{".cpp", ".hpp", ".cu", ".cuh"}.count(path.extension());
      if (!code || path.stem() == "library_findings") continue;
      ++files;
      const std::string text = read(path), setter = "CUBLASLT_MATMUL_DESC_EPILOGUE";
      EXPECT_EQ(forbidden_epilogues(text), Lines{}) << path;
      for (std::size_t at = 0; (at = text.find(setter, at)) != text.npos; ++at)
        setters.push_back(text.substr(text.rfind('\n', at) + 1, at - text.rfind('\n', at) - 1));
    }
  }
  EXPECT_EQ(setters, Lines{"  (require_epilogue(#epilogue), set("});
  EXPECT_GT(files, 50) << "the sources were not found";
}

TEST(LibraryFindings, TheMeasurementAgreesWithTheTable) {
  if (fs::exists(kMeasured)) {
    EXPECT_EQ(complaints(json::parse(read(kMeasured))), Lines{});
    return;
  }
  for (const LibraryFinding& row : library_findings())
    EXPECT_EQ(row.state, FindingState::unknown) << row.name << " has no " << kMeasured;
}

TEST(LibraryFindings, AWrongFileIsRefused) {
  const std::string name(library_findings().front().name);
  const std::size_t before = complaints(agreeing()).size();  // the unknown ones
  const auto more = [before](json file) { return complaints(file).size() > before; };

  json file = agreeing();
  EXPECT_FALSE(more(file));
  file["environment"].erase("cudnn");
  EXPECT_TRUE(more(file));
  file = agreeing();
  file["findings"]["made_up"] = {{"holds", true}, {"detail", "d"}};
  EXPECT_TRUE(more(file));
  EXPECT_EQ(complaints(json::array()), Lines{"not an object"});
  EXPECT_EQ(complaints({{"findings", 1}}), Lines{"findings is no object"});

  const auto says = [&name](const json& wrong, const std::string& what) {
    const Lines found = complaints(wrong);
    return std::count(found.begin(), found.end(), name + what) == 1;
  };
  file = agreeing();
  file["findings"].erase(name);
  EXPECT_TRUE(says(file, " is in the table only"));
  file = agreeing();
  file["findings"][name]["holds"] = "yes";
  EXPECT_TRUE(says(file, " is not {holds: true or false, detail: text}"));
  file = agreeing();
  file["findings"][name]["holds"] = !finding_holds(name);
  EXPECT_TRUE(says(file, " differs from the table"));
}

}  // namespace
}  // namespace tandem
