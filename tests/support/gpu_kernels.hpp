// SPDX-License-Identifier: Apache-2.0
// Small kernels for tests of the CUDA backend. All pointers are memory that the device can reach.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tandem::test {

/// What a holding kernel and the host say to each other, in pinned memory.
struct GateFlags {
  unsigned open = 0;       ///< set by the host: let everybody pass
  unsigned arrived = 0;    ///< kernels that have reached the gate
  unsigned timed_out = 0;  ///< kernels that gave up
};

/// One thread that waits until the gate is open, or gives up after `timeout_ns`.
void launch_hold(GateFlags* flags, std::uint64_t timeout_ns, cudaStream_t stream);

/// One thread that keeps its stream busy for `ns`, whatever the host does.
void launch_delay(std::uint64_t ns, cudaStream_t stream);

/// Appends `id` to a list: entries[(*count)++] = id.
void launch_log(unsigned* count, unsigned* entries, unsigned id, cudaStream_t stream);

/// words[i] = value.
void launch_fill(std::uint32_t* words, std::size_t count, std::uint32_t value, cudaStream_t stream);

/// *differing += elements of a that are not `value`. 32 or 16 bits an element, compared as bits.
void launch_count_other_than(const std::uint32_t* a, std::size_t count, std::uint32_t value,
                             unsigned long long* differing, cudaStream_t stream);
void launch_count_other_than(const std::uint16_t* a, std::size_t count, std::uint16_t value,
                             unsigned long long* differing, cudaStream_t stream);

/// *differing += words of a that are not those of b.
void launch_count_differing(const std::uint32_t* a, const std::uint32_t* b, std::size_t count,
                            unsigned long long* differing, cudaStream_t stream);

/// *sum = sum of words[i] * (i + 1), modulo 2^64.
void launch_checksum(const std::uint32_t* words, std::size_t count, unsigned long long* sum,
                     cudaStream_t stream);

/// *word = value, by a kernel that asks for `shared_bytes` of dynamic shared memory, as those of
/// ours do that need more than is granted unasked.
void launch_with_shared_memory(std::size_t shared_bytes, unsigned* word, unsigned value,
                               cudaStream_t stream);

/// Loads every kernel of this file, so that none is loaded while a gate is closed: a lazy load
/// behind a kernel that waits for the host would wait for it.
void preload_test_kernels();

}  // namespace tandem::test
