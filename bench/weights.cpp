// SPDX-License-Identifier: Apache-2.0
#include "weights.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <tandem/engine/error.hpp>
#include <tandem/engine/safetensors.hpp>
#include <tandem/models/classifier.hpp>
#include <tandem/models/segmenter.hpp>

#include "common.hpp"

namespace tandem::program {
namespace {

struct WeightFile {
  std::string path;
  Parameters values;
};

/// A prediction hides what a loss would show: some class is always the largest, also among NaNs.
void require_finite(const WeightFile& file) {
  for (const NamedTensor& tensor : file.values) {
    for (const float value : tensor.data)
      if (!std::isfinite(value))
        throw Error(ErrorCode::non_finite,
                    fmt::format("{}: tensor {} holds {}", file.path, tensor.name, value));
  }
}

WeightFile read(const std::string& folder, const char* name) {
  WeightFile file{(std::filesystem::path(folder) / name).string(), {}};
  file.values = read_safetensors(file.path);
  require_finite(file);
  return file;
}

/// S from the first tensors, which are an encoder's: as many as there are convolutions and biases.
std::int64_t image_of(const WeightFile& file, std::size_t tensors) {
  for (std::int64_t image = 32; image <= 512; image *= 2)
    if (segmenter_encoder(image).parameters().size() == tensors) return image;
  throw Error(ErrorCode::data,
              fmt::format("{}: {} tensors are no encoder for pictures of 32 to 512 pixels",
                          file.path, tensors));
}

/// C from the last bias.
std::int64_t classes_of(const WeightFile& file) {
  if (!file.values.empty() && file.values.back().shape.size() == 1) {
    const std::int64_t classes = file.values.back().shape[0];
    if (classes >= 2 && classes <= 254) return classes;
  }
  throw Error(ErrorCode::data,
              fmt::format("{}: the last tensor is no bias of 2 to 254 classes", file.path));
}

}  // namespace

TrainedNetwork read_segmenter(const std::string& folder, std::int64_t batch) {
  WeightFile encoder = read(folder, "encoder.safetensors");
  WeightFile decoder = read(folder, "decoder.safetensors");
  TrainedNetwork network;
  network.classes = classes_of(decoder);
  network.config =
      segmenter_config(image_of(encoder, encoder.values.size()), network.classes, batch);
  check_parameters(network.config.frozen, encoder.values, encoder.path);
  check_parameters(network.config.trained, decoder.values, decoder.path);
  network.frozen = std::move(encoder.values);
  network.trained = std::move(decoder.values);
  return network;
}

TrainedNetwork read_classifier(const std::string& folder, std::int64_t batch) {
  WeightFile file = read(folder, "classifier.safetensors");
  TrainedNetwork network;
  network.classes = classes_of(file);
  // Behind the encoder: a weight and a bias.
  const std::int64_t image = image_of(file, file.values.size() < 2 ? 0 : file.values.size() - 2);
  network.config = classifier_config(image, network.classes, batch);
  check_parameters(network.config.trained, file.values, file.path);
  network.trained = std::move(file.values);
  return network;
}

void check_asked(const TrainedNetwork& network, const std::string& folder, std::int64_t image,
                 std::int64_t classes) {
  if (image != 0 && image != network.config.image)
    throw Error(ErrorCode::usage, fmt::format("--image is {}, but the weights in {} are for {}",
                                              image, folder, network.config.image));
  if (classes != 0 && classes != network.classes)
    throw Error(ErrorCode::usage, fmt::format("--classes is {}, but the weights in {} have {}",
                                              classes, folder, network.classes));
}

}  // namespace tandem::program
