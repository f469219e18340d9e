// SPDX-License-Identifier: Apache-2.0
// JPEG and PNG files as bytes, for tests of their readers.
#pragma once

#include <png.h>

#include <cstdint>
#include <cstdio>  // jpeglib.h needs it
#include <cstdlib>
#include <functional>
#include <vector>

// After cstdio.
#include <jpeglib.h>

namespace tandem::testing {

/// A JPEG file at quality 100, where a block of 8 x 8 equal values comes back as it was. `kind`:
/// what the pixels are, with a byte for each channel; `stored`: what the file holds.
inline std::vector<std::uint8_t> jpeg_bytes(int width, int height, J_COLOR_SPACE kind,
                                            J_COLOR_SPACE stored,
                                            const std::vector<std::uint8_t>& pixels,
                                            bool progressive = false) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);  // an error ends the test program, with a text
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = kind == JCS_GRAYSCALE ? 1 : kind == JCS_CMYK ? 4 : 3;
  info.in_color_space = kind;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, stored);
  jpeg_set_quality(&info, 100, TRUE);
  for (int c = 0; c < info.num_components; ++c) {
    info.comp_info[c].h_samp_factor = info.comp_info[c].v_samp_factor = 1;
  }
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<std::uint8_t*>(pixels.data()) +
                std::size_t{info.next_scanline} * info.image_width *
                    static_cast<std::size_t>(info.input_components);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::vector<std::uint8_t> bytes(memory, memory + size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return bytes;
}

/// A PNG file of rows of packed pixels as the format stores them. `more` may set further chunks.
inline std::vector<std::uint8_t> png_bytes(
    int width, int height, int colour_type, int depth, const std::vector<std::uint8_t>& packed,
    bool interlaced = false,
    const std::function<void(png_structp, png_infop)>& more = [](png_structp, png_infop) {}) {
  std::vector<std::uint8_t> bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &bytes,
      [](png_structp p, png_bytep data, std::size_t count) {
        auto* target = static_cast<std::vector<std::uint8_t>*>(png_get_io_ptr(p));
        target->insert(target->end(), data, data + count);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), depth,
               colour_type, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  more(png, info);
  png_write_info(png, info);
  const std::size_t row_bytes = png_get_rowbytes(png, info);
  std::vector<png_bytep> rows;
  for (int y = 0; y < height; ++y) {
    rows.push_back(const_cast<std::uint8_t*>(packed.data()) +
                   static_cast<std::size_t>(y) * row_bytes);
  }
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

}  // namespace tandem::testing
