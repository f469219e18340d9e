// SPDX-License-Identifier: Apache-2.0
// Thousands of damaged JPEG and PNG files. Each is read, or refused with Error{data}; nothing else
// happens. The damage comes from a seeded generator, so that a failure repeats.
#include <gtest/gtest.h>

#include <random>
#include <tandem/engine/picture_file.hpp>
#include <tandem/tests/support/files.hpp>
#include <tandem/tests/support/mutate.hpp>
#include <tandem/tests/support/picture_bytes.hpp>

namespace tandem {
namespace {

using namespace testing;

constexpr int kWidth = 23, kHeight = 19;

Bytes noise(std::size_t count, std::mt19937& random) {
  Bytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

/// Reads it; what is read must be consistent. True if it was read.
bool read_or_refuse(const std::string& path, const Bytes& bytes) {
  write_bytes(path, bytes);
  try {
    const Picture picture = read_picture(path);
    EXPECT_GE(picture.width, 1);
    EXPECT_GE(picture.height, 1);
    EXPECT_EQ(picture.pixels.size(), static_cast<std::size_t>(3 * picture.width * picture.height));
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return false;
  }
}

void damage(const Bytes& file, int files, std::mt19937& random) {
  const TemporaryFolder folder;
  ASSERT_TRUE(read_or_refuse(folder.file("f"), file));
  int refused = 0;
  for (int i = 0; i < files; ++i) {
    Bytes damaged = file;
    mutate(damaged, 0, i % 2 ? std::min<std::size_t>(200, file.size()) : file.size(), random);
    refused += !read_or_refuse(folder.file("f"), damaged);
  }
  EXPECT_GT(refused, files / 4);
}

TEST(PictureFuzz, DamagedJpegFilesAreReadOrRefused) {
  std::mt19937 random(1);
  const Bytes colour = noise(3 * kWidth * kHeight, random);
  for (const bool progressive : {false, true}) {
    damage(jpeg_bytes(kWidth, kHeight, JCS_RGB, JCS_YCbCr, colour, progressive), 2000, random);
  }
  damage(jpeg_bytes(kWidth, kHeight, JCS_GRAYSCALE, JCS_GRAYSCALE, colour), 1000, random);
}

TEST(PictureFuzz, DamagedPngFilesAreReadOrRefused) {
  std::mt19937 random(2);
  const Bytes packed = noise(8 * kWidth * kHeight, random);
  const auto palette = [](png_structp png, png_infop info) {
    png_color colours[16] = {};
    png_byte alphas[3] = {1, 2, 3};
    png_set_PLTE(png, info, colours, 16);
    png_set_tRNS(png, info, alphas, 3, nullptr);
  };
  damage(png_bytes(kWidth, kHeight, PNG_COLOR_TYPE_RGB, 8, packed), 1000, random);
  damage(png_bytes(kWidth, kHeight, PNG_COLOR_TYPE_RGB_ALPHA, 16, packed, true), 1000, random);
  damage(png_bytes(kWidth, kHeight, PNG_COLOR_TYPE_PALETTE, 4, packed, true, palette), 1000,
         random);
}

/// The checksum of PNG's chunks, by its definition.
std::uint32_t crc(const std::uint8_t* data, std::size_t count) {
  return static_cast<std::uint32_t>(crc32(0, data, static_cast<unsigned>(count)));
}

// Damage that the checksums do not catch: chunks are changed, and their checksums made right again.
TEST(PictureFuzz, ChangedChunksWithGoodChecksumsAreReadOrRefused) {
  const TemporaryFolder folder;
  std::mt19937 random(3);
  const Bytes packed = noise(8 * kWidth * kHeight, random);
  int read = 0, refused = 0;
  for (const int colour_type : {PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_GRAY_ALPHA}) {
    const Bytes file = png_bytes(kWidth, kHeight, colour_type, 8, packed, true);
    for (int i = 0; i < 2000; ++i) {
      Bytes changed = file;
      for (std::size_t at = 8; at + 12 <= changed.size();) {
        const std::size_t length = std::size_t{changed[at + 2]} << 8 | changed[at + 3];
        std::uint8_t* body = changed.data() + at + 8;
        // Of the header (13 bytes) only the low bytes of the sizes and what follows them.
        const bool header = at == 8;
        if (length > 0 && random() % 2) {
          const std::size_t byte = header ? 3 + random() % 10 : random() % length;
          if (!header || byte == 3 || byte >= 7) {
            body[byte] = static_cast<std::uint8_t>(random());
          }
        }
        const std::uint32_t sum = crc(body - 4, length + 4);
        for (int b = 0; b < 4; ++b) {
          body[length + static_cast<std::size_t>(b)] =
              static_cast<std::uint8_t>(sum >> (24 - 8 * b));
        }
        at += length + 12;
      }
      (read_or_refuse(folder.file("f"), changed) ? read : refused) += 1;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace tandem
