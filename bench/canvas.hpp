// SPDX-License-Identifier: Apache-2.0
// A white sheet to put pictures and small text on.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::program {

using Colour = std::array<std::uint8_t, 3>;

class Canvas {
 public:
  /// Pixels a character and a line of text take.
  static constexpr std::int64_t kCharacter = 12, kLine = 20;

  Canvas(std::int64_t width, std::int64_t height);

  /// A square of side x side pixels, each enlarged to scale x scale, with its corner at (left,
  /// top). `colour_at(i)` is the colour of pixel i in raster order.
  template <class ColourAt>
  void square(std::int64_t left, std::int64_t top, std::int64_t side, std::int64_t scale,
              ColourAt colour_at) {
    for (std::int64_t y = 0; y < side * scale; ++y)
      for (std::int64_t x = 0; x < side * scale; ++x)
        set(left + x, top + y, colour_at(static_cast<std::size_t>(y / scale * side + x / scale)));
  }

  /// Black text of digits, letters (small, whatever they are) and - . , : / _ + ( ); a ? stands for
  /// every other character. What does not fit on the sheet is cut off.
  void text(std::int64_t left, std::int64_t top, const std::string& text);

  /// As write_png().
  void write(const std::string& path) const;

 private:
  void set(std::int64_t x, std::int64_t y, const Colour& colour);

  std::int64_t width_, height_;
  std::vector<std::uint8_t> pixels_;
};

}  // namespace tandem::program
