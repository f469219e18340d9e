// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <tandem/kernels/augment_math.hpp>
#include <tandem/kernels/bf16.hpp>
#include <vector>

namespace tandem::host {

namespace {

constexpr int kChannels = kAugmentChannels;

/// A picture of values of type T, channels last.
template <class T>
struct Picture {
  int h, w;
  std::vector<T> values;

  Picture(std::int64_t height, std::int64_t width)
      : h(static_cast<int>(height)),
        w(static_cast<int>(width)),
        values(static_cast<std::size_t>(height * width * kChannels)) {}

  T* pixel(int y, int x) { return values.data() + (std::int64_t{y} * w + x) * kChannels; }
  const T* pixel(int y, int x) const { return const_cast<Picture*>(this)->pixel(y, x); }
};

/// Row `row` of the crop of a picture padded by `fill`, flipped.
template <class T>
void crop_row(const AugmentSpec& spec, const AugmentDraw& draw, const std::uint8_t* x, int row,
              T* to) {
  const auto in_h = static_cast<int>(spec.in_h), in_w = static_cast<int>(spec.in_w);
  const auto padding = static_cast<int>(spec.padding), crop_w = static_cast<int>(spec.crop_w);
  for (int column = 0; column < crop_w; ++column, to += kChannels) {
    const PixelIndex source = {draw.crop_x + flipped(draw.flip, column, crop_w) - padding,
                               draw.crop_y + row - padding};
    if (is_inside(source, in_w, in_h)) {
      std::copy_n(x + (std::int64_t{source.y} * in_w + source.x) * kChannels, kChannels, to);
    } else {
      std::fill_n(to, kChannels, static_cast<T>(spec.fill));
    }
  }
}

template <class T>
Picture<T> crop(const AugmentSpec& spec, const AugmentDraw& draw, const std::uint8_t* x) {
  Picture<T> y(spec.crop_h, spec.crop_w);
  for (int row = 0; row < y.h; ++row) crop_row(spec, draw, x, row, y.pixel(row, 0));
  return y;
}

/// The crop, resized along x, then along y. Of a large crop one row is held at a time.
template <class T>
Picture<T> resized_crop(const AugmentSpec& spec, const void* tables, const AugmentDraw& draw,
                        const std::uint8_t* x) {
  const ResizeAxis along_x = resize_axis_x(spec, tables), along_y = resize_axis_y(spec, tables);
  Picture<T> cropped(1, spec.crop_w), wide(spec.crop_h, spec.out_w), y(spec.out_h, spec.out_w);
  for (int row = 0; row < wide.h; ++row) {
    crop_row(spec, draw, x, row, cropped.pixel(0, 0));
    for (int column = 0; column < wide.w; ++column) {
      const ResizeSpan span = along_x.span[column];
      const T* from = cropped.pixel(0, span.first);
      for (int c = 0; c < kChannels; ++c) {
        wide.pixel(row, column)[c] =
            weighted_sum<T>(along_x.weights + std::int64_t{column} * along_x.taps, span.count,
                            [&](int k) { return from[k * kChannels + c]; });
      }
    }
  }
  const int row_values = y.w * kChannels;
  for (int row = 0; row < y.h; ++row) {
    const ResizeSpan span = along_y.span[row];
    const T* from = wide.pixel(span.first, 0);
    T* to = y.pixel(row, 0);
    for (int i = 0; i < row_values; ++i) {
      to[i] = weighted_sum<T>(along_y.weights + std::int64_t{row} * along_y.taps, span.count,
                              [&](int k) { return from[std::int64_t{k} * row_values + i]; });
    }
  }
  return y;
}

template <class T>
Picture<T> rotate(const AugmentSpec& spec, const AugmentDraw& draw, const Picture<T>& x) {
  Picture<T> y(x.h, x.w);
  const auto inside = [&](const PixelIndex& p) { return is_inside(p, x.w, x.h); };
  for (int row = 0; row < y.h; ++row) {
    for (int column = 0; column < y.w; ++column) {
      T(&to)[kChannels] = *reinterpret_cast<T(*)[kChannels]>(y.pixel(row, column));
      if (draw.turn != Turn::general) {
        const PixelIndex p = turned(draw.turn, column, row, x.w, x.h);
        std::copy_n(x.pixel(p.y, p.x), kChannels, to);
        continue;
      }
      const Coordinates at = source_coordinates(draw.matrix, column, row, x.w, x.h);
      if (spec.rotation == Interpolation::bilinear) {
        rotate_bilinear(
            at, spec.fill, inside, [&](const PixelIndex& p, int c) { return x.pixel(p.y, p.x)[c]; },
            to);
        continue;
      }
      const PixelIndex p = {nearest_pixel(at.x), nearest_pixel(at.y)};
      if (inside(p)) {
        std::copy_n(x.pixel(p.y, p.x), kChannels, to);
      } else {
        std::fill_n(to, kChannels, static_cast<T>(spec.fill));
      }
    }
  }
  return y;
}

/// Along x, then along y; each on a copy with a border as wide as the radius.
template <class T>
Picture<T> blur(const AugmentSpec& spec, const AugmentDraw& draw, const Picture<T>& x) {
  const int radius = spec.blur_taps / 2;
  Picture<T> bordered(1, x.w + 2 * radius), wide(x.h, x.w), y(x.h, x.w);
  for (int row = 0; row < x.h; ++row) {
    for (int column = 0; column < bordered.w; ++column) {
      const int source = border_index(spec.border, column - radius, x.w);
      if (source < 0) continue;  // it is 0 from the beginning
      std::copy_n(x.pixel(row, source), kChannels, bordered.pixel(0, column));
    }
    const T* from = bordered.pixel(0, radius);
    T* to = wide.pixel(row, 0);
    for (int i = 0; i < x.w * kChannels; ++i) {
      to[i] = blur_sum<T>(draw.blur, radius, [&](int d) { return from[i + d * kChannels]; });
    }
  }

  const std::vector<T> zeros(static_cast<std::size_t>(x.w * kChannels));
  std::vector<const T*> rows(static_cast<std::size_t>(2 * radius + 1));
  for (int row = 0; row < y.h; ++row) {
    for (int d = -radius; d <= radius; ++d) {
      const int source = border_index(spec.border, row + d, x.h);
      rows[static_cast<std::size_t>(radius + d)] =
          source < 0 ? zeros.data() : wide.pixel(source, 0);
    }
    const T* const* middle = rows.data() + radius;
    T* to = y.pixel(row, 0);
    for (int i = 0; i < x.w * kChannels; ++i) {
      to[i] = blur_sum<T>(draw.blur, radius, [&](int d) { return middle[d][i]; });
    }
  }
  return y;
}

template <class T>
void normalise_to(const AugmentSpec& spec, const Picture<Accumulator<T>>& x,
                  const ImageShape& shape, ImageOrder order, std::int64_t image, T* y) {
  using Value = Accumulator<T>;
  const std::int64_t stride = channel_stride(order, shape);
  for (int c = 0; c < kChannels; ++c) {
    const Normalisation<Value> n = normalisation<Value>(spec, c);
    for (int row = 0; row < x.h; ++row) {
      for (int column = 0; column < x.w; ++column) {
        y[pixel_offset(order, shape, image, row, column) + c * stride] =
            T(normalise(n, x.pixel(row, column)[c]));
      }
    }
  }
}

}  // namespace

template <class T>
void augment(const AugmentSpec& spec, const void* tables, std::int64_t n, const std::uint8_t* x,
             const AugmentDraw* draws, ImageOrder order, T* y) {
  using Value = Accumulator<T>;
  const ImageShape shape = {n, spec.out_h, spec.out_w, kChannels};
  for (std::int64_t image = 0; image < n; ++image) {
    const AugmentDraw& draw = draws[image];
    const std::uint8_t* pixels = x + image * spec.in_h * spec.in_w * kChannels;
    Picture<Value> picture = resizes(spec) ? resized_crop<Value>(spec, tables, draw, pixels)
                                           : crop<Value>(spec, draw, pixels);
    if (spec.rotate && draw.turn != Turn::none) picture = rotate(spec, draw, picture);
    if (spec.blur_taps > 0) picture = blur(spec, draw, picture);
    normalise_to(spec, picture, shape, order, image, y);
  }
}

template void augment(const AugmentSpec&, const void*, std::int64_t, const std::uint8_t*,
                      const AugmentDraw*, ImageOrder, float*);
template void augment(const AugmentSpec&, const void*, std::int64_t, const std::uint8_t*,
                      const AugmentDraw*, ImageOrder, bf16*);
template void augment(const AugmentSpec&, const void*, std::int64_t, const std::uint8_t*,
                      const AugmentDraw*, ImageOrder, double*);

}  // namespace tandem::host
