// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tandem/kernels/pointwise.hpp>
#include <tandem/kernels/pointwise_math.hpp>

namespace tandem::host {

template <class T>
void u8_to_float(const ImageShape& shape, const std::uint8_t* x, float scale, ImageOrder order,
                 T* y) {
  for (std::int64_t image = 0; image < shape.n; ++image) {
    for (std::int64_t row = 0; row < shape.h; ++row) {
      for (std::int64_t column = 0; column < shape.w; ++column) {
        const std::uint8_t* source = x + pixel_offset(ImageOrder::nhwc, shape, image, row, column);
        T* target = y + pixel_offset(order, shape, image, row, column);
        for (std::int64_t c = 0; c < shape.c; ++c) {
          target[c] = T(scale_pixel<Accumulator<T>>(source[c], scale));
        }
      }
    }
  }
}

template <class T>
void relu_forward(T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = T(relu(load(y[i])));
}

template <class T>
void relu_backward(const T* y, T* dy, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) dy[i] = T(relu_gradient(load(y[i]), load(dy[i])));
}

template <class T>
void sigmoid_forward(const T* x, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = T(sigmoid(load(x[i])));
}

template <class T>
void sigmoid_backward(const T* y, T* dy, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) dy[i] = T(sigmoid_gradient(load(y[i]), load(dy[i])));
}

template <class T>
void bias_forward(const T* b, T* y, std::int64_t pixels, std::int64_t channels) {
  for (std::int64_t p = 0; p < pixels; ++p) {
    T* row = y + p * channels;
    for (std::int64_t k = 0; k < channels; ++k) row[k] = T(load(row[k]) + load(b[k]));
  }
}

template <class T>
void bias_relu_forward(const T* b, T* y, std::int64_t pixels, std::int64_t channels) {
  bias_forward(b, y, pixels, channels);
  relu_forward(y, pixels * channels);
}

template <class T>
void relu_bias_backward(const T* y, T* dy, Accumulator<T>* db, std::int64_t pixels,
                        std::int64_t channels) {
  relu_backward(y, dy, pixels * channels);
  bias_backward(dy, db, pixels, channels);
}

template <class T>
void bias_backward(const T* dy, Accumulator<T>* db, std::int64_t pixels, std::int64_t channels) {
  constexpr std::int64_t kBlock = 256;  // channels whose sums stay in the first-level cache
  for (std::int64_t first = 0; first < channels; first += kBlock) {
    const std::int64_t width = std::min(kBlock, channels - first);
    double sum[kBlock] = {};
    for (std::int64_t p = 0; p < pixels; ++p) {
      const T* row = dy + p * channels + first;
      for (std::int64_t k = 0; k < width; ++k) sum[k] += static_cast<double>(load(row[k]));
    }
    for (std::int64_t k = 0; k < width; ++k) {
      db[first + k] = static_cast<Accumulator<T>>(sum[k]);
    }
  }
}

#define TANDEM_INSTANTIATE(T)                                                                  \
  template void u8_to_float(const ImageShape&, const std::uint8_t*, float, ImageOrder, T*);    \
  template void relu_forward(T*, std::int64_t);                                                \
  template void relu_backward(const T*, T*, std::int64_t);                                     \
  template void sigmoid_forward(const T*, T*, std::int64_t);                                   \
  template void sigmoid_backward(const T*, T*, std::int64_t);                                  \
  template void bias_forward(const T*, T*, std::int64_t, std::int64_t);                        \
  template void bias_relu_forward(const T*, T*, std::int64_t, std::int64_t);                   \
  template void relu_bias_backward(const T*, T*, Accumulator<T>*, std::int64_t, std::int64_t); \
  template void bias_backward(const T*, Accumulator<T>*, std::int64_t, std::int64_t)
TANDEM_INSTANTIATE(float);
TANDEM_INSTANTIATE(bf16);
TANDEM_INSTANTIATE(double);
#undef TANDEM_INSTANTIATE

}  // namespace tandem::host
