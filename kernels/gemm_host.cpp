// SPDX-License-Identifier: Apache-2.0
#include <cblas.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <tandem/kernels/gemm.hpp>
#include <tandem/kernels/rounded.hpp>
#include <type_traits>
#include <vector>

namespace tandem::host {

namespace {

blasint blas_size(const char* name, std::int64_t value) {
  // 2^31 - 1 also where this OpenBLAS counts in 64 bits, so that all machines allow the same.
  constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
  if (value < 0 || value > kLargest) {
    throw std::length_error("gemm: " + std::string(name) + " is " + std::to_string(value) +
                            ", allowed 0.." + std::to_string(kLargest));
  }
  return static_cast<blasint>(value);
}

/// Plain loops. A block of a row of c is summed on the stack, in the order of k.
template <class In, class Out>
void plain_gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                const In* a, const In* b, bool accumulate, Out* c) {
  using A = Accumulator<In>;
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t first = 0; first < n; first += kBlock) {
      const std::int64_t width = std::min(kBlock, n - first);
      Out* out = c + i * n + first;
      A sum[kBlock] = {};
      if (accumulate) {
        for (std::int64_t j = 0; j < width; ++j) sum[j] = load(out[j]);
      }
      for (std::int64_t p = 0; p < k; ++p) {
        const A factor = load(transpose_a ? a[p * m + i] : a[i * k + p]);
        const In* row = transpose_b ? b + first * k + p : b + p * n + first;
        const std::int64_t stride = transpose_b ? k : 1;
        for (std::int64_t j = 0; j < width; ++j) sum[j] += factor * load(row[j * stride]);
      }
      for (std::int64_t j = 0; j < width; ++j) out[j] = Out(sum[j]);
    }
  }
}

}  // namespace

template <class In, class Out>
void gemm(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n,
          std::int64_t k, const In* a, const In* b, Beta beta, Out* c) {
  const blasint rows = blas_size("m", m), columns = blas_size("n", n), depth = blas_size("k", k);
  const bool ta = transpose_a == Transpose::yes, tb = transpose_b == Transpose::yes;
  const bool accumulate = beta == Beta::accumulate;
  if constexpr (std::is_same_v<In, bf16>) {
    plain_gemm(ta, tb, m, n, k, a, b, accumulate, c);
  } else {
    const CBLAS_TRANSPOSE op_a = ta ? CblasTrans : CblasNoTrans;
    const CBLAS_TRANSPOSE op_b = tb ? CblasTrans : CblasNoTrans;
    const blasint lda = ta ? rows : depth, ldb = tb ? depth : columns;
    const In one = 1, factor = accumulate ? In(1) : In(0);
    if constexpr (std::is_same_v<In, float>) {
      cblas_sgemm(CblasRowMajor, op_a, op_b, rows, columns, depth, one, a, lda, b, ldb, factor, c,
                  columns);
    } else {
      cblas_dgemm(CblasRowMajor, op_a, op_b, rows, columns, depth, one, a, lda, b, ldb, factor, c,
                  columns);
    }
  }
}

template <class In>
void gemm_update(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n,
                 std::int64_t k, Accumulator<In> alpha, const In* a, const In* b,
                 Accumulator<In> beta, Accumulator<In>* c) {
  // The sum is made on its own, so that it is rounded as that of gemm().
  std::vector<Accumulator<In>> sum(static_cast<std::size_t>(m * n));
  gemm(transpose_a, transpose_b, m, n, k, a, b, Beta::overwrite, sum.data());
  for (std::size_t i = 0; i < sum.size(); ++i)
    c[i] = add_rn(mul_rn(beta, c[i]), mul_rn(alpha, sum[i]));
}

template void gemm_update(Transpose, Transpose, std::int64_t, std::int64_t, std::int64_t, float,
                          const float*, const float*, float, float*);
template void gemm_update(Transpose, Transpose, std::int64_t, std::int64_t, std::int64_t, float,
                          const bf16*, const bf16*, float, float*);
template void gemm_update(Transpose, Transpose, std::int64_t, std::int64_t, std::int64_t, double,
                          const double*, const double*, double, double*);

#define TANDEM_INSTANTIATE(In, Out)                                                             \
  template void gemm(Transpose, Transpose, std::int64_t, std::int64_t, std::int64_t, const In*, \
                     const In*, Beta, Out*)
TANDEM_INSTANTIATE(float, float);
TANDEM_INSTANTIATE(bf16, bf16);
TANDEM_INSTANTIATE(bf16, float);
TANDEM_INSTANTIATE(double, double);
#undef TANDEM_INSTANTIATE

}  // namespace tandem::host
