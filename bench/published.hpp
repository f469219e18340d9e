// SPDX-License-Identifier: Apache-2.0
// The published experiments as engines.
#pragma once

#include <cstdint>
#include <tandem/models/trainer.hpp>

namespace tandem::program {

/// Per-sample augmentation beside a classifier's training: a crop of a quarter of the picture,
/// enlarged to all of it, turned by up to 45 degrees, blurred with 7 taps; bytes / 255.
EngineConfig published_classifier(std::int64_t image, std::int64_t classes, std::int64_t batch);

}  // namespace tandem::program
