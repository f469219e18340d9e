// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/kernels/philox.hpp>

namespace tandem {
namespace {

// Upper halves of the Philox counters, one for each use of a sample's random words.
constexpr std::uint64_t kPictureDraws = 0x70696374ull << 32;
constexpr std::uint64_t kLabelDraws = 0x6c61626cull << 32;

/// Calls write(i, h) for i in [0, count), with 16 uniform random bits h each.
template <class Write>
void draw_halves(PhiloxKey key, std::int64_t sample, std::uint64_t use, std::int64_t count,
                 Write write) {
  for (std::int64_t i = 0; i < count; i += 8) {
    const PhiloxWords words = philox4x32_10(
        philox_counter(static_cast<std::uint64_t>(sample), use + static_cast<std::uint64_t>(i / 8)),
        key);
    for (int j = 0; j < 8 && i + j < count; ++j) {
      write(i + j, words.word[j / 2] >> (16 * (j % 2)) & 0xffffu);
    }
  }
}

class Synthetic final : public Dataset {
 public:
  Synthetic(std::int64_t image, std::int64_t classes, std::int64_t label_count, std::uint64_t seed)
      : image_(image), label_count_(label_count), key_(philox_key(seed)) {
    for (std::int64_t c = 0; c < classes; ++c) names_.push_back(fmt::format("class {}", c));
  }

  std::int64_t image() const noexcept override { return image_; }
  std::int64_t epoch_size() const noexcept override { return 10'000; }
  const std::vector<std::string>& class_names() const noexcept override { return names_; }
  std::int64_t label_count() const noexcept override { return label_count_; }

  void sample(std::int64_t index, std::uint8_t* picture, std::uint8_t* labels) const override {
    if (index < 0) {
      throw Error(ErrorCode::usage, fmt::format("sample index {}; at least 0 is allowed", index));
    }
    const std::int64_t bytes = 3 * image_ * image_;
    draw_halves(key_, index, kPictureDraws, (bytes + 1) / 2, [&](std::int64_t i, std::uint32_t h) {
      picture[2 * i] = static_cast<std::uint8_t>(h);
      if (2 * i + 1 < bytes) picture[2 * i + 1] = static_cast<std::uint8_t>(h >> 8);
    });
    // A class is floor(h * C / 2^16): each has the same share to within 2^-16.
    const auto count = static_cast<std::uint32_t>(names_.size());
    draw_halves(key_, index, kLabelDraws, label_count_, [&](std::int64_t i, std::uint32_t h) {
      labels[i] = static_cast<std::uint8_t>(h * count >> 16);
    });
  }

 private:
  std::int64_t image_, label_count_;
  PhiloxKey key_;
  std::vector<std::string> names_;
};

class SyntheticRows final : public Dataset {
 public:
  SyntheticRows(std::int64_t features, std::int64_t classes, std::uint64_t seed)
      : features_(features), key_(philox_key(seed)) {
    for (std::int64_t c = 0; c < classes; ++c) names_.push_back(fmt::format("class {}", c));
  }

  std::int64_t image() const noexcept override { return 1; }
  std::int64_t features() const noexcept override { return features_; }
  std::int64_t epoch_size() const noexcept override { return 10'000; }
  const std::vector<std::string>& class_names() const noexcept override { return names_; }
  std::int64_t label_count() const noexcept override { return 1; }

  void sample(std::int64_t index, std::uint8_t* row, std::uint8_t* labels) const override {
    if (index < 0) {
      throw Error(ErrorCode::usage, fmt::format("sample index {}; at least 0 is allowed", index));
    }
    draw_halves(key_, index, kPictureDraws, features_, [&](std::int64_t i, std::uint32_t h) {
      const float value = static_cast<float>(h) * 0x1p-15f - 1;
      std::memcpy(row + i * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
    });
    const auto count = static_cast<std::uint32_t>(names_.size());
    draw_halves(key_, index, kLabelDraws, 1, [&](std::int64_t, std::uint32_t h) {
      labels[0] = static_cast<std::uint8_t>(h * count >> 16);
    });
  }

 private:
  std::int64_t features_;
  PhiloxKey key_;
  std::vector<std::string> names_;
};

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::usage, "synthetic data: " + what);
}

void check_classes(std::int64_t classes) {
  if (classes < 2 || classes > 255) {
    refuse(fmt::format("{} classes; the allowed range is 2 to 255", classes));
  }
}

void check_sizes(std::int64_t image, std::int64_t classes) {
  if (image < 8 || image > 4096) {
    refuse(fmt::format("image side {}; the allowed range is 8 to 4096", image));
  }
  check_classes(classes);
}

}  // namespace

std::unique_ptr<Dataset> make_synthetic(std::int64_t image, std::int64_t classes,
                                        std::uint64_t seed) {
  check_sizes(image, classes);
  return std::make_unique<Synthetic>(image, classes, image * image, seed);
}

std::unique_ptr<Dataset> make_synthetic_rows(std::int64_t features, std::int64_t classes,
                                             std::uint64_t seed) {
  if (features < 1 || features > 65536) {
    refuse(fmt::format("{} features; the allowed range is 1 to 65536", features));
  }
  check_classes(classes);
  return std::make_unique<SyntheticRows>(features, classes, seed);
}

std::unique_ptr<Dataset> make_synthetic_classes(std::int64_t image, std::int64_t classes,
                                                std::uint64_t seed) {
  check_sizes(image, classes);
  return std::make_unique<Synthetic>(image, classes, 1, seed);
}

}  // namespace tandem
