// SPDX-License-Identifier: Apache-2.0
// The host's augmentation against the oracle, and where the result is known without one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <tandem/tests/support/augment_cases.hpp>
#include <tandem/tests/support/oracles.hpp>
#include <thread>

namespace tandem::test {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f64};

std::string describe(const AugmentSpec& s, const AugmentDraw& d, DType type) {
  std::string text = std::to_string(s.in_h) + "x" + std::to_string(s.in_w) + " crop " +
                     std::to_string(s.crop_h) + "x" + std::to_string(s.crop_w) + " out " +
                     std::to_string(s.out_h) + "x" + std::to_string(s.out_w) + " taps " +
                     std::to_string(s.blur_taps) + " border " +
                     std::to_string(static_cast<int>(s.border)) + " precision " +
                     std::to_string(precision_bits(type));
  return text + ": " + to_text(d);
}

void expect_oracle(const AugmentSpec& spec, const AugmentDraw& draw,
                   const std::vector<std::uint8_t>& picture) {
  for (DType type : kTypes) {
    EXPECT_TRUE(all_close(expected_values(spec, draw, picture, type),
                          augment_values(spec, draw, picture, type), type,
                          describe(spec, draw, type)));
  }
}

AugmentRanges wide() {
  AugmentRanges ranges;
  ranges.flip_probability = 0.5;
  ranges.min_degrees = -180;
  ranges.max_degrees = 180;
  return ranges;
}

TEST(Augment, ResizeAgainstTheOracle) {
  const std::pair<int, int> sides[] = {{1, 1}, {1, 2},   {2, 1},  {1, 7},  {7, 1},
                                       {2, 2}, {2, 5},   {5, 2},  {3, 8},  {13, 9},
                                       {9, 4}, {16, 32}, {33, 7}, {40, 39}};
  std::uint64_t number = 0;
  for (const auto& [in_h, out_h] : sides) {
    for (const auto& [in_w, out_w] : {sides[number % 14], sides[(number + 5) % 14]}) {
      for (bool antialias : {true, false}) {
        AugmentSpec spec = plain_spec(in_h, in_w);
        spec.out_h = out_h;
        spec.out_w = out_w;
        spec.antialias = antialias;
        expect_oracle(spec, identity_augment(spec), noise(number, in_h, in_w));
      }
    }
    ++number;
  }
}

TEST(Augment, RotationAgainstTheOracle) {
  std::uint64_t number = 0;
  for (const auto& [h, w] :
       {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}, {3, 3}, {5, 8}, {13, 7}, {16, 16}}) {
    for (float degrees : {0.0f, 90.0f, 180.0f, 270.0f, 360.0f, -90.0f, 450.0f, 30.0f, -45.0f, 0.01f,
                          123.4f, -179.9f}) {
      for (Interpolation rotation : {Interpolation::nearest, Interpolation::bilinear}) {
        for (float fill : {0.0f, 77.0f}) {
          AugmentSpec spec = plain_spec(h, w);
          spec.rotate = true;
          spec.rotation = rotation;
          spec.fill = fill;
          expect_oracle(spec, forced(spec, degrees), noise(++number, h, w));
        }
      }
    }
  }
}

TEST(Augment, BlurAgainstTheOracle) {
  std::uint64_t number = 0;
  for (const auto& [h, w] : {std::pair{1, 1}, {1, 9}, {2, 2}, {4, 5}, {8, 8}, {17, 11}}) {
    for (int taps : {3, 5, 7, 15}) {
      for (Border border :
           {Border::reflect, Border::constant, Border::symmetric, Border::replicate}) {
        if (border == Border::reflect && std::min(h, w) <= taps / 2) continue;
        for (float sigma : {1e-6f, 0.1f, 0.7f, 2.0f, 1e6f}) {
          AugmentSpec spec = plain_spec(h, w);
          spec.blur_taps = taps;
          spec.border = border;
          expect_oracle(spec, forced(spec, 0, sigma), noise(++number, h, w));
        }
      }
    }
  }
}

TEST(Augment, EveryPartTogetherAgainstTheOracle) {
  std::uint64_t number = 0;
  struct Sizes {
    int in_h, in_w, crop_h, crop_w, out_h, out_w, taps;
  };
  for (const Sizes& z : {Sizes{1, 1, 1, 1, 1, 1, 0},
                         {2, 2, 1, 1, 2, 2, 3},
                         {9, 7, 9, 7, 9, 7, 7},
                         {20, 31, 13, 17, 16, 16, 7},
                         {32, 32, 16, 16, 32, 32, 7},
                         {33, 40, 33, 40, 21, 12, 15},
                         {8, 8, 3, 5, 25, 30, 5}}) {
    for (int padding : {0, 4}) {
      for (Interpolation rotation : {Interpolation::nearest, Interpolation::bilinear}) {
        for (int sample = 0; sample < 4; ++sample) {
          AugmentSpec spec = whole_spec(1, 1, 1, z.taps);
          spec.in_h = z.in_h;
          spec.in_w = z.in_w;
          spec.crop_h = z.crop_h;
          spec.crop_w = z.crop_w;
          spec.out_h = z.out_h;
          spec.out_w = z.out_w;
          spec.padding = padding;
          spec.rotation = rotation;
          spec.antialias = sample % 2 == 0;
          spec.border = sample == 1 && z.taps > 0 ? Border::constant : Border::reflect;
          expect_oracle(spec, draw_augment(spec, wide(), 5, 0, sample),
                        noise(++number, z.in_h, z.in_w));
        }
      }
    }
  }
}

TEST(Augment, SwitchedOffEverythingPicturesComeOutAsTheyWentIn) {
  for (const auto& [h, w] : {std::pair{1, 1}, {2, 2}, {7, 5}, {32, 32}}) {
    AugmentSpec spec = plain_spec(h, w);
    const std::vector<std::uint8_t> picture = noise(1, h, w);
    const std::vector<double> expected(picture.begin(), picture.end());
    EXPECT_EQ(augment_values(spec, identity_augment(spec), picture, DType::f32), expected);
    // Angles are not looked at; a blur whose weights vanish changes nothing.
    EXPECT_EQ(augment_values(spec, forced(spec, 33), picture, DType::f32), expected);
    spec.rotate = true;
    spec.blur_taps = 3;
    spec.border = Border::symmetric;
    EXPECT_EQ(augment_values(spec, identity_augment(spec), picture, DType::f32), expected);
  }
}

/// Turned by 90 degrees counter-clockwise: the right column lies on top.
std::vector<double> quarter_turn(const std::vector<double>& in, int side) {
  std::vector<double> result;
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      for (int c = 0; c < 3; ++c) {
        result.push_back(in[static_cast<std::size_t>((x * side + side - 1 - y) * 3 + c)]);
      }
    }
  }
  return result;
}

TEST(Augment, RightAnglesMovePixels) {
  for (int side : {1, 2, 3, 8, 31}) {
    AugmentSpec spec = plain_spec(side, side);
    spec.rotate = true;
    spec.fill = 9;
    const std::vector<std::uint8_t> picture = noise(2, side, side);
    std::vector<double> turned(picture.begin(), picture.end());
    for (int quarters = 0; quarters <= 5; ++quarters) {
      for (Interpolation rotation : {Interpolation::nearest, Interpolation::bilinear}) {
        spec.rotation = rotation;
        for (int degrees : {90 * quarters, 90 * quarters - 360}) {
          const AugmentDraw draw = forced(spec, static_cast<float>(degrees));
          EXPECT_EQ(augment_values(spec, draw, picture, DType::f32), turned)
              << side << " by " << degrees;
        }
      }
      turned = quarter_turn(turned, side);
    }
  }
}

TEST(Augment, HalfTurnsOfRectanglesMovePixels) {
  for (const auto& [h, w] : {std::pair{1, 2}, {5, 8}, {13, 7}}) {
    AugmentSpec spec = plain_spec(h, w);
    spec.rotate = true;
    spec.fill = 9;
    const std::vector<std::uint8_t> picture = noise(3, h, w);
    const std::vector<double> upright(picture.begin(), picture.end());
    std::vector<double> turned;
    for (std::size_t i = picture.size(); i > 0; i -= 3) {
      turned.insert(turned.end(), upright.begin() + static_cast<std::int64_t>(i) - 3,
                    upright.begin() + static_cast<std::int64_t>(i));
    }
    for (float full : {0.0f, 360.0f, -360.0f}) {
      EXPECT_EQ(augment_values(spec, forced(spec, full), picture, DType::f32), upright);
      EXPECT_EQ(augment_values(spec, forced(spec, full + 180), picture, DType::f32), turned);
    }
  }
}

// C31. One bright pixel at the right edge of the middle row; 30 degrees lift it.
TEST(Augment, PositiveAnglesTurnCounterClockwise) {
  AugmentSpec spec = plain_spec(21, 21);
  spec.rotate = true;
  std::vector<std::uint8_t> picture(21 * 21 * 3);
  picture[(10 * 21 + 18) * 3] = 255;  // 8 pixels to the right of the centre (10, 10)
  const auto bright = [&](float degrees) {
    const std::vector<double> result =
        augment_values(spec, forced(spec, degrees), picture, DType::f32);
    std::set<std::size_t> pixels;
    for (std::size_t i = 0; i < result.size(); i += 3) {
      if (result[i] > 0) pixels.insert(i / 3);
    }
    return pixels;
  };
  // (8 cos 30, 8 sin 30) = (6.93, 4): the pixel 7 to the right and 4 up, or down for -30.
  EXPECT_EQ(bright(30).count((10 - 4) * 21 + 10 + 7), 1u);
  EXPECT_EQ(bright(-30).count((10 + 4) * 21 + 10 + 7), 1u);
  EXPECT_EQ(bright(30).count((10 + 4) * 21 + 10 + 7), 0u);
}

TEST(Augment, TheFillComesInFromOutside) {
  AugmentSpec spec = plain_spec(9, 9);
  spec.rotate = true;
  spec.fill = 200;
  const std::vector<std::uint8_t> black(9 * 9 * 3);
  for (Interpolation rotation : {Interpolation::nearest, Interpolation::bilinear}) {
    spec.rotation = rotation;
    const auto result = augment_values(spec, forced(spec, 45), black, DType::f32);
    for (std::size_t corner : {0u, 8u, 72u, 80u}) EXPECT_EQ(result[corner * 3], 200);
    EXPECT_EQ(result[40 * 3], 0);
  }
  spec.rotate = false;
  spec.padding = 2;
  const auto padded = augment_values(spec, forced(spec, 0), black, DType::f32);
  for (std::size_t i = 0; i < padded.size(); ++i) {
    const bool outside = i / 27 < 2 || i / 3 % 9 < 2;
    EXPECT_EQ(padded[i], outside ? 200 : 0) << i;
  }
}

// A sum of k weights is 1 to within 2 k + 9 roundings, see the tests of the weights. By nearest:
// torchvision's mix of the fill into a bilinear rim is darker than both (docs/augmentation.md).
TEST(Augment, ConstantPicturesStayConstant) {
  for (int value : {0, 1, 100, 255}) {
    for (Border border : {Border::reflect, Border::symmetric, Border::replicate}) {
      for (int taps : {3, 7, 15}) {
        for (float sigma : {1e-6f, 0.1f, 1.0f, 2.0f, 1e6f}) {
          AugmentSpec spec = whole_spec(20, 12, 17, taps);
          spec.border = border;
          spec.fill = static_cast<float>(value);
          spec.scale = 1;
          for (int c = 0; c < 3; ++c) {
            spec.mean[c] = 0;
            spec.deviation[c] = 1;
          }
          const std::vector<std::uint8_t> picture(20 * 20 * 3, static_cast<std::uint8_t>(value));
          const AugmentDraw draw = forced(spec, 27, sigma, 3, 5, 1);
          // Two passes of the blur, each with 2 k roundings of its own, and two of the resize.
          const double bound = value * (2 * (2 * taps + 9 + 2 * taps) + 2 * 4) * 0x1p-24;
          for (double actual : augment_values(spec, draw, picture, DType::f32)) {
            ASSERT_TRUE(std::fabs(actual - value) <= bound)
                << describe(spec, draw, DType::f32) << " gives " << actual;
          }
        }
      }
    }
  }
}

AugmentSpec small_blur(std::int64_t side, int taps, Border border) {
  AugmentSpec spec = plain_spec(side, side);
  spec.blur_taps = taps;
  spec.border = border;
  return spec;
}

std::vector<double> red(const std::vector<double>& values) {
  std::vector<double> result;
  for (std::size_t i = 0; i < values.size(); i += 3) result.push_back(values[i]);
  return result;
}

std::vector<std::uint8_t> grey(std::initializer_list<int> pixels) {
  std::vector<std::uint8_t> picture;
  for (int value : pixels) picture.insert(picture.end(), 3, static_cast<std::uint8_t>(value));
  return picture;
}

// C32: sigma 1, three taps, values to six digits.
TEST(Augment, PublishedValuesOfTheBlur) {
  const auto near = [](double actual, double expected) {
    return std::fabs(actual - expected) <= 0.5e-6 + 1e-6;  // the digits, and float at values of 4
  };
  const AugmentSpec two = small_blur(2, 3, Border::reflect);
  const auto four = red(augment_values(two, forced(two, 0), grey({1, 2, 3, 4}), DType::f32));
  const double expected[] = {2.644412, 2.548137, 2.451863, 2.355588};
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(near(four[i], expected[i])) << i << ": " << four[i];

  std::vector<std::uint8_t> corner(5 * 5 * 3);
  corner[0] = 1;
  const auto sum = [](const std::vector<double>& values) {
    double total = 0;
    for (double value : values) total += value;
    return total;
  };
  const AugmentSpec reflect = small_blur(5, 3, Border::reflect);
  const auto one = red(augment_values(reflect, forced(reflect, 0), corner, DType::f32));
  EXPECT_TRUE(near(one[0], 0.204180)) << one[0];
  EXPECT_TRUE(near(one[1], 0.123841)) << one[1];
  EXPECT_TRUE(near(one[5], 0.123841)) << one[5];
  EXPECT_TRUE(near(one[6], 0.075114)) << one[6];
  EXPECT_TRUE(near(sum(one), 0.526976)) << sum(one);
  const AugmentSpec symmetric = small_blur(5, 3, Border::symmetric);
  const auto kept = red(augment_values(symmetric, forced(symmetric, 0), corner, DType::f32));
  EXPECT_TRUE(near(kept[0], 0.526976)) << kept[0];
  EXPECT_TRUE(near(sum(kept), 1)) << sum(kept);
}

TEST(Augment, EverySampleHasItsOwnBlur) {
  AugmentSpec spec = small_blur(16, 7, Border::reflect);
  std::vector<std::uint8_t> pictures = noise(4, 16, 16);
  const std::vector<double> original(pictures.begin(), pictures.end());
  pictures.insert(pictures.end(), original.begin(), original.end());
  const auto result =
      run_augment<float>(spec, {forced(spec, 0, 0.1f), forced(spec, 0, 2)}, pictures);
  double first = 0, second = 0;
  for (std::size_t i = 0; i < original.size(); ++i) {
    first = std::max(first, std::fabs(static_cast<double>(result[i]) - original[i]));
    second += std::fabs(static_cast<double>(result[original.size() + i]) - original[i]);
  }
  // Next to 1 the neighbours' weights are exp(-50); noise has a mean deviation of 64.
  EXPECT_TRUE(first <= 1e-4) << first;
  EXPECT_TRUE(second / static_cast<double>(original.size()) >= 30) << second;
}

template <class T>
bool same_bits(const std::vector<T>& a, std::size_t at, const std::vector<T>& b, std::size_t from,
               std::size_t count) {
  return std::memcmp(a.data() + at, b.data() + from, count * sizeof(T)) == 0;
}

// C28: a batch of 300, the same samples one by one, backwards, and from four threads at once.
TEST(Augment, PlaceInTheBatchDoesNotMatter) {
  constexpr std::size_t kSamples = 300, kPicture = 20 * 20 * 3, kResult = 16 * 16 * 3;
  const AugmentSpec spec = whole_spec(20, 12, 16, 5);
  std::vector<AugmentDraw> draws, backward_draws;
  std::vector<std::uint8_t> pictures, backward_pictures;
  for (std::size_t i = 0; i < kSamples; ++i) {
    const auto append = [](std::vector<std::uint8_t>& all, std::size_t picture) {
      const auto one = noise(picture, 20, 20);
      all.insert(all.end(), one.begin(), one.end());
    };
    const auto draw_of = [&](std::size_t sample) {
      return draw_augment(spec, wide(), 17, 2, static_cast<std::int64_t>(sample));
    };
    draws.push_back(draw_of(i));
    append(pictures, i);
    backward_draws.push_back(draw_of(kSamples - 1 - i));
    append(backward_pictures, kSamples - 1 - i);
  }
  const auto all = run_augment<float>(spec, draws, pictures);
  const auto backward = run_augment<float>(spec, backward_draws, backward_pictures);
  std::vector<std::vector<float>> single(kSamples);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < kSamples; i += 4) {
        const auto first = pictures.begin() + static_cast<std::int64_t>(i * kPicture);
        single[i] = run_augment<float>(spec, {draws[i]}, {first, first + kPicture});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kSamples; ++i) {
    EXPECT_TRUE(same_bits(all, i * kResult, single[i], 0, kResult)) << i;
    EXPECT_TRUE(same_bits(all, i * kResult, backward, (kSamples - 1 - i) * kResult, kResult)) << i;
  }
}

TEST(Augment, ZOrderIsTheSamePixels) {
  const AugmentSpec spec = whole_spec(40, 30, 32, 7);
  const AugmentDraw draw = draw_augment(spec, wide(), 1, 1, 1);
  const auto picture = noise(6, 40, 40);
  for (DType type : kTypes) {
    const auto raster = augment_values(spec, draw, picture, type);
    const auto z = augment_values(spec, draw, picture, type, ImageOrder::zorder);
    std::vector<double> expected;
    for (const auto& [y, x] : z_order(32)) {
      for (int c = 0; c < 3; ++c) {
        expected.push_back(raster[static_cast<std::size_t>((y * 32 + x) * 3 + c)]);
      }
    }
    EXPECT_EQ(z, expected);
  }
}

// C28.
TEST(Augment, CopiesOfAPictureComeOutDifferent) {
  const AugmentSpec spec = whole_spec(32, 24, 32, 7);
  const auto picture = noise(7, 32, 32);
  std::vector<std::uint8_t> copies;
  std::vector<AugmentDraw> draws;
  AugmentRanges ranges;
  ranges.min_degrees = -15;
  ranges.max_degrees = 15;
  for (std::int64_t sample = 0; sample < 64; ++sample) {
    copies.insert(copies.end(), picture.begin(), picture.end());
    draws.push_back(draw_augment(spec, ranges, 0, 0, sample));
  }
  const auto result = run_augment<float>(spec, draws, copies);
  std::set<std::vector<float>> different;
  const std::int64_t size = 32 * 32 * 3;
  for (auto first = result.begin(); first != result.end(); first += size) {
    different.emplace(first, first + size);
  }
  EXPECT_EQ(different.size(), 64u);
}

// C29: three runs of a list of calls that differ in their step alone show three epochs' draws, or
// three batches'; the same again shows the same.
TEST(Augment, StepsAndEpochsDrawAnew) {
  const AugmentSpec spec = whole_spec(32, 24, 32, 7);
  const auto picture = noise(8, 32, 32);
  const auto show = [&](std::uint64_t seed, std::uint64_t epoch, std::int64_t sample) {
    return augment_values(spec, draw_augment(spec, wide(), seed, epoch, sample), picture,
                          DType::f32);
  };
  std::set<std::vector<double>> different;
  for (int i = 0; i < 3; ++i) {
    different.insert(show(1, static_cast<std::uint64_t>(i), 4));
    different.insert(show(1, 0, 4 + i));
    different.insert(show(static_cast<std::uint64_t>(1 + i), 0, 4));
  }
  EXPECT_EQ(different.size(), 7u);  // (1, 0, 4) is in each row
  EXPECT_EQ(show(1, 2, 4), show(1, 2, 4));
}

TEST(Augment, PrintedDrawsGiveTheSamePixels) {
  const AugmentSpec spec = whole_spec(32, 24, 32, 7);
  const auto picture = noise(9, 32, 32);
  for (std::int64_t sample = 0; sample < 16; ++sample) {
    const AugmentDraw draw = draw_augment(spec, wide(), 2, 0, sample);
    AugmentDraw read;
    ASSERT_EQ(std::sscanf(to_text(draw).c_str(), "crop %d,%d flip %d angle %f sigma %f",
                          &read.crop_y, &read.crop_x, &read.flip, &read.degrees, &read.sigma),
              5);
    EXPECT_EQ(augment_values(spec, force_augment(spec, read), picture, DType::f32),
              augment_values(spec, draw, picture, DType::f32));
  }
}

TEST(Augment, WhatIsFused) {
  const AugmentSpec spec = whole_spec(32, 24, 32, 7);
  EXPECT_TRUE(augment_is_fused(spec));
  const auto fused = [&](auto change) {
    AugmentSpec changed = spec;
    change(changed);
    return augment_is_fused(changed);
  };
  EXPECT_TRUE(fused([](AugmentSpec& s) { s.border = Border::constant; }));
  EXPECT_TRUE(fused([](AugmentSpec& s) { s.rotate = false; }));
  EXPECT_TRUE(fused([](AugmentSpec& s) { s.blur_taps = 0; }));
  EXPECT_TRUE(fused([](AugmentSpec& s) { s.blur_taps = 15; }));
  EXPECT_TRUE(fused([](AugmentSpec& s) { s.antialias = false; }));
  EXPECT_FALSE(fused([](AugmentSpec& s) { s.rotation = Interpolation::bilinear; }));
  EXPECT_FALSE(fused([](AugmentSpec& s) { s.border = Border::symmetric; }));
  EXPECT_FALSE(fused([](AugmentSpec& s) { s.border = Border::replicate; }));
  EXPECT_FALSE(fused([](AugmentSpec& s) { s.padding = 4; }));
  EXPECT_TRUE(fused([](AugmentSpec& s) {
    s.border = Border::symmetric;  // of no blur
    s.blur_taps = 0;
  }));
}

}  // namespace
}  // namespace tandem::test
