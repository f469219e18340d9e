// SPDX-License-Identifier: Apache-2.0
// Decides whether a GPU test runs: without a GPU it is skipped with the reason, unless
// TANDEM_REQUIRE_GPU=1 says that there must be one.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tandem::test {

/// Base of GPU tests. Only the two errors that mean "no GPU" may skip; any other is a failure.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;  // meaningless after an error
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess) return;
    cudaGetLastError();
    const std::string reason =
        std::string("no GPU: ") + cudaGetErrorName(status) + ": " + cudaGetErrorString(status);
    ASSERT_TRUE(status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice) << reason;
    const char* required = std::getenv("TANDEM_REQUIRE_GPU");
    ASSERT_FALSE(required != nullptr && std::string(required) == "1")
        << "TANDEM_REQUIRE_GPU=1, but " << reason;
    GTEST_SKIP() << reason;
  }
};

}  // namespace tandem::test
