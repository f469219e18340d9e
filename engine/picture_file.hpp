// SPDX-License-Identifier: Apache-2.0
// JPEG and PNG files as pictures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// Most pixels a side of a picture that is read.
inline constexpr std::int64_t kMaxPictureSide = 8192;

struct Picture {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  ///< [height, width, 3] RGB, raster order
};

/// Reads a JPEG or PNG file, recognised by content, not by name. Grey becomes three equal channels,
/// 16 bits are rounded to 8, transparency is dropped; colour profiles, gamma and the camera's
/// orientation are not looked at. Throws Error{data} "<path>: <reason>": missing, neither of both,
/// truncated or damaged (whatever libjpeg warns of, too), CMYK, more than kMaxPictureSide pixels a
/// side. Thread-safe.
Picture read_picture(const std::string& path);

/// The middle square of a picture (where it cannot be in the middle, the pixel nearer to the top or
/// left), resized to [side, side, 3]: bilinear and antialiased as in host::augment(), rounded to
/// whole values, halves to even. `side` is 1 .. kMaxPictureSide.
std::vector<std::uint8_t> middle_square(const Picture& picture, std::int64_t side);

}  // namespace tandem
