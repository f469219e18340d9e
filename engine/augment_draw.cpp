// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tandem/engine/augment_draw.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/kernels/philox.hpp>

namespace tandem {
namespace {

constexpr std::int64_t kMaxSide = 8192;
constexpr double kMaxDegrees = 360;
constexpr double kMinSigma = 1e-6;  // above 0 in float too
constexpr double kMaxSigma = 1e6;
// Upper half of the counter's upper number, so that other users of the seed draw other words.
constexpr std::uint64_t kAugmentDraws = 0x61756720ull << 32;
// exp(-(1 / 0.05)^2 / 2) is 0 in float: every tap but the middle one vanishes.
constexpr float kNoBlurSigma = 0.05f;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::usage, "augmentation: " + what);
}

void check_side(const char* name, std::int64_t value, std::int64_t least = 1) {
  if (value < least || value > kMaxSide) {
    refuse(fmt::format("{} is {}; the allowed range is {} to {}", name, value, least, kMaxSide));
  }
}

void check_crop(const char* name, std::int64_t crop, std::int64_t picture, std::int64_t padding) {
  check_side(name, crop);
  if (crop > picture + 2 * padding) {
    refuse(fmt::format("{} is {}; the picture has {} pixels with its padding, allowed are 1 to {}",
                       name, crop, picture + 2 * padding, picture + 2 * padding));
  }
}

void check_finite(const std::string& name, double value) {
  if (!std::isfinite(value)) {
    refuse(fmt::format("{} is {}; it must be a finite number", name, value));
  }
}

/// Pixels that the crop can move by, downwards and to the right.
std::int64_t freedom_y(const AugmentSpec& spec) {
  return spec.in_h + 2 * spec.padding - spec.crop_h;
}
std::int64_t freedom_x(const AugmentSpec& spec) {
  return spec.in_w + 2 * spec.padding - spec.crop_w;
}

/// A whole number in 0 .. most: each as often as any other, to within one word in 2^32.
std::int32_t uniform_up_to(std::int64_t most, std::uint32_t word) {
  return static_cast<std::int32_t>((static_cast<std::uint64_t>(most) + 1) * word >> 32);
}

double uniform_between(double min, double max, std::uint32_t high, std::uint32_t low) {
  return min + uniform_double(high, low) * (max - min);
}

Turn turn_of(const AugmentSpec& spec, float degrees) {
  const float rest = std::fmod(degrees, 360.0f);  // exact, with the sign of `degrees`
  const bool square = spec.out_h == spec.out_w;
  if (rest == 0) return Turn::none;
  if (rest == 180 || rest == -180) return Turn::half;
  if (square && (rest == 90 || rest == -270)) return Turn::quarter;
  if (square && (rest == 270 || rest == -90)) return Turn::three_quarters;
  return Turn::general;
}

/// As torchvision makes it: sine and cosine in double, the matrix in float, and then its rows
/// divided by the half sizes.
void set_matrix(const AugmentSpec& spec, AugmentDraw* draw) {
  constexpr double kRadiansPerDegree = 3.14159265358979323846 / 180.0;
  const double angle = -static_cast<double>(draw->degrees) * kRadiansPerDegree;
  const float cosine = static_cast<float>(std::cos(angle));
  const float sine = static_cast<float>(std::sin(angle));
  const float half_w = 0.5f * static_cast<float>(spec.out_w);
  const float half_h = 0.5f * static_cast<float>(spec.out_h);
  const float matrix[6] = {cosine / half_w, sine / half_w,   0.0f,
                           -sine / half_h,  cosine / half_h, 0.0f};
  std::copy(std::begin(matrix), std::end(matrix), draw->matrix);
}

/// exp(-x^2 / (2 sigma^2)) at whole x, divided by the sum over both sides; rounded to float where
/// torchvision rounds. The exponential is rounded from double, where libraries agree.
void set_blur(const AugmentSpec& spec, AugmentDraw* draw) {
  float* weights = draw->blur;
  std::fill_n(weights, kMaxBlurTaps / 2 + 1, 0.0f);
  weights[0] = 1;
  const int radius = spec.blur_taps / 2;
  for (int i = 1; i <= radius; ++i) {
    const float ratio = static_cast<float>(i) / draw->sigma;  // infinite for a tiny sigma: weight 0
    weights[i] = static_cast<float>(std::exp(static_cast<double>(-0.5f * (ratio * ratio))));
  }
  float sum = 0;
  for (int x = -radius; x <= radius; ++x) sum += weights[std::abs(x)];
  for (int i = 0; i <= radius; ++i) weights[i] /= sum;
}

void complete(const AugmentSpec& spec, AugmentDraw* draw) {
  draw->turn = turn_of(spec, draw->degrees);
  set_matrix(spec, draw);
  set_blur(spec, draw);
}

void check_forced_crop(const char* name, std::int32_t value, std::int64_t most) {
  if (value < 0 || value > most) {
    refuse(
        fmt::format("{} is {}; the allowed range is 0 to {}, so that the crop lies inside the "
                    "padded picture",
                    name, value, most));
  }
}

void check_range(const char* name, double min, double max, double least, double most) {
  if (!(min >= least && min <= max && max <= most)) {
    refuse(fmt::format("{} from {} to {}; the smaller one comes first, allowed are {} to {}", name,
                       min, max, least, most));
  }
}

}  // namespace

void check_augment(const AugmentSpec& spec) {
  check_side("in_h", spec.in_h);
  check_side("in_w", spec.in_w);
  check_side("padding", spec.padding, 0);
  check_crop("crop_h", spec.crop_h, spec.in_h, spec.padding);
  check_crop("crop_w", spec.crop_w, spec.in_w, spec.padding);
  check_side("out_h", spec.out_h);
  check_side("out_w", spec.out_w);
  if (spec.rotation != Interpolation::nearest && spec.rotation != Interpolation::bilinear) {
    refuse(fmt::format("rotation is {}; allowed are nearest (0) and bilinear (1)",
                       static_cast<int>(spec.rotation)));
  }
  if (spec.border > Border::replicate) {
    refuse(
        fmt::format("border is {}; allowed are reflect (0), constant (1), symmetric (2) and "
                    "replicate (3)",
                    static_cast<int>(spec.border)));
  }
  const int taps = spec.blur_taps;
  if (taps != 0 && (taps < 3 || taps > kMaxBlurTaps || taps % 2 == 0)) {
    refuse(fmt::format("blur_taps is {}; allowed are 0 (no blur) and odd numbers from 3 to {}",
                       taps, kMaxBlurTaps));
  }
  const std::int64_t smallest = std::min(spec.out_h, spec.out_w);
  if (taps != 0 && spec.border == Border::reflect && smallest <= taps / 2) {
    refuse(
        fmt::format("border reflect with blur_taps {} needs a result of at least {} x {} "
                    "pixels; it has {} x {}",
                    taps, taps / 2 + 1, taps / 2 + 1, spec.out_h, spec.out_w));
  }
  if (!(spec.fill >= 0 && spec.fill <= 255)) {
    refuse(fmt::format("fill is {}; the allowed range is 0 to 255", spec.fill));
  }
  check_finite("scale", static_cast<double>(spec.scale));
  for (int c = 0; c < kAugmentChannels; ++c) {
    check_finite(fmt::format("mean[{}]", c), static_cast<double>(spec.mean[c]));
    check_finite(fmt::format("deviation[{}]", c), static_cast<double>(spec.deviation[c]));
    const float size = std::fabs(spec.deviation[c]);
    if (size < kMinDeviation || size > kMaxDeviation) {
      refuse(fmt::format("deviation[{}] is {}; the allowed range is {} to {}, and the same below 0",
                         c, spec.deviation[c], kMinDeviation, kMaxDeviation));
    }
  }
}

void check_ranges(const AugmentRanges& ranges) {
  if (!(ranges.flip_probability >= 0 && ranges.flip_probability <= 1)) {
    refuse(fmt::format("flip probability is {}; the allowed range is 0 to 1",
                       ranges.flip_probability));
  }
  check_range("degrees", ranges.min_degrees, ranges.max_degrees, -kMaxDegrees, kMaxDegrees);
  check_range("sigma", ranges.min_sigma, ranges.max_sigma, kMinSigma, kMaxSigma);
}

AugmentDraw draw_augment(const AugmentSpec& spec, const AugmentRanges& ranges, std::uint64_t seed,
                         std::uint64_t epoch, std::int64_t sample) {
  const PhiloxKey key = philox_key(seed);
  const auto words_of = [&](std::uint64_t block) {
    return philox4x32_10(philox_counter(static_cast<std::uint64_t>(sample),
                                        kAugmentDraws + (block << 32) + (epoch & 0xffffffffu)),
                         key);
  };
  const PhiloxWords places = words_of(0);
  const PhiloxWords amounts = words_of(1);
  AugmentDraw draw;
  draw.crop_y = ranges.random_crop ? uniform_up_to(freedom_y(spec), places.word[0])
                                   : static_cast<std::int32_t>(freedom_y(spec) / 2);
  draw.crop_x = ranges.random_crop ? uniform_up_to(freedom_x(spec), places.word[1])
                                   : static_cast<std::int32_t>(freedom_x(spec) / 2);
  draw.flip = uniform_double(places.word[2], places.word[3]) < ranges.flip_probability ? 1 : 0;
  draw.degrees = static_cast<float>(
      uniform_between(ranges.min_degrees, ranges.max_degrees, amounts.word[0], amounts.word[1]));
  draw.sigma = static_cast<float>(
      uniform_between(ranges.min_sigma, ranges.max_sigma, amounts.word[2], amounts.word[3]));
  complete(spec, &draw);
  return draw;
}

AugmentDraw force_augment(const AugmentSpec& spec, const AugmentDraw& values) {
  check_forced_crop("crop_y", values.crop_y, freedom_y(spec));
  check_forced_crop("crop_x", values.crop_x, freedom_x(spec));
  if (values.flip != 0 && values.flip != 1) {
    refuse(fmt::format("flip is {}; allowed are 0 and 1", values.flip));
  }
  check_finite("angle", static_cast<double>(values.degrees));
  if (spec.blur_taps != 0 && !(values.sigma > 0 && std::isfinite(values.sigma))) {
    refuse(fmt::format("sigma is {}; it must be a finite number above 0", values.sigma));
  }
  AugmentDraw draw = values;
  complete(spec, &draw);
  return draw;
}

AugmentDraw identity_augment(const AugmentSpec& spec) {
  AugmentDraw draw;
  draw.crop_y = static_cast<std::int32_t>(freedom_y(spec) / 2);
  draw.crop_x = static_cast<std::int32_t>(freedom_x(spec) / 2);
  draw.sigma = kNoBlurSigma;
  complete(spec, &draw);
  return draw;
}

std::string to_text(const AugmentDraw& draw) {
  return fmt::format("crop {},{} flip {} angle {} sigma {}", draw.crop_y, draw.crop_x, draw.flip,
                     draw.degrees, draw.sigma);
}

}  // namespace tandem
