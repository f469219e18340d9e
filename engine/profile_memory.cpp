// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>
#include <tandem/engine/profile_memory.hpp>
#include <tandem/engine/profile_source.hpp>
#include <unordered_map>
#include <utility>

namespace tandem {

std::vector<CounterSample> live_memory(const Recording& recording, const Plan& plan) {
  std::unordered_map<std::string, double> mib_of;  // by path
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    const std::vector<std::size_t> live = live_scratch(plan, static_cast<int>(s));
    for (std::size_t i = 0; i < live.size(); ++i)
      mib_of[path_of(stage.name.c_str(), stage.operations[i])] =
          static_cast<double>(live[i]) / (1 << 20);
  }
  std::vector<CounterSample> samples;
  std::vector<double> last(recording.stages.size(), -1);
  for (const Record& record : recording.records) {
    const auto found = mib_of.find(recording.texts[record.path]);
    if (record.stage < 0 || found == mib_of.end()) continue;
    const auto stage = static_cast<std::size_t>(record.stage);
    if (std::exchange(last[stage], found->second) == found->second) continue;
    samples.push_back({record.begin,
                       fmt::format("scratch of {} in use, MiB", recording.stages[stage]),
                       found->second});
  }
  return samples;
}

}  // namespace tandem
