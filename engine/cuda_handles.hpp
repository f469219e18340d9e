// SPDX-License-Identifier: Apache-2.0
// How a handle of CUDA or of one of its libraries is owned. Private to the CUDA half.
#pragma once

#include <tandem/engine/unique_handle.hpp>

namespace tandem {

/// Traits of a handle that null stands for and `destroy_call` ends:
///
///   using CudaStream = UniqueHandle<CudaHandleTraits<cudaStream_t, cudaStreamDestroy>>;
///
/// A destructor can do nothing about a status, and at the end of the process the driver may be gone
/// already: it is ignored.
template <class HandleType, auto destroy_call>
struct CudaHandleTraits {
  using Handle = HandleType;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle handle) noexcept { static_cast<void>(destroy_call(handle)); }
};

}  // namespace tandem
