// SPDX-License-Identifier: Apache-2.0
#include "html.hpp"

#include <fmt/format.h>

namespace tandem::program::html {
namespace {

constexpr const char* kReplacement = "\xef\xbf\xbd";

/// Bytes of the UTF-8 character at `at`; 0 where there is none. Longer forms than needed,
/// surrogates and what lies above U+10FFFF are none.
std::size_t utf8_length(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  const unsigned second = byte(at + 1);
  const bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                     (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
  return wrong ? 0 : length;
}

}  // namespace

std::string escape(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    const char c = text[at];
    const auto byte = static_cast<unsigned char>(c);
    if (length == 0 || (byte < 0x20 && c != '\t' && c != '\n') || byte == 0x7f)
      out += kReplacement;
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out.append(text, at, length);
    at += length == 0 ? 1 : length;
  }
  return out;
}

std::string number(std::optional<double> value, int digits) {
  if (!value) return "-";
  return fmt::format("<data value=\"{}\">{:.{}f}</data>", *value, *value, digits);
}

std::string render(const Table& table) {
  std::string out = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\">\n<table>\n"
      "<caption>{0}</caption>\n<thead><tr>",
      escape(table.caption));
  const auto side = [&](std::size_t column) {
    return column < table.text_columns ? "" : " class=\"n\"";
  };
  for (std::size_t c = 0; c < table.header.size(); ++c)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", side(c), escape(table.header[c]));
  out += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    out += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c)
      out += c == 0 ? fmt::format("<th scope=\"row\"{}>{}</th>", side(c), row[c])
                    : fmt::format("<td{}>{}</td>", side(c), row[c]);
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table>\n</div>\n";
}

}  // namespace tandem::program::html
