// SPDX-License-Identifier: Apache-2.0
// Checks the settings of the augmentation and draws its parameters, on the host.
#pragma once

#include <cstdint>
#include <string>
#include <tandem/kernels/augment.hpp>

namespace tandem {

/// How large a deviation may be, whatever its sign. Nearer to 0 its reciprocal, with which the GPU
/// divides, is no finite number, and long before that no picture needs it.
inline constexpr float kMinDeviation = 1e-6f, kMaxDeviation = 1e6f;

/// Throws Error{usage} that names the member, its value and the allowed range: sizes below 1 or
/// above 8192, a crop larger than the padded picture, an even or too large kernel, a radius that
/// `reflect` has no pixels for (the result must have more pixels than the radius in each
/// direction), a deviation outside the range above, a fill outside 0 .. 255, values that are not
/// finite.
void check_augment(const AugmentSpec& spec);

/// What the parameters are drawn from; all uniform. Parts that the spec or the ranges switch off
/// are drawn all the same, so that switching one does not change the others.
struct AugmentRanges {
  bool random_crop = true;  ///< off: the crop lies in the middle (rounded down)
  double flip_probability = 0;
  double min_degrees = -45, max_degrees = 45;  ///< -360 .. 360
  double min_sigma = 0.1, max_sigma = 2.0;     ///< 1e-6 .. 1e6
};

/// Throws Error{usage} that names the range and its values.
void check_ranges(const AugmentRanges& ranges);

/// The draw of a sample, for a spec and ranges that passed the checks above. A function of the
/// arguments alone: not of the sample's place in a batch, the batch size, the schedule or the
/// thread. Philox 4x32-10 with key `seed` and two counters, lower words first: sample (two words),
/// the lower 32 bits of the epoch, 0x61756720 + block. What the words become:
///
///   block 0   word 0      crop_y, floor((most + 1) * word / 2^32)
///             word 1      crop_x, likewise
///             words 2, 3  flip, 1 if uniform_double() is below the probability
///   block 1   words 0, 1  degrees, min + uniform_double() * (max - min), rounded to float
///             words 2, 3  sigma, likewise
AugmentDraw draw_augment(const AugmentSpec& spec, const AugmentRanges& ranges, std::uint64_t seed,
                         std::uint64_t epoch, std::int64_t sample);

/// A draw with given values: crop_y, crop_x, flip, degrees and sigma of `values` are kept, the rest
/// follows from them. Throws Error{usage} for a crop outside the padded picture, a flip other than
/// 0 and 1, an angle that is not finite, a sigma that is not positive (if the spec blurs).
AugmentDraw force_augment(const AugmentSpec& spec, const AugmentDraw& values);

/// No change: crop in the middle, no flip, no turn, and a sigma so small that every weight of the
/// blur but the middle one is 0.
AugmentDraw identity_augment(const AugmentSpec& spec);

/// "crop 12,40 flip 0 angle -17.25 sigma 0.73125" (crop_y first), for logs and contact sheets. As
/// many digits as it takes that force_augment() with what is printed makes the same draw.
std::string to_text(const AugmentDraw& draw);

}  // namespace tandem
