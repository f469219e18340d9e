// SPDX-License-Identifier: Apache-2.0
// Runs a test of this program as a child under the NVTX recorder, and reads what it recorded.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tandem/engine/plan.hpp>
#include <tandem/tests/support/files.hpp>
#include <utility>
#include <vector>

namespace tandem::testing {

/// One call of NVTX, in the order of the calls. A line of the file has these fields in this order.
struct NvtxCall {
  std::string event;  ///< domain, string, thread, stream, push, pop, start, end
  long thread = 0;    ///< who called; of `thread`: who is named
  std::string domain, category;
  std::uint64_t range = 0;  ///< start, end: which one
  std::string step;         ///< push, start: the payload
  std::string name;         ///< of what opens, or is named, registered or created

  bool opens() const { return event == "push" || event == "start"; }
};

inline std::vector<NvtxCall> read_recording(const std::string& path) {
  std::vector<NvtxCall> calls;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    const auto next = [&] {
      std::string field;
      std::getline(fields, field, '\t');
      return field;
    };
    NvtxCall call;
    call.event = next();
    call.thread = std::stol(next());
    call.domain = next();
    call.category = next();
    call.range = std::stoull(next());
    call.step = next();
    call.name = next();
    calls.push_back(std::move(call));
  }
  return calls;
}

struct NvtxRun {
  int exit_code = -1;
  bool recorded = false;  ///< the recorder wrote a file
  std::string output;
  std::vector<NvtxCall> calls;
};

/// Runs the test `name`, a DISABLED_ one of this program, in a process of its own. `tool` is the
/// library that NVTX shall load; empty for none.
inline NvtxRun run_under_nvtx(const std::string& name, const std::string& tool) {
  const TemporaryFolder folder;
  const std::string record = folder.file("record");
  std::array<char, 4096> program{};
  if (readlink("/proc/self/exe", program.data(), program.size() - 1) < 0)
    throw std::runtime_error("cannot read /proc/self/exe");
  const std::string inject =
      tool.empty() ? "-u NVTX_INJECTION64_PATH" : "NVTX_INJECTION64_PATH='" + tool + "'";
  const std::string command = "env " + inject + " TANDEM_NVTX_RECORD='" + record + "' '" +
                              program.data() +
                              "' --gtest_also_run_disabled_tests --gtest_filter=" + name + " 2>&1";
  NvtxRun run;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  std::array<char, 4096> chunk{};
  while (std::fgets(chunk.data(), static_cast<int>(chunk.size()), pipe) != nullptr)
    run.output += chunk.data();
  const int status = pclose(pipe);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  run.recorded = std::filesystem::exists(record);
  run.calls = read_recording(record);
  return run;
}

/// Without what the libraries that the program uses do in domains of their own.
inline std::vector<NvtxCall> of_tandem(const std::vector<NvtxCall>& calls) {
  std::vector<NvtxCall> ours;
  for (const NvtxCall& call : calls)
    if (call.domain == "tandem" || call.domain.empty()) ours.push_back(call);
  return ours;
}

/// What is wrong with a recording, one line a finding: a push without a pop in its thread or the
/// other way round, a start without an end, a range outside of the domain `tandem`, without a
/// category, with a name that is not registered (once) or without a step.
inline std::vector<std::string> nvtx_faults(const std::vector<NvtxCall>& calls) {
  std::vector<std::string> faults;
  std::map<long, std::vector<std::string>> open;  // per thread, innermost last
  std::map<std::uint64_t, std::string> started;
  std::set<std::string> strings;
  int domains = 0;
  for (const NvtxCall& call : calls) {
    const std::string who = call.event + " " + call.name + " of step " + call.step;
    if (call.event == "domain") ++domains;
    if (call.event == "string" && !strings.insert(call.name).second)
      faults.push_back(call.name + " is registered twice");
    if (call.event != "thread" && call.event != "stream" && call.domain != "tandem")
      faults.push_back(who + " in domain " + call.domain);
    if (call.opens()) {
      if (call.category != "stage" && call.category != "operation")
        faults.push_back(who + " has category " + call.category);
      if (strings.count(call.name) == 0) faults.push_back(who + " has a name not registered");
      if (call.step.find_first_not_of("0123456789") != std::string::npos)
        faults.push_back(who + " has no step");
    }
    if (call.event == "push") open[call.thread].push_back(who);
    if (call.event == "pop") {
      if (open[call.thread].empty()) {
        faults.push_back("pop without a push in thread " + std::to_string(call.thread));
      } else {
        open[call.thread].pop_back();
      }
    }
    if (call.event == "start") started[call.range] = who;
    if (call.event == "end" && started.erase(call.range) == 0)
      faults.push_back("end without a start");
  }
  for (const auto& [thread, ranges] : open)
    for (const std::string& range : ranges) faults.push_back(range + " has no pop in its thread");
  for (const auto& [id, range] : started) faults.push_back(range + " has no end");
  if (domains != 1) faults.push_back(std::to_string(domains) + " domains");
  return faults;
}

/// How often a range of (category, name, step) opened.
using NvtxCounts = std::map<std::array<std::string, 3>, int>;
inline NvtxCounts opened(const std::vector<NvtxCall>& calls) {
  NvtxCounts counts;
  for (const NvtxCall& call : calls)
    if (call.opens()) ++counts[{call.category, call.name, call.step}];
  return counts;
}

/// What `steps` steps of a plan open: a range a stage and a range an operation.
inline NvtxCounts expected_ranges(const Plan& plan, std::uint64_t first_step, std::uint64_t steps) {
  NvtxCounts counts;
  for (std::uint64_t n = first_step; n < first_step + steps; ++n) {
    for (const Stage& stage : plan.stages) {
      ++counts[{"stage", stage.name, std::to_string(n)}];
      for (const Operation& operation : stage.operations)
        ++counts[{"operation", operation.name, std::to_string(n)}];
    }
  }
  return counts;
}

/// What `steps` steps of one epoch open under the graph schedule. The first `period` ticks in which
/// every stage but the copy has work are issued, the next `period` are captured and launched, those
/// behind them launched: a launch has one range, `tick`, with the step of its last stage, and a
/// capture those of what it holds. The ticks that fill and drain the pipeline are issued, and so is
/// every copy.
///
///   K = 3, period 4   tick of train n:  0 .. 3 issued | 4 .. 7 captured | 8 .. B - 2 launched
inline NvtxCounts expected_graph_ranges(const Plan& plan, std::uint64_t first_step,
                                        std::uint64_t steps) {
  const std::uint64_t stages = plan.stages.size();
  const auto slots = static_cast<std::uint64_t>(plan.slots);
  const std::uint64_t period = std::lcm(slots, slots + 2), full_ticks = steps - (stages - 2);
  NvtxCounts counts;
  for (std::uint64_t k = 0; k < stages; ++k) {
    const Stage& stage = plan.stages[k];
    for (std::uint64_t n = 0; n < steps; ++n) {
      // Of the tick in which stage k works on step n: the step of the last stage, if it has work.
      const std::uint64_t ahead = stages - 1 - k;
      if (k > 0 && n >= ahead + 2 * period && n - ahead < full_ticks) continue;
      const std::string step = std::to_string(first_step + n);
      ++counts[{"stage", stage.name, step}];
      for (const Operation& operation : stage.operations)
        ++counts[{"operation", operation.name, step}];
    }
  }
  for (std::uint64_t n = period; n < full_ticks; ++n)
    ++counts[{"stage", "tick", std::to_string(first_step + n)}];
  return counts;
}

/// Without the copies that set and read weights: they belong to no step, and say step 0.
inline NvtxCounts without_set_up(NvtxCounts counts) {
  counts.erase({"operation", "copy", "0"});
  return counts;
}

/// Names of threads by their number.
inline std::map<long, std::string> thread_names(const std::vector<NvtxCall>& calls) {
  std::map<long, std::string> names;
  for (const NvtxCall& call : calls)
    if (call.event == "thread") names[call.thread] = call.name;
  return names;
}

}  // namespace tandem::testing
