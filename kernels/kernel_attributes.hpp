// SPDX-License-Identifier: Apache-2.0
// Shared memory of kernels that want more than a launch grants unasked.
#pragma once

#include <cstddef>

namespace tandem {

/// Lets launches of a kernel in the current context ask for up to `bytes` of dynamic shared memory.
/// Each context has a kernel of its own: the device's primary one, and any that the application
/// made with the driver. The runtime is told once a kernel, context and size, in a thread of its
/// own: the call that tells it also forgets the thread's last error, which is the application's.
/// Thread-safe, also while a stream is captured. Throws CudaError.
void allow_shared_memory(const void* kernel, std::size_t bytes);

}  // namespace tandem
