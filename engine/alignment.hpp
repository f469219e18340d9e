// SPDX-License-Identifier: Apache-2.0
// Where memory may begin. Private to the engine.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem {

/// Every block of memory, and every buffer in it, begins at a multiple of this: what the libraries
/// ask of their workspaces, and more than any access of a kernel needs.
inline constexpr std::size_t kMemoryAlignment = 256;

/// The next multiple of it.
constexpr std::size_t aligned_size(std::size_t bytes) noexcept {
  return (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
}

/// Throws Error{usage} that names the address, what it is for and what is required, unless the
/// memory, which somebody else allocated, begins where it may.
void check_alignment(const void* memory, std::string_view purpose);

}  // namespace tandem
