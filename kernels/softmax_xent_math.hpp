// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy of one pixel, one class at a time. T is float or double.
//
// With m the largest logit of a pixel and s the sum of exp(logit - m) over its classes:
//   p(k)        = exp(logit(k) - m) / s
//   loss        = -log p(label) = log(s) - (logit(label) - m)
//   dlogits(k)  = p(k) - (k == label)
// Subtracting m keeps every exponential in (0, 1] and s at 1 or more. A NaN or an infinite m among
// the logits makes s a NaN, and with it loss and gradient.
#pragma once

#include <cmath>
#include <tandem/kernels/host_device.hpp>

namespace tandem {

template <class T>
TANDEM_HD inline T softmax_numerator(T logit, T largest) {
  return std::exp(logit - largest);
}

template <class T>
TANDEM_HD inline T cross_entropy(T label_logit, T largest, T sum) {
  return std::log(sum) - (label_logit - largest);
}

template <class T>
TANDEM_HD inline T softmax_gradient(T numerator, T sum, bool is_label) {
  const T p = numerator / sum;
  return is_label ? p - T(1) : p;
}

}  // namespace tandem
