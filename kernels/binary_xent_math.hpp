// SPDX-License-Identifier: Apache-2.0
// Binary cross-entropy of one logit, from the logit itself. T is float or double.
//
// With t = 1 for the label's class and 0 for the others, p = sigmoid(z):
//   loss = -t log p - (1 - t) log(1 - p) = max(z, 0) - z t + log(1 + exp(-|z|))
//   gradient by z = p - t
// The second form is the one of TensorFlow's documentation of
// tf.nn.sigmoid_cross_entropy_with_logits; no exponential in it overflows, and no 0 meets the
// logarithm. With s = -z where t = 1 and s = z where t = 0 both become
//   loss = max(s, 0) + log(1 + exp(-|s|)),  gradient by s = sigmoid(s)
// in which nothing cancels either. A NaN stays a NaN.
#pragma once

#include <cmath>
#include <tandem/kernels/host_device.hpp>
#include <tandem/kernels/pointwise_math.hpp>

namespace tandem {

/// What the class's logit says against its target: s above.
template <class T>
TANDEM_HD inline T against_target(T logit, bool is_label) {
  return is_label ? -logit : logit;
}

template <class T>
TANDEM_HD inline T binary_loss(T s) {
  return (s > T(0) ? s : T(0)) + std::log1p(std::exp(-std::fabs(s)));
}

/// The gradient by the logit of the mean over `classes`.
template <class T>
TANDEM_HD inline T binary_gradient(T s, bool is_label, T classes) {
  const T by_s = sigmoid(s) / classes;
  return is_label ? -by_s : by_s;
}

}  // namespace tandem
