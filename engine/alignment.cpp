// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdint>
#include <tandem/engine/alignment.hpp>
#include <tandem/engine/error.hpp>

namespace tandem {

void check_alignment(const void* memory, std::string_view purpose) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (address % kMemoryAlignment == 0) return;
  throw Error(
      ErrorCode::usage,
      fmt::format("memory for {} begins at address {:#x}, {} bytes behind a multiple of {}; "
                  "required: a multiple of {}",
                  purpose, address, address % kMemoryAlignment, kMemoryAlignment,
                  kMemoryAlignment));
}

}  // namespace tandem
