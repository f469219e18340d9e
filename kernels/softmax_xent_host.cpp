// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <tandem/kernels/softmax_xent.hpp>
#include <tandem/kernels/softmax_xent_math.hpp>

namespace tandem::host {

namespace {

/// One pixel that counts: fills its row of dlogits and returns its loss.
template <class T>
Accumulator<T> pixel_loss(const Accumulator<T>* logits, std::int64_t classes, std::int64_t label,
                          T* dlogits) {
  using A = Accumulator<T>;
  const A largest = *std::max_element(logits, logits + classes);
  A numerator[kMaxClasses];
  A sum = 0;
  for (std::int64_t k = 0; k < classes; ++k) {
    numerator[k] = softmax_numerator(logits[k], largest);
    sum += numerator[k];
  }
  for (std::int64_t k = 0; k < classes; ++k) {
    dlogits[k] = T(softmax_gradient(numerator[k], sum, k == label));
  }
  return cross_entropy(logits[label], largest, sum);
}

}  // namespace

template <class T>
void softmax_cross_entropy(const BatchHeader& header, const Accumulator<T>* logits,
                           const std::uint8_t* labels, int ignore_label, std::int64_t pixels,
                           std::int64_t classes, T* dlogits, StepResult* result) {
  using A = Accumulator<T>;
  constexpr A kNaN = std::numeric_limits<A>::quiet_NaN();
  double sum = 0;
  for (std::int64_t p = 0; p < pixels; ++p) {
    T* row = dlogits + p * classes;
    if (labels[p] == ignore_label) {
      std::fill_n(row, classes, T(A(0)));
    } else if (labels[p] >= classes) {
      std::fill_n(row, classes, T(kNaN));
      sum += static_cast<double>(kNaN);
    } else {
      sum += static_cast<double>(pixel_loss(logits + p * classes, classes, labels[p], row));
    }
  }
  result->step = header.step;
  result->valid_count = header.valid_count;
  result->loss = header.valid_count == 0 ? 0.0 : sum / static_cast<double>(header.valid_count);
}

template <class T>
void argmax(const T* logits, std::int64_t pixels, std::int64_t classes, std::uint8_t* y) {
  for (std::int64_t p = 0; p < pixels; ++p) {
    const T* row = logits + p * classes;
    y[p] = static_cast<std::uint8_t>(std::max_element(row, row + classes) - row);
  }
}

template void softmax_cross_entropy(const BatchHeader&, const float*, const std::uint8_t*, int,
                                    std::int64_t, std::int64_t, float*, StepResult*);
template void softmax_cross_entropy(const BatchHeader&, const float*, const std::uint8_t*, int,
                                    std::int64_t, std::int64_t, bf16*, StepResult*);
template void softmax_cross_entropy(const BatchHeader&, const double*, const std::uint8_t*, int,
                                    std::int64_t, std::int64_t, double*, StepResult*);
template void argmax(const float*, std::int64_t, std::int64_t, std::uint8_t*);
template void argmax(const double*, std::int64_t, std::int64_t, std::uint8_t*);

}  // namespace tandem::host
