// SPDX-License-Identifier: Apache-2.0
// What the kernels share: 16-byte accesses, the loops over them, and sums of a block. For .cu
// files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tandem/kernels/column_tiling.hpp>
#include <tandem/kernels/launch.hpp>

namespace tandem {

/// N adjacent elements, moved by one access.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T element[N];
};

/// How many elements of the widest of some types fit into one access.
template <class... T>
inline constexpr int kPackElements = kPackBytes / static_cast<int>(std::max({sizeof(T)...}));

/// Whether every pointer may be accessed in packs.
template <class... T>
bool is_aligned(const T*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % kPackBytes == 0) && ...);
}

/// A number as an argument, so that a generic lambda can use it as a constant.
template <int N>
struct Width {
  static constexpr int value = N;
};

/// Calls body(Width<N>) for packs of N elements, or body(Width<1>) for the plain path.
template <int N, class Body>
void with_width(bool aligned, Body body) {
  if (aligned) return body(Width<N>{});
  body(Width<1>{});
}

#if defined(__CUDACC__)

template <int N, class T>
__device__ inline Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <int N, class T>
__device__ inline void store_pack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// Calls body(first, Width<N>) for the packs of `count` elements that fall to thread `thread` of
/// `threads`, and body(first, Width<1>) for the elements behind the last whole pack. threads >= N.
template <int N, class Body>
__device__ inline void for_each_pack(std::int64_t thread, std::int64_t threads, std::int64_t count,
                                     Body body) {
  const std::int64_t packs = count / N;
  for (std::int64_t i = thread; i < packs; i += threads) body(i * N, Width<N>{});
  const std::int64_t rest = packs * N + thread;
  if (N > 1 && rest < count) body(rest, Width<1>{});
}

/// The same with the threads of the whole grid.
template <int N, class Body>
__device__ inline void for_each_pack(std::int64_t count, Body body) {
  for_each_pack<N>(std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                   std::int64_t{gridDim.x} * blockDim.x, count, body);
}

/// Sum over the 32 lanes of a warp, by halves; every lane gets it. All lanes must call.
__device__ inline double warp_sum(double value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

/// Sum over the threads of a block of kBlockThreads: by halves in each warp, then warp by warp.
/// Thread 0 gets it. All threads must call, and at most once a kernel.
__device__ inline double block_sum(double value) {
  constexpr int kWarps = kBlockThreads / 32;
  __shared__ double warp_sums[kWarps];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kWarps; ++warp) value += warp_sums[warp];
  }
  return value;
}

#endif  // __CUDACC__

}  // namespace tandem
