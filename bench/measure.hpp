// SPDX-License-Identifier: Apache-2.0
// What benchmarks and the batch-size finder measure with.
#pragma once

#include <memory>
#include <string>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/loader.hpp>
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

/// Each stage with the seconds that it takes alone, measured for about `seconds` each. Overwrites
/// what the slots hold and trains on it, so it comes last.
using StageSeconds = std::vector<std::pair<std::string, double>>;
StageSeconds time_stages(Scheduler& scheduler, double seconds);

}  // namespace tandem::program
