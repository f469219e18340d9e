// SPDX-License-Identifier: Apache-2.0
// How a data set's pictures become a network's input: the options of the augmentation, with
// defaults by data set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tandem/engine/loader.hpp>
#include <tandem/models/trainer.hpp>
#include <vector>

#include "options.hpp"

namespace tandem::program {

struct AugmentChoice {
  std::string where = "none";  ///< none, cpu, gpu
  // Below the smallest value, or empty: the default, which may depend on the data set.
  std::int64_t crop = 0, blur_taps = -1;
  double degrees = -1, flip = -1;
  std::vector<double> sigma;
  std::int64_t padding = 0;
  double fill = -1;
  std::string rotation, border;
  std::vector<double> mean{0}, deviation{1};
};

/// --crop, --padding and --fill.
void add_frame_options(Options& options, AugmentChoice& choice);
/// What is drawn at random, and how.
void add_random_options(Options& options, AugmentChoice& choice);
/// --mean and --std.
void add_normalise_options(Options& options, AugmentChoice& choice);
/// All of them, and --augment, which says where it is done.
void add_augment_options(Options& options, AugmentChoice& choice);

/// Settings of the augmentation and what to draw from.
struct Augmentation {
  AugmentSpec spec;
  AugmentRanges ranges;
};

/// Side of the crop by default: half of large pictures, as the published experiment has it; seven
/// eighths of pictures of less than 64 pixels, of which half shows too little.
std::int64_t default_crop(std::int64_t side);

/// Pictures of in_h x in_w become out x out. Fills in the defaults of `choice` for a data set of
/// that name: small pictures of single things (fashion-mnist, cifar10) are turned and blurred
/// little, and flipped; the others get what the published experiment draws. Throws Error{usage}.
Augmentation augmentation(AugmentChoice& choice, const std::string& data, std::int64_t in_h,
                          std::int64_t in_w, std::int64_t out);

/// The same without anything random: the whole picture, resized. For `--augment none`; refuses
/// options that would then do nothing.
Augmentation resize_only(const AugmentChoice& choice, std::int64_t in, std::int64_t out);

/// Sets what the engine has to do with the pictures, and returns what the loader has to: nothing
/// for pictures that fit as they are.
std::optional<LoaderAugment> set_augmentation(EngineConfig& config, AugmentChoice& choice,
                                              const std::string& data, std::int64_t in,
                                              std::uint64_t seed);

}  // namespace tandem::program
