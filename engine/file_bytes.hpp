// SPDX-License-Identifier: Apache-2.0
// A whole file as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// Reads a plain file. Throws Error{data}: "<path>: <reason>", also where the path is a folder, a
/// pipe or a device.
std::vector<std::uint8_t> read_file_bytes(const std::string& path);

}  // namespace tandem
