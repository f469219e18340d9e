// SPDX-License-Identifier: Apache-2.0
// Z-order against its recursive definition.
#include <gtest/gtest.h>

#include <cstdint>
#include <tandem/kernels/morton.hpp>
#include <vector>

namespace tandem {
namespace {

struct Pixel {
  std::uint32_t x, y;
};

/// Visits a square quadrant by quadrant: left before right, upper half before lower.
void walk(std::uint32_t x, std::uint32_t y, std::uint32_t side, std::vector<Pixel>& order) {
  if (side == 1) {
    order.push_back({x, y});
    return;
  }
  const std::uint32_t half = side / 2;
  walk(x, y, half, order);
  walk(x + half, y, half, order);
  walk(x, y + half, half, order);
  walk(x + half, y + half, half, order);
}

TEST(Morton, IsTheWalkByQuadrants) {
  std::vector<Pixel> order;
  walk(0, 0, 512, order);
  ASSERT_EQ(order.size(), 512u * 512u);
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    ASSERT_EQ(morton_encode(order[i].x, order[i].y), i);
    ASSERT_EQ(morton_x(i), order[i].x);
    ASSERT_EQ(morton_y(i), order[i].y);
  }
}

TEST(Morton, BitZeroIsX) {
  EXPECT_EQ(morton_encode(1, 0), 1u);
  EXPECT_EQ(morton_encode(0, 1), 2u);
  EXPECT_EQ(morton_encode(3, 5), 0b100111u);
}

TEST(Morton, ReachesTheLastPixelOfTheLargestImage) {
  EXPECT_EQ(morton_encode(65535, 65535), 0xffffffffu);
  EXPECT_EQ(morton_encode(65535, 0), 0x55555555u);
  EXPECT_EQ(morton_x(0xaaaaaaaau), 0u);
  EXPECT_EQ(morton_y(0xaaaaaaaau), 65535u);
}

TEST(Morton, IsAConstantExpression) {
  static_assert(morton_encode(2, 3) == 14);
  static_assert(morton_x(14) == 2 && morton_y(14) == 3);
  EXPECT_EQ(morton_encode(2, 3), 14u);
}

}  // namespace
}  // namespace tandem
