// SPDX-License-Identifier: Apache-2.0
// safetensors files: 8-byte little-endian header length, JSON header, raw little-endian tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// A float tensor with its name and shape, C order.
struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> data;
};

/// Reads all tensors, in order of their offsets. F32 is taken as it is, BF16 and F16 are widened.
/// The file is treated as hostile: header length (100 MB at most), JSON, types, shapes, offset
/// ranges, gaps, overlaps and overflow are checked before memory is taken. Throws Error{data} that
/// names the file, the tensor and what is wrong.
std::vector<NamedTensor> read_safetensors(const std::string& path);

/// Writes F32 tensors in the order given, to a temporary name in the same folder, then renames.
/// The header is padded with spaces to a multiple of 8. Throws Error{data}; then the file that was
/// there before is untouched.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace tandem
