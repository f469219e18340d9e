// SPDX-License-Identifier: Apache-2.0
// How much of the planned memory holds something, over the time of a recording.
#pragma once

#include <tandem/engine/chrome_trace.hpp>
#include <tandem/engine/plan.hpp>
#include <tandem/engine/recorder.hpp>
#include <vector>

namespace tandem {

/// One curve a stage: whenever an operation of the plan begins, the MiB of the stage's scratch
/// memory that hold something while it runs. What else there is never changes: memory_parts().
std::vector<CounterSample> live_memory(const Recording& recording, const Plan& plan);

}  // namespace tandem
