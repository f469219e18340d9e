// SPDX-License-Identifier: Apache-2.0
// Our own bfloat16 storage type, and which type sums of a storage type are kept in.
#pragma once

#include <cstdint>
#include <cstring>
#include <tandem/kernels/host_device.hpp>

namespace tandem {

/// The upper half of an IEEE float: 1 sign, 8 exponent, 7 fraction bits. Storage only: arithmetic
/// happens in float. Rounds to nearest, ties to even; keeps infinities and subnormals; values
/// beyond the largest finite one become infinite; a NaN stays a NaN, quiet.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;

  TANDEM_HD explicit bf16(float value) {
    std::uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    // Just under half a unit, or exactly half where the kept part is odd: ties go to even.
    const std::uint32_t rounded = word + 0x7fffu + ((word >> 16) & 1u);
    // The quiet bit: a NaN whose payload lies in the lower half would otherwise become infinite.
    bits = static_cast<std::uint16_t>((nan ? word | 0x00400000u : rounded) >> 16);
  }

  TANDEM_HD explicit operator float() const {
    const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }
};
static_assert(sizeof(bf16) == 2, "bf16 is a storage type");

namespace detail {
template <class T>
struct AccumulatorOf;
template <>
struct AccumulatorOf<float> {
  using type = float;
};
template <>
struct AccumulatorOf<bf16> {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
}  // namespace detail

/// The type that values stored as T are computed and summed in, and that gradients of weights
/// stored as T have: float for float and bf16, double for double.
template <class T>
using Accumulator = typename detail::AccumulatorOf<T>::type;

/// A stored value as its accumulator type; exact.
template <class T>
TANDEM_HD inline Accumulator<T> load(const T& stored) {
  return static_cast<Accumulator<T>>(stored);
}

}  // namespace tandem
