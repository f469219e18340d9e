// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/permute.hpp>

namespace tandem::host {

template <class T>
void permute(const ImageShape& shape, ImageOrder from, const T* x, ImageOrder to, T* y) {
  const std::int64_t from_stride = channel_stride(from, shape);
  const std::int64_t to_stride = channel_stride(to, shape);
  for (std::int64_t image = 0; image < shape.n; ++image) {
    for (std::int64_t row = 0; row < shape.h; ++row) {
      for (std::int64_t column = 0; column < shape.w; ++column) {
        const T* source = x + pixel_offset(from, shape, image, row, column);
        T* target = y + pixel_offset(to, shape, image, row, column);
        if (from_stride == 1 && to_stride == 1) {
          std::copy_n(source, shape.c, target);
        } else {
          for (std::int64_t c = 0; c < shape.c; ++c)
            target[c * to_stride] = source[c * from_stride];
        }
      }
    }
  }
}

template void permute(const ImageShape&, ImageOrder, const std::uint8_t*, ImageOrder,
                      std::uint8_t*);
template void permute(const ImageShape&, ImageOrder, const float*, ImageOrder, float*);
template void permute(const ImageShape&, ImageOrder, const bf16*, ImageOrder, bf16*);
template void permute(const ImageShape&, ImageOrder, const double*, ImageOrder, double*);

}  // namespace tandem::host
