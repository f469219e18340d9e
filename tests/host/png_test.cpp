// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <png.h>
#include <sys/resource.h>

#include <csignal>
#include <tandem/bench/png.hpp>
#include <tandem/tests/support/files.hpp>

namespace tandem {
namespace {

using namespace testing;

Bytes noise(std::size_t count) {
  Bytes bytes(count);
  std::uint32_t state = 7;
  for (auto& byte : bytes) {
    byte = static_cast<std::uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  }
  return bytes;
}

// Signature and header by the PNG specification, pixels by libpng's reader.
TEST(Png, WritesGreyscaleAndRgb) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.png");
  for (const int channels : {1, 3}) {
    for (const auto& [width, height] : {std::pair{1, 1}, {5, 3}, {64, 33}}) {
      const Bytes pixels = noise(static_cast<std::size_t>(width * height * channels));
      write_png(path, width, height, channels, pixels.data());

      const Bytes file = read_bytes(path);
      const std::uint8_t colour = channels == 3 ? 2 : 0;
      const Bytes start{0x89, 'P',   'N',  'G',
                        '\r', '\n',  0x1a, '\n',
                        0,    0,     0,    13,
                        'I',  'H',   'D',  'R',
                        0,    0,     0,    static_cast<std::uint8_t>(width),
                        0,    0,     0,    static_cast<std::uint8_t>(height),
                        8,    colour};
      ASSERT_GE(file.size(), start.size());
      EXPECT_EQ(Bytes(file.begin(), file.begin() + 26), start);

      png_image image{};
      image.version = PNG_IMAGE_VERSION;
      ASSERT_TRUE(png_image_begin_read_from_file(&image, path.c_str())) << image.message;
      image.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
      Bytes back(PNG_IMAGE_SIZE(image));
      ASSERT_TRUE(png_image_finish_read(&image, nullptr, back.data(), 0, nullptr)) << image.message;
      EXPECT_EQ(back, pixels);
    }
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"x.png"});
}

TEST(Png, RefusesBadSizesAndFolders) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.png");
  const Bytes pixels(16);
  expect_error(ErrorCode::usage, {path, "0 x 1", "1 to 65535"},
               [&] { write_png(path, 0, 1, 3, pixels.data()); });
  expect_error(ErrorCode::usage, {path, "1 x 65536"},
               [&] { write_png(path, 1, 65536, 3, pixels.data()); });
  expect_error(ErrorCode::usage, {path, "2 channels", "1 and 3"},
               [&] { write_png(path, 1, 1, 2, pixels.data()); });
  const std::string nowhere = folder.file("no/x.png");
  expect_error(ErrorCode::data, {nowhere, "No such file or directory"},
               [&] { write_png(nowhere, 1, 1, 3, pixels.data()); });
  EXPECT_TRUE(folder.names().empty());
}

// A limit on file sizes stands for a full disk.
TEST(Png, AFailedWriteLeavesTheOldFileAndNothingElse) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.png");
  const Bytes pixels = noise(300 * 300 * 3);
  write_png(path, 1, 1, 3, pixels.data());
  const Bytes old = read_bytes(path);

  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{50'000, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(ErrorCode::data, {"cannot write " + path},
               [&] { write_png(path, 300, 300, 3, pixels.data()); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);

  EXPECT_EQ(read_bytes(path), old);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"x.png"});
}

}  // namespace
}  // namespace tandem
