// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tandem/engine/profile_schedule.hpp>

namespace tandem {

const char* name_of(ProfileAction action) noexcept {
  switch (action) {
    case ProfileAction::none:
      return "none";
    case ProfileAction::warmup:
      return "warmup";
    case ProfileAction::record:
      return "record";
    case ProfileAction::record_and_save:
      break;
  }
  return "record_and_save";
}

std::optional<std::uint64_t> ProfileSchedule::cycle_at(std::uint64_t step) const noexcept {
  if (step < skip_first) return std::nullopt;
  const std::uint64_t cycle = (step - skip_first) / length();
  if (repeat > 0 && cycle >= repeat) return std::nullopt;
  return cycle;
}

ProfileAction ProfileSchedule::action_at(std::uint64_t step) const noexcept {
  if (!cycle_at(step)) return ProfileAction::none;
  const std::uint64_t place = (step - skip_first) % length();
  if (place < wait) return ProfileAction::none;
  if (place < wait + warmup) return ProfileAction::warmup;
  return place + 1 < length() ? ProfileAction::record : ProfileAction::record_and_save;
}

std::uint64_t ProfileSchedule::recorded(std::uint64_t steps) const noexcept {
  if (steps <= skip_first) return 0;
  std::uint64_t cycles = (steps - skip_first) / length(), rest = (steps - skip_first) % length();
  if (repeat > 0 && cycles >= repeat) cycles = repeat, rest = 0;
  return cycles * active + (rest > wait + warmup ? rest - wait - warmup : 0);
}

}  // namespace tandem
