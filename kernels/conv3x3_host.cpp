// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tandem/kernels/conv3x3.hpp>
#include <tandem/kernels/gemm.hpp>

namespace tandem::host {

namespace {

constexpr std::int64_t kTaps = 9;
constexpr std::int64_t kChunkBytes = 1 << 20;  // stays in the second-level cache

/// Rows of pixels, counted through all images, whose windows are gathered at a time.
std::int64_t chunk_rows(const Conv3x3Shape& s, std::int64_t channels, std::size_t element_bytes) {
  const std::int64_t row_bytes = s.w * kTaps * channels * static_cast<std::int64_t>(element_bytes);
  return std::clamp<std::int64_t>(kChunkBytes / row_bytes, 1, s.n * s.h);
}

std::int64_t chunk_elements(const Conv3x3Shape& s, std::int64_t channels,
                            std::size_t element_bytes) {
  return chunk_rows(s, channels, element_bytes) * s.w * kTaps * channels;
}

/// columns [rows * W, 3, 3, channels]: for each pixel of rows [first, first + rows) of all images
/// the pixels around it, 0 outside the image.
template <class T>
void gather_windows(const Conv3x3Shape& s, const T* x, std::int64_t channels, std::int64_t first,
                    std::int64_t rows, T* columns) {
  const T zero = T(Accumulator<T>(0));
  for (std::int64_t row = first; row < first + rows; ++row) {
    const std::int64_t y = row % s.h;
    for (std::int64_t px = 0; px < s.w; ++px) {
      for (std::int64_t dy = -1; dy <= 1; ++dy, columns += 3 * channels) {
        if (y + dy < 0 || y + dy >= s.h) {
          std::fill_n(columns, 3 * channels, zero);
          continue;
        }
        // The three pixels of a row of the window are adjacent.
        const std::int64_t left = px == 0 ? 1 : 0, right = px == s.w - 1 ? 1 : 0;
        const T* source = x + ((row + dy) * s.w + px - 1 + left) * channels;
        std::fill_n(columns, left * channels, zero);
        std::copy_n(source, (3 - left - right) * channels, columns + left * channels);
        std::fill_n(columns + (3 - right) * channels, right * channels, zero);
      }
    }
  }
}

/// Calls body(first pixel, pixels) for each chunk, after its windows have been gathered.
template <class T, class Body>
void for_each_chunk(const Conv3x3Shape& s, const T* x, std::int64_t channels, T* columns,
                    Body body) {
  const std::int64_t step = chunk_rows(s, channels, sizeof(T));
  for (std::int64_t first = 0; first < s.n * s.h; first += step) {
    const std::int64_t rows = std::min(step, s.n * s.h - first);
    gather_windows(s, x, channels, first, rows, columns);
    body(first * s.w, rows * s.w);
  }
}

}  // namespace

std::size_t conv3x3_forward_workspace(const Conv3x3Shape& shape, std::size_t element_bytes) {
  return static_cast<std::size_t>(chunk_elements(shape, shape.c, element_bytes));
}

std::size_t conv3x3_backward_data_workspace(const Conv3x3Shape& shape, std::size_t element_bytes) {
  return static_cast<std::size_t>(chunk_elements(shape, shape.k, element_bytes) +
                                  kTaps * shape.k * shape.c);
}

std::size_t conv3x3_backward_weights_workspace(const Conv3x3Shape& shape,
                                               std::size_t element_bytes) {
  return static_cast<std::size_t>(chunk_elements(shape, shape.c, element_bytes));
}

template <class In, class Out>
void conv3x3_forward(const Conv3x3Shape& s, const In* x, const In* w, Out* y, In* workspace) {
  for_each_chunk(s, x, s.c, workspace, [&](std::int64_t first, std::int64_t pixels) {
    // y [pixels,K] = columns [pixels,9C] w^T, w [K,9C]
    gemm(Transpose::no, Transpose::yes, pixels, s.k, kTaps * s.c, workspace, w, Beta::overwrite,
         y + first * s.k);
  });
}

template <class T>
void conv3x3_backward_data(const Conv3x3Shape& s, const T* dy, const T* w, T* dx, T* workspace) {
  // The same convolution with the filter turned by 180 degrees and C and K exchanged.
  T* turned = workspace;  // [3][3][K][C]
  for (std::int64_t tap = 0; tap < kTaps; ++tap) {
    for (std::int64_t k = 0; k < s.k; ++k) {
      std::copy_n(w + (k * kTaps + (kTaps - 1 - tap)) * s.c, s.c, turned + (tap * s.k + k) * s.c);
    }
  }
  T* columns = workspace + kTaps * s.k * s.c;
  for_each_chunk(s, dy, s.k, columns, [&](std::int64_t first, std::int64_t pixels) {
    // dx [pixels,C] = columns [pixels,9K] turned [9K,C]
    gemm(Transpose::no, Transpose::no, pixels, s.c, kTaps * s.k, columns, turned, Beta::overwrite,
         dx + first * s.c);
  });
}

template <class T>
void conv3x3_backward_weights(const Conv3x3Shape& s, const T* x, const T* dy, Accumulator<T>* dw,
                              T* workspace) {
  for_each_chunk(s, x, s.c, workspace, [&](std::int64_t first, std::int64_t pixels) {
    // dw [K,9C] += dy^T columns, with dy [pixels,K], columns [pixels,9C]
    gemm(Transpose::yes, Transpose::no, s.k, kTaps * s.c, pixels, dy + first * s.k, workspace,
         first == 0 ? Beta::overwrite : Beta::accumulate, dw);
  });
}

#define TANDEM_INSTANTIATE(T)                                                                      \
  template void conv3x3_forward(const Conv3x3Shape&, const T*, const T*, T*, T*);                  \
  template void conv3x3_backward_data(const Conv3x3Shape&, const T*, const T*, T*, T*);            \
  template void conv3x3_backward_weights(const Conv3x3Shape&, const T*, const T*, Accumulator<T>*, \
                                         T*)
TANDEM_INSTANTIATE(float);
TANDEM_INSTANTIATE(bf16);
TANDEM_INSTANTIATE(double);
#undef TANDEM_INSTANTIATE
template void conv3x3_forward(const Conv3x3Shape&, const bf16*, const bf16*, float*, bf16*);

}  // namespace tandem::host
