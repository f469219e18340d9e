// SPDX-License-Identifier: Apache-2.0
#include <tandem/models/classifier.hpp>
#include <tandem/models/segmenter.hpp>

namespace tandem {

Sequential classifier(std::int64_t image, std::int64_t classes) {
  check_classes(classes);
  Sequential model = segmenter_encoder(image);
  const std::int64_t features = model.out_channels();
  return model.flatten().linear(features, classes);
}

}  // namespace tandem
