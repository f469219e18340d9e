// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/gemm.hpp>
#include <tandem/kernels/weight_update.hpp>

namespace tandem::host {

void weight_update(const WeightUpdateShape& shape, const BatchHeader& header, const bf16* a,
                   const bf16* b, float* w, bf16* copy) {
  gemm_update<bf16>(Transpose::yes, Transpose::no, shape.rows, shape.columns, shape.depth,
                    header.minus_rate_over_count, a, b, header.keep, w);
  for (std::int64_t i = 0; copy != nullptr && i < shape.rows * shape.columns; ++i)
    copy[i] = bf16(w[i]);
}

}  // namespace tandem::host
