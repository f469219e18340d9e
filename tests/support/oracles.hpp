// SPDX-License-Identifier: Apache-2.0
// Textbook definitions of the operations in double. They share no code with what they judge, and
// know nothing of layouts: every tensor here is in raster order N, H, W, C.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tandem/engine/operation.hpp>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/tests/support/approx.hpp>
#include <utility>
#include <vector>

namespace tandem::test {

/// A tensor's values in raster order N, H, W, C, whatever its layout in memory.
using Raster = std::vector<double>;

/// The nearest value of the type, ties to even: found by scaling, not by bits.
double round_to(DType type, double value);

/// Pixels (y, x) of a square image of `side` pixels in Z-order: four quadrants, each in Z-order,
/// the one to the right before the one below. `side` is a power of two.
std::vector<std::pair<int, int>> z_order(int side);

/// Raster values <-> the bytes of a tensor with the type and layout of `desc`. Values must be
/// representable (see round_to).
std::vector<std::byte> encode(const TensorDesc& desc, const Raster& raster);
Raster decode(const TensorDesc& desc, const void* bytes);

/// What the operation must leave in every operand it writes, with the error allowed: one list an
/// operand, empty where it only reads. `values` are the operands before it; a header and a result
/// have none. A result is given as step, valid count, loss. Throws for a kind that has no oracle.
std::vector<std::vector<Expected>> oracle(const Operation& operation,
                                          const std::vector<Raster>& values,
                                          const BatchHeader& header);

}  // namespace tandem::test
