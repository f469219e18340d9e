// SPDX-License-Identifier: Apache-2.0
// Index and weight tables of the resize, with PyTorch's float formulas.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tandem/kernels/augment_math.hpp>
#include <vector>

namespace tandem {

namespace {

/// The span of one pixel of the result and its weights.
struct Taps {
  std::int32_t first;
  std::vector<float> weight;
};

/// Half-pixel centres: pixel i lies at scale * (i + 0.5) - 0.5, between its two neighbours. Beyond
/// the last pixel there is only that one. PyTorch's kernels for small results and for GPUs contract
/// the position into one rounding, those for large ones do not; its antialiased formula comes to
/// the same as this one where nothing shrinks.
Taps linear_taps(std::int64_t in, float scale, std::int64_t i) {
  const float position = std::max(0.0f, scale * (static_cast<float>(i) + 0.5f) - 0.5f);
  const std::int64_t left = std::min(static_cast<std::int64_t>(position), in - 1);
  if (left == in - 1) return {static_cast<std::int32_t>(in - 2), {0.0f, 1.0f}};
  const float right_weight = std::min(1.0f, position - static_cast<float>(left));
  return {static_cast<std::int32_t>(left), {1.0f - right_weight, right_weight}};
}

/// A triangle as wide as `scale` pixels to each side, which shrinking needs against aliasing. As
/// at::native's _upsample_bilinear2d_aa, where i + 0.5 and the distance to the centre are double
/// and everything else is float.
Taps antialiased_taps(std::int64_t in, float scale, std::int64_t i) {
  const auto centre = static_cast<float>(scale * (static_cast<double>(i) + 0.5));
  const float support = scale, inverse = 1.0f / scale;
  const auto edge = [&](float position) { return static_cast<std::int64_t>(position + 0.5); };
  const std::int64_t first = std::max<std::int64_t>(edge(centre - support), 0);
  const std::int64_t end = std::min(edge(centre + support), in);
  Taps taps = {static_cast<std::int32_t>(first), {}};
  float total = 0;
  for (std::int64_t k = 0; k < end - first; ++k) {
    const float offset = static_cast<float>(k + first) - centre;
    const float distance = std::fabs(static_cast<float>((offset + 0.5) * inverse));
    taps.weight.push_back(distance < 1.0f ? 1.0f - distance : 0.0f);
    total += taps.weight.back();
  }
  for (float& weight : taps.weight) weight /= total;
  return taps;
}

void fill_axis(std::int64_t in, std::int64_t out, bool antialias, ResizeSpan* span,
               float* weights) {
  const int most = resize_taps(in, out, antialias);
  const float scale = static_cast<float>(in) / static_cast<float>(out);
  for (std::int64_t i = 0; i < out; ++i) {
    Taps taps = {static_cast<std::int32_t>(in == out ? i : 0), {1.0f}};
    if (most == 2) taps = linear_taps(in, scale, i);
    if (most > 2) taps = antialiased_taps(in, scale, i);
    span[i] = {taps.first, static_cast<std::int32_t>(taps.weight.size())};
    float* row = weights + i * most;
    std::fill(std::copy(taps.weight.begin(), taps.weight.end(), row), row + most, 0.0f);
  }
}

}  // namespace

std::size_t augment_table_bytes(const AugmentSpec& spec) {
  const auto axis = [&](std::int64_t in, std::int64_t out) {
    const auto taps = static_cast<std::size_t>(resize_taps(in, out, spec.antialias));
    return static_cast<std::size_t>(out) * (sizeof(ResizeSpan) + taps * sizeof(float));
  };
  return axis(spec.crop_w, spec.out_w) + axis(spec.crop_h, spec.out_h);
}

void fill_augment_tables(const AugmentSpec& spec, void* tables) {
  const auto fill = [&](const ResizeAxis& axis, std::int64_t in, std::int64_t out) {
    fill_axis(in, out, spec.antialias, const_cast<ResizeSpan*>(axis.span),
              const_cast<float*>(axis.weights));
  };
  fill(resize_axis_x(spec, tables), spec.crop_w, spec.out_w);
  fill(resize_axis_y(spec, tables), spec.crop_h, spec.out_h);
}

bool augment_is_fused(const AugmentSpec& spec) {
  return (!spec.rotate || spec.rotation == Interpolation::nearest) &&
         (spec.blur_taps == 0 || spec.border == Border::reflect ||
          spec.border == Border::constant) &&
         spec.padding == 0;
}

std::size_t augment_plain_bytes(const AugmentSpec& spec, std::int64_t n) {
  const std::int64_t pixels = std::max(spec.crop_h * spec.crop_w, spec.out_h * spec.out_w);
  return 2 * sizeof(float) * kAugmentChannels * static_cast<std::size_t>(n * pixels);
}

}  // namespace tandem
