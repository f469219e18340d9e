// SPDX-License-Identifier: Apache-2.0
// What running stages side by side brought, from their times, and whether it is worth it. Plain
// arithmetic and words.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

/// Seconds a batch: each stage alone, both one after the other, both side by side.
struct OverlapTimes {
  double a = 0, b = 0, serial = 0, overlap = 0;
};

/// Largest speed-up there can be: (a + b) / max(a, b).
inline double overlap_bound(const OverlapTimes& t) { return (t.a + t.b) / std::max(t.a, t.b); }

/// Of the time that could be hidden, the shorter stage's, the part that was:
/// (serial - overlap) / min(a, b). 1 is all of it, 0 none; below 0 it got slower.
inline double overlap_efficiency(const OverlapTimes& t) {
  return (t.serial - t.overlap) / std::min(t.a, t.b);
}

enum class OverlapVerdict : std::uint8_t {
  pays,     ///< efficiency above 0.1
  nothing,  ///< between
  hurts,    ///< below -0.1
  unclear,  ///< times that cannot be: something else slowed the serial steps or a stage alone
};

/// A gain beyond this many bounds is no gain, and a stage alone takes no longer than so many serial
/// steps, of which it is a part.
inline constexpr double kMostOfBound = 1.1;

/// True where the gain is more than can be: the serial steps were slowed by something else.
inline bool serial_was_slowed(const OverlapTimes& t) {
  return t.serial > kMostOfBound * overlap_bound(t) * t.overlap;
}
/// True where a stage alone took longer than can be beside the serial step: it was slowed.
inline bool stage_was_slowed(const OverlapTimes& t) {
  return std::max(t.a, t.b) > kMostOfBound * t.serial;
}

inline OverlapVerdict overlap_verdict(const OverlapTimes& t) {
  if (serial_was_slowed(t) || stage_was_slowed(t)) return OverlapVerdict::unclear;
  const double efficiency = overlap_efficiency(t);
  if (efficiency > 0.1) return OverlapVerdict::pays;
  return efficiency < -0.1 ? OverlapVerdict::hurts : OverlapVerdict::nothing;
}

/// Names of stages in order, with the seconds a batch that each takes alone.
using StageSeconds = std::vector<std::pair<std::string, double>>;

/// What was seen of a job at one batch size: at least one stage; seconds a step in either order.
struct OverlapSeen {
  StageSeconds stages;
  double serial = 0, overlapped = 0;
};

/// Whether overlapping pays there. It does where neither part fills the device alone, both take
/// about the same time, and handing over takes little beside them; where it does not, the sentence
/// says which of the three fails.
struct OverlapAnswer {
  double a = 0, b = 0;    ///< seconds of the longest stage before the last, and of the last
  double bound = 1;       ///< largest speed-up there can be: all stages / the longest
  double speedup = 1;     ///< serial / overlapped
  double efficiency = 0;  ///< part of what could be hidden that was; 0 where nothing could be
  OverlapVerdict verdict = OverlapVerdict::nothing;
  std::string sentence;

  /// Overlap where it pays, else serial: it needs one stream and no second copy of what is handed
  /// over, and where nothing is gained nothing is lost.
  bool overlap_is_worth_it() const noexcept { return verdict == OverlapVerdict::pays; }
};

/// Pays: the bound is 1.05 or more and at least a tenth of the gain that it allows was had. Hurts:
/// slower than serial at such a bound. Unclear: a speed-up of more than kMostOfBound bounds. Times
/// that are no numbers above 0 say nothing. Thread-safe.
OverlapAnswer judge_overlap(const OverlapSeen& seen);

}  // namespace tandem
