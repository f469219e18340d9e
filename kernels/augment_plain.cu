// SPDX-License-Identifier: Apache-2.0
// The augmentation as one kernel a part, for every spec: simple, and not fast. Pictures between
// the parts are float, channels last, in raster order.
#include <tandem/kernels/augment_math.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/device.cuh>
#include <utility>

namespace tandem::cuda {

namespace {

constexpr int kChannels = kAugmentChannels;

/// n pictures.
struct Pictures {
  std::int64_t n;
  int h, w;

  std::int64_t pixels() const { return n * h * w; }
};

/// Calls body(image, pixel, offset of its first value) for all pixels.
template <class Body>
__device__ inline void for_each_pixel(const Pictures& s, Body body) {
  const std::int64_t pixels = s.n * s.h * s.w;
  for_each_pack<1>(pixels, [&](std::int64_t i, auto) {
    const auto at = static_cast<unsigned>(i % (std::int64_t{s.h} * s.w));
    const auto w = static_cast<unsigned>(s.w);
    body(i / (std::int64_t{s.h} * s.w),
         PixelIndex{static_cast<int>(at % w), static_cast<int>(at / w)}, i * kChannels);
  });
}

/// Offset of a pixel's first value.
__device__ inline std::int64_t offset(const Pictures& s, std::int64_t image, int y, int x) {
  return ((image * s.h + y) * s.w + x) * kChannels;
}

__global__ void crop_kernel(Pictures in, Pictures out, int padding, float fill,
                            const std::uint8_t* __restrict__ x, const AugmentDraw* draws,
                            float* __restrict__ y) {
  for_each_pixel(out, [&](std::int64_t image, const PixelIndex& p, std::int64_t to) {
    const AugmentDraw& draw = draws[image];
    const PixelIndex source = {draw.crop_x + flipped(draw.flip, p.x, out.w) - padding,
                               draw.crop_y + p.y - padding};
    const bool inside = is_inside(source, in.w, in.h);
    for (int c = 0; c < kChannels; ++c) {
      y[to + c] = inside ? static_cast<float>(x[offset(in, image, source.y, source.x) + c]) : fill;
    }
  });
}

__global__ void resize_kernel(Pictures in, Pictures out, ResizeAxis along_x, ResizeAxis along_y,
                              const float* __restrict__ x, float* __restrict__ y) {
  for_each_pixel(out, [&](std::int64_t image, const PixelIndex& p, std::int64_t to) {
    const ResizeSpan span_x = along_x.span[p.x], span_y = along_y.span[p.y];
    const float* weights_x = along_x.weights + std::int64_t{p.x} * along_x.taps;
    const float* weights_y = along_y.weights + std::int64_t{p.y} * along_y.taps;
    for (int c = 0; c < kChannels; ++c) {
      y[to + c] = weighted_sum<float>(weights_y, span_y.count, [&](int row) {
        const float* from = x + offset(in, image, span_y.first + row, span_x.first) + c;
        return weighted_sum<float>(weights_x, span_x.count,
                                   [&](int column) { return from[column * kChannels]; });
      });
    }
  });
}

__global__ void rotate_kernel(Pictures s, Interpolation interpolation, float fill,
                              const AugmentDraw* draws, const float* __restrict__ x,
                              float* __restrict__ y) {
  for_each_pixel(s, [&](std::int64_t image, const PixelIndex& p, std::int64_t to) {
    const AugmentDraw& draw = draws[image];
    const auto inside = [&](const PixelIndex& at) { return is_inside(at, s.w, s.h); };
    const auto value = [&](const PixelIndex& at, int c) {
      return x[offset(s, image, at.y, at.x) + c];
    };
    PixelIndex source = turned(draw.turn, p.x, p.y, s.w, s.h);
    if (draw.turn == Turn::general) {
      const Coordinates at = source_coordinates(draw.matrix, p.x, p.y, s.w, s.h);
      if (interpolation == Interpolation::bilinear) {
        float result[kChannels];
        rotate_bilinear(at, fill, inside, value, result);
        for (int c = 0; c < kChannels; ++c) y[to + c] = result[c];
        return;
      }
      source = {nearest_pixel(at.x), nearest_pixel(at.y)};
    }
    for (int c = 0; c < kChannels; ++c) y[to + c] = inside(source) ? value(source, c) : fill;
  });
}

/// Along the rows (dx = 1, dy = 0) or the columns (dx = 0, dy = 1).
__device__ inline void blur_along(const Pictures& s, int dx, int dy, int radius, Border border,
                                  const AugmentDraw* draws, const float* __restrict__ x,
                                  float* __restrict__ y) {
  for_each_pixel(s, [&](std::int64_t image, const PixelIndex& p, std::int64_t to) {
    for (int c = 0; c < kChannels; ++c) {
      y[to + c] = blur_sum<float>(draws[image].blur, radius, [&](int d) {
        const int column = border_index(border, p.x + d * dx, s.w);
        const int row = border_index(border, p.y + d * dy, s.h);
        return column < 0 || row < 0 ? 0.0f : x[offset(s, image, row, column) + c];
      });
    }
  });
}

__global__ void blur_rows_kernel(Pictures s, int radius, Border border, const AugmentDraw* draws,
                                 const float* __restrict__ x, float* __restrict__ y) {
  blur_along(s, 1, 0, radius, border, draws, x, y);
}

__global__ void blur_columns_kernel(Pictures s, int radius, Border border, const AugmentDraw* draws,
                                    const float* __restrict__ x, float* __restrict__ y) {
  blur_along(s, 0, 1, radius, border, draws, x, y);
}

struct Normalisations {
  Normalisation<float> channel[kChannels];
};

template <class T>
__global__ void normalise_kernel(Pictures s, Normalisations n, ImageOrder order,
                                 const float* __restrict__ x, T* __restrict__ y) {
  const ImageShape shape = {s.n, s.h, s.w, kChannels};
  const std::int64_t stride = channel_stride(order, shape);
  for_each_pixel(s, [&](std::int64_t image, const PixelIndex& p, std::int64_t from) {
    for (int c = 0; c < kChannels; ++c) {
      y[pixel_offset(order, shape, image, p.y, p.x) + c * stride] =
          T(normalise(n.channel[c], x[from + c]));
    }
  });
}

}  // namespace

template <class T>
void augment_plain(const AugmentSpec& spec, const void* tables, std::int64_t n,
                   const std::uint8_t* x, const AugmentDraw* draws, ImageOrder order, T* y,
                   void* scratch, cudaStream_t stream) {
  if (n == 0) return;
  const auto pictures = [&](std::int64_t h, std::int64_t w) {
    return Pictures{n, static_cast<int>(h), static_cast<int>(w)};
  };
  const Pictures in = pictures(spec.in_h, spec.in_w), crop = pictures(spec.crop_h, spec.crop_w);
  const Pictures out = pictures(spec.out_h, spec.out_w);
  const LaunchShape shape = elementwise_shape(out.pixels());
  const int radius = spec.blur_taps / 2;

  // Every part reads `now` and writes `next`.
  auto* now = static_cast<float*>(scratch);
  float* next = now + augment_plain_bytes(spec, n) / sizeof(float) / 2;
  TANDEM_CUDA_TRY(launch(crop_kernel, elementwise_shape(crop.pixels()), stream, in, crop,
                         static_cast<int>(spec.padding), spec.fill, x, draws, now));
  if (resizes(spec)) {
    TANDEM_CUDA_TRY(launch(resize_kernel, shape, stream, crop, out, resize_axis_x(spec, tables),
                           resize_axis_y(spec, tables), now, next));
    std::swap(now, next);
  }
  if (spec.rotate) {
    TANDEM_CUDA_TRY(
        launch(rotate_kernel, shape, stream, out, spec.rotation, spec.fill, draws, now, next));
    std::swap(now, next);
  }
  if (radius > 0) {
    TANDEM_CUDA_TRY(
        launch(blur_rows_kernel, shape, stream, out, radius, spec.border, draws, now, next));
    TANDEM_CUDA_TRY(
        launch(blur_columns_kernel, shape, stream, out, radius, spec.border, draws, next, now));
  }
  Normalisations normalisations;
  for (int c = 0; c < kChannels; ++c) {
    normalisations.channel[c] = normalisation<float>(spec, c);
  }
  TANDEM_CUDA_TRY(launch(normalise_kernel<T>, shape, stream, out, normalisations, order, now, y));
}

template void augment_plain(const AugmentSpec&, const void*, std::int64_t, const std::uint8_t*,
                            const AugmentDraw*, ImageOrder, float*, void*, cudaStream_t);
template void augment_plain(const AugmentSpec&, const void*, std::int64_t, const std::uint8_t*,
                            const AugmentDraw*, ImageOrder, bf16*, void*, cudaStream_t);

}  // namespace tandem::cuda
