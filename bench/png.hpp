// SPDX-License-Identifier: Apache-2.0
// Writes pictures.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

/// Writes an 8-bit PNG of `height` rows of `width` pixels of `channels` bytes, raster order: 1
/// channel is greyscale, 3 are RGB. The file appears under its name only when it is complete, and
/// its folder must exist. Throws Error{data} that names the file and the reason, Error{usage} for
/// sizes outside 1 .. 65,535.
void write_png(const std::string& path, std::int64_t width, std::int64_t height, int channels,
               const std::uint8_t* pixels);

}  // namespace tandem
