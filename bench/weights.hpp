// SPDX-License-Identifier: Apache-2.0
// Trained weights in a folder that `train --out` wrote, and the networks that they are for.
#pragma once

#include <cstdint>
#include <string>
#include <tandem/models/parameters.hpp>
#include <tandem/models/trainer.hpp>

namespace tandem::program {

struct TrainedNetwork {
  EngineConfig config;  ///< networks and image
  std::int64_t classes = 0;
  Parameters frozen, trained;
};

/// The size of pictures and the number of classes are what the tensors say. `batch` goes into the
/// configuration. Throws Error{data} that names the file and the tensor that does not fit,
/// Error{non_finite} for values that are not finite.
TrainedNetwork read_segmenter(const std::string& folder, std::int64_t batch);
TrainedNetwork read_classifier(const std::string& folder, std::int64_t batch);

/// Throws Error{usage} if the user asked for another size or number; 0 asks for nothing.
void check_asked(const TrainedNetwork& network, const std::string& folder, std::int64_t image,
                 std::int64_t classes);

}  // namespace tandem::program
