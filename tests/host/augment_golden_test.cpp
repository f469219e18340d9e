// SPDX-License-Identifier: Apache-2.0
// The augmentation and its oracle against torchvision's values (tests/golden/augment).
//
// Bounds are in units of the range, 255, with u = 2^-24: 0 where pixels only move; 3 u for a mix of
// four neighbours; (k * k + 2 k + 4) u after a blur of k taps, which torchvision does in one pass
// over k * k products; all divided by the deviation.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tandem/tests/support/augment_cases.hpp>
#include <tandem/tests/support/files.hpp>

namespace tandem::test {
namespace {

using nlohmann::json;

constexpr double kRange = 255;
constexpr double kU = 0x1p-24;

const json& golden() {
  static const json file = [] {
    std::ifstream stream(TANDEM_SOURCE_DIR "/tests/golden/augment/augment.json");
    return json::parse(stream);
  }();
  return file;
}

std::vector<float> stored_values(const json& entry) {
  static const std::vector<float> all = [] {
    const auto bytes = testing::read_bytes(TANDEM_SOURCE_DIR "/tests/golden/augment/augment.bin");
    std::vector<float> values(golden().at("values").get<std::size_t>());
    EXPECT_EQ(bytes.size(), values.size() * sizeof(float));
    std::memcpy(values.data(), bytes.data(), std::min(bytes.size(), values.size() * sizeof(float)));
    return values;
  }();
  const auto first = all.begin() + entry.at("offset").get<std::int64_t>();
  return std::vector<float>(first, first + entry.at("count").get<std::int64_t>());
}

struct Chain {
  std::string name;
  AugmentSpec spec;
  AugmentDraw draw;
  std::vector<std::uint8_t> picture;
  std::int64_t stride;
  std::vector<float> torch;
};

Chain chain_of(const json& entry) {
  static const std::map<std::string, Border> borders = {{"reflect", Border::reflect},
                                                        {"constant", Border::constant},
                                                        {"symmetric", Border::symmetric},
                                                        {"replicate", Border::replicate}};
  Chain chain;
  AugmentSpec& spec = chain.spec;
  spec.in_h = entry.at("in")[0];
  spec.in_w = entry.at("in")[1];
  spec.crop_h = entry.at("crop")[2];
  spec.crop_w = entry.at("crop")[3];
  spec.out_h = entry.at("out")[0];
  spec.out_w = entry.at("out")[1];
  spec.padding = entry.at("padding");
  spec.antialias = entry.at("antialias");
  spec.rotate = entry.at("rotate");
  const bool bilinear = entry.at("rotation") == "bilinear";
  spec.rotation = bilinear ? Interpolation::bilinear : Interpolation::nearest;
  spec.blur_taps = entry.at("taps");
  spec.border = borders.at(entry.at("border"));
  spec.fill = entry.at("fill");
  spec.scale = entry.at("scale");
  for (std::size_t c = 0; c < 3; ++c) {
    spec.mean[c] = entry.at("mean")[c];
    spec.deviation[c] = entry.at("deviation")[c];
  }
  check_augment(spec);
  chain.draw = forced(spec, entry.at("degrees"), entry.at("sigma"), entry.at("crop")[0],
                      entry.at("crop")[1], entry.at("flip"));
  chain.picture = noise(entry.at("picture"), spec.in_h, spec.in_w);
  chain.stride = entry.at("stride");
  chain.torch = stored_values(entry);
  chain.name = entry.at("name").get<std::string>() + ", picture " + entry.at("picture").dump();
  return chain;
}

bool resizes(const AugmentSpec& s) { return s.out_h != s.crop_h || s.out_w != s.crop_w; }

/// Pixels that one output pixel of a resize is mixed from, in one direction.
double taps_of(std::int64_t in, std::int64_t out, bool antialias) {
  return antialias && in > out
             ? 2 * std::ceil(static_cast<double>(in) / static_cast<double>(out)) + 1
             : 2;
}

/// Without antialias a source coordinate is scale * (i + 0.5) - 0.5 in float. PyTorch's kernels
/// differ in whether the product is rounded first, which changes it by up to u * in.
double coordinate_bound(std::int64_t in, std::int64_t out, bool antialias) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const bool exact = std::fmod(scale * 4096, 1) == 0;  // few bits: no product rounds
  return antialias || exact ? 0 : kU * static_cast<double>(in);
}

/// What two chains with the same float weights (but for the above) and coordinates may differ by
/// before the normalisation, in units of the range.
double mixing_bound(const AugmentSpec& s) {
  double bound = coordinate_bound(s.crop_h, s.out_h, s.antialias) +
                 coordinate_bound(s.crop_w, s.out_w, s.antialias);
  if (resizes(s)) {
    const double taps =
        taps_of(s.crop_h, s.out_h, s.antialias) + taps_of(s.crop_w, s.out_w, s.antialias);
    bound +=
        taps == 4 ? 3 * kU : 2 * taps * kU;  // else the dot products' worst case, on both sides
  }
  if (s.rotate && s.rotation == Interpolation::bilinear) {
    // Coordinates within the tie tolerance below; see rotate_bilinear() of the oracle for the 4.
    bound += (4 * 2 * static_cast<double>(std::max(s.out_h, s.out_w)) + 3) * kU;
  }
  if (s.blur_taps > 0) bound += (s.blur_taps * s.blur_taps + 2 * s.blur_taps + 1) * kU;
  return bound;
}

/// The bound in units of the result: product, difference and quotient round once on both sides.
double result_bound(const AugmentSpec& s, double mixing, std::size_t c, double y) {
  const double scale = static_cast<double>(s.scale), mean = static_cast<double>(s.mean[c]);
  const double deviation = static_cast<double>(s.deviation[c]);
  double bound = mixing * kRange * scale;
  if (scale != 1) bound += 2 * kU * std::fabs(y * deviation + mean);
  if (mean != 0) bound += 2 * kU * std::fabs(y * deviation);
  bound /= deviation;
  return deviation == 1 ? bound : bound + 2 * kU * std::fabs(y);
}

/// Of all values of the result, those that are stored.
template <class T>
std::vector<T> kept(const std::vector<T>& all, std::int64_t stride) {
  std::vector<T> result;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i / 3 % static_cast<std::size_t>(stride) == 0) result.push_back(all[i]);
  }
  return result;
}

TEST(AugmentGolden, EveryChain) {
  for (const json& entry : golden().at("chains")) {
    const Chain chain = chain_of(entry);
    for (DType type : {DType::f32, DType::bf16}) {
      std::vector<Expected> expected;
      for (std::size_t i = 0; i < chain.torch.size(); ++i) {
        const double y = static_cast<double>(chain.torch[i]);
        expected.push_back(
            stored(y, result_bound(chain.spec, mixing_bound(chain.spec), i % 3, y), type));
      }
      const auto actual = augment_values(chain.spec, chain.draw, chain.picture, type);
      EXPECT_TRUE(all_close(expected, kept(actual, chain.stride), type, chain.name));
    }
  }
}

// The oracle knows no float weights: its own bound, and what torchvision's blur adds.
TEST(AugmentGolden, OracleAgainstTorchvision) {
  for (const json& entry : golden().at("chains")) {
    const Chain chain = chain_of(entry);
    const AugmentSpec& s = chain.spec;
    std::vector<std::int64_t> sources;
    for (std::int64_t i = 0; i < s.out_h * s.out_w; ++i) {
      const auto allowed = allowed_sources(static_cast<double>(chain.draw.degrees), s.out_h,
                                           s.out_w, i / s.out_w, i % s.out_w);
      const bool nearest = s.rotate && s.rotation == Interpolation::nearest;
      if (nearest) {
        EXPECT_EQ(std::set<std::int64_t>(allowed.begin(), allowed.end()).size(), 1u) << chain.name;
      }
      sources.push_back(allowed[0]);
    }
    std::vector<Expected> expected = kept(
        augment_oracle(s, chain.draw, chain.picture.data(), DType::f32, sources), chain.stride);
    std::vector<double> torch;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      torch.push_back(static_cast<double>(chain.torch.at(i)));
      const double blur = s.blur_taps > 0 ? (s.blur_taps * s.blur_taps + 2 * s.blur_taps) * kU : 0;
      expected[i].bound += result_bound(s, blur, i % 3, torch[i]);
    }
    EXPECT_TRUE(
        all_close(expected, torch, DType::f32, chain.name + ": torchvision, by the oracle"));
  }
}

// Allowed is one of the two neighbours where the float64 coordinate lies within 2 max(w, h) u of a
// tie, and elsewhere the nearest pixel; for us and for torchvision. Beyond that, the coordinates
// are in torchvision's order and halves go to the even pixel: ties come out as on the CPU of the
// values.
TEST(AugmentGolden, SourcePixelsOfRotationByNearest) {
  std::int64_t compared = 0, ties = 0, different = 0;
  for (const json& entry : golden().at("indices")) {
    const std::int64_t h = entry.at("out")[0], w = entry.at("out")[1];
    const std::int64_t row_stride = entry.at("row_stride");
    const float degrees = entry.at("degrees");
    const AugmentSpec spec = plain_spec(h, w);
    const std::vector<std::int64_t> ours = sources_of(spec, forced(spec, degrees));
    const std::vector<float> torch = stored_values(entry);
    int wrong = 0, wrong_torch = 0;
    for (std::size_t i = 0; i < torch.size(); ++i, ++compared) {
      const std::int64_t y = static_cast<std::int64_t>(i) / w * row_stride;
      const std::int64_t x = static_cast<std::int64_t>(i) % w;
      const auto allowed = allowed_sources(static_cast<double>(degrees), h, w, y, x);
      const std::set<std::int64_t> either(allowed.begin(), allowed.end());
      ties += either.size() > 1;
      const std::int64_t our_source = ours.at(static_cast<std::size_t>(y * w + x));
      const auto torch_source = static_cast<std::int64_t>(torch[i]);
      wrong += either.count(our_source) == 0;
      wrong_torch += either.count(torch_source) == 0;
      different += our_source != torch_source;
    }
    EXPECT_EQ(wrong, 0) << h << " x " << w << " by " << degrees << ": pixels from elsewhere";
    EXPECT_EQ(wrong_torch, 0) << h << " x " << w << " by " << degrees << ": torchvision's";
  }
  EXPECT_GT(compared, 50000);
  EXPECT_GT(ties, 200);
  EXPECT_EQ(different, 0);
}

// Sine and cosine in double leave float no choice, so every bit is torchvision's.
TEST(AugmentGolden, Matrices) {
  for (const json& entry : golden().at("matrices")) {
    const AugmentSpec spec = plain_spec(entry.at("out")[0], entry.at("out")[1]);
    const AugmentDraw draw = forced(spec, entry.at("degrees"));
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(draw.matrix[i], entry.at("matrix")[i].get<float>()) << entry;
    }
  }
}

// Both round the ratio, its square, the exponential (torch's to within an ulp, 2 u) and the
// quotient, and sum k numbers in an order of their own; a weight is at most 1.
TEST(AugmentGolden, BlurWeights) {
  for (const json& entry : golden().at("weights")) {
    AugmentSpec spec = plain_spec(32, 32);
    spec.blur_taps = entry.at("taps");
    const AugmentDraw draw = forced(spec, 0, entry.at("sigma"));
    const json& torch = entry.at("weights");
    ASSERT_EQ(static_cast<int>(torch.size()), spec.blur_taps / 2 + 1);
    for (std::size_t i = 0; i < torch.size(); ++i) {
      const double error = std::fabs(static_cast<double>(draw.blur[i]) - torch[i].get<double>());
      EXPECT_TRUE(error <= (2 * spec.blur_taps + 4) * kU) << entry << ", weight " << i;
    }
  }
}

}  // namespace
}  // namespace tandem::test
