// SPDX-License-Identifier: Apache-2.0
// Instructions of the tensor cores and of the copies that feed them, for sm_80 and newer. Names of
// lanes below: row = lane / 4, pair = lane % 4. See "Warp Level Matrix Instructions" of the PTX
// ISA. For .cu files.
#pragma once

#include <cstdint>
#include <tandem/kernels/bf16.hpp>

namespace tandem {

#if defined(__CUDACC__)

/// Starts a copy of 16 bytes to shared memory past the first-level cache.
__device__ inline void copy_async(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}

/// The same, or zeros without reading anything.
__device__ inline void copy_async_or_zero(void* to, const void* from, bool copy) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(copy ? 16 : 0)
               : "memory");
}

/// Waits for the copies that this thread has started.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Loads four 8x8 matrices of 16-bit elements, 8 rows of 16 bytes each: lane i gives the address of
/// row i % 8 of matrix i / 8. word[m] = elements (row, 2 pair) and (row, 2 pair + 1) of matrix m.
__device__ inline void load_matrices(std::uint32_t (&word)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

/// The same, transposed: word[m] = elements (2 pair, row) and (2 pair + 1, row) of matrix m.
__device__ inline void load_matrices_transposed(std::uint32_t (&word)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

// d += a b, with d [16, 8] in float: d[0], d[1] = (row, 2 pair), (row, 2 pair + 1), d[2], d[3] the
// same of row + 8.

/// a [16, 16], b [16, 8] of bf16, two of them a word: a = (row, 2 pair), (row + 8, 2 pair),
/// (row, 2 pair + 8), (row + 8, 2 pair + 8) and their right neighbours; b = (2 pair, row),
/// (2 pair + 8, row) and the ones below.
__device__ inline void multiply_add_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
  const float c[4] = {d[0], d[1], d[2], d[3]};
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}

/// a [16, 8], b [8, 8] of TF32: a = (row, pair), (row + 8, pair), (row, pair + 4),
/// (row + 8, pair + 4); b = (pair, row), (pair + 4, row).
__device__ inline void multiply_add_tf32(float (&d)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
  const float c[4] = {d[0], d[1], d[2], d[3]};
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}

/// Rounds to TF32, to nearest, ties away from zero.
__device__ inline std::uint32_t to_tf32(float value) {
  std::uint32_t word;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(value));
  return word;
}

/// Two numbers rounded to bf16, the first in the lower half.
__device__ inline std::uint32_t to_bf16_pair(float first, float second) {
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}

/// 2^x within 2 ulp; 2^0 is 1; results below the normal numbers are 0.
__device__ inline float exp2_approximate(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// 1 / x within 1 ulp.
__device__ inline float reciprocal_approximate(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

#endif  // __CUDACC__

}  // namespace tandem
