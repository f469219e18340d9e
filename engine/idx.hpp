// SPDX-License-Identifier: Apache-2.0
// IDX files (MNIST's format), plain or gzipped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// Contents of an IDX file of unsigned bytes.
struct IdxArray {
  std::vector<std::int64_t> shape;  ///< 1 to 4 dimensions
  std::vector<std::uint8_t> data;   ///< C order
};

/// Reads a file, decompressing it if it is gzipped (recognised by content, not by name). Sizes in
/// the header are checked before memory is taken. Throws Error{data} that names the file and what
/// is wrong: missing, truncated, longer than its header says, not IDX, another element type.
IdxArray read_idx(const std::string& path);

}  // namespace tandem
