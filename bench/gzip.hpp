// SPDX-License-Identifier: Apache-2.0
// Compression of text that is written.
#pragma once

#include <string>

namespace tandem::program {

/// The text as the content of a .gz file (RFC 1952). Throws std::bad_alloc.
std::string gzip(const std::string& text);

}  // namespace tandem::program
