// SPDX-License-Identifier: Apache-2.0
// When stages ran, as the device saw it: the hook of the scheduler, and what is made of the times.
#pragma once

#include <tandem/engine/backend.hpp>
#include <vector>

namespace tandem {

/// Told where each execution of a stage lies on its stream. See SchedulerOptions::stage_timer.
class StageTimer {
 public:
  virtual ~StageTimer() = default;

  /// Called on the pushing thread. What the timer queues on the stream at `begin` runs behind the
  /// stage's waits and before its first operation; what it queues at `end`, behind its last one.
  virtual void begin(int stage, StreamRef stream) = 0;
  virtual void end(int stage, StreamRef stream) = 0;

 protected:
  StageTimer() = default;
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;
};

/// One execution of a stage: seconds on a clock that all stages share.
struct StageSpan {
  int stage = 0;
  double begin = 0, end = 0;
};

/// Of the time from the first begin to the last end, the percentage in which at least one stage was
/// under way. Gaps between the operations of a stage count as busy, and it says nothing about how
/// full the device was. 0 without spans.
double busy_percent(std::vector<StageSpan> spans);

}  // namespace tandem
