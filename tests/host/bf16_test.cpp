// SPDX-License-Identifier: Apache-2.0
// bf16 against a definition in terms of real numbers: the multiple of the spacing that is nearest.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tandem/kernels/bf16.hpp>

namespace tandem {
namespace {

float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

bf16 bf16_of(std::uint32_t bits) {
  bf16 value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

/// The nearest bf16 of a finite number, ties to even, by arithmetic: 8 significant bits, and no
/// spacing below that of the subnormals, 2^-133. The current rounding mode is to nearest even.
double nearest(float value) {
  if (value == 0) return value;
  const int exponent = std::ilogb(value);
  const double spacing = std::ldexp(1.0, std::max(exponent - 7, -133));
  const double rounded = std::nearbyint(static_cast<double>(value) / spacing) * spacing;
  if (std::fabs(rounded) >= std::ldexp(1.0, 128)) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  return rounded;
}

TEST(Bf16, EveryValueSurvivesTheWayThroughFloat) {
  int numbers = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = static_cast<float>(bf16_of(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(bf16(value).bits, bits);
    ++numbers;
  }
  EXPECT_EQ(numbers, 65536 - 2 * 127);
}

TEST(Bf16, RoundsToNearestTiesToEven) {
  for (std::uint32_t high = 0; high < 65536; ++high) {
    for (const std::uint32_t low :
         {0x0000u, 0x0001u, 0x4321u, 0x7fffu, 0x8000u, 0x8001u, 0xc0deu, 0xffffu}) {
      const float value = float_of((high << 16) | low);
      if (!std::isfinite(value)) continue;
      const float rounded = static_cast<float>(bf16(value));
      ASSERT_EQ(static_cast<double>(rounded), nearest(value)) << value;
      ASSERT_EQ(std::signbit(rounded), std::signbit(value)) << value;
    }
  }
}

TEST(Bf16, KnownValues) {
  EXPECT_EQ(bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(bf16(-2.0f).bits, 0xc000);
  EXPECT_EQ(bf16(3.14159265f).bits, 0x4049);
  EXPECT_EQ(bf16(-0.0f).bits, 0x8000);
  EXPECT_EQ(bf16(std::numeric_limits<float>::infinity()).bits, 0x7f80);
  EXPECT_EQ(bf16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()).bits, 0x7f80) << "beyond the largest finite";
  EXPECT_EQ(bf16(1.00390625f).bits, 0x3f80) << "a tie, down to even";
  EXPECT_EQ(bf16(1.01171875f).bits, 0x3f82) << "a tie, up to even";
}

TEST(Bf16, EveryNanStaysAQuietNanOfItsSign) {
  for (const std::uint32_t sign : {0u, 0x80000000u}) {
    for (std::uint32_t payload = 1; payload < 0x00800000u; payload = 2 * payload + 1) {
      // Through the bits, as a signalling NaN may not survive being passed as a float.
      const bf16 value = bf16(float_of(sign | 0x7f800000u | payload));
      EXPECT_TRUE(std::isnan(static_cast<float>(value))) << payload;
      EXPECT_EQ(value.bits & 0x0040u, 0x0040u) << payload;
      EXPECT_EQ(value.bits >> 15, sign >> 31) << payload;
    }
  }
}

TEST(Bf16, SumsAreKeptInAWiderType) {
  EXPECT_TRUE((std::is_same_v<Accumulator<bf16>, float>));
  EXPECT_TRUE((std::is_same_v<Accumulator<float>, float>));
  EXPECT_TRUE((std::is_same_v<Accumulator<double>, double>));
}

}  // namespace
}  // namespace tandem
