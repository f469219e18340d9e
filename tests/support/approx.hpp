// SPDX-License-Identifier: Apache-2.0
// The one place where tests compare numbers. Bounds are derived, never tuned: docs/numerics.md.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <sstream>
#include <string>
#include <tandem/engine/tensor.hpp>
#include <vector>

namespace tandem::test {

/// A reference value and the error allowed against it. A bound of 0 asks for the same value.
struct Expected {
  double value = 0;
  double bound = 0;
};

/// Significant bits of a floating-point type; 0 for u8, which is exact.
constexpr int precision_bits(DType type) {
  return type == DType::f64 ? 53 : type == DType::f32 ? 24 : type == DType::bf16 ? 8 : 0;
}

/// Largest relative error of one rounding to nearest.
inline double unit_roundoff(DType type) { return std::ldexp(1.0, -precision_bits(type)); }

/// What sums, losses and statistics are kept in: f32 for bf16, else the type itself.
constexpr DType accumulator_of(DType type) { return type == DType::bf16 ? DType::f32 : type; }

/// Largest error of results that underflow, whether gradually or flushed to zero.
inline double smallest_normal(DType type) {
  return type == DType::f64 ? std::numeric_limits<double>::min()
                            : static_cast<double>(std::numeric_limits<float>::min());
}

/// n roundings in a row change a number by at most this factor (Higham, Accuracy and Stability of
/// Numerical Algorithms, lemma 3.1).
inline double gamma(double n, double u) { return n * u / (1 - n * u); }

/// n roundings in the accumulator of `type`, and as many in the double of the oracle.
inline double rounding_tolerance(double n, DType type) {
  return gamma(n, unit_roundoff(accumulator_of(type))) + gamma(n, unit_roundoff(DType::f64));
}

/// A dot product of K terms, summed in any order: a product and at most K - 1 sums on each path.
/// Times the sum of the absolute terms.
inline double dot_tolerance(double K, DType type) { return rounding_tolerance(K, type); }

/// A sum of K numbers in any order. Times the sum of their absolute values.
inline double sum_tolerance(double K, DType type) { return rounding_tolerance(K - 1, type); }

/// Documented errors in ulps of the functions the losses use: the larger of glibc's manual (1, 1
/// and 2) and CUDA's programming guide (2, 1 and 1). An ulp is at most two unit roundoffs.
inline constexpr double kExpUlps = 2;
inline constexpr double kLogUlps = 1;
inline constexpr double kLog1pUlps = 2;

/// The value with the error of computing it, after it was also rounded to where it is stored.
inline Expected stored(double value, double error, DType type) {
  if (type == DType::bf16) {
    error += unit_roundoff(type) * (std::abs(value) + error) + (error > 0 ? 0x1p-134 : 0);
  }
  return {value, error};
}

/// Distance between neighbours of `type` at `value`.
inline double ulp(double value, DType type) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, exponent - precision_bits(type));
}

/// Every element within its bound. A NaN fails on either side. The message names the worst element.
inline ::testing::AssertionResult all_close(const std::vector<Expected>& expected,
                                            const std::vector<double>& actual, DType type,
                                            const std::string& what) {
  if (expected.size() != actual.size()) {
    return ::testing::AssertionFailure()
           << what << ": " << actual.size() << " elements, expected " << expected.size();
  }
  std::size_t failures = 0, worst = 0;
  double worst_share = -1;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i].value);
    const double bound = expected[i].bound;
    double share = error == 0 ? 0 : error / bound;  // infinite for a bound of 0
    if (std::isnan(error) || std::isnan(bound)) share = std::numeric_limits<double>::infinity();
    if (!(error <= bound)) ++failures;
    if (share > worst_share) {
      worst_share = share;
      worst = i;
    }
  }
  if (failures == 0) return ::testing::AssertionSuccess();
  const Expected& e = expected[worst];
  const double error = std::abs(actual[worst] - e.value);
  std::ostringstream text;
  text.precision(17);
  text << what << ": " << failures << " of " << expected.size()
       << " elements outside their bounds; worst is element " << worst << ": " << actual[worst]
       << ", expected " << e.value << ", error " << error;
  if (precision_bits(type) > 0) text << " (" << error / ulp(e.value, type) << " ulps)";
  text << ", allowed " << e.bound << ", share of the bound " << worst_share;
  return ::testing::AssertionFailure() << text.str();
}

}  // namespace tandem::test
