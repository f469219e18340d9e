// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/kernel_attributes.hpp>
#include <tandem/kernels/launch.hpp>
#include <tandem/tests/support/gpu_kernels.hpp>

// Not in namespace tandem, by whose name the sanitizers select kernels: these only serve the tests,
// and an instrumented one might not run beside the others.
namespace test_kernels {
namespace {

__device__ std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void hold_kernel(unsigned* arrived, const volatile unsigned* open, unsigned* timed_out,
                            std::uint64_t timeout_ns) {
  atomicAdd_system(arrived, 1u);
  const std::uint64_t start = nanoseconds();
  while (*open == 0) {
    if (nanoseconds() - start > timeout_ns) {
      atomicAdd_system(timed_out, 1u);
      break;
    }
    __nanosleep(200);
  }
  __threadfence_system();
}

__global__ void delay_kernel(std::uint64_t ns) {
  const std::uint64_t start = nanoseconds();
  while (nanoseconds() - start < ns) __nanosleep(200);
}

__global__ void log_kernel(unsigned* count, unsigned* entries, unsigned id) {
  const unsigned at = atomicAdd_system(count, 1u);
  entries[at] = id;
  __threadfence_system();
}

__global__ void fill_kernel(std::uint32_t* words, std::size_t count, std::uint32_t value) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    words[i] = value;
}

template <class T>
__global__ void count_other_than_kernel(const T* a, std::size_t count, T value,
                                        unsigned long long* differing) {
  unsigned long long mine = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    mine += a[i] != value;
  if (mine != 0) atomicAdd(differing, mine);
}

__global__ void count_differing_kernel(const std::uint32_t* a, const std::uint32_t* b,
                                       std::size_t count, unsigned long long* differing) {
  unsigned long long mine = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    mine += a[i] != b[i];
  if (mine != 0) atomicAdd(differing, mine);
}

__global__ void checksum_kernel(const std::uint32_t* words, std::size_t count,
                                unsigned long long* sum) {
  unsigned long long mine = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    mine += static_cast<unsigned long long>(words[i]) * (i + 1);
  atomicAdd(sum, mine);  // integers: any order gives the same sum
}

}  // namespace
}  // namespace test_kernels

namespace tandem::test {
namespace {

using namespace test_kernels;

constexpr LaunchShape kOneThread{1, 1};

template <class T>
void count_other_than(const T* a, std::size_t count, T value, unsigned long long* differing,
                      cudaStream_t stream) {
  if (count == 0) return;
  TANDEM_CUDA_TRY(launch(count_other_than_kernel<T>,
                         elementwise_shape(static_cast<std::int64_t>(count)), stream, a, count,
                         value, differing));
}

__global__ void shared_memory_kernel(unsigned* word, unsigned value) {
  extern __shared__ unsigned shared[];
  shared[0] = value;
  *word = shared[0];
}

template <class Kernel>
void preload(Kernel kernel) {
  cudaFuncAttributes attributes;
  TANDEM_CUDA_TRY(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)));
}

}  // namespace

void launch_hold(GateFlags* flags, std::uint64_t timeout_ns, cudaStream_t stream) {
  TANDEM_CUDA_TRY(launch(hold_kernel, kOneThread, stream, &flags->arrived, &flags->open,
                         &flags->timed_out, timeout_ns));
}

void launch_delay(std::uint64_t ns, cudaStream_t stream) {
  TANDEM_CUDA_TRY(launch(delay_kernel, kOneThread, stream, ns));
}

void launch_log(unsigned* count, unsigned* entries, unsigned id, cudaStream_t stream) {
  TANDEM_CUDA_TRY(launch(log_kernel, kOneThread, stream, count, entries, id));
}

void launch_fill(std::uint32_t* words, std::size_t count, std::uint32_t value,
                 cudaStream_t stream) {
  if (count == 0) return;
  TANDEM_CUDA_TRY(launch(fill_kernel, elementwise_shape(static_cast<std::int64_t>(count)), stream,
                         words, count, value));
}

void launch_count_other_than(const std::uint32_t* a, std::size_t count, std::uint32_t value,
                             unsigned long long* differing, cudaStream_t stream) {
  count_other_than(a, count, value, differing, stream);
}

void launch_count_other_than(const std::uint16_t* a, std::size_t count, std::uint16_t value,
                             unsigned long long* differing, cudaStream_t stream) {
  count_other_than(a, count, value, differing, stream);
}

void launch_count_differing(const std::uint32_t* a, const std::uint32_t* b, std::size_t count,
                            unsigned long long* differing, cudaStream_t stream) {
  if (count == 0) return;
  TANDEM_CUDA_TRY(launch(count_differing_kernel,
                         elementwise_shape(static_cast<std::int64_t>(count)), stream, a, b, count,
                         differing));
}

void launch_checksum(const std::uint32_t* words, std::size_t count, unsigned long long* sum,
                     cudaStream_t stream) {
  TANDEM_CUDA_TRY(cudaMemsetAsync(sum, 0, sizeof *sum, stream));
  TANDEM_CUDA_TRY(launch(checksum_kernel, LaunchShape{64, 256}, stream, words, count, sum));
}

void launch_with_shared_memory(std::size_t shared_bytes, unsigned* word, unsigned value,
                               cudaStream_t stream) {
  allow_shared_memory(reinterpret_cast<const void*>(shared_memory_kernel), shared_bytes);
  const LaunchShape shape{1, 1, static_cast<unsigned>(shared_bytes)};
  TANDEM_CUDA_TRY(launch(shared_memory_kernel, shape, stream, word, value));
}

void preload_test_kernels() {
  preload(hold_kernel);
  preload(delay_kernel);
  preload(log_kernel);
  preload(fill_kernel);
  preload(count_other_than_kernel<std::uint32_t>);
  preload(count_other_than_kernel<std::uint16_t>);
  preload(count_differing_kernel);
  preload(checksum_kernel);
}

}  // namespace tandem::test
