// SPDX-License-Identifier: Apache-2.0
// Which failures mean that a smaller batch may do, and which end a search. Needs no GPU.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <gtest/gtest.h>

#include <string>
#include <tandem/engine/finder.hpp>
#include <tandem/engine/library_check.hpp>
#include <tandem/kernels/check.hpp>
#include <vector>

namespace tandem {
namespace {

enum class Library { runtime, cublas, cudnn };
struct Case {
  Library library;
  int status;
  bool retried;  // with a smaller size
};

const std::vector<Case> kCases{
    {Library::runtime, cudaErrorMemoryAllocation, true},
    {Library::cublas, CUBLAS_STATUS_ALLOC_FAILED, true},
    {Library::cudnn, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, true},
    {Library::cudnn, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, true},
    // Sticky: nothing on the device can be trusted after these.
    {Library::runtime, cudaErrorIllegalAddress, false},
    {Library::runtime, cudaErrorMisalignedAddress, false},
    {Library::runtime, cudaErrorLaunchFailure, false},
    {Library::runtime, cudaErrorIllegalInstruction, false},
    {Library::runtime, cudaErrorAssert, false},
    {Library::runtime, cudaErrorLaunchTimeout, false},
    // Of the launch or the call, whatever memory there is.
    {Library::runtime, cudaErrorInvalidValue, false},
    {Library::runtime, cudaErrorInvalidConfiguration, false},
    {Library::runtime, cudaErrorLaunchOutOfResources, false},
    {Library::runtime, cudaErrorNoKernelImageForDevice, false},
    {Library::runtime, cudaErrorInitializationError, false},
    {Library::cublas, CUBLAS_STATUS_NOT_INITIALIZED, false},
    {Library::cublas, CUBLAS_STATUS_NOT_SUPPORTED, false},
    {Library::cublas, CUBLAS_STATUS_EXECUTION_FAILED, false},
    {Library::cublas, CUBLAS_STATUS_INTERNAL_ERROR, false},
    {Library::cudnn, CUDNN_STATUS_NOT_SUPPORTED, false},
    {Library::cudnn, CUDNN_STATUS_EXECUTION_FAILED, false},
    {Library::cudnn, CUDNN_STATUS_INTERNAL_ERROR, false},
};

/// Fails as the backend does where such a call failed.
[[noreturn]] void fail(const Case& c) {
  if (c.library == Library::cublas) check_cublas(c.status, "call()", "file", 1);
  if (c.library == Library::cudnn) check_cudnn(c.status, "call()", "file", 1);
  throw Error(cuda_error_code(c.status), "call()");
}

/// Fails from 8 samples on.
class FailingProbe final : public BatchProbe {
 public:
  explicit FailingProbe(const Case& failure) : case_(failure) {}
  std::size_t predict_bytes(std::int64_t) override { return 1; }
  BatchTrial run(std::int64_t batch, std::int64_t, std::int64_t steps, double) override {
    if (batch >= 8) fail(case_);
    return {std::vector<double>(static_cast<std::size_t>(steps), 1e-3), 1};
  }

 private:
  const Case& case_;
};

TEST(ErrorCodes, OnlyMissingMemoryIsTriedWithASmallerBatch) {
  for (const Case& c : kCases) {
    FailingProbe probe(c);
    FinderOptions options;
    options.memory_bytes = 100;
    options.max = 16;
    options.measured_seconds = 0;
    const std::string which =
        std::to_string(static_cast<int>(c.library)) + ": status " + std::to_string(c.status);
    try {
      const FinderResult result = find_batch(probe, options);
      EXPECT_TRUE(c.retried) << which;
      EXPECT_EQ(result.largest_feasible.batch, 7) << which;
      for (const BatchRow& row : result.rows)
        EXPECT_EQ(row.status, row.batch < 8 ? BatchStatus::ok : BatchStatus::out_of_memory)
            << which;
    } catch (const Error& error) {
      EXPECT_FALSE(c.retried) << which << ": " << error.what();
      EXPECT_EQ(error.code(), ErrorCode::run_failed) << which;
      EXPECT_EQ(std::string(error.what()).rfind("batch 8: ", 0), 0u) << error.what();
    }
  }
}

}  // namespace
}  // namespace tandem
