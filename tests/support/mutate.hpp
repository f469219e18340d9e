// SPDX-License-Identifier: Apache-2.0
// Random damage to a file, for fuzz tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace tandem::testing {

/// Damages `bytes` one to four times, mostly within [begin, end): flips a bit, sets a byte to a
/// random or an extreme value, inserts, erases or repeats a run, cuts the file off. Uses the
/// generator's raw words only, so that a seed means the same damage everywhere.
inline void mutate(std::vector<std::uint8_t>& bytes, std::size_t begin, std::size_t end,
                   std::mt19937& random) {
  const auto below = [&](std::size_t count) { return count ? random() % count : 0; };
  for (std::size_t times = 1 + below(4); times > 0 && !bytes.empty(); --times) {
    const std::size_t from = std::min(begin, bytes.size() - 1);
    const std::size_t at = from + below(std::min(end, bytes.size()) - from);
    const auto position = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t run = std::min(1 + below(8), bytes.size() - at);
    switch (below(8)) {
      case 0:
      case 1:
        bytes[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 2:
        bytes[at] = static_cast<std::uint8_t>(random());
        break;
      case 3:
        bytes[at] = below(2) ? 0xff : 0;
        break;
      case 4:
        bytes.insert(position, run, static_cast<std::uint8_t>(random()));
        break;
      case 5:
        bytes.erase(position, position + static_cast<std::ptrdiff_t>(run));
        break;
      case 6: {
        const std::vector<std::uint8_t> copy(position, position + static_cast<std::ptrdiff_t>(run));
        bytes.insert(position, copy.begin(), copy.end());
        break;
      }
      default:
        bytes.resize(at);
    }
  }
}

/// Damage that leaves JSON what it is: once or twice, what follows a colon, up to the next comma or
/// bracket, becomes one of `values`.
inline std::string with_other_values(std::string text, const std::vector<std::string>& values,
                                     std::mt19937& random) {
  for (std::size_t times = 1 + random() % 2; times > 0; --times) {
    const std::size_t colon = text.find(": ", random() % text.size());
    if (colon == std::string::npos) continue;
    const std::size_t end = text.find_first_of(",}]\n", colon);
    text.replace(colon + 2, end - colon - 2, values[random() % values.size()]);
  }
  return text;
}

}  // namespace tandem::testing
