// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <tandem/engine/picture_file.hpp>
#include <tandem/tests/support/files.hpp>
#include <tandem/tests/support/picture_bytes.hpp>

namespace tandem {
namespace {

using namespace testing;

class PictureFile : public ::testing::Test {
 protected:
  Picture read(const Bytes& bytes) {
    write_bytes(path_, bytes);
    return read_picture(path_);
  }
  void refused(const Bytes& bytes, std::initializer_list<std::string> parts) {
    write_bytes(path_, bytes);
    const Error error = error_of([&] { read_picture(path_); });
    EXPECT_EQ(error.code(), ErrorCode::data);
    const std::string text = error.what();
    EXPECT_EQ(text.find(path_ + ": "), 0u) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
    }
  }
  TemporaryFolder folder_;
  const std::string path_ = folder_.file("picture");
};

Bytes noise(std::size_t count) {
  Bytes bytes(count);
  std::uint32_t state = 7;
  for (auto& byte : bytes) {
    byte = static_cast<std::uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  }
  return bytes;
}

/// Values of a PNG's pixels, `channels` of `depth` bits each, from the packed rows.
std::vector<int> unpacked(const Bytes& packed, int width, int height, int channels, int depth) {
  const int row_bytes = (width * channels * depth + 7) / 8;
  std::vector<int> values;
  for (int y = 0; y < height; ++y) {
    for (int i = 0; i < width * channels; ++i) {
      int value = 0;
      for (int b = i * depth; b < (i + 1) * depth; ++b) {  // bits of a byte: the upper ones first
        value = 2 * value +
                (packed[static_cast<std::size_t>(y * row_bytes + b / 8)] >> (7 - b % 8) & 1);
      }
      values.push_back(value);
    }
  }
  return values;
}

struct PngKind {
  int colour_type, depth, channels;
};
const PngKind kPngKinds[] = {{PNG_COLOR_TYPE_GRAY, 1, 1},        {PNG_COLOR_TYPE_GRAY, 2, 1},
                             {PNG_COLOR_TYPE_GRAY, 4, 1},        {PNG_COLOR_TYPE_GRAY, 8, 1},
                             {PNG_COLOR_TYPE_GRAY, 16, 1},       {PNG_COLOR_TYPE_RGB, 8, 3},
                             {PNG_COLOR_TYPE_RGB, 16, 3},        {PNG_COLOR_TYPE_PALETTE, 1, 1},
                             {PNG_COLOR_TYPE_PALETTE, 2, 1},     {PNG_COLOR_TYPE_PALETTE, 4, 1},
                             {PNG_COLOR_TYPE_PALETTE, 8, 1},     {PNG_COLOR_TYPE_GRAY_ALPHA, 8, 2},
                             {PNG_COLOR_TYPE_GRAY_ALPHA, 16, 2}, {PNG_COLOR_TYPE_RGB_ALPHA, 8, 4},
                             {PNG_COLOR_TYPE_RGB_ALPHA, 16, 4}};

/// A palette of full size, some of its colours transparent.
void set_palette(const PngKind& kind, png_structp png, png_infop info) {
  png_color colours[256];
  png_byte alphas[2] = {0, 128};
  for (int i = 0; i < 1 << kind.depth; ++i) {
    colours[i] = {static_cast<png_byte>(5 * i), static_cast<png_byte>(200 - i),
                  static_cast<png_byte>(i ^ 0x5a)};
  }
  png_set_PLTE(png, info, colours, 1 << kind.depth);
  png_set_tRNS(png, info, alphas, 2, nullptr);
}

TEST_F(PictureFile, ReadsEveryKindOfPng) {
  for (const PngKind& kind : kPngKinds) {
    for (const auto& [width, height] : {std::pair{1, 1}, {7, 5}, {33, 18}}) {
      for (const bool interlaced : {false, true}) {
        const bool palette = kind.colour_type == PNG_COLOR_TYPE_PALETTE;
        const Bytes packed =
            noise(static_cast<std::size_t>((width * kind.channels * kind.depth + 7) / 8 * height));
        const Picture picture = read(png_bytes(width, height, kind.colour_type, kind.depth, packed,
                                               interlaced, [&](png_structp png, png_infop info) {
                                                 if (palette) set_palette(kind, png, info);
                                                 // A viewer would make it lighter; the stored
                                                 // values are what counts.
                                                 png_set_gAMA(png, info, 1.0);
                                               }));
        ASSERT_EQ(picture.width, width);
        ASSERT_EQ(picture.height, height);
        ASSERT_EQ(picture.pixels.size(), static_cast<std::size_t>(3 * width * height));

        const auto values = unpacked(packed, width, height, kind.channels, kind.depth);
        int wrong = 0;
        for (int p = 0; p < width * height; ++p) {
          const int* pixel = &values[static_cast<std::size_t>(p * kind.channels)];
          for (int c = 0; c < 3; ++c) {
            const int stored = pixel[kind.channels >= 3 ? c : 0];
            int expected = 0;
            if (palette) {
              expected = c == 0 ? 5 * stored & 255 : c == 1 ? (200 - stored) & 255 : stored ^ 0x5a;
            } else {
              expected = static_cast<int>(std::lround(stored * 255.0 / ((1 << kind.depth) - 1)));
            }
            wrong += picture.pixels[static_cast<std::size_t>(3 * p + c)] != expected;
          }
        }
        EXPECT_EQ(wrong, 0) << "colour type " << kind.colour_type << ", depth " << kind.depth
                            << (interlaced ? ", interlaced" : "");
      }
    }
  }
}

/// Blocks of 8 x 8 equal pixels; right and lower edges cut through one.
Bytes blocks(int width, int height, int channels) {
  const Bytes values = noise(std::size_t{64} * 64 * 4);
  Bytes pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        pixels.push_back(values[static_cast<std::size_t>((y / 8 * 64 + x / 8) * 4 + c)]);
      }
    }
  }
  return pixels;
}

/// Largest difference from pixels with that many channels.
int difference(const Picture& picture, const Bytes& pixels, int channels) {
  int largest = 0;
  for (std::size_t i = 0; i < picture.pixels.size(); ++i) {
    const std::size_t at = channels == 3 ? i : i / 3;
    largest = std::max(largest, std::abs(picture.pixels[i] - pixels[at]));
  }
  return largest;
}

TEST_F(PictureFile, ReadsJpegInGreyAndColour) {
  for (const auto& [width, height] : {std::pair{1, 1}, {8, 8}, {37, 21}}) {
    for (const bool progressive : {false, true}) {
      const Bytes grey = blocks(width, height, 1), colour = blocks(width, height, 3);
      const Picture g =
          read(jpeg_bytes(width, height, JCS_GRAYSCALE, JCS_GRAYSCALE, grey, progressive));
      ASSERT_EQ(g.width, width);
      ASSERT_EQ(g.height, height);
      ASSERT_EQ(g.pixels.size(), static_cast<std::size_t>(3 * width * height));
      EXPECT_EQ(difference(g, grey, 1), 0);
      EXPECT_EQ(difference(read(jpeg_bytes(width, height, JCS_RGB, JCS_RGB, colour, progressive)),
                           colour, 3),
                0);
      // Y, Cb and Cr are off by at most 1/2 each, blue by (1/2) (1 + 1.772) and its own rounding:
      // less than 2.
      EXPECT_LE(difference(read(jpeg_bytes(width, height, JCS_RGB, JCS_YCbCr, colour, progressive)),
                           colour, 3),
                1);
    }
  }
}

// What PyTorch's and other loaders show of such a file is a matter of taste: it is named instead.
TEST_F(PictureFile, RefusesCmyk) {
  const Bytes ink = blocks(9, 9, 4);
  refused(jpeg_bytes(9, 9, JCS_CMYK, JCS_CMYK, ink), {"CMYK", "grey and RGB"});
  refused(jpeg_bytes(9, 9, JCS_CMYK, JCS_YCCK, ink), {"CMYK"});
}

Bytes small_png(bool interlaced = false) {
  return png_bytes(9, 7, PNG_COLOR_TYPE_RGB, 8, noise(9 * 7 * 3), interlaced);
}
Bytes small_jpeg(bool progressive = false) {
  return jpeg_bytes(19, 17, JCS_RGB, JCS_YCbCr, noise(19 * 17 * 3), progressive);
}

TEST_F(PictureFile, EveryTruncatedFileIsBroken) {
  for (const bool second : {false, true}) {
    for (const Bytes& file : {small_png(second), small_jpeg(second)}) {
      EXPECT_GT(read(file).width, 0);
      for (std::size_t size = 0; size < file.size(); ++size) {
        refused(Bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size)),
                {size == 0  ? "empty file"
                 : size < 3 ? "neither JPEG nor PNG"
                            : ""});
      }
    }
  }
  Bytes half = small_jpeg();
  half.resize(half.size() / 2);
  refused(half, {"broken JPEG file (", "end"});
  half = small_png();
  half.resize(half.size() - 1);
  refused(half, {"broken PNG file (truncated)"});
}

TEST_F(PictureFile, RefusesWhatIsNoPicture) {
  refused(Bytes{'G', 'I', 'F', '8', '9', 'a', 0, 0, 0, 0}, {"neither JPEG nor PNG"});
  Bytes damaged = small_png();
  damaged[45] ^= 1;  // in the picture data
  refused(damaged, {"broken PNG file ("});
  expect_error(ErrorCode::data, {folder_.file("none") + ": No such file or directory"},
               [&] { read_picture(folder_.file("none")); });
  expect_error(ErrorCode::data, {folder_.path() + ": not a regular file"},
               [&] { read_picture(folder_.path()); });
}

TEST_F(PictureFile, RefusesHugeDimensionsBeforeTakingMemory) {
  const Bytes line(8193, 9);
  refused(png_bytes(8193, 1, PNG_COLOR_TYPE_GRAY, 8, line), {"8193 x 1 pixels", "8192 a side"});
  refused(jpeg_bytes(1, 8193, JCS_GRAYSCALE, JCS_GRAYSCALE, line),
          {"1 x 8193 pixels", "8192 a side"});
  EXPECT_EQ(read(png_bytes(8192, 1, PNG_COLOR_TYPE_GRAY, 8, line)).width, 8192);
  // Headers that claim what no file holds.
  Bytes file = jpeg_bytes(8, 8, JCS_GRAYSCALE, JCS_GRAYSCALE, blocks(8, 8, 1));
  const Bytes frame{0xff, 0xc0, 0, 11, 8};
  const auto at = std::search(file.begin(), file.end(), frame.begin(), frame.end());
  ASSERT_NE(at, file.end());
  std::fill(at + 5, at + 9, std::uint8_t{0xff});
  refused(file, {"pixels"});
}

/// Bytes that the program has allocated and not freed.
std::size_t bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// A leak of 64 bytes a file would show. Sanitizer builds find leaks in another way, at the end.
TEST_F(PictureFile, MemoryStaysFlatOverThousandsOfFiles) {
  constexpr int kReads = 5000;  // of each file
  Bytes damaged_png = small_png(), damaged_jpeg = small_jpeg(true);
  damaged_png[45] ^= 1;
  damaged_jpeg.resize(damaged_jpeg.size() / 2);
  for (const Bytes& file : {small_png(true), small_jpeg(true), damaged_png, damaged_jpeg,
                            Bytes{0xff, 0xd8, 0xff}, Bytes{1, 2, 3}}) {
    write_bytes(path_, file);
    std::size_t after_100 = 0;
    int good = 0;
    for (int i = 0; i < kReads; ++i) {
      try {
        good += read_picture(path_).width > 0;
      } catch (const Error&) {
      }
      if (i == 99) after_100 = bytes_in_use();
    }
    EXPECT_TRUE(good == 0 || good == kReads);
    EXPECT_LT(bytes_in_use(), after_100 + (kReads - 100) * 64);
  }
}

/// The resize in double, from its definition: a triangle of half width max(scale, 1) about the
/// half-pixel centre.
std::vector<double> resized_row(const std::vector<double>& row, int count) {
  const double scale = static_cast<double>(row.size()) / count, width = std::max(scale, 1.0);
  std::vector<double> result;
  for (int i = 0; i < count; ++i) {
    double sum = 0, weights = 0;
    for (std::size_t j = 0; j < row.size(); ++j) {
      const double distance = std::abs(static_cast<double>(j) + 0.5 - (i + 0.5) * scale);
      const double weight = std::max(0.0, 1 - distance / width);
      sum += weight * row[j];
      weights += weight;
    }
    result.push_back(sum / weights);
  }
  return result;
}

TEST(MiddleSquare, IsTheAntialiasedResizeOfTheMiddle) {
  for (const auto& [width, height] : {std::pair{8, 8}, {13, 8}, {8, 13}, {40, 31}, {3, 2}}) {
    for (const int side : {8, 11, 1}) {
      Picture picture{height, width, noise(static_cast<std::size_t>(3 * width * height))};
      const Bytes result = middle_square(picture, side);
      ASSERT_EQ(result.size(), static_cast<std::size_t>(3 * side * side));
      const int square = std::min(width, height);
      const int top = (height - square) / 2, left = (width - square) / 2;
      for (int c = 0; c < 3; ++c) {
        std::vector<std::vector<double>> rows;  // rows resized, then columns
        for (int y = 0; y < square; ++y) {
          std::vector<double> row;
          for (int x = 0; x < square; ++x) {
            row.push_back(
                picture.pixels[static_cast<std::size_t>(3 * ((top + y) * width + left + x) + c)]);
          }
          rows.push_back(resized_row(row, side));
        }
        for (int x = 0; x < side; ++x) {
          std::vector<double> column;
          for (const auto& row : rows) column.push_back(row[static_cast<std::size_t>(x)]);
          const auto exact = resized_row(column, side);
          for (int y = 0; y < side; ++y) {
            // Rounded to a whole value, after fewer than 256 roundings of values up to 255.
            const double bound = 0.5 + 255 * 256 * 0x1p-24;
            const double error = result[static_cast<std::size_t>(3 * (y * side + x) + c)] -
                                 exact[static_cast<std::size_t>(y)];
            EXPECT_TRUE(std::abs(error) <= bound) << width << " x " << height << " to " << side;
          }
        }
      }
      if (side == square) {  // nothing but the crop
        for (int y = 0; y < side; ++y) {
          const auto from = picture.pixels.begin() + 3 * ((top + y) * width + left);
          EXPECT_TRUE(std::equal(from, from + 3 * side, result.begin() + 3 * y * side));
        }
      }
    }
  }
  // Half-way between two whole values: to the even one.
  const Picture two{2, 2, {0, 1, 2, 1, 2, 5, 0, 1, 2, 1, 2, 5}};
  EXPECT_EQ(middle_square(two, 1), (Bytes{0, 2, 4}));
}

}  // namespace
}  // namespace tandem
