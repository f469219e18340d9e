// SPDX-License-Identifier: Apache-2.0
// What a recording says: where the time of a step went, how busy the device was, and what to do
// about it. Plain arithmetic on records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tandem/engine/recorder.hpp>
#include <utility>
#include <vector>

namespace tandem {

/// The part of a recording that is a cycle: from the end of the step before the first one to the
/// end of the last one, so that it is as long as its steps take in the steady state.
struct ProfileWindow {
  std::uint64_t first_step = 0, last_step = 0;
  std::uint64_t begin = 0, end = 0;  ///< profile_clock()
  /// False if the step before the first was not recorded: then the window begins with the first
  /// work of its own steps, and work that was under way at that time is missing.
  bool warm = false;

  std::uint64_t steps() const noexcept { return last_step - first_step + 1; }
};

/// Where records were dropped the window ends with the last step that is whole. Throws
/// Error{run_failed} if there is none, or no work of those steps was recorded.
ProfileWindow window_of(const Recording& recording, std::uint64_t first_step,
                        std::uint64_t last_step);

/// Calls of one name.
struct KernelTimes {
  std::uint64_t count = 0, nanoseconds = 0;
};

/// Sums over the cycles added, in nanoseconds. Records count with what of them lies in the window.
struct ProfileSummary {
  std::uint64_t cycles = 0, steps = 0, records = 0, dropped = 0;
  std::uint64_t wall = 0;
  /// Each moment counts for the first kind that is under way, in the order of RecordKind; `rest`
  /// has the moments of none. They add up to `wall`.
  std::array<std::uint64_t, kRecordKinds> split{};
  std::uint64_t rest = 0;
  /// Time in which the kind is under way at all. What exceeds `split` is hidden behind others.
  std::array<std::uint64_t, kRecordKinds> under_way{};
  std::uint64_t overlapped = 0;  ///< device work on two or more lanes at once
  double fill = 0;               ///< integral of min(1, blocks under way / multiprocessors)
  bool fill_known = true;        ///< every kernel told its blocks, and there is a GPU
  bool warm = true;              ///< every window is
  std::vector<std::string> stages;
  std::vector<std::uint64_t> stage;  ///< time in which work of the stage is under way
  std::map<std::string, KernelTimes> kernels;

  /// `multiprocessors` of the GPU; 0: there is none.
  void add(const Recording& recording, const ProfileWindow& window, int multiprocessors);

  std::uint64_t of(RecordKind kind) const { return split[static_cast<std::size_t>(kind)]; }
  double share(std::uint64_t nanoseconds) const {
    return wall == 0 ? 0 : static_cast<double>(nanoseconds) / static_cast<double>(wall);
  }
  /// Union over all streams of the time in which a kernel runs; percent of wall time.
  double kernel_busy_percent() const;
  /// Device work on two or more lanes at once; percent of wall time.
  double overlap_percent() const { return 100 * share(overlapped); }
  /// Multiprocessors that the running kernels' blocks could occupy, one block each; percent of wall
  /// time, so at most kernel_busy_percent(). Says nothing about how full a multiprocessor was.
  double sm_fill_percent() const { return wall == 0 ? 0 : 100 * fill / static_cast<double>(wall); }
};

/// The kernels that took longest, longest first; of equal ones by name.
std::vector<std::pair<std::string, KernelTimes>> top_kernels(const ProfileSummary& summary,
                                                             std::size_t count);

/// What the records do not say.
struct ProfileFacts {
  bool gpu = false;
  bool overlap = false;           ///< stages run on streams of their own
  bool strict_products = false;   ///< fp32 products where tensor cores could do them
  std::size_t memory_needed = 0;  ///< bytes; 0: not known
  std::size_t memory_there = 0;   ///< bytes that were free before
};

struct Finding {
  std::string rule;  ///< "loader_bound"
  std::string text;  ///< what was seen, and what to try
};

/// In a fixed order; empty if no rule applies. docs/profiling.md lists the rules.
std::vector<Finding> findings_of(const ProfileSummary& summary, const ProfileFacts& facts);

}  // namespace tandem
