// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: streams are CUDA streams, events CUDA events. Needs no CUDA header.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <tandem/engine/algorithms.hpp>
#include <tandem/engine/backend.hpp>

namespace tandem {

/// Where device and pinned memory come from, if not from the CUDA runtime. Every byte the backend
/// uses goes through these two, library workspaces included. `allocate` returns null if there is
/// not enough, else the address of memory that begins at a multiple of 256; any other is given back
/// and refused. Both are called with the backend's device current. No queued work may still use
/// what `allocate` returns: the backend's streams wait for none of the caller's.
struct AllocatorHooks {
  void* (*allocate)(std::size_t bytes, MemoryKind kind, void* user) = nullptr;
  void (*release)(void* memory, MemoryKind kind, void* user) = nullptr;
  void* user = nullptr;
};

class OperationListener;

struct CudaOptions {
  int device = 0;             ///< N of cuda:N, as the CUDA runtime numbers them
  AllocatorHooks hooks;       ///< empty: cudaMalloc and cudaHostAlloc
  AlgorithmTable algorithms;  ///< from `tandem tune`; what is not in it gets the default
  OperationListener* listener = nullptr;  ///< told of streams and operations; outlives the backend
};

/// Streams are non-blocking, events untimed, each stream has its own library handles and one fixed
/// workspace. The caller's current device and pending error are as before after every call that
/// succeeds, and a device of theirs that has no context gets none. Throws Error{no_device} if there
/// is no such device or driver.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options = {});

/// What a CUDA backend has chosen so far: after a plan was prepared, all that it uses.
AlgorithmTable cuda_algorithms(const Backend& backend);

/// GPU, number of multiprocessors, driver and library versions: where a table of algorithms is
/// valid. Throws Error{no_device}.
std::string cuda_environment(int device);

}  // namespace tandem
