// SPDX-License-Identifier: Apache-2.0
// The four IDX files of Fashion-MNIST, for the data sets made of them.
#pragma once

#include <cstdint>
#include <string>
#include <tandem/engine/dataset.hpp>
#include <vector>

namespace tandem {

/// Pixels a side of a garment in the files.
inline constexpr std::int64_t kGarmentSide = 28;

struct Garments {
  std::vector<std::uint8_t> pictures;  ///< [n, 28, 28] grey
  std::vector<std::uint8_t> classes;   ///< [n], 0 .. 9
};

/// "T-shirt/top" .. "Ankle boot": names of the classes 0 .. 9.
const std::vector<std::string>& garment_names();

/// Reads a split. `directory` empty: the Debian package's. Throws Error{data} that names the file
/// and what is wrong; where one is missing, the text begins with `data_set`, a name of --data.
Garments read_garments(const std::string& directory, Split split, const std::string& data_set);

}  // namespace tandem
