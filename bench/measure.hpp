// SPDX-License-Identifier: Apache-2.0
// What benchmarks and the batch-size finder measure with.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/engine/overlap.hpp>
#include <tandem/models/trainer.hpp>
#include <utility>
#include <vector>

namespace tandem::program {

/// Throws Error{interrupted} after Ctrl-C.
void check_interrupt();

/// Of at least one value; the middle between the two middle ones of an even number.
double median_of(std::vector<double> values);

/// Fills every input slot once, through host memory; they are then used in turn. For inputs that
/// lie in device memory.
void fill_inputs(Trainer& trainer, const EngineConfig& config,
                 const std::shared_ptr<const Dataset>& data, LoaderOptions options);

/// Trains `options.steps` steps, on the filled input slots in turn or from a loader, and waits for
/// them. `before_batch`, if there is one, is called before each batch is asked for, `before_step`
/// when it is there; the run ends early where `goes_on`, asked before each batch, says false.
void run_steps(Trainer& trainer, const EngineConfig& config,
               const std::shared_ptr<const Dataset>& data, const LoaderOptions& options,
               const std::function<void()>& before_step,
               const std::function<void()>& before_batch = {},
               const std::function<bool()>& goes_on = {});

/// Each stage with the seconds that it takes alone, measured for about `seconds` each. Overwrites
/// what the slots hold and trains on it, so it comes last.
StageSeconds time_stages(Scheduler& scheduler, double seconds);

}  // namespace tandem::program
