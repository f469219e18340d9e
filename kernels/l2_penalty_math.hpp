// SPDX-License-Identifier: Apache-2.0
// L2 regularisation of one weight. Rounds after every operation, so that host and device agree to
// the bit. T is float or double.
#pragma once

#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/host_device.hpp>
#include <tandem/kernels/rounded.hpp>

namespace tandem {

/// What a weight is multiplied by: the gradient of l2 * w^2 is 2 * l2 * w, and the gradients it is
/// added to are sums over `valid_count` labels that are divided by it later.
template <class T>
TANDEM_HD inline T l2_factor(const BatchHeader& header, float l2) {
  return mul_rn(static_cast<T>(header.valid_count), T(2) * static_cast<T>(l2));
}

/// The sum of gradients with the penalty's.
template <class T>
TANDEM_HD inline T l2_gradient(T factor, T w, T dw) {
  return add_rn(dw, mul_rn(factor, w));
}

}  // namespace tandem
