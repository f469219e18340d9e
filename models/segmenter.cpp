// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <tandem/engine/error.hpp>
#include <tandem/models/segmenter.hpp>

namespace tandem {
namespace {

constexpr std::int64_t kWidth = 16;  // channels at full resolution

}  // namespace

void check_image_size(std::int64_t image) {
  const bool power_of_two = image > 0 && (image & (image - 1)) == 0;
  if (!power_of_two || image < 32 || image > 512)
    throw Error(ErrorCode::usage,
                fmt::format("image size is {}; allowed: 32, 64, 128, 256, 512", image));
}

void check_classes(std::int64_t classes) {
  if (classes < 2 || classes > 254)
    throw Error(ErrorCode::usage,
                fmt::format("number of classes is {}; allowed: 2 .. 254", classes));
}

Sequential segmenter_encoder(std::int64_t image) {
  check_image_size(image);
  Sequential encoder(3);
  encoder.conv(kWidth, 1);
  std::int64_t channels = kWidth;
  for (std::int64_t side = image; side > 1; side /= 2) encoder.relu().conv(channels *= 2, 2, 2);
  return encoder;
}

Sequential segmenter_decoder(std::int64_t image, std::int64_t classes) {
  check_image_size(image);
  check_classes(classes);
  std::int64_t channels = kWidth * image;
  Sequential decoder(channels);
  for (std::int64_t side = 1; side < image; side *= 2)
    decoder.transposed_conv(channels /= 2, 2, 2).relu();
  decoder.conv(classes, 3, 1, 1);
  return decoder;
}

}  // namespace tandem
