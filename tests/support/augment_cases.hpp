// SPDX-License-Identifier: Apache-2.0
// Pictures, specs and runs of the host's augmentation, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tandem/engine/augment_draw.hpp>
#include <tandem/kernels/augment.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/tests/support/augment_oracle.hpp>
#include <tandem/tests/support/parity_data.hpp>
#include <vector>

namespace tandem::test {

/// Byte i of picture p is splitmix64(p * 2^32 + i) mod 256.
inline std::vector<std::uint8_t> noise(std::uint64_t picture, std::int64_t h, std::int64_t w) {
  std::vector<std::uint8_t> result(static_cast<std::size_t>(h * w * 3));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<std::uint8_t>(splitmix64((picture << 32) + i) % 256);
  }
  return result;
}

/// No part does anything: values 0 .. 255 come out as they went in.
inline AugmentSpec plain_spec(std::int64_t h, std::int64_t w) {
  AugmentSpec spec;
  spec.in_h = spec.crop_h = spec.out_h = h;
  spec.in_w = spec.crop_w = spec.out_w = w;
  spec.scale = 1;
  return spec;
}

/// Every part at once.
inline AugmentSpec whole_spec(std::int64_t in, std::int64_t crop, std::int64_t out, int taps) {
  AugmentSpec spec = plain_spec(in, in);
  spec.crop_h = spec.crop_w = crop;
  spec.out_h = spec.out_w = out;
  spec.rotate = true;
  spec.blur_taps = taps;
  spec.fill = 124;
  spec.scale = 1 / 255.0f;
  const float mean[] = {0.485f, 0.456f, 0.406f}, deviation[] = {0.229f, 0.224f, 0.225f};
  std::copy_n(mean, 3, spec.mean);
  std::copy_n(deviation, 3, spec.deviation);
  return spec;
}

inline AugmentDraw forced(const AugmentSpec& spec, float degrees, float sigma = 1, int crop_y = 0,
                          int crop_x = 0, int flip = 0) {
  AugmentDraw draw;
  draw.crop_y = crop_y;
  draw.crop_x = crop_x;
  draw.flip = flip;
  draw.degrees = degrees;
  draw.sigma = sigma;
  return force_augment(spec, draw);
}

/// The twin's result for a batch, in memory order. The memory around it must stay as it was.
template <class T>
std::vector<T> run_augment(const AugmentSpec& spec, const std::vector<AugmentDraw>& draws,
                           const std::vector<std::uint8_t>& pictures,
                           ImageOrder order = ImageOrder::nhwc) {
  check_augment(spec);
  std::vector<std::byte> tables(augment_table_bytes(spec));
  fill_augment_tables(spec, tables.data());
  constexpr std::size_t kGuard = 64;
  const T guard(-12345.0f);
  const auto n = static_cast<std::int64_t>(draws.size());
  const auto size = static_cast<std::size_t>(n * spec.out_h * spec.out_w * 3);
  std::vector<T> y(size + 2 * kGuard, guard);
  host::augment<T>(spec, tables.data(), n, pictures.data(), draws.data(), order, y.data() + kGuard);
  for (std::size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(static_cast<float>(y[i]), static_cast<float>(guard)) << "written before the result";
    EXPECT_EQ(static_cast<float>(y[kGuard + size + i]), static_cast<float>(guard))
        << "written behind the result";
  }
  return std::vector<T>(y.begin() + kGuard, y.begin() + kGuard + static_cast<std::int64_t>(size));
}

/// The same as numbers, for one picture, with the type chosen at run time.
inline std::vector<double> augment_values(const AugmentSpec& spec, const AugmentDraw& draw,
                                          const std::vector<std::uint8_t>& picture, DType type,
                                          ImageOrder order = ImageOrder::nhwc) {
  std::vector<double> values;
  const auto take = [&](const auto& result) {
    for (const auto& value : result) values.push_back(static_cast<double>(value));
  };
  if (type == DType::f64) take(run_augment<double>(spec, {draw}, picture, order));
  if (type == DType::f32) take(run_augment<float>(spec, {draw}, picture, order));
  if (type == DType::bf16) {
    for (bf16 value : run_augment<bf16>(spec, {draw}, picture, order)) {
      values.push_back(static_cast<double>(static_cast<float>(value)));
    }
  }
  return values;
}

/// Which pixel y * w + x the twin's rotation by nearest takes for each output pixel, -1 for the
/// fill: it rotates a picture whose pixels hold their own number in three bytes.
inline std::vector<std::int64_t> sources_of(const AugmentSpec& spec, const AugmentDraw& draw) {
  AugmentSpec turn = plain_spec(spec.out_h, spec.out_w);
  turn.rotate = true;
  turn.fill = 255;
  AugmentDraw values = draw;
  values.crop_y = values.crop_x = values.flip = 0;
  std::vector<std::uint8_t> numbers;
  for (std::int64_t i = 0; i < spec.out_h * spec.out_w; ++i) {
    for (int shift : {0, 8, 16}) numbers.push_back(static_cast<std::uint8_t>(i >> shift));
  }
  const std::vector<float> result =
      run_augment<float>(turn, {force_augment(turn, values)}, numbers);
  std::vector<std::int64_t> sources;
  for (std::size_t i = 0; i < result.size(); i += 3) {
    const std::int64_t number = static_cast<std::int64_t>(result[i]) +
                                static_cast<std::int64_t>(result[i + 1]) * 0x100 +
                                static_cast<std::int64_t>(result[i + 2]) * 0x10000;
    sources.push_back(number == 0xffffff ? -1 : number);
  }
  return sources;
}

/// The oracle's values for the pixels that the twin's rotation takes.
inline std::vector<Expected> expected_values(const AugmentSpec& spec, const AugmentDraw& draw,
                                             const std::vector<std::uint8_t>& picture, DType type) {
  const bool nearest = spec.rotate && spec.rotation == Interpolation::nearest;
  return augment_oracle(spec, draw, picture.data(), type,
                        nearest ? sources_of(spec, draw) : std::vector<std::int64_t>());
}

}  // namespace tandem::test
