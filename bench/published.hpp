// SPDX-License-Identifier: Apache-2.0
// The published experiments, on random pictures.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/models/trainer.hpp>

namespace tandem::program {

/// Per-sample augmentation beside a classifier's training: a crop of a quarter of the picture,
/// enlarged to all of it, turned by up to 45 degrees, blurred with 7 taps; bytes / 255.
EngineConfig published_classifier(std::int64_t image, std::int64_t classes, std::int64_t batch);

/// What is trained on what.
struct PublishedJob {
  std::string name;
  EngineConfig config;
  std::shared_ptr<const Dataset> data;
  std::optional<LoaderAugment> augment;
};

/// What the user says of it.
struct PublishedChoice {
  std::int64_t image = 256, classes = 10, batch = 1;
  std::uint64_t seed = 0;
  std::string augment = "gpu";  ///< or none, cpu; of the classifier
  std::string input = "device";
};

/// A frozen encoder beside the training of a decoder.
PublishedJob published_segment_job(const PublishedChoice& choice);
/// published_classifier(). Throws Error{usage} for augmentation by loader threads without any.
PublishedJob published_classify_job(const PublishedChoice& choice);

}  // namespace tandem::program
