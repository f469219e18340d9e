// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/fashion_mnist.hpp>
#include <tandem/kernels/philox.hpp>

namespace tandem {
namespace {

constexpr int kSide = kGarmentSide;
constexpr int kThreshold = 32;  // a scaled pixel below this belongs to the background
constexpr std::int64_t kEpoch = 10'000;

/// Uniform in 0 .. count - 1, from one random word.
std::int64_t uniform_index(std::uint32_t word, std::int64_t count) {
  return static_cast<std::int64_t>(std::uint64_t{word} * static_cast<std::uint64_t>(count) >> 32);
}

/// Where target pixel t of a row of `side` pixels lies in a row of kSide, half-pixel centres:
/// (t + 1/2) * kSide / side - 1/2, clamped to the row. The weights are in units of 1 / (2 * side),
/// so that interpolation is exact integer arithmetic, the same on every machine.
struct Tap {
  int left, right;
  std::int64_t left_weight, right_weight;
};
Tap tap(std::int64_t t, std::int64_t side) {
  const std::int64_t unit = 2 * side;
  const std::int64_t position =
      std::clamp<std::int64_t>((2 * t + 1) * kSide - side, 0, (kSide - 1) * unit);
  const int left = static_cast<int>(position / unit);
  const std::int64_t fraction = position % unit;
  return {left, std::min(left + 1, kSide - 1), unit - fraction, fraction};
}

class FashionScenes final : public Dataset {
 public:
  explicit FashionScenes(const FashionScenesOptions& options)
      : options_(options),
        garments_(read_garments(options.directory, options.split, "fashion-scenes")) {
    names_.insert(names_.end(), garment_names().begin(), garment_names().end());
  }

  std::int64_t image() const noexcept override { return options_.image; }
  std::int64_t epoch_size() const noexcept override { return kEpoch; }
  const std::vector<std::string>& class_names() const noexcept override { return names_; }

  void sample(std::int64_t index, std::uint8_t* picture, std::uint8_t* labels) const override {
    if (index < 0) {
      throw Error(ErrorCode::usage, fmt::format("sample index {}; at least 0 is allowed", index));
    }
    const auto pixels = static_cast<std::size_t>(options_.image * options_.image);
    std::memset(picture, 0, 3 * pixels);
    std::memset(labels, 0, pixels);
    for (int number = 0; number < options_.garments; ++number) {
      place_garment(index, number, picture, labels);
    }
  }

 private:
  void place_garment(std::int64_t index, int number, std::uint8_t* picture,
                     std::uint8_t* labels) const {
    const std::int64_t size = options_.image;

    // One draw of four words: which garment, its scale, its place.
    const std::uint64_t use = options_.split == Split::train ? 0x7363656eull : 0x68656c64ull;
    const PhiloxWords words =
        philox4x32_10(philox_counter(static_cast<std::uint64_t>(index),
                                     use << 32 | static_cast<std::uint64_t>(number)),
                      philox_key(options_.seed));
    const std::int64_t garment =
        uniform_index(words.word[0], static_cast<std::int64_t>(garments_.classes.size()));
    const double u = static_cast<double>(words.word[1]) * 0x1p-32;  // [0, 1), exact
    const double scale = options_.min_scale + (1 - options_.min_scale) * u;
    const auto side = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(scale * static_cast<double>(size) + 0.5));  // rounded
    const std::int64_t left = uniform_index(words.word[2], size - side + 1);
    const std::int64_t top = uniform_index(words.word[3], size - side + 1);

    const std::uint8_t* source = garments_.pictures.data() + garment * kSide * kSide;
    const auto label =
        static_cast<std::uint8_t>(garments_.classes[static_cast<std::size_t>(garment)] + 1);
    std::vector<Tap> taps;
    for (std::int64_t x = 0; x < side; ++x) taps.push_back(tap(x, side));

    const std::int64_t unit = 4 * side * side;  // product of two weights' units
    for (std::int64_t y = 0; y < side; ++y) {
      const Tap& v = taps[static_cast<std::size_t>(y)];
      const std::uint8_t* above = source + v.left * kSide;
      const std::uint8_t* below = source + v.right * kSide;
      std::int64_t at = (top + y) * size + left;
      for (const Tap& h : taps) {
        const std::int64_t sum =
            v.left_weight * (h.left_weight * above[h.left] + h.right_weight * above[h.right]) +
            v.right_weight * (h.left_weight * below[h.left] + h.right_weight * below[h.right]);
        const auto value = static_cast<std::uint8_t>((sum + unit / 2) / unit);  // half goes up
        // A garment covers what is under it. Its dark fringe is drawn as part of the background: it
        // never darkens a pixel, so it does not cut into an earlier garment.
        if (value >= kThreshold) {
          labels[at] = label;
          std::memset(picture + 3 * at, value, 3);
        } else {
          std::memset(picture + 3 * at, std::max(value, picture[3 * at]), 3);
        }
        ++at;
      }
    }
  }

  FashionScenesOptions options_;
  Garments garments_;
  std::vector<std::string> names_{"background"};
};

}  // namespace

std::unique_ptr<Dataset> make_fashion_scenes(const FashionScenesOptions& options) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::usage, "fashion-scenes: " + what);
  };
  if (options.image < 8 || options.image > 4096) {
    refuse(fmt::format("image side {}; the allowed range is 8 to 4096", options.image));
  }
  if (options.garments < 1 || options.garments > 4) {
    refuse(fmt::format("{} garments a scene; the allowed range is 1 to 4", options.garments));
  }
  if (!(options.min_scale > 0 && options.min_scale <= 1)) {
    refuse(fmt::format("smallest garment scale {}; the allowed range is above 0, up to 1",
                       options.min_scale));
  }
  return std::make_unique<FashionScenes>(options);
}

}  // namespace tandem
