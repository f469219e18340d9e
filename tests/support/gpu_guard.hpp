// SPDX-License-Identifier: Apache-2.0
// Decides whether a GPU test runs: without a GPU it is skipped with the reason, unless
// TANDEM_REQUIRE_GPU=1 says that there must be one.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tandem::test {

inline bool gpu_is_required() {
  const char* required = std::getenv("TANDEM_REQUIRE_GPU");
  return required != nullptr && std::string(required) == "1";
}

/// To be called in SetUp(), and to be followed there by `if (!runs()) return;` where more follows.
/// Only the two errors that mean "no GPU" may skip; any other is a failure.
inline void skip_without_gpu() {
  int count = 0;  // meaningless after an error
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess) return;
  cudaGetLastError();
  const std::string reason =
      std::string("no GPU: ") + cudaGetErrorName(status) + ": " + cudaGetErrorString(status);
  ASSERT_TRUE(status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice) << reason;
  ASSERT_FALSE(gpu_is_required()) << "TANDEM_REQUIRE_GPU=1, but " << reason;
  GTEST_SKIP() << reason;
}

/// Whether the running test was neither skipped nor failed yet.
inline bool runs() { return !::testing::Test::IsSkipped() && !::testing::Test::HasFatalFailure(); }

/// Base of GPU tests.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override { skip_without_gpu(); }
};

}  // namespace tandem::test
