// SPDX-License-Identifier: Apache-2.0
// What running two stages side by side brought, from four times. Plain arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

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
};

inline OverlapVerdict overlap_verdict(const OverlapTimes& t) {
  const double efficiency = overlap_efficiency(t);
  if (efficiency > 0.1) return OverlapVerdict::pays;
  return efficiency < -0.1 ? OverlapVerdict::hurts : OverlapVerdict::nothing;
}

}  // namespace tandem
