// SPDX-License-Identifier: Apache-2.0
// The head in two passes: its twins against the plain operations, and where its kernels look for
// pixels.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <tandem/kernels/conv3x3_loss.hpp>
#include <tandem/tests/support/head_reference.hpp>
#include <utility>
#include <vector>

namespace tandem::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// --- twins ---

template <class T>
struct LossOutput {
  std::vector<T> dlogits;
  std::vector<Accumulator<T>> db;
  StepResult result;
};

template <class T>
LossOutput<T> twin_loss(const HeadCase& c) {
  LossOutput<T> out{std::vector<T>(c.x.size(), T(Accumulator<T>(kNaN))),
                    std::vector<Accumulator<T>>(c.classes(), Accumulator<T>(kNaN)),
                    {7, 7, kNaN}};
  const auto x = head_storage<T>(c.x), w = head_storage<T>(c.w);
  const auto b = head_storage<Accumulator<T>>(c.b);
  host::conv3x3_loss(c.shape, c.header, x.data(), w.data(), b.data(), c.labels.data(),
                     c.ignore_label, out.dlogits.data(), out.db.data(), &out.result);
  return out;
}

template <class T>
struct BackwardOutput {
  std::vector<T> dx;
  std::vector<Accumulator<T>> dw;
};

template <class T>
BackwardOutput<T> twin_backward(const HeadCase& c) {
  BackwardOutput<T> out{std::vector<T>(c.x.size(), T(Accumulator<T>(kNaN))),
                        std::vector<Accumulator<T>>(c.w.size(), Accumulator<T>(kNaN))};
  const auto dlogits = head_storage<T>(c.dlogits), x = head_storage<T>(c.x),
             w = head_storage<T>(c.w);
  host::conv3x3_loss_backward(c.shape, dlogits.data(), x.data(), w.data(), out.dx.data(),
                              out.dw.data());
  return out;
}

template <class T>
void check_twins(const HeadCase& c, DType type) {
  SCOPED_TRACE(std::to_string(c.shape.n) + " x " + std::to_string(c.shape.side) + ", " +
               std::to_string(c.shape.classes) + " classes, " + name_of(type));
  const HeadErrors errors = twin_errors(type);
  const LossOutput<T> loss = twin_loss<T>(c);
  const HeadLoss reference = head_loss(c, errors);
  const Numbers dlogits = head_doubles(loss.dlogits);
  EXPECT_TRUE(all_close(reference.dlogits, dlogits, type, "dlogits"));
  EXPECT_TRUE(all_close(reference.result, head_result(loss.result), DType::f64, "result"));
  EXPECT_TRUE(all_close(head_bias_gradient(c, dlogits, errors), head_doubles(loss.db),
                        accumulator_of(type), "db"));
  const BackwardOutput<T> backward = twin_backward<T>(c);
  const HeadGradients gradients = head_gradients(c, errors);
  EXPECT_TRUE(all_close(gradients.dx, head_doubles(backward.dx), type, "dx"));
  EXPECT_TRUE(all_close(gradients.dw, head_doubles(backward.dw), accumulator_of(type), "dw"));
}

TEST(Conv3x3Loss, EqualsThePlainOperations) {
  const Conv3x3LossShape shapes[] = {{1, 32, 2}, {2, 32, 10}, {3, 32, 11}, {1, 64, 16}};
  for (const Conv3x3LossShape& shape : shapes) {
    check_twins<double>(head_case<double>(shape), DType::f64);
    check_twins<float>(head_case<float>(shape), DType::f32);
    check_twins<bf16>(head_case<bf16>(shape), DType::bf16);
  }
}

TEST(Conv3x3Loss, AnIgnoredLabelMayBeAClass) {
  HeadCase c = head_case<float>({1, 32, 3});
  c.ignore_label = 1;
  for (std::uint8_t& label : c.labels) label = label == 255 ? 2 : label;
  c.count_labels();
  check_twins<float>(c, DType::f32);
}

TEST(Conv3x3Loss, NaNReachesTheLossUnlessIgnored) {
  HeadCase c = head_case<float>({2, 32, 3});
  const LossOutput<float> before = twin_loss<float>(c);
  c.x[head_offset(c.shape, 1, 0, 31) + 5] = kNaN;  // in the windows of four pixels of image 1
  c.labels[1024 + 31] = 255;
  for (const std::size_t at : {30u, 62u, 63u}) c.labels[1024 + at] = 2;
  const LossOutput<float> after = twin_loss<float>(c);
  EXPECT_TRUE(std::isnan(after.result.loss));
  std::size_t changed = 0, nan = 0;
  for (std::size_t i = 0; i < before.dlogits.size(); ++i) {
    nan += std::isnan(after.dlogits[i]) ? 1 : 0;
    if (i % 16 >= 3) {
      EXPECT_EQ(after.dlogits[i], 0.0f) << i;
    } else if (!(before.dlogits[i] == after.dlogits[i])) {
      ++changed;
    }
  }
  EXPECT_EQ(nan, 9u);
  EXPECT_LE(changed, 12u);
  c.labels.assign(c.labels.size(), 255);
  c.count_labels();
  const LossOutput<float> ignored = twin_loss<float>(c);
  EXPECT_EQ(head_result(ignored.result), (Numbers{41, 0, 0}));
  EXPECT_EQ(ignored.dlogits, std::vector<float>(c.x.size(), 0.0f));
  EXPECT_EQ(ignored.db, std::vector<float>(3, 0.0f));
}

TEST(Conv3x3Loss, ALabelThatIsNoClassIsNaN) {
  HeadCase c = head_case<float>({1, 32, 3});
  c.labels[77] = 3;
  const LossOutput<float> out = twin_loss<float>(c);
  EXPECT_TRUE(std::isnan(out.result.loss));
  const std::size_t at = head_offset(c.shape, 0, 2, 13);
  for (std::size_t k = 0; k < 16; ++k) EXPECT_EQ(std::isnan(out.dlogits[at + k]), k < 3) << k;
}

TEST(Conv3x3Loss, GradientPassesWhereTheInputIsNaNAndNotWhereItIsZero) {
  HeadCase c = head_case<float>({1, 32, 4});
  c.x[0] = kNaN;
  c.x[1] = -0.0;
  c.x[2] = 1;
  const BackwardOutput<float> out = twin_backward<float>(c);
  EXPECT_TRUE(std::isfinite(out.dx[0]));
  EXPECT_NE(out.dx[0], 0.0f);
  EXPECT_EQ(out.dx[1], 0.0f);
  EXPECT_NE(out.dx[2], 0.0f);
  EXPECT_TRUE(std::isnan(out.dw[4 * 16]));  // the middle tap of channel 0
}

TEST(Conv3x3Loss, TakesWhatItSays) {
  EXPECT_TRUE(conv3x3_loss_takes({1, 32, 2}));
  EXPECT_TRUE(conv3x3_loss_takes({0, 256, 16}));
  EXPECT_TRUE(conv3x3_loss_takes({32767, 256, 10}));
  EXPECT_FALSE(conv3x3_loss_takes({32768, 256, 10}));  // 2^31 pixels
  EXPECT_FALSE(conv3x3_loss_takes({1, 16, 10}));
  EXPECT_FALSE(conv3x3_loss_takes({1, 48, 10}));
  EXPECT_TRUE(conv3x3_loss_takes({1, 16384, 10}));
  EXPECT_FALSE(conv3x3_loss_takes({1, 32768, 10}));  // 2^34 elements
  EXPECT_FALSE(conv3x3_loss_takes({1, 64, 1}));
  EXPECT_FALSE(conv3x3_loss_takes({1, 64, 17}));
}

TEST(Conv3x3Loss, WorkspaceIsBounded) {
  const Conv3x3LossShape largest{8191, 512, 16};
  EXPECT_EQ(cuda::conv3x3_loss_workspace_bytes(largest), 528u * 17 * 8);
  EXPECT_EQ(cuda::conv3x3_loss_backward_workspace_bytes(largest), 396u * 16 * 144 * 4);
  EXPECT_EQ(cuda::conv3x3_loss_blocks({1, 32, 10}), 2);
}

// --- where the kernels find a pixel ---

namespace tile = conv3x3_tile;

TEST(Conv3x3LossTile, IsABlockOfTheImage) {
  for (const int side : {32, 64, 256}) {
    const int tiles = side * side / tile::kPixels;
    for (int t = 0; t < 3 * tiles; ++t) {
      const std::uint32_t first = tile::first_index(t, side);
      EXPECT_EQ(first, static_cast<std::uint32_t>(t % tiles * tile::kPixels));
      for (int i = 0; i < tile::kPixels; ++i) {
        const tile::Position p = tile::inner_pixel(i);
        ASSERT_LT(p.x, tile::kWidth);
        ASSERT_LT(p.y, tile::kHeight);
        ASSERT_EQ(morton_encode(morton_x(first) + static_cast<unsigned>(p.x),
                                morton_y(first) + static_cast<unsigned>(p.y)),
                  first + static_cast<std::uint32_t>(i));
      }
    }
  }
}

TEST(Conv3x3LossTile, PositionsOfDisjointBitsAdd) {
  for (const int step : {32, 64}) {
    for (int i = 0; i < step; ++i) {
      for (int first = 0; first < tile::kPixels; first += step) {
        const tile::Position a = tile::inner_pixel(first), b = tile::inner_pixel(i),
                             sum = tile::inner_pixel(first + i);
        EXPECT_EQ(a.x + b.x, sum.x);
        EXPECT_EQ(a.y + b.y, sum.y);
      }
    }
  }
}

TEST(Conv3x3LossTile, PositionsInAUnitAdd) {
  for (const int step : {8, 16}) {
    for (int i = 0; i < step; ++i) {
      for (int first = 0; first < tile::kUnitPixels; first += step) {
        const tile::Position a = tile::unit_pixel(first), b = tile::unit_pixel(i),
                             sum = tile::unit_pixel(first + i);
        EXPECT_EQ(a.x + b.x, sum.x);
        EXPECT_EQ(a.y + b.y, sum.y);
        for (const int unit : {0, 5, 15}) {
          EXPECT_EQ(tile::unit_index(unit, i) + tile::unit_index(0, first),
                    tile::unit_index(unit, first + i));
        }
      }
    }
  }
}

TEST(Conv3x3LossTile, RingAndTileAreTheRectangleAround) {
  std::set<std::pair<int, int>> seen;
  for (int i = 0; i < tile::kRingPixels; ++i) {
    const tile::Position p = tile::ring_pixel(i);
    EXPECT_TRUE(seen.insert({p.x, p.y}).second) << i;
    EXPECT_TRUE(p.x == -1 || p.x == tile::kWidth || p.y == -1 || p.y == tile::kHeight) << i;
    EXPECT_TRUE(p.x >= -1 && p.x <= tile::kWidth && p.y >= -1 && p.y <= tile::kHeight) << i;
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(34 * 18 - tile::kPixels));
}

TEST(Conv3x3LossTile, IndexFromAnotherPixelOrOutside) {
  for (const int side : {32, 64, 16384}) {
    for (const int x : {0, 31, 32, side - 32, side - 1}) {
      for (const int y : {0, 15, 16, side - 16, side - 1}) {
        const auto index =
            morton_encode(static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y));
        for (const int dx : {-1, 0, 1, 31, 32}) {
          for (const int dy : {-1, 0, 1, 16}) {
            const std::uint32_t to = tile::index_from(index, {dx, dy});
            const int px = x + dx, py = y + dy;
            const bool inside = px >= 0 && px < side && py >= 0 && py < side;
            const auto pixels = static_cast<std::uint32_t>(side) * static_cast<unsigned>(side);
            ASSERT_EQ(to < pixels, inside) << side << ": " << px << ", " << py;
            if (inside) {
              ASSERT_EQ(to, morton_encode(static_cast<std::uint32_t>(px),
                                          static_cast<std::uint32_t>(py)));
            }
          }
        }
      }
    }
  }
}

TEST(Conv3x3LossTile, UnitsAreTheTile) {
  std::set<std::uint32_t> seen;
  for (int u = 0; u < tile::kUnits; ++u) {
    const tile::Position first = tile::unit_first(u);
    std::uint32_t last = 0;
    for (int i = 0; i < tile::kUnitPixels; ++i) {
      const tile::Position p = tile::unit_pixel(i);
      EXPECT_TRUE(p.x >= 0 && p.x < tile::kUnitWidth && p.y >= 0 && p.y < tile::kUnitHeight);
      const auto z = morton_encode(static_cast<std::uint32_t>(first.x + p.x),
                                   static_cast<std::uint32_t>(first.y + p.y));
      EXPECT_LT(z, static_cast<std::uint32_t>(tile::kPixels));
      EXPECT_TRUE(seen.insert(z).second);
      EXPECT_EQ(static_cast<std::uint32_t>(tile::unit_index(u, i)), z);
      if (i % 4 != 0) {  // four pixels are neighbours in memory
        EXPECT_EQ(z, last + 1);
      }
      last = z;
    }
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(tile::kPixels));
}

/// Chunks are numbered apart, and those of one access lie in different banks.
template <class Layout>
void check_layout(int width, int height, int ring) {
  std::set<int> seen;
  for (int plane = 0; plane < 4; ++plane) {
    for (int y = -ring; y < height + ring; ++y) {
      for (int x = -ring; x < width + ring; ++x) {
        const int chunk = Layout::chunk(plane, x, y);
        EXPECT_TRUE(seen.insert(chunk).second);
        EXPECT_TRUE(chunk >= plane * Layout::kPlane && chunk < (plane + 1) * Layout::kPlane);
        EXPECT_EQ(chunk, Layout::chunk(plane, 0, 0) + Layout::shift(x, y));
      }
    }
  }
  const auto banks = [](std::set<int>& used, int chunk) { return used.insert(chunk % 8).second; };
  // What ldmatrix takes at a time: eight lanes a matrix.
  for (int x = -ring; x + 16 <= width + ring; ++x) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::set<int> plain, transposed;
      for (int row = 0; row < 8; ++row) {
        const tile::MatrixRow a = tile::pixels_first(8 * matrix + row),
                              b = tile::channels_first(8 * matrix + row);
        EXPECT_TRUE(banks(plain, Layout::chunk(a.plane, x + a.pixel, 0)));
        EXPECT_TRUE(banks(transposed, Layout::chunk(b.plane, x + b.pixel, 0)));
      }
    }
  }
  // What eight threads copy: two planes of a window of 2x2 pixels.
  std::set<int> window;
  for (int i = 0; i < 8; ++i) {
    const tile::Position p = tile::inner_pixel(i / 2);
    EXPECT_TRUE(banks(window, Layout::chunk(i % 2, p.x, p.y)));
  }
  // Floats read one by one: four pixels, two planes, four channels of each, in 32 banks.
  std::set<int> words;
  for (int i = 0; i < 32; ++i) {
    EXPECT_TRUE(words.insert((Layout::chunk(i / 16, i / 4 % 4, 0) * 4 + i % 4) % 32).second);
  }
}

TEST(Conv3x3LossTile, AccessesAreFreeOfBankConflicts) {
  check_layout<tile::TileWithRing>(tile::kWidth, tile::kHeight, 1);
  check_layout<tile::TileAlone>(tile::kWidth, tile::kHeight, 0);
  check_layout<tile::Unit>(tile::kUnitWidth, tile::kUnitHeight, 0);
}

TEST(Conv3x3LossTile, MatricesCoverPixelsAndPlanes) {
  for (int lane = 0; lane < 32; ++lane) {
    const tile::MatrixRow a = tile::pixels_first(lane), b = tile::channels_first(lane);
    const int matrix = lane / 8, row = lane % 8;
    // Quadrants of [pixels, channels] in the order of a factor: below first, then to the right.
    EXPECT_EQ(a.pixel, row + matrix % 2 * 8);
    EXPECT_EQ(a.plane, matrix / 2);
    // Of [channels, pixels].
    EXPECT_EQ(b.plane, matrix % 2);
    EXPECT_EQ(b.pixel, row + matrix / 2 * 8);
  }
}

}  // namespace
}  // namespace tandem::test
