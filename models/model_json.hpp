// SPDX-License-Identifier: Apache-2.0
// A network as JSON; docs/model.md is the schema.
#pragma once

#include <cstdint>
#include <string>
#include <tandem/models/sequential.hpp>

namespace tandem {

/// A network of a user's: what a file says.
struct Model {
  std::string name;
  std::int64_t image = 0;     ///< S: pictures are 3 x S x S; 0 where it reads rows of numbers
  Sequential frozen{3};       ///< no layers: nothing is frozen
  Sequential trained{3};      ///< ends in one channel a class, a pixel, a picture or a row
  std::int64_t features = 0;  ///< numbers in a row; 0 where it reads pictures
};

/// What the network reads: pictures, or rows as channels of one pixel.
PictureSize input_size(const Model& model) noexcept;

/// Reads the text; `source` is its name in messages. Throws Error{data} that names the place
/// ("trained[3].kernel") and what is wrong: no JSON, an unknown layer or field, a missing one, a
/// value out of range, a layer that does not fit the one before it.
Model model_from_json(const std::string& text, const std::string& source);
Model read_model(const std::string& path);

/// The same network as text; model_from_json() gives it back.
std::string to_json(const Model& model);

}  // namespace tandem
