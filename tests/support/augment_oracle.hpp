// SPDX-License-Identifier: Apache-2.0
// Textbook definition of the augmentation in double, for one picture, with the error that float
// arithmetic may add. Shares no code with what it judges; of a draw it reads what a person would
// write down (crop, flip, degrees) and the blur's weights, never the turn or the matrix.
#pragma once

#include <cstdint>
#include <tandem/kernels/augment.hpp>
#include <tandem/tests/support/approx.hpp>
#include <vector>

namespace tandem::test {

/// Where an output pixel comes from, in pixels of the picture before the rotation; pixel centres at
/// whole numbers.
struct SourcePoint {
  double y, x;
};

/// A rotation by `degrees`, counter-clockwise as displayed, about ((w - 1) / 2, (h - 1) / 2).
SourcePoint rotation_source(double degrees, std::int64_t h, std::int64_t w, std::int64_t y,
                            std::int64_t x);

/// Which pixels y * w + x rotation by nearest may take for an output pixel, -1 for the fill: one,
/// or both neighbours of a coordinate that lies nearer to a tie than float coordinates are exact.
std::vector<std::int64_t> allowed_sources(double degrees, std::int64_t h, std::int64_t w,
                                          std::int64_t y, std::int64_t x);

/// Values (y, x, c) of the result for one picture [in_h, in_w, 3]. `type` is what the result is
/// stored in and what the arithmetic rounds to (float for bf16); tables and coordinates are float
/// in any case. With rotation by nearest `sources` gives y * w + x of the pixel that each output
/// pixel takes, -1 for the fill.
std::vector<Expected> augment_oracle(const AugmentSpec& spec, const AugmentDraw& draw,
                                     const std::uint8_t* picture, DType type,
                                     const std::vector<std::int64_t>& sources = {});

}  // namespace tandem::test
