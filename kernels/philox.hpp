// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10, a counter-based random generator: the same (counter, key) gives the same four
// words on every machine, in any order, on host and device. J. Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <cmath>
#include <cstdint>
#include <tandem/kernels/host_device.hpp>

namespace tandem {

struct PhiloxCounter {
  std::uint32_t word[4];
};

struct PhiloxKey {
  std::uint32_t word[2];
};

/// Four independent, uniformly distributed words.
struct PhiloxWords {
  std::uint32_t word[4];
};

/// A key from a 64-bit seed, lower half first.
TANDEM_HD inline PhiloxKey philox_key(std::uint64_t seed) {
  return {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}};
}

/// A counter from two 64-bit numbers, lower halves first: for example (sample, draw).
TANDEM_HD inline PhiloxCounter philox_counter(std::uint64_t low, std::uint64_t high) {
  return {{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
           static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)}};
}

TANDEM_HD inline PhiloxWords philox4x32_10(const PhiloxCounter& counter, const PhiloxKey& key) {
  std::uint32_t c0 = counter.word[0], c1 = counter.word[1];
  std::uint32_t c2 = counter.word[2], c3 = counter.word[3];
  std::uint32_t k0 = key.word[0], k1 = key.word[1];
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(product0);
    k0 += 0x9E3779B9u;  // golden ratio
    k1 += 0xBB67AE85u;  // sqrt(3) - 1
  }
  return {{c0, c1, c2, c3}};
}

/// Uniform in [0, 1): the upper 24 bits of a word, so that every value is exact.
TANDEM_HD inline float uniform_float(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

/// Uniform in [0, 1): 53 bits of two words, so that every value is exact.
TANDEM_HD inline double uniform_double(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32) | low;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

struct NormalPair {
  double first, second;
};

/// Two independent standard normal numbers from one draw (Box-Muller): words 0 and 1 make the
/// radius, words 2 and 3 the angle. In double, so that machines whose log, sqrt, sin and cos differ
/// in the last bit still agree once the result is rounded to float, but for rare ties.
TANDEM_HD inline NormalPair normal_pair(const PhiloxWords& words) {
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  // 1 - u lies in (0, 1], where the logarithm is finite.
  const double u = 1.0 - uniform_double(words.word[0], words.word[1]);
  const double angle = kTwoPi * uniform_double(words.word[2], words.word[3]);
  const double radius = std::sqrt(-2.0 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace tandem
