// SPDX-License-Identifier: Apache-2.0
// Pieces of a page: escaped text, numbers, tables. Each function gives HTML; parameters named
// `html` are HTML already, all others are escaped.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::program::html {

/// Text as content or as a quoted attribute. Control characters but tab and line feed, and bytes
/// that are not UTF-8, become U+FFFD.
std::string escape(const std::string& text);

/// A number for people, with its exact value for programs: <data value="0.2371">0.24</data>.
/// "-" where there is none.
std::string number(std::optional<double> value, int digits);

struct Table {
  std::string caption;
  std::vector<std::string> header;             ///< text
  std::vector<std::vector<std::string>> rows;  ///< html of each cell, as many as in the header
  std::size_t text_columns = 1;                ///< at the left; the others hold numbers
};
/// The table in a frame that scrolls sideways where it is too wide for the window.
std::string render(const Table& table);

}  // namespace tandem::program::html
