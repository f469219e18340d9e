// SPDX-License-Identifier: Apache-2.0
// What query_cuda() says about this machine. Runs with and without a GPU.
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <gtest/gtest.h>

#include <string>
#include <tandem/engine/cuda_info.hpp>
#include <tandem/tests/support/gpu_guard.hpp>

namespace tandem {
namespace {

TEST(CudaInfo, NamesTheLibraries) {
  const CudaInfo info = query_cuda();
  EXPECT_EQ(info.runtime.substr(0, info.runtime.find('.')), std::to_string(CUDART_VERSION / 1000));
  EXPECT_EQ(info.cudnn.substr(0, info.cudnn.find('.')), std::to_string(CUDNN_MAJOR));
  EXPECT_EQ(info.cublaslt.substr(0, info.cublaslt.find('.')),
            std::to_string(CUDART_VERSION / 1000));
}

TEST(CudaInfo, NoDeviceHasAReasonAndADeviceHasNone) {
  const CudaInfo info = query_cuda();
  EXPECT_EQ(info.devices.empty(), !info.reason.empty()) << info.reason;
}

using CudaInfoOnGpu = test::GpuTest;

TEST_F(CudaInfoOnGpu, NamesEachDevice) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  const CudaInfo info = query_cuda();
  EXPECT_FALSE(info.driver.empty());
  ASSERT_EQ(static_cast<int>(info.devices.size()), count) << info.reason;
  for (int index = 0; index < count; ++index) {
    const CudaDevice& device = info.devices[static_cast<std::size_t>(index)];
    EXPECT_EQ(device.index, index);
    EXPECT_FALSE(device.name.empty());
    EXPECT_GE(device.major, 5);
    EXPECT_GT(device.multiprocessors, 0);
    EXPECT_GT(device.memory_bytes, std::size_t{1} << 28);
  }
}

TEST_F(CudaInfoOnGpu, LeavesTheCurrentDevice) {
  int count = 0, before = -1, after = -1;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(count - 1), cudaSuccess);
  ASSERT_EQ(cudaGetDevice(&before), cudaSuccess);
  query_cuda();
  ASSERT_EQ(cudaGetDevice(&after), cudaSuccess);
  EXPECT_EQ(before, after);
}

// Without a driver the runtime's last error always says so: nothing could be seen of it there.
TEST_F(CudaInfoOnGpu, LeavesAPendingErrorPending) {
  ASSERT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  query_cuda();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

}  // namespace
}  // namespace tandem
