// SPDX-License-Identifier: Apache-2.0
// Which steps of a run are profiled: the schedule of PyTorch's profiler.
#pragma once

#include <cstdint>
#include <optional>

namespace tandem {

enum class ProfileAction : std::uint8_t {
  none,             ///< nothing is recorded
  warmup,           ///< recorded, so that starting costs are over, but part of no cycle
  record,           ///< part of a cycle
  record_and_save,  ///< its last step
};
const char* name_of(ProfileAction action) noexcept;

/// Cycles of `wait` + `warmup` + `active` steps, `repeat` times, behind the first `skip_first`
/// steps.
struct ProfileSchedule {
  std::uint64_t skip_first = 0;
  std::uint64_t wait = 0, warmup = 0;
  std::uint64_t active = 1;  ///< at least 1
  std::uint64_t repeat = 0;  ///< 0: to the end of the run

  ProfileAction action_at(std::uint64_t step) const noexcept;

  /// Index of the cycle that a step belongs to, waiting and warming up included; none before the
  /// first and after the last.
  std::optional<std::uint64_t> cycle_at(std::uint64_t step) const noexcept;

  /// Steps to the end of the last cycle; 0 if there is no last one.
  std::uint64_t steps() const noexcept { return repeat == 0 ? 0 : skip_first + repeat * length(); }

  /// Of the first `steps` steps, those that are part of a cycle's record.
  std::uint64_t recorded(std::uint64_t steps) const noexcept;

  std::uint64_t length() const noexcept { return wait + warmup + active; }
};

}  // namespace tandem
