// SPDX-License-Identifier: Apache-2.0
// Arithmetic that rounds after every operation, on host and device alike. nvcc contracts
// a * b + c into one rounding unless told otherwise; a g++ without -ffp-contract=off may do so
// where the machine has the instruction. Host twins are compiled with that option.
#pragma once

#include <tandem/kernels/host_device.hpp>

namespace tandem {

#if defined(__CUDA_ARCH__)
__device__ inline float mul_rn(float a, float b) { return __fmul_rn(a, b); }
__device__ inline float add_rn(float a, float b) { return __fadd_rn(a, b); }
__device__ inline float div_rn(float a, float b) { return __fdiv_rn(a, b); }
__device__ inline double mul_rn(double a, double b) { return __dmul_rn(a, b); }
__device__ inline double add_rn(double a, double b) { return __dadd_rn(a, b); }
__device__ inline double div_rn(double a, double b) { return __ddiv_rn(a, b); }
#else
TANDEM_HD inline float mul_rn(float a, float b) { return a * b; }
TANDEM_HD inline float add_rn(float a, float b) { return a + b; }
TANDEM_HD inline float div_rn(float a, float b) { return a / b; }
TANDEM_HD inline double mul_rn(double a, double b) { return a * b; }
TANDEM_HD inline double add_rn(double a, double b) { return a + b; }
TANDEM_HD inline double div_rn(double a, double b) { return a / b; }
#endif

}  // namespace tandem
