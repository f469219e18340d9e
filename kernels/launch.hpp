// SPDX-License-Identifier: Apache-2.0
// How many threads, and a launch that returns its own status. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <tandem/kernels/host_device.hpp>

namespace tandem {

struct LaunchShape {
  unsigned grid;              ///< blocks
  unsigned block;             ///< threads a block
  unsigned shared_bytes = 0;  ///< dynamic shared memory a block
};

/// For a kernel whose threads stride over `count` elements. A function of the count alone, never of
/// the device: the same plan gives the same launch everywhere. count >= 1.
inline LaunchShape elementwise_shape(std::int64_t count) {
  constexpr std::int64_t kBlock = 256;
  constexpr std::int64_t kLargestGrid = 1 << 16;
  return {static_cast<unsigned>(std::min(ceil_div(count, kBlock), kLargestGrid)), kBlock};
}

/// Queues a kernel. Unlike a launch by <<< >>> this returns the status of this launch, so that an
/// earlier error of the application is not taken for ours.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), LaunchShape shape, cudaStream_t stream,
                   Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.grid);
  config.blockDim = dim3(shape.block);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

}  // namespace tandem
