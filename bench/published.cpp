// SPDX-License-Identifier: Apache-2.0
#include "published.hpp"

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

}  // namespace tandem::program
