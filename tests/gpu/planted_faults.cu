// SPDX-License-Identifier: Apache-2.0
// One fault for each tool of compute-sanitizer, in kernels that the filter of tests/gpu.sh lets
// through: a tool that does not find its fault here would not find ours either.
// usage: planted_faults memcheck|racecheck|initcheck|synccheck
#include <cuda_runtime_api.h>

#include <cstdio>
#include <string>

namespace tandem::planted {
namespace {

constexpr int kThreads = 64;

/// Writes one element behind the end.
__global__ void memcheck_kernel(int* x) {
  if (threadIdx.x == 0) x[kThreads] = 1;
}

/// Reads its neighbour's element without a barrier.
__global__ void racecheck_kernel(int* x) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  x[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

/// Reads what nobody wrote.
__global__ void initcheck_kernel(int* x) { x[threadIdx.x] += 1; }

/// Half of each warp does not come to the barrier.
__global__ void synccheck_kernel(int* x) {
  if (threadIdx.x % 2 == 0) __syncthreads();
  x[threadIdx.x] = 1;
}

}  // namespace
}  // namespace tandem::planted

int main(int argc, char** argv) {
  using namespace tandem::planted;
  const std::string fault = argc == 2 ? argv[1] : "";
  int* x = nullptr;
  if (cudaMalloc(&x, kThreads * sizeof(int)) != cudaSuccess) return 2;
  if (fault == "memcheck")
    memcheck_kernel<<<1, kThreads>>>(x);
  else if (fault == "racecheck")
    racecheck_kernel<<<1, kThreads>>>(x);
  else if (fault == "initcheck")
    initcheck_kernel<<<1, kThreads>>>(x);
  else if (fault == "synccheck")
    synccheck_kernel<<<1, kThreads>>>(x);
  else
    return 2;
  const cudaError_t status = cudaDeviceSynchronize();
  std::printf("%s: ran (%s)\n", fault.c_str(), cudaGetErrorName(status));
  cudaFree(x);
  return 0;  // whatever the fault did: the exit code of the tool is what counts
}
