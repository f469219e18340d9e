// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <png.h>

#include <tandem/bench/png.hpp>
#include <tandem/engine/atomic_file.hpp>
#include <tandem/engine/error.hpp>

namespace tandem {

void write_png(const std::string& path, std::int64_t width, std::int64_t height, int channels,
               const std::uint8_t* pixels) {
  constexpr std::int64_t kMost = 65'535;
  if (width < 1 || width > kMost || height < 1 || height > kMost) {
    throw Error(ErrorCode::usage,
                fmt::format("picture {} of {} x {} pixels; the allowed range is 1 "
                            "to {}",
                            path, width, height, kMost));
  }
  if (channels != 1 && channels != 3) {
    throw Error(ErrorCode::usage,
                fmt::format("picture {} of {} channels; allowed are 1 and 3", path, channels));
  }
  AtomicFile file(path);
  // libpng's simplified interface catches its own long jumps and returns the message.
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  const auto row_bytes = static_cast<png_int_32>(width * channels);
  if (!png_image_write_to_stdio(&image, file.get(), 0, pixels, row_bytes, nullptr)) {
    throw Error(ErrorCode::data, fmt::format("cannot write {}: {}", path, image.message));
  }
  file.commit();
}

}  // namespace tandem
