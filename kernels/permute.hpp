// SPDX-License-Identifier: Apache-2.0
// Moves an image tensor from one order of memory to another.
#pragma once

#include <tandem/kernels/permute_math.hpp>

namespace tandem::host {

/// x and y hold the same elements [n,h,w,c], x in the order `from`, y in the order `to`. They must
/// not overlap. T is std::uint8_t, float, bf16 or double.
template <class T>
void permute(const ImageShape& shape, ImageOrder from, const T* x, ImageOrder to, T* y);

}  // namespace tandem::host
