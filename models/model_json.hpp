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
  std::int64_t image = 0;  ///< S: pictures are 3 x S x S
  Sequential frozen{3};    ///< no layers: nothing is frozen
  Sequential trained{3};   ///< ends in one channel a class, a pixel or a picture
};

/// Reads the text; `source` is its name in messages. Throws Error{data} that names the place
/// ("trained[3].kernel") and what is wrong: no JSON, an unknown layer or field, a missing one, a
/// value out of range, a layer that does not fit the one before it.
Model model_from_json(const std::string& text, const std::string& source);
Model read_model(const std::string& path);

/// The same network as text; model_from_json() gives it back.
std::string to_json(const Model& model);

}  // namespace tandem
