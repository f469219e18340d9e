// SPDX-License-Identifier: Apache-2.0
#include "comparison.hpp"

namespace tandem::program {
namespace {

bool clearly_above(const Spread& high, const Spread& low, double tolerance) {
  return !high.alone && !low.alone && high.median / low.median > 1 + tolerance &&
         high.min > low.max;
}

bool steady(const Spread& speed, double tolerance) {
  return (speed.max - speed.min) / speed.median <= 2 * tolerance;
}

}  // namespace

const char* name_of(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::same:
      return "same";
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::ambiguous:
      break;
  }
  return "ambiguous";
}

Verdict compare_speeds(const Spread& a, const Spread& b, double tolerance) {
  if (clearly_above(b, a, tolerance)) return Verdict::faster;
  if (clearly_above(a, b, tolerance)) return Verdict::slower;
  const bool close = b.median / a.median <= 1 + tolerance && a.median / b.median <= 1 + tolerance;
  return close && steady(a, tolerance) && steady(b, tolerance) ? Verdict::same : Verdict::ambiguous;
}

}  // namespace tandem::program
