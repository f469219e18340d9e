// SPDX-License-Identifier: Apache-2.0
// Pictures, labels and weights that any language can make from their index alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tandem/engine/loader.hpp>
#include <tandem/models/parameters.hpp>
#include <tandem/models/sequential.hpp>
#include <vector>

namespace tandem::test {

inline std::uint64_t splitmix64(std::uint64_t i) {
  std::uint64_t z = i + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Element i (PyTorch's order) of tensor t (0 weight, 1 bias) of layer l is (2u - 1) * scale with
/// u = (splitmix64(seed * 2^48 + (2l + t) * 2^32 + i) >> 40) / 2^24, scale = sqrt(6 / fan_in) for
/// weights and 0.1 for biases. `first_layer` is l of the model's first layer with parameters.
inline Parameters make_parameters(const Sequential& model, std::uint64_t seed, int first_layer) {
  Parameters result;
  std::uint64_t layer = static_cast<std::uint64_t>(first_layer);
  for (const ParameterSpec& spec : model.parameters()) {
    const double scale = spec.bias ? 0.1 : std::sqrt(6.0 / static_cast<double>(spec.fan_in));
    const std::uint64_t base = (seed << 48) + ((2 * layer + (spec.bias ? 1 : 0)) << 32);
    NamedTensor tensor{spec.name, spec.shape, {}};
    tensor.data.resize(static_cast<std::size_t>(spec.elements));
    for (std::size_t i = 0; i < tensor.data.size(); ++i) {
      const double u = static_cast<double>(splitmix64(base + i) >> 40) / 16777216.0;
      tensor.data[i] = static_cast<float>((2 * u - 1) * scale);
    }
    result.push_back(std::move(tensor));
    if (spec.bias) ++layer;  // a bias is the last tensor of its layer
  }
  return result;
}

/// What goes into one input slot.
struct BatchOptions {
  std::int64_t batch = 8, image = 64, classes = 10;
  std::int64_t samples = 8;      ///< real ones; the rest is black with ignore labels
  std::int64_t first_image = 0;  ///< pictures are numbered; labels repeat every two pictures
  bool ignore_all = false;       ///< every label is the ignore label
  std::uint64_t step = 0;
  float learning_rate = 0.1f, momentum = 0.9f;
};

/// image[n][c][y][x] = splitmix64(((n * 3 + c) * S + y) * S + x) mod 256, stored as [N,S,S,3];
/// label[n][y][x] = (2 floor(2y / S) + floor(2x / S) + 4 (n mod 2)) mod C, or, if the slot has one
/// label a picture, label[n] = n mod C.
inline void fill_batch(const InputSlot& slot, const BatchOptions& options) {
  const std::int64_t S = options.image;
  std::memset(slot.images, 0, static_cast<std::size_t>(options.batch * S * S * 3));
  const bool a_picture = slot.label_count == 1;
  const std::int64_t labels = a_picture ? 1 : S * S;
  std::memset(slot.labels, 255, static_cast<std::size_t>(options.batch * labels));
  for (std::int64_t n = 0; n < options.samples; ++n) {
    const std::int64_t number = options.first_image + n;
    for (std::int64_t y = 0; y < S; ++y) {
      for (std::int64_t x = 0; x < S; ++x) {
        const std::int64_t pixel = (n * S + y) * S + x;
        for (std::int64_t c = 0; c < 3; ++c) {
          const std::int64_t index = ((number * 3 + c) * S + y) * S + x;
          slot.images[pixel * 3 + c] =
              static_cast<std::uint8_t>(splitmix64(static_cast<std::uint64_t>(index)) % 256);
        }
        if (!options.ignore_all && !a_picture) {
          slot.labels[pixel] = static_cast<std::uint8_t>(
              (2 * (2 * y / S) + 2 * x / S + 4 * (number % 2)) % options.classes);
        }
      }
    }
    if (!options.ignore_all && a_picture)
      slot.labels[n] = static_cast<std::uint8_t>(number % options.classes);
  }
  BatchHeader& header = *slot.header;
  header.step = options.step;
  header.epoch = 0;
  header.samples = static_cast<std::int32_t>(options.samples);
  header.capacity = static_cast<std::int32_t>(options.batch);
  header.valid_count = options.ignore_all ? 0 : options.samples * labels;
  header.learning_rate = options.learning_rate;
  header.momentum = options.momentum;
  header.weight_decay = 0;
  header.one = 1;
  for (std::int64_t n = 0; n < options.batch; ++n) {
    sample_ids(slot.header)[n] = n < options.samples ? options.first_image + n : -1;
  }
  finish_header(header);
}

}  // namespace tandem::test
