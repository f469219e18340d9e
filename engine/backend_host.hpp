// SPDX-License-Identifier: Apache-2.0
// The host backend: a stream is a worker thread with a queue, an event counts its records.
#pragma once

#include <cstddef>
#include <memory>
#include <tandem/engine/backend.hpp>

namespace tandem {

class OperationListener;

/// Runs the host twins. Device and pinned memory are both plain memory. Under thread sanitizer the
/// declared reads and writes of each operation are announced, so that a missing edge is a reported
/// race even where the bytes are touched by code the sanitizer cannot see. The listener, if there
/// is one, must outlive the backend.
std::unique_ptr<Backend> make_host_backend(OperationListener* listener = nullptr);

/// Bytes that can be taken without pushing others out of memory, as the kernel estimates it; all
/// that is installed where it does not.
std::size_t available_host_memory();

}  // namespace tandem
