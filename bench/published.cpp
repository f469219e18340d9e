// SPDX-License-Identifier: Apache-2.0
#include "published.hpp"

#include <tandem/engine/error.hpp>

#include "common.hpp"

namespace tandem::program {

EngineConfig published_classifier(std::int64_t image, std::int64_t classes, std::int64_t batch) {
  EngineConfig config = classifier_config(image, classes, batch);
  AugmentSpec spec;
  spec.in_h = spec.in_w = spec.out_h = spec.out_w = image;
  spec.crop_h = spec.crop_w = image / 2;
  spec.rotate = true;
  spec.blur_taps = 7;
  config.augment = spec;
  return config;
}

PublishedJob published_segment_job(const PublishedChoice& choice) {
  return {"segment",
          segmenter_config(choice.image, choice.classes, choice.batch),
          make_synthetic(choice.image, choice.classes, choice.seed),
          {}};
}

PublishedJob published_classify_job(const PublishedChoice& choice) {
  if (choice.augment == "cpu" && choice.input == "device")
    throw Error(ErrorCode::usage,
                "--augment cpu is done by loader threads; --input device has none");
  PublishedJob job{"classify",
                   published_classifier(choice.image, choice.classes, choice.batch),
                   make_synthetic_classes(choice.image, choice.classes, choice.seed),
                   {}};
  if (choice.augment == "none") {
    job.config.augment.reset();
    return job;
  }
  job.config.augment_on_cpu = choice.augment == "cpu";
  job.augment = LoaderAugment{*job.config.augment, AugmentRanges{}, choice.seed,
                              job.config.augment_on_cpu, false};
  return job;
}

}  // namespace tandem::program
