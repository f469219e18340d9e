// SPDX-License-Identifier: Apache-2.0
// Marks arithmetic that both the kernels and their host twins call. Compiles under plain g++.
#pragma once

#if defined(__CUDACC__)
#define TANDEM_HD __host__ __device__
#else
#define TANDEM_HD
#endif

namespace tandem {

/// Smallest integer q with q * b >= a, for a >= 0 and b > 0.
template <class Integer>
TANDEM_HD constexpr Integer ceil_div(Integer a, Integer b) {
  return (a + b - 1) / b;
}

}  // namespace tandem
