// SPDX-License-Identifier: Apache-2.0
// What two trainings have done to their weights: whether they moved, and whether they moved alike.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <tandem/tests/support/small_segmenter.hpp>

namespace tandem::test {

/// A comparison of two runs means something only if the weights have moved: at least half of the
/// values of each tensor.
inline void expect_moved(const Parameters& start, const Parameters& weights) {
  ASSERT_EQ(start.size(), weights.size());
  for (std::size_t t = 0; t < start.size(); ++t) {
    std::size_t changed = 0;
    for (std::size_t i = 0; i < start[t].data.size(); ++i)
      changed += weights[t].data[i] != start[t].data[i];
    EXPECT_GE(2 * changed, start[t].data.size())
        << start[t].name << ": only " << changed << " values have changed";
  }
}

/// The same, and what was added to each tensor is, within `bound` (see update_error()), what
/// `reference` has added. Returns the largest error.
inline double expect_moved_alike(const Parameters& start, const Parameters& reference,
                                 const Parameters& weights, double bound) {
  expect_moved(start, reference);
  double worst = 0;
  for (std::size_t t = 0; t < reference.size(); ++t) {
    const double error = update_error(weights[t], reference[t], start[t]);
    EXPECT_LE(error, bound) << reference[t].name;
    worst = std::max(worst, error);
  }
  return worst;
}

/// How far a fused plan may be from the plain one: what they round differently is a few units of
/// the precision. In TF32 the kernels of ours round a factor to nearest, or not at all, where the
/// library may cut off up to 2^-10 of it: 2^-9 of a product, and as much again by way of what that
/// product makes.
inline double fused_bound(Precision precision) {
  return precision == Precision::bf16 ? 5e-2 : precision == Precision::tf32 ? 4e-3 : 1e-3;
}

}  // namespace tandem::test
