// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <tandem/kernels/conv3x3_loss.hpp>
#include <tandem/kernels/permute_math.hpp>
#include <tandem/kernels/pointwise_math.hpp>
#include <tandem/kernels/softmax_xent_math.hpp>
#include <vector>

namespace tandem::host {

namespace {

constexpr int kC = kHeadChannels;
constexpr int kTaps = 9;

ImageShape image_shape(const Conv3x3LossShape& s) { return {s.n, s.side, s.side, kC}; }

/// Calls body(image, y, x, offset of the pixel's channels) in the order of memory.
template <class Body>
void for_each_pixel(const Conv3x3LossShape& s, Body body) {
  const std::int64_t pixels = s.side * s.side;
  for (std::int64_t i = 0; i < s.n * pixels; ++i) {
    const auto z = static_cast<std::uint32_t>(i % pixels);
    body(i / pixels, std::int64_t{morton_y(z)}, std::int64_t{morton_x(z)}, i * kC);
  }
}

/// Calls body(tap, offset) for each tap whose pixel (y + sign * dy, x + sign * dx) is in the image.
template <class Body>
void for_each_tap(const Conv3x3LossShape& s, std::int64_t image, std::int64_t y, std::int64_t x,
                  int sign, Body body) {
  for (int tap = 0; tap < kTaps; ++tap) {
    const std::int64_t row = y + sign * (tap / 3 - 1), column = x + sign * (tap % 3 - 1);
    if (row < 0 || row >= s.side || column < 0 || column >= s.side) continue;
    body(tap, pixel_offset(ImageOrder::zorder, image_shape(s), image, row, column));
  }
}

/// A weight of class k, or the sum that belongs to it.
std::int64_t weight_offset(std::int64_t k, int tap) { return (k * kTaps + tap) * kC; }

template <class A>
A dot(const A* a, const A* b) {
  A sum = 0;
  for (int c = 0; c < kC; ++c) sum += a[c] * b[c];
  return sum;
}

template <class T>
std::vector<Accumulator<T>> as_accumulators(const T* from, std::int64_t count) {
  std::vector<Accumulator<T>> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values.push_back(load(from[i]));
  return values;
}

/// Fills the gradient of one pixel's logits and returns its loss.
template <class A>
A pixel_loss(const A* logits, std::int64_t classes, std::int64_t label, A* gradient) {
  const A largest = *std::max_element(logits, logits + classes);
  A numerator[kC], sum = 0;
  for (std::int64_t k = 0; k < classes; ++k) {
    numerator[k] = softmax_numerator(logits[k], largest);
    sum += numerator[k];
  }
  for (std::int64_t k = 0; k < classes; ++k) {
    gradient[k] = softmax_gradient(numerator[k], sum, k == label);
  }
  return cross_entropy(logits[label], largest, sum);
}

}  // namespace

template <class T>
void conv3x3_loss(const Conv3x3LossShape& s, const BatchHeader& header, const T* x, const T* w,
                  const Accumulator<T>* b, const std::uint8_t* labels, int ignore_label, T* dlogits,
                  Accumulator<T>* db, StepResult* result) {
  using A = Accumulator<T>;
  constexpr A kNaN = std::numeric_limits<A>::quiet_NaN();
  const std::vector<A> weights = as_accumulators(w, s.classes * kTaps * kC);
  double loss = 0, sums[kC] = {};
  for_each_pixel(s,
                 [&](std::int64_t image, std::int64_t row, std::int64_t column, std::int64_t at) {
                   A gradient[kC] = {};
                   const std::int64_t label = labels[(image * s.side + row) * s.side + column];
                   if (label != ignore_label && label >= s.classes) {
                     std::fill_n(gradient, s.classes, kNaN);
                     loss += static_cast<double>(kNaN);
                   } else if (label != ignore_label) {
                     A logits[kC] = {};
                     for_each_tap(s, image, row, column, +1, [&](int tap, std::int64_t source) {
                       A pixel[kC];
                       std::transform(x + source, x + source + kC, pixel, load<T>);
                       for (std::int64_t k = 0; k < s.classes; ++k) {
                         logits[k] += dot(pixel, weights.data() + weight_offset(k, tap));
                       }
                     });
                     for (std::int64_t k = 0; k < s.classes; ++k) logits[k] += b[k];
                     loss += static_cast<double>(pixel_loss(logits, s.classes, label, gradient));
                   }
                   for (std::int64_t k = 0; k < kC; ++k) {
                     dlogits[at + k] = T(gradient[k]);
                     sums[k] += static_cast<double>(load(dlogits[at + k]));
                   }
                 });
  for (std::int64_t k = 0; k < s.classes; ++k) db[k] = static_cast<A>(sums[k]);
  result->step = header.step;
  result->valid_count = header.valid_count;
  result->loss = header.valid_count == 0 ? 0.0 : loss / static_cast<double>(header.valid_count);
}

template <class T>
void conv3x3_loss_backward(const Conv3x3LossShape& s, const T* dlogits, const T* x, const T* w,
                           T* dx, Accumulator<T>* dw) {
  using A = Accumulator<T>;
  const std::vector<A> weights = as_accumulators(w, s.classes * kTaps * kC);
  std::vector<double> sums(weights.size());
  for_each_pixel(s,
                 [&](std::int64_t image, std::int64_t row, std::int64_t column, std::int64_t at) {
                   A pixel[kC], gradient[kC] = {};
                   std::transform(x + at, x + at + kC, pixel, load<T>);
                   // The logits that this pixel is in: those of the pixels from which a tap leads
                   // here.
                   for_each_tap(s, image, row, column, -1, [&](int tap, std::int64_t source) {
                     for (std::int64_t k = 0; k < s.classes; ++k) {
                       const A dlogit = load(dlogits[source + k]);
                       const A* weight = weights.data() + weight_offset(k, tap);
                       double* sum = sums.data() + weight_offset(k, tap);
                       for (int c = 0; c < kC; ++c) {
                         gradient[c] += dlogit * weight[c];
                         sum[c] += static_cast<double>(dlogit) * static_cast<double>(pixel[c]);
                       }
                     }
                   });
                   for (int c = 0; c < kC; ++c)
                     dx[at + c] = T(relu_gradient(pixel[c], gradient[c]));
                 });
  for (std::size_t i = 0; i < sums.size(); ++i) dw[i] = static_cast<A>(sums[i]);
}

#define TANDEM_INSTANTIATE(T)                                                                      \
  template void conv3x3_loss(const Conv3x3LossShape&, const BatchHeader&, const T*, const T*,      \
                             const Accumulator<T>*, const std::uint8_t*, int, T*, Accumulator<T>*, \
                             StepResult*);                                                         \
  template void conv3x3_loss_backward(const Conv3x3LossShape&, const T*, const T*, const T*, T*,   \
                                      Accumulator<T>*)
TANDEM_INSTANTIATE(float);
TANDEM_INSTANTIATE(bf16);
TANDEM_INSTANTIATE(double);
#undef TANDEM_INSTANTIATE

}  // namespace tandem::host
