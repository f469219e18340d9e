// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for hashes of weights and plans.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tandem {

class Sha256 {
 public:
  void update(const void* data, std::size_t bytes) noexcept;
  /// 64 lower-case hexadecimal digits. The object may not be used after it.
  std::string hex() noexcept;

 private:
  void block(const std::uint8_t* p) noexcept;
  std::array<std::uint32_t, 8> state_{0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                                      0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
  std::array<std::uint8_t, 64> buffer_{};
  std::uint64_t total_ = 0;
};

}  // namespace tandem
