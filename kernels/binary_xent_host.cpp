// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <tandem/kernels/binary_xent.hpp>
#include <tandem/kernels/binary_xent_math.hpp>

namespace tandem::host {

template <class T>
void binary_cross_entropy(const BatchHeader& header, const Accumulator<T>* logits,
                          const std::uint8_t* labels, int ignore_label, std::int64_t pixels,
                          std::int64_t classes, T* dlogits, StepResult* result) {
  using A = Accumulator<T>;
  constexpr A kNaN = std::numeric_limits<A>::quiet_NaN();
  double sum = 0;
  for (std::int64_t p = 0; p < pixels; ++p, logits += classes, dlogits += classes) {
    if (labels[p] == ignore_label) {
      std::fill_n(dlogits, classes, T(A(0)));
      continue;
    }
    if (labels[p] >= classes) {
      std::fill_n(dlogits, classes, T(kNaN));
      sum += static_cast<double>(kNaN);
      continue;
    }
    for (std::int64_t k = 0; k < classes; ++k) {
      const bool is_label = k == labels[p];
      const A s = against_target(logits[k], is_label);
      dlogits[k] = T(binary_gradient(s, is_label, static_cast<A>(classes)));
      sum += static_cast<double>(binary_loss(s));
    }
  }
  result->step = header.step;
  result->valid_count = header.valid_count;
  const double terms = static_cast<double>(header.valid_count) * static_cast<double>(classes);
  result->loss = header.valid_count == 0 ? 0.0 : sum / terms;
}

template void binary_cross_entropy(const BatchHeader&, const float*, const std::uint8_t*, int,
                                   std::int64_t, std::int64_t, float*, StepResult*);
template void binary_cross_entropy(const BatchHeader&, const float*, const std::uint8_t*, int,
                                   std::int64_t, std::int64_t, bf16*, StepResult*);
template void binary_cross_entropy(const BatchHeader&, const double*, const std::uint8_t*, int,
                                   std::int64_t, std::int64_t, double*, StepResult*);

}  // namespace tandem::host
