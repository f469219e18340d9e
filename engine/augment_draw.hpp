// SPDX-License-Identifier: Apache-2.0
// Checks the settings of the augmentation and draws its parameters, on the host.
#pragma once

#include <cstdint>
#include <string>
#include <tandem/kernels/augment.hpp>

namespace tandem {

/// Throws Error{usage} that names the member, its value and the allowed range: sizes below 1 or
/// above 8192, a crop larger than the padded picture, an even or too large kernel, a radius that
/// `reflect` has no pixels for (the result must have more pixels than the radius in each
/// direction), a deviation of 0, a fill outside 0 .. 255, values that are not finite.
void check_augment(const AugmentSpec& spec);

/// What the parameters are drawn from; all uniform. Parts that the spec switches off are drawn all
/// the same, so that switching one does not change the others.
struct AugmentRanges {
  bool random_crop = true;  ///< off: the crop lies in the middle (rounded down)
  double flip_probability = 0;
  double min_degrees = -45, max_degrees = 45;
  double min_sigma = 0.1, max_sigma = 2.0;  ///< more than 0
};

/// Throws Error{usage} that names the range and its values.
void check_ranges(const AugmentRanges& ranges);

/// The draw of a sample: Philox keyed by `seed`, counters (sample, epoch, which pair of numbers). A
/// function of (spec, ranges, seed, epoch, sample) alone: not of its place in a batch, the batch
/// size, the schedule or the thread.
AugmentDraw draw_augment(const AugmentSpec& spec, const AugmentRanges& ranges, std::uint64_t seed,
                         std::uint64_t epoch, std::int64_t sample);

/// A draw with given values: crop_y, crop_x, flip, degrees and sigma of `values` are kept, the rest
/// follows from them. Throws Error{usage} for a crop outside the padded picture, an angle that is
/// not finite, a sigma that is not positive (if the spec blurs).
AugmentDraw force_augment(const AugmentSpec& spec, const AugmentDraw& values);

/// No change: crop in the middle, no flip, no turn, a blur that leaves the picture as it is.
AugmentDraw identity_augment(const AugmentSpec& spec);

/// "crop 12,40 flip 0 angle -17.250 sigma 0.731", for logs and contact sheets.
std::string to_text(const AugmentDraw& draw);

}  // namespace tandem
