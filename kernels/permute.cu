// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/permute.hpp>
#include <tandem/kernels/permute_device.cuh>

namespace tandem::cuda {

namespace {

/// Channels last on both sides: pixels move whole, in `units` accesses each.
template <class Unit>
__global__ void __launch_bounds__(kBlockThreads)
    permute_pixels_kernel(ImageShape shape, ImageOrder from, const Unit* __restrict__ x,
                          ImageOrder to, Unit* __restrict__ y, int units) {
  for_each_moved(shape, from, to, units,
                 [&](std::int64_t target, std::int64_t source) { y[target] = x[source]; });
}

/// Planes on either side: element by element in the order of y. For import and export, not for the
/// step.
template <class T>
__global__ void permute_elements_kernel(ImageShape shape, ImageOrder from, const T* __restrict__ x,
                                        ImageOrder to, T* __restrict__ y) {
  const std::int64_t pixels = shape.h * shape.w, count = shape.n * pixels * shape.c;
  for_each_pack<1>(count, [&](std::int64_t i, auto) {
    const bool planes = to == ImageOrder::nchw;
    const std::int64_t image = i / (pixels * shape.c), rest = i % (pixels * shape.c);
    const std::int64_t c = planes ? rest / pixels : rest % shape.c;
    const std::int64_t pixel = planes ? rest % pixels : rest / shape.c;
    const PixelPosition p = pixel_position(to, shape, static_cast<std::uint32_t>(pixel));
    y[i] = x[pixel_offset(from, shape, image, p.y, p.x) + c * channel_stride(from, shape)];
  });
}

/// An unsigned number of the size of T: a move does not look at values.
template <std::size_t Bytes>
struct WordOf;
template <>
struct WordOf<1> {
  using type = std::uint8_t;
};
template <>
struct WordOf<2> {
  using type = std::uint16_t;
};
template <>
struct WordOf<4> {
  using type = std::uint32_t;
};

template <class Unit, class T>
void permute_pixels(const ImageShape& shape, ImageOrder from, const T* x, ImageOrder to, T* y,
                    cudaStream_t stream) {
  const int units = static_cast<int>(shape.c * sizeof(T) / sizeof(Unit));
  TANDEM_CUDA_TRY(launch(permute_pixels_kernel<Unit>,
                         elementwise_shape(shape.n * shape.h * shape.w), stream, shape, from,
                         reinterpret_cast<const Unit*>(x), to, reinterpret_cast<Unit*>(y), units));
}

}  // namespace

template <class T>
void permute(const ImageShape& shape, ImageOrder from, const T* x, ImageOrder to, T* y,
             cudaStream_t stream) {
  using Word = typename WordOf<sizeof(T)>::type;
  const std::int64_t count = shape.n * shape.h * shape.w * shape.c;
  if (count == 0) return;
  if (from == ImageOrder::nchw || to == ImageOrder::nchw) {
    TANDEM_CUDA_TRY(launch(permute_elements_kernel<Word>, elementwise_shape(count), stream, shape,
                           from, reinterpret_cast<const Word*>(x), to, reinterpret_cast<Word*>(y)));
  } else if (shape.c % kPackElements<T> == 0 && is_aligned(x, y)) {
    permute_pixels<uint4>(shape, from, x, to, y, stream);
  } else {
    permute_pixels<Word>(shape, from, x, to, y, stream);
  }
}

#define TANDEM_INSTANTIATE(T) \
  template void permute(const ImageShape&, ImageOrder, const T*, ImageOrder, T*, cudaStream_t)
TANDEM_INSTANTIATE(std::uint8_t);
TANDEM_INSTANTIATE(float);
TANDEM_INSTANTIATE(bf16);
#undef TANDEM_INSTANTIATE

}  // namespace tandem::cuda
