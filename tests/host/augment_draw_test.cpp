// SPDX-License-Identifier: Apache-2.0
// Settings that are refused, and the draws: what they are a function of, their statistics, printing
// and forcing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <set>
#include <tandem/engine/augment_draw.hpp>
#include <tandem/kernels/philox.hpp>
#include <tandem/tests/support/augment_cases.hpp>
#include <tandem/tests/support/files.hpp>

namespace tandem::test {
namespace {

using testing::expect_error;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

AugmentSpec good() { return whole_spec(64, 32, 48, 7); }

template <class Change>
void refused(std::initializer_list<std::string> parts, Change change) {
  AugmentSpec spec = good();
  change(spec);
  expect_error(ErrorCode::usage, parts, [&] { check_augment(spec); });
}

TEST(AugmentChecks, SizesOutsideTheirRange) {
  check_augment(good());
  refused({"in_h is 0", "1 to 8192"}, [](AugmentSpec& s) { s.in_h = 0; });
  refused({"in_w is 8193", "1 to 8192"}, [](AugmentSpec& s) { s.in_w = 8193; });
  refused({"crop_h is 0", "1 to 8192"}, [](AugmentSpec& s) { s.crop_h = 0; });
  refused({"crop_w is -3", "1 to 8192"}, [](AugmentSpec& s) { s.crop_w = -3; });
  refused({"out_h is 0", "1 to 8192"}, [](AugmentSpec& s) { s.out_h = 0; });
  refused({"out_w is 9000", "1 to 8192"}, [](AugmentSpec& s) { s.out_w = 9000; });
  refused({"padding is -1", "0 to 8192"}, [](AugmentSpec& s) { s.padding = -1; });
}

TEST(AugmentChecks, CropsLargerThanThePicture) {
  refused({"crop_h is 65", "64 pixels", "1 to 64"}, [](AugmentSpec& s) { s.crop_h = 65; });
  refused({"crop_w is 73", "72 pixels", "1 to 72"}, [](AugmentSpec& s) {
    s.padding = 4;
    s.crop_w = 73;
  });
  AugmentSpec largest = good();
  largest.crop_h = largest.crop_w = 64;
  check_augment(largest);
  largest.padding = 4;
  largest.crop_h = largest.crop_w = 72;
  check_augment(largest);
}

TEST(AugmentChecks, Blur) {
  for (int taps : {-1, 1, 2, 8, 16, 17}) {
    refused({"blur_taps is " + std::to_string(taps), "3 to 15"},
            [&](AugmentSpec& s) { s.blur_taps = taps; });
  }
  for (int taps : {0, 3, 15}) {
    AugmentSpec spec = good();
    spec.blur_taps = taps;
    check_augment(spec);
  }
}

TEST(AugmentChecks, ReflectNeedsMorePixelsThanTheRadius) {
  refused({"reflect", "blur_taps 7", "at least 4 x 4", "3 x 48"},
          [](AugmentSpec& s) { s.out_h = 3; });
  refused({"reflect", "blur_taps 15", "at least 8 x 8", "48 x 7"}, [](AugmentSpec& s) {
    s.blur_taps = 15;
    s.out_w = 7;
  });
  AugmentSpec spec = good();
  spec.out_h = 4;
  check_augment(spec);
  spec.out_h = 1;
  for (Border border : {Border::constant, Border::symmetric, Border::replicate}) {
    spec.border = border;
    check_augment(spec);
  }
  spec.border = Border::reflect;
  spec.blur_taps = 0;
  check_augment(spec);
}

TEST(AugmentChecks, ValuesOutsideTheirRange) {
  for (float fill : {-1.0f, 255.5f, kNaN, kInfinity}) {
    refused({"fill is ", "0 to 255"}, [&](AugmentSpec& s) { s.fill = fill; });
  }
  refused({"scale is nan", "finite"}, [](AugmentSpec& s) { s.scale = kNaN; });
  refused({"mean[1] is inf", "finite"}, [](AugmentSpec& s) { s.mean[1] = kInfinity; });
  refused({"deviation[2] is nan", "finite"}, [](AugmentSpec& s) { s.deviation[2] = kNaN; });
  refused({"deviation[0] is 0", "1e-06 to "}, [](AugmentSpec& s) { s.deviation[0] = 0; });
  refused({"deviation[1] is -0", "1e-06 to "}, [](AugmentSpec& s) { s.deviation[1] = -0.0f; });
  for (const float size : {1e-39f, std::numeric_limits<float>::min(), 9e-7f, 1.1e6f, 1e38f}) {
    for (const float sign : {1.0f, -1.0f}) {
      refused({"deviation[1] is ", "1e-06 to "},
              [&](AugmentSpec& s) { s.deviation[1] = sign * size; });
    }
  }
  for (const float size : {kMinDeviation, -kMinDeviation, kMaxDeviation, -kMaxDeviation, 0.225f}) {
    AugmentSpec spec = good();
    spec.deviation[2] = size;
    check_augment(spec);
  }
  refused({"rotation is 7", "nearest"},
          [](AugmentSpec& s) { s.rotation = static_cast<Interpolation>(7); });
  refused({"border is 4", "reflect"}, [](AugmentSpec& s) { s.border = static_cast<Border>(4); });
}

TEST(AugmentChecks, Ranges) {
  check_ranges({});
  const auto refused_range = [](std::initializer_list<std::string> parts, auto change) {
    AugmentRanges ranges;
    change(ranges);
    expect_error(ErrorCode::usage, parts, [&] { check_ranges(ranges); });
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (double p : {-0.1, 1.5, nan}) {
    refused_range({"flip probability is ", "0 to 1"},
                  [&](AugmentRanges& r) { r.flip_probability = p; });
  }
  refused_range({"degrees from 46 to 45", "-360 to 360"},
                [](AugmentRanges& r) { r.min_degrees = 46; });
  refused_range({"degrees from -361 to 45"}, [](AugmentRanges& r) { r.min_degrees = -361; });
  refused_range({"degrees from -45 to 400"}, [](AugmentRanges& r) { r.max_degrees = 400; });
  refused_range({"degrees from nan to 45"}, [&](AugmentRanges& r) { r.min_degrees = nan; });
  refused_range({"degrees from -45 to nan"}, [&](AugmentRanges& r) { r.max_degrees = nan; });
  refused_range({"sigma from 0 to 2", "1e-06 to 1"}, [](AugmentRanges& r) { r.min_sigma = 0; });
  refused_range({"sigma from -1 to 2"}, [](AugmentRanges& r) { r.min_sigma = -1; });
  refused_range({"sigma from 3 to 2"}, [](AugmentRanges& r) { r.min_sigma = 3; });
  refused_range({"sigma from 0.1 to inf"},
                [](AugmentRanges& r) { r.max_sigma = std::numeric_limits<double>::infinity(); });
  refused_range({"sigma from 0.1 to nan"}, [&](AugmentRanges& r) { r.max_sigma = nan; });
}

TEST(AugmentChecks, ForcedValues) {
  const AugmentSpec spec = good();
  const auto refused_draw = [&](std::initializer_list<std::string> parts, auto change) {
    AugmentDraw draw = identity_augment(spec);
    change(draw);
    expect_error(ErrorCode::usage, parts, [&] { force_augment(spec, draw); });
  };
  refused_draw({"crop_y is -1", "0 to 32"}, [](AugmentDraw& d) { d.crop_y = -1; });
  refused_draw({"crop_x is 33", "0 to 32"}, [](AugmentDraw& d) { d.crop_x = 33; });
  refused_draw({"flip is 2", "0 and 1"}, [](AugmentDraw& d) { d.flip = 2; });
  refused_draw({"angle is nan", "finite"}, [](AugmentDraw& d) { d.degrees = kNaN; });
  refused_draw({"angle is -inf", "finite"}, [](AugmentDraw& d) { d.degrees = -kInfinity; });
  for (float sigma : {0.0f, -1.0f, kNaN, kInfinity}) {
    refused_draw({"sigma is ", "above 0"}, [&](AugmentDraw& d) { d.sigma = sigma; });
  }
  AugmentSpec sharp = spec;
  sharp.blur_taps = 0;
  AugmentDraw draw = identity_augment(spec);
  draw.sigma = 0;
  EXPECT_EQ(force_augment(sharp, draw).blur[0], 1.0f);
}

bool same(const AugmentDraw& a, const AugmentDraw& b) {
  return std::memcmp(&a, &b, sizeof(AugmentDraw)) == 0;
}

AugmentRanges wide() {
  AugmentRanges ranges;
  ranges.flip_probability = 0.5;
  ranges.min_degrees = -180;
  ranges.max_degrees = 180;
  return ranges;
}

TEST(AugmentDraws, AreMadeOfTheWordsThatTheHeaderNames) {
  const AugmentSpec spec = good();
  AugmentRanges ranges = wide();
  ranges.flip_probability = 0.7;
  const std::uint64_t seed = 0x123456789abcdef0, epoch = 7;
  for (std::int64_t sample : {std::int64_t{0}, std::int64_t{5}, std::int64_t{1} << 40}) {
    const auto block = [&](std::uint32_t number) {
      return philox4x32_10({{static_cast<std::uint32_t>(sample),
                             static_cast<std::uint32_t>(sample >> 32), 7, 0x61756720u + number}},
                           {{0x9abcdef0, 0x12345678}});
    };
    const PhiloxWords places = block(0), amounts = block(1);
    const AugmentDraw draw = draw_augment(spec, ranges, seed, epoch, sample);
    EXPECT_EQ(draw.crop_y, static_cast<int>(std::floor(33 * (places.word[0] * 0x1p-32))));
    EXPECT_EQ(draw.crop_x, static_cast<int>(std::floor(33 * (places.word[1] * 0x1p-32))));
    EXPECT_EQ(draw.flip, uniform_double(places.word[2], places.word[3]) < 0.7 ? 1 : 0);
    EXPECT_EQ(draw.degrees,
              static_cast<float>(-180 + uniform_double(amounts.word[0], amounts.word[1]) * 360));
    EXPECT_EQ(
        draw.sigma,
        static_cast<float>(0.1 + uniform_double(amounts.word[2], amounts.word[3]) * (2.0 - 0.1)));
    EXPECT_TRUE(same(draw, force_augment(spec, draw)));
  }
}

TEST(AugmentDraws, SamplesEpochsAndSeedsDiffer) {
  const AugmentSpec spec = good();
  std::set<std::pair<float, float>> seen;
  int drawn = 0;
  for (std::uint64_t seed : {0u, 1u, 2u}) {
    for (std::uint64_t epoch : {0u, 1u, 2u}) {
      for (std::int64_t sample = 0; sample < 64; ++sample, ++drawn) {
        const AugmentDraw draw = draw_augment(spec, wide(), seed, epoch, sample);
        seen.insert({draw.degrees, draw.sigma});
        EXPECT_TRUE(same(draw, draw_augment(spec, wide(), seed, epoch, sample)));
      }
    }
  }
  EXPECT_EQ(static_cast<int>(seen.size()), drawn);
}

// All 32 lower bits of the epoch count.
TEST(AugmentDraws, EpochsFarApartDiffer) {
  std::set<std::pair<float, float>> seen;
  const std::uint64_t epochs[] = {0, 1, 257, 65537, 1 << 20, 1u << 31};
  for (const std::uint64_t epoch : epochs) {
    const AugmentDraw draw = draw_augment(good(), wide(), 5, epoch, 3);
    seen.insert({draw.degrees, draw.sigma});
  }
  EXPECT_EQ(seen.size(), std::size(epochs));
}

TEST(AugmentDraws, SwitchingAPartOffLeavesTheOthers) {
  const AugmentSpec spec = good();
  for (std::int64_t sample = 0; sample < 50; ++sample) {
    const auto draw = [&](const AugmentSpec& s, const AugmentRanges& r) {
      return draw_augment(s, r, 3, 1, sample);
    };
    const AugmentDraw all = draw(spec, wide());
    AugmentSpec changed = spec;
    changed.rotate = false;
    EXPECT_TRUE(same(draw(changed, wide()), all));
    changed.blur_taps = 0;
    AugmentDraw expected = all;
    std::fill(std::begin(expected.blur), std::end(expected.blur), 0.0f);
    expected.blur[0] = 1;
    EXPECT_TRUE(same(draw(changed, wide()), expected));

    AugmentRanges fixed = wide();
    fixed.random_crop = false;
    expected = all;
    expected.crop_y = expected.crop_x = 16;
    EXPECT_TRUE(same(draw(spec, fixed), expected));
    fixed = wide();
    fixed.flip_probability = 0;
    expected = all;
    expected.flip = 0;
    EXPECT_TRUE(same(draw(spec, fixed), expected));
    fixed = wide();
    fixed.min_degrees = fixed.max_degrees = 30;
    expected = all;
    expected.degrees = 30;
    EXPECT_TRUE(same(draw(spec, fixed), force_augment(spec, expected)));
    fixed = wide();
    fixed.min_sigma = fixed.max_sigma = 1.5;
    expected = all;
    expected.sigma = 1.5;
    EXPECT_TRUE(same(draw(spec, fixed), force_augment(spec, expected)));
  }
}

// C28: 15 / sqrt(3) is the deviation of U(-15, 15), 0.1353 that of a mean of 4,096; three of those.
TEST(AugmentDraws, AnglesAreUniform) {
  AugmentRanges ranges;
  ranges.min_degrees = -15;
  ranges.max_degrees = 15;
  double sum = 0, smallest = 99, largest = -99;
  for (std::int64_t sample = 0; sample < 4096; ++sample) {
    const double degrees = static_cast<double>(draw_augment(good(), ranges, 0, 0, sample).degrees);
    sum += degrees;
    smallest = std::min(smallest, degrees);
    largest = std::max(largest, degrees);
  }
  EXPECT_TRUE(std::fabs(sum / 4096) < 0.41) << sum / 4096;
  // The chance that none of 4,096 falls in the last 0.1 of 30 degrees is exp(-13.6).
  EXPECT_TRUE(smallest >= -15 && smallest < -14.9) << smallest;
  EXPECT_TRUE(largest <= 15 && largest > 14.9) << largest;
}

/// P(chi^2 with d degrees of freedom >= d + 2 sqrt(d t) + 2 t) <= exp(-t) (Laurent and Massart,
/// Annals of Statistics 28, 2000, lemma 1); t = 14 is one stream in a million.
double chi_square_bound(double degrees_of_freedom) {
  return degrees_of_freedom + 2 * std::sqrt(degrees_of_freedom * 14) + 2 * 14;
}

double chi_square(const std::vector<int>& counts) {
  double total = 0, result = 0;
  for (int count : counts) total += count;
  const double expected = total / static_cast<double>(counts.size());
  for (int count : counts) result += (count - expected) * (count - expected) / expected;
  return result;
}

TEST(AugmentDraws, EveryNumberIsUniform) {
  AugmentSpec spec = good();
  spec.in_h = 48;  // 17 places downwards, 33 to the right
  constexpr int kDraws = 20000;
  std::vector<int> crop_y(17), crop_x(33), degrees(40), sigma(40), joint(17 * 2 * 4 * 4);
  int flips = 0;
  for (std::int64_t sample = 0; sample < kDraws; ++sample) {
    const AugmentDraw d = draw_augment(spec, wide(), 11, 3, sample);
    ++crop_y.at(static_cast<std::size_t>(d.crop_y));
    ++crop_x.at(static_cast<std::size_t>(d.crop_x));
    const double angle = (static_cast<double>(d.degrees) + 180) / 360;
    const double width = (static_cast<double>(d.sigma) - 0.1) / 1.9;
    const auto bin = [](double u, int bins) {
      return static_cast<std::size_t>(std::clamp(static_cast<int>(u * bins), 0, bins - 1));
    };
    ++degrees.at(bin(angle, 40));
    ++sigma.at(bin(width, 40));
    flips += d.flip;
    // All combinations are equally likely: the numbers are independent.
    ++joint.at(((static_cast<std::size_t>(d.crop_y) * 2 + static_cast<std::size_t>(d.flip)) * 4 +
                bin(angle, 4)) *
                   4 +
               bin(width, 4));
  }
  for (const std::vector<int>& counts : {crop_y, crop_x, degrees, sigma, joint}) {
    EXPECT_TRUE(chi_square(counts) <= chi_square_bound(static_cast<double>(counts.size()) - 1))
        << counts.size() << " bins: " << chi_square(counts);
  }
  EXPECT_TRUE(std::abs(flips - kDraws / 2) <= 5 * std::sqrt(kDraws * 0.25)) << flips;
}

TEST(AugmentDraws, FlipsAtTheEndsOfTheirRange) {
  AugmentRanges ranges;
  for (int probability : {0, 1}) {
    ranges.flip_probability = probability;
    for (std::int64_t sample = 0; sample < 1000; ++sample) {
      EXPECT_EQ(draw_augment(good(), ranges, 0, 0, sample).flip, probability);
    }
  }
}

TEST(AugmentDraws, CropsWithoutFreedomLieAtTheirPlace) {
  const AugmentSpec spec = whole_spec(32, 32, 32, 3);
  const AugmentDraw draw = draw_augment(spec, wide(), 0, 0, 1);
  EXPECT_EQ(draw.crop_y, 0);
  EXPECT_EQ(draw.crop_x, 0);
}

TEST(AugmentDraws, TheMiddleIsRoundedDownInBothDirections) {
  AugmentRanges middle = wide();
  middle.random_crop = false;
  for (const int slack : {1, 3, 32}) {
    const AugmentSpec spec = whole_spec(32 + slack, 32, 32, 3);
    for (const AugmentDraw& draw : {identity_augment(spec), draw_augment(spec, middle, 0, 0, 1)}) {
      EXPECT_EQ(draw.crop_y, slack / 2) << slack;
      EXPECT_EQ(draw.crop_x, slack / 2) << slack;
    }
  }
}

TEST(AugmentDraws, TurnsAreRightAnglesOfSquares) {
  const AugmentSpec square = whole_spec(32, 32, 32, 3);
  AugmentSpec wide_result = square;
  wide_result.out_w = 33;
  const auto turn = [](const AugmentSpec& spec, float degrees) {
    return forced(spec, degrees).turn;
  };
  for (float full : {0.0f, 360.0f, -360.0f, 720.0f}) {
    for (const AugmentSpec& spec : {square, wide_result}) {
      EXPECT_EQ(turn(spec, full), Turn::none);
      EXPECT_EQ(turn(spec, full + 180), Turn::half);
    }
    EXPECT_EQ(turn(square, full + 90), Turn::quarter);
    EXPECT_EQ(turn(square, full - 90), Turn::three_quarters);
    EXPECT_EQ(turn(wide_result, full + 90), Turn::general);
    EXPECT_EQ(turn(wide_result, full - 90), Turn::general);
  }
  for (float near : {90.0f, 180.0f, -90.0f, -180.0f, 270.0f, -270.0f, 360.0f}) {
    EXPECT_EQ(turn(square, std::nextafter(near, 0.0f)), Turn::general) << near;
    EXPECT_EQ(turn(square, std::nextafter(near, 1e9f)), Turn::general) << near;
  }
  EXPECT_EQ(turn(square, 1e-30f), Turn::general);
  EXPECT_EQ(turn(square, -1e-30f), Turn::general);
}

// exp(-x^2 / (2 sigma^2)) / sum in double. Float rounds the ratio, the square, the exponential and
// the quotient (the exponent's relative error is 4 u: 4 u x^2 / (2 sigma^2) of the weight, at most
// 4 u * 2 / e of 1), and the sum k - 1 times.
TEST(AugmentDraws, BlurWeightsAreAGaussian) {
  for (int taps = 3; taps <= kMaxBlurTaps; taps += 2) {
    const AugmentSpec spec = whole_spec(32, 32, 32, taps);
    for (float sigma : {1e-38f, 1e-6f, 0.1f, 0.3f, 0.5f, 1.0f, 2.0f, 10.0f, 1e6f, 1e38f}) {
      const AugmentDraw draw = forced(spec, 0, sigma);
      double sum = 0, total = 0;
      const auto weight = [&](int x) {
        return std::exp(-0.5 * std::pow(x / static_cast<double>(sigma), 2));
      };
      for (int x = -(taps / 2); x <= taps / 2; ++x) sum += weight(x);
      for (int x = -(taps / 2); x <= taps / 2; ++x) {
        const double actual = static_cast<double>(draw.blur[std::abs(x)]);
        total += actual;
        const double bound = (taps + 8) * 0x1p-24;
        EXPECT_TRUE(std::fabs(actual - weight(x) / sum) <= bound)
            << taps << " taps, sigma " << sigma << ", tap " << x << ": " << actual;
      }
      EXPECT_TRUE(std::fabs(total - 1) <= (taps + 8) * 0x1p-24) << total;
      for (int i = taps / 2 + 1; i <= kMaxBlurTaps / 2; ++i) EXPECT_EQ(draw.blur[i], 0.0f);
    }
  }
}

// C32.
TEST(AugmentDraws, BlurWeightsOfSigmaOne) {
  const AugmentDraw draw = forced(whole_spec(32, 32, 32, 3), 0, 1);
  EXPECT_TRUE(std::fabs(static_cast<double>(draw.blur[0]) - 0.451863) <= 0.5e-6);
  EXPECT_TRUE(std::fabs(static_cast<double>(draw.blur[1]) - 0.274069) <= 0.5e-6);
}

TEST(AugmentDraws, PrintedDrawsCanBeForced) {
  const AugmentSpec spec = good();
  EXPECT_EQ(to_text(forced(spec, -17.25f, 0.73125f, 12, 31)),
            "crop 12,31 flip 0 angle -17.25 sigma 0.73125");
  for (std::int64_t sample = 0; sample < 500; ++sample) {
    const AugmentDraw draw = draw_augment(spec, wide(), 9, 2, sample);
    const std::string text = to_text(draw);
    AugmentDraw read;
    ASSERT_EQ(std::sscanf(text.c_str(), "crop %d,%d flip %d angle %f sigma %f", &read.crop_y,
                          &read.crop_x, &read.flip, &read.degrees, &read.sigma),
              5)
        << text;
    EXPECT_TRUE(same(force_augment(spec, read), draw)) << text;
  }
  const AugmentDraw identity = identity_augment(spec);
  EXPECT_TRUE(same(force_augment(spec, identity), identity));
}

TEST(AugmentDraws, IdentityChangesNothing) {
  for (int taps : {0, 3, 15}) {
    const AugmentDraw draw = identity_augment(whole_spec(40, 30, 20, taps));
    EXPECT_EQ(draw.crop_y, 5);
    EXPECT_EQ(draw.crop_x, 5);
    EXPECT_EQ(draw.flip, 0);
    EXPECT_EQ(draw.turn, Turn::none);
    EXPECT_EQ(draw.blur[0], 1.0f);
    for (int i = 1; i <= kMaxBlurTaps / 2; ++i) EXPECT_EQ(draw.blur[i], 0.0f);
  }
}

}  // namespace
}  // namespace tandem::test
