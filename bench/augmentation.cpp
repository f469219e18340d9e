// SPDX-License-Identifier: Apache-2.0
#include "augmentation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tandem/engine/error.hpp>

namespace tandem::program {
namespace {

constexpr std::int64_t kLargePicture = 64;

/// What a data set's pictures stand without losing what they show.
struct Defaults {
  double degrees, flip;
  std::int64_t blur_taps;
  std::vector<double> sigma;
};

Defaults defaults_of(const std::string& data) {
  if (data == "fashion-mnist" || data == "cifar10") return {15, 0.5, 3, {0.1, 1.0}};
  return {45, 0, 7, {0.1, 2.0}};
}

Border border(const std::string& name) {
  if (name == "constant") return Border::constant;
  if (name == "symmetric") return Border::symmetric;
  if (name == "replicate") return Border::replicate;
  return Border::reflect;
}

/// One value for all channels, or one for each.
void set_channels(const char* option, const std::vector<double>& values, float* channels) {
  if (values.size() != 1 && values.size() != kAugmentChannels)
    throw Error(ErrorCode::usage, fmt::format("{} has {} values; allowed: 1, or {}", option,
                                              values.size(), kAugmentChannels));
  for (int c = 0; c < kAugmentChannels; ++c)
    channels[c] =
        static_cast<float>(values.size() == 1 ? values[0] : values[static_cast<std::size_t>(c)]);
}

void set_normalisation(const AugmentChoice& choice, AugmentSpec& spec) {
  set_channels("--mean", choice.mean, spec.mean);
  set_channels("--std", choice.deviation, spec.deviation);
  for (const float deviation : spec.deviation)
    if (std::fabs(deviation) < kMinDeviation)
      throw Error(ErrorCode::usage,
                  fmt::format("--std is {}; allowed: {} to {}, and the same below 0", deviation,
                              kMinDeviation, kMaxDeviation));
}

}  // namespace

void add_frame_options(Options& options, AugmentChoice& choice) {
  options.number("--crop", choice.crop, 1, 8192, "side of the crop, in pixels of the picture")
      ->default_str("1/2 of the picture's, 7/8 below 64 pixels");
  options.number("--padding", choice.padding, 0, 8192,
                 "pixels of --fill round the picture before the crop");
  options.real("--fill", choice.fill, 0, 255, "value of what lies outside the picture")
      ->default_str("0");
}

void add_normalise_options(Options& options, AugmentChoice& choice) {
  options.reals("--mean", choice.mean, -1e6, 1e6,
                "subtracted from values of 0 to 1; for all channels, or one each");
  options.reals("--std", choice.deviation, -kMaxDeviation, kMaxDeviation,
                fmt::format("divisor behind that, no nearer to 0 than {}", kMinDeviation));
}

void add_random_options(Options& options, AugmentChoice& choice) {
  options.real("--flip", choice.flip, 0, 1, "probability of left to right")
      ->default_str("0; 0.5 for fashion-mnist and cifar10");
  options.real("--degrees", choice.degrees, 0, 360, "largest angle, both ways; 0: no rotation")
      ->default_str("45; 15 for fashion-mnist and cifar10");
  options
      .choice("--rotation", choice.rotation, {"nearest", "bilinear"}, "how turned pixels are taken")
      ->default_str("nearest");
  options
      .number("--blur-taps", choice.blur_taps, 0, kMaxBlurTaps,
              "width of the blur in pixels, odd; 0: no blur")
      ->default_str("7; 3 for fashion-mnist and cifar10");
  options.reals("--sigma", choice.sigma, 1e-6, 1e6, "least and largest sigma of the blur")
      ->default_str("0.1,2; 0.1,1 for fashion-mnist and cifar10");
  options
      .choice("--border", choice.border, {"reflect", "constant", "symmetric", "replicate"},
              "where the blur takes pixels outside the picture")
      ->default_str("reflect");
}

void add_augment_options(Options& options, AugmentChoice& choice) {
  options.choice("--augment", choice.where, {"none", "cpu", "gpu"},
                 "random changes of each picture: none, in the loader's threads, or as a stage of "
                 "its own on the device; all resize pictures to what the network takes");
  add_frame_options(options, choice);
  add_random_options(options, choice);
  add_normalise_options(options, choice);
}

std::int64_t default_crop(std::int64_t side) {
  return std::max<std::int64_t>(1, side < kLargePicture ? side * 7 / 8 : side / 2);
}

Augmentation augmentation(AugmentChoice& choice, const std::string& data, std::int64_t in_h,
                          std::int64_t in_w, std::int64_t out) {
  const Defaults defaults = defaults_of(data);
  if (choice.crop <= 0) choice.crop = default_crop(std::min(in_h, in_w));
  if (choice.degrees < 0) choice.degrees = defaults.degrees;
  if (choice.flip < 0) choice.flip = defaults.flip;
  if (choice.blur_taps < 0) choice.blur_taps = defaults.blur_taps;
  if (choice.sigma.empty()) choice.sigma = defaults.sigma;
  if (choice.fill < 0) choice.fill = 0;
  if (choice.rotation.empty()) choice.rotation = "nearest";
  if (choice.border.empty()) choice.border = "reflect";
  if (choice.sigma.size() != 2)
    throw Error(ErrorCode::usage, fmt::format("--sigma has {} values; allowed: 2, the least and "
                                              "the largest",
                                              choice.sigma.size()));
  const std::int64_t padded = std::min(in_h, in_w) + 2 * choice.padding;
  if (choice.crop > padded)
    throw Error(
        ErrorCode::usage,
        fmt::format("--crop is {}, but the picture has {} x {} pixels{}; allowed: 1 to {}",
                    choice.crop, in_h, in_w,
                    choice.padding > 0 ? fmt::format(" and {} of --padding", choice.padding) : "",
                    padded));

  Augmentation result;
  AugmentSpec& spec = result.spec;
  spec.in_h = in_h;
  spec.in_w = in_w;
  spec.crop_h = spec.crop_w = choice.crop;
  spec.out_h = spec.out_w = out;
  spec.padding = choice.padding;
  spec.rotate = choice.degrees > 0;
  spec.rotation = choice.rotation == "bilinear" ? Interpolation::bilinear : Interpolation::nearest;
  spec.blur_taps = static_cast<int>(choice.blur_taps);
  spec.border = border(choice.border);
  spec.fill = static_cast<float>(choice.fill);
  set_normalisation(choice, spec);
  AugmentRanges& ranges = result.ranges;
  ranges.flip_probability = choice.flip;
  ranges.min_degrees = -choice.degrees;
  ranges.max_degrees = choice.degrees;
  ranges.min_sigma = choice.sigma[0];
  ranges.max_sigma = choice.sigma[1];
  check_augment(spec);
  check_ranges(ranges);
  return result;
}

Augmentation resize_only(const AugmentChoice& choice, std::int64_t in, std::int64_t out) {
  const std::pair<const char*, bool> idle[] = {
      {"--crop", choice.crop > 0},
      {"--padding", choice.padding > 0},
      {"--fill", choice.fill >= 0},
      {"--degrees", choice.degrees >= 0},
      {"--rotation", !choice.rotation.empty()},
      {"--flip", choice.flip >= 0},
      {"--sigma", !choice.sigma.empty()},
      {"--blur-taps", choice.blur_taps >= 0},
      {"--border", !choice.border.empty()},
  };
  for (const auto& [option, given] : idle)
    if (given)
      throw Error(
          ErrorCode::usage,
          fmt::format("{} does nothing with --augment none; allowed with: cpu, gpu", option));
  Augmentation result;
  AugmentSpec& spec = result.spec;
  spec.in_h = spec.in_w = spec.crop_h = spec.crop_w = in;
  spec.out_h = spec.out_w = out;
  set_normalisation(choice, spec);
  check_augment(spec);
  return result;
}

std::optional<LoaderAugment> set_augmentation(EngineConfig& config, AugmentChoice& choice,
                                              const std::string& data, std::int64_t in,
                                              std::uint64_t seed) {
  const bool none = choice.where == "none";
  const Augmentation made = none ? resize_only(choice, in, config.image)
                                 : augmentation(choice, data, in, in, config.image);
  const bool normalises =
      choice.mean != std::vector<double>{0} || choice.deviation != std::vector<double>{1};
  if (none && in == config.image && !normalises) return std::nullopt;
  config.augment = made.spec;
  config.augment_on_cpu = choice.where == "cpu";
  LoaderAugment loader;
  loader.spec = made.spec;
  loader.ranges = made.ranges;
  loader.seed = seed;
  loader.on_cpu = config.augment_on_cpu;
  loader.identity = none;
  return loader;
}

}  // namespace tandem::program
