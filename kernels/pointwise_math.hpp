// SPDX-License-Identifier: Apache-2.0
// ReLU, sigmoid and the conversion of pixels, one element at a time. T is float or double.
#pragma once

#include <cmath>
#include <cstdint>
#include <tandem/kernels/host_device.hpp>

namespace tandem {

/// max(x, 0), except that a NaN stays a NaN: a maximum would hide it from the loss.
template <class T>
TANDEM_HD inline T relu(T x) {
  return x < T(0) ? T(0) : x;
}

/// The gradient before ReLU from the one behind it, given ReLU's output. It is 0 at y == 0.
template <class T>
TANDEM_HD inline T relu_gradient(T y, T dy) {
  return y <= T(0) ? T(0) : dy;
}

/// 1 / (1 + exp(-x)), written so that no exponential overflows. A NaN stays a NaN.
template <class T>
TANDEM_HD inline T sigmoid(T x) {
  const T e = std::exp(-std::fabs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

/// The gradient before sigmoid from the one behind it, given sigmoid's output.
template <class T>
TANDEM_HD inline T sigmoid_gradient(T y, T dy) {
  return dy * (y * (T(1) - y));
}

/// A pixel of 0..255 as a number; one rounding.
template <class T>
TANDEM_HD inline T scale_pixel(std::uint8_t x, float scale) {
  return static_cast<T>(scale) * static_cast<T>(x);
}

}  // namespace tandem
