// SPDX-License-Identifier: Apache-2.0
// Contexts of the driver below the runtime: one that the application made itself, and one that it
// never needed.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/engine/cuda_events_source.hpp>
#include <tandem/engine/cuda_info.hpp>
#include <tandem/engine/cuda_timing.hpp>
#include <tandem/engine/recorder.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/cuda_context.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/gpu_kernels.hpp>
#include <tandem/tests/support/small_segmenter.hpp>

namespace tandem::test {
namespace {

/// A function of the driver, by its name in the binary interface.
template <class Function>
Function driver_function(const char* name) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* const function = library == nullptr ? nullptr : dlsym(library, name);
  if (function == nullptr) throw std::runtime_error(std::string("no ") + name);
  return reinterpret_cast<Function>(function);
}

class ContextOnCuda : public GpuTest {};

/// A kernel that needs more shared memory than is granted unasked, in the current context.
unsigned launched_with(std::size_t bytes, unsigned value) {
  void* memory = nullptr;
  TANDEM_CUDA_TRY(cudaMalloc(&memory, sizeof(unsigned)));
  auto* const word = static_cast<unsigned*>(memory);
  launch_with_shared_memory(bytes, word, value, nullptr);
  unsigned found = 0;
  TANDEM_CUDA_TRY(cudaMemcpy(&found, word, sizeof found, cudaMemcpyDeviceToHost));
  TANDEM_CUDA_TRY(cudaFree(word));
  return found;
}

TEST_F(ContextOnCuda, SharedMemoryIsAllowedInEachContextThatAsks) {
  constexpr std::size_t kBytes = 96 << 10;
  EXPECT_EQ(launched_with(kBytes, 1), 1u);
  CUctx_st* const primary = current_context();
  const auto create =
      driver_function<int (*)(CUctx_st**, unsigned flags, int device)>("cuCtxCreate_v2");
  const auto destroy = driver_function<int (*)(CUctx_st*)>("cuCtxDestroy_v2");
  CUctx_st* own = nullptr;
  ASSERT_EQ(create(&own, 0, 0), 0);  // it is current now
  ASSERT_EQ(current_context(), own);
  EXPECT_NE(context_id(own), context_id(primary));
  EXPECT_EQ(launched_with(kBytes, 2), 2u);
  pop_context();
  EXPECT_EQ(launched_with(kBytes, 3), 3u);
  EXPECT_EQ(destroy(own), 0);
  EXPECT_EQ(current_context(), primary);
  EXPECT_EQ(primary_context(0), primary);
}

bool has_context(int device) {
  const auto state = driver_function<int (*)(int, unsigned*, int*)>("cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int active = -1;
  EXPECT_EQ(state(device, &flags, &active), 0);
  return active == 1;
}

void expect_untouched(const char* after) {
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 0) << after;
  EXPECT_FALSE(has_context(0)) << "a context was made on a device that is not used: " << after;
  EXPECT_EQ(current_context(), nullptr) << after;
}

// In a process of its own, whose current device, 0, nobody ever uses.
TEST(ContextChild, DISABLED_TheSecondDeviceOnly) {
  { const CudaStageTimer timer(1, 2, 0, 3); }
  EXPECT_TRUE(has_context(1));
  expect_untouched("timing stages");
  Recorder recorder({"encode", "train"});
  {
    const auto source = make_cuda_events_source(1, recorder, false);
    CudaOptions options;
    options.device = 1;
    options.listener = source.get();
    const auto backend = make_cuda_backend(options);
    SmallSegmenter segmenter(*backend, small_config(Schedule::overlap));
    source->start();
    segmenter.train(0, 5);
    source->stop();
    EXPECT_EQ(segmenter.losses().size(), 5u);
    expect_untouched("training");
  }
  expect_untouched("training and timing operations");
  EXPECT_GT(free_device_memory(1), 0u);
  expect_untouched("asking for free memory");
}

TEST_F(ContextOnCuda, ADeviceThatIsNotUsedGetsNoContext) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  if (count < 2) GTEST_SKIP() << "one GPU";
  std::array<char, 4096> path{};
  ASSERT_GT(readlink("/proc/self/exe", path.data(), path.size() - 1), 0);
  const std::string command =
      std::string("'") + path.data() +
      "' --gtest_also_run_disabled_tests --gtest_filter=ContextChild.* 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  std::array<char, 4096> chunk{};
  while (std::fgets(chunk.data(), static_cast<int>(chunk.size()), pipe) != nullptr)
    output += chunk.data();
  const int status = pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << output;
}

}  // namespace
}  // namespace tandem::test
