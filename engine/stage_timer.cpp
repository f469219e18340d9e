// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tandem/engine/stage_timer.hpp>

namespace tandem {

double busy_percent(std::vector<StageSpan> spans) {
  if (spans.empty()) return 0;
  std::sort(spans.begin(), spans.end(),
            [](const StageSpan& a, const StageSpan& b) { return a.begin < b.begin; });
  const double first = spans.front().begin;
  double busy = 0, covered = first;  // everything before `covered` has been counted
  for (const StageSpan& span : spans) {
    busy += std::max(0.0, span.end - std::max(span.begin, covered));
    covered = std::max(covered, span.end);
  }
  return covered > first ? 100 * busy / (covered - first) : 0;
}

}  // namespace tandem
