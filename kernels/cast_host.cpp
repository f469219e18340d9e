// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/cast.hpp>

namespace tandem::host {

void cast(const float* x, bf16* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = bf16(x[i]);
}

void cast(const bf16* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(x[i]);
}

}  // namespace tandem::host
