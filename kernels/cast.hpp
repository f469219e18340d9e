// SPDX-License-Identifier: Apache-2.0
// Conversion between float and bf16 storage.
#pragma once

#include <cstdint>
#include <tandem/kernels/bf16.hpp>

namespace tandem::host {

/// y[i] = x[i], rounded to nearest, ties to even.
void cast(const float* x, bf16* y, std::int64_t count);
/// y[i] = x[i], exact.
void cast(const bf16* x, float* y, std::int64_t count);

}  // namespace tandem::host
