// SPDX-License-Identifier: Apache-2.0
// The update of one weight. Rounds after every operation, so that host and device agree to the
// bit. T is float or double.
#pragma once

#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/host_device.hpp>
#include <tandem/kernels/rounded.hpp>

namespace tandem {

/// What an update takes from the batch header.
template <class T>
struct SgdParameters {
  T count;  ///< labels that the gradient sums over; not 0
  T learning_rate;
  T momentum;
  T weight_decay;
};

template <class T>
TANDEM_HD inline SgdParameters<T> sgd_parameters(const BatchHeader& header) {
  return {static_cast<T>(header.valid_count), static_cast<T>(header.learning_rate),
          static_cast<T>(header.momentum), static_cast<T>(header.weight_decay)};
}

/// dw / count + weight_decay * w: the gradient of the mean loss with its L2 term.
template <class T>
TANDEM_HD inline T sgd_gradient(const SgdParameters<T>& p, T dw, T w) {
  return add_rn(div_rn(dw, p.count), mul_rn(p.weight_decay, w));
}

/// The new weight: w - lr * g.
template <class T>
TANDEM_HD inline T sgd_weight(const SgdParameters<T>& p, T g, T w) {
  return add_rn(w, mul_rn(-p.learning_rate, g));
}

/// The new velocity: momentum * v + g.
template <class T>
TANDEM_HD inline T sgd_velocity(const SgdParameters<T>& p, T g, T v) {
  return add_rn(mul_rn(p.momentum, v), g);
}

}  // namespace tandem
