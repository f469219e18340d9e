// SPDX-License-Identifier: Apache-2.0
// Which of two measured speeds is the higher one, or that the measurements do not say.
#pragma once

#include "result_file.hpp"

namespace tandem::program {

enum class Verdict : std::uint8_t { same, faster, slower, ambiguous };
/// "same", "faster", "slower", "ambiguous"
const char* name_of(Verdict verdict) noexcept;

/// Default of the part by which speeds may differ and still be the same.
inline constexpr double kSameSpeed = 0.02;

/// Speed b beside speed a, each the median, lowest and highest of its windows.
///
///   faster     b's median is above a's by more than `tolerance`, and b's slowest window above a's
///              fastest
///   slower     the same with a and b exchanged
///   same       the medians differ by no more than `tolerance`, and neither speed spreads
///              ((max - min) / median) by more than twice that
///   ambiguous  all else, such as a difference that the spread may explain, or one where either
///              speed is of one window alone
///
/// "Above by more than t": higher / lower > 1 + t. A NaN is ambiguous.
Verdict compare_speeds(const Spread& a, const Spread& b, double tolerance);

}  // namespace tandem::program
