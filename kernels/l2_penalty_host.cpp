// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/l2_penalty.hpp>
#include <tandem/kernels/l2_penalty_math.hpp>

namespace tandem::host {

template <class T>
void l2_penalty(const BatchHeader& header, float l2, const T* w, T* dw, std::int64_t count,
                StepResult* result) {
  if (header.valid_count == 0) return;
  const T factor = l2_factor<T>(header, l2);
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    dw[i] = l2_gradient(factor, w[i], dw[i]);
    sum += static_cast<double>(w[i]) * static_cast<double>(w[i]);
  }
  result->loss += static_cast<double>(l2) * sum;
}

template void l2_penalty(const BatchHeader&, float, const float*, float*, std::int64_t,
                         StepResult*);
template void l2_penalty(const BatchHeader&, float, const double*, double*, std::int64_t,
                         StepResult*);

}  // namespace tandem::host
