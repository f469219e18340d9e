// SPDX-License-Identifier: Apache-2.0
// The SGD kernel with momentum against its host twin, bit for bit, and what a launch does to
// errors.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <deque>
#include <cstring>
#include <limits>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/philox.hpp>
#include <tandem/kernels/sgd.hpp>
#include <tandem/tests/support/device_memory.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <vector>

namespace tandem::test {
namespace {

constexpr std::size_t kGuard = 64;  // elements behind the end that nobody may touch

/// Normal numbers over many magnitudes, with a zero, an infinity, a NaN and a subnormal among them,
/// and a guard of NaNs behind.
std::vector<float> numbers(std::size_t count, std::uint64_t stream) {
  std::vector<float> values(count + kGuard, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t i = 0; i < count; ++i) {
    const PhiloxWords words = philox4x32_10(philox_counter(i, stream), philox_key(7));
    values[i] =
        static_cast<float>(std::ldexp(normal_pair(words).first, static_cast<int>(i % 21) - 10));
  }
  const float special[] = {0.0f, std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(), 1e-42f};
  for (std::size_t i = 0; i < 4 && 10 * i + stream < count; ++i)
    values[10 * i + stream] = special[i];
  return values;
}

BatchHeader header_for(std::int64_t valid_count) {
  BatchHeader header;
  header.valid_count = valid_count;
  header.learning_rate = 0.1f;
  header.momentum = 0.9f;
  header.weight_decay = 1e-2f;
  return header;
}

/// NaNs differ in payload between host and device; which element is one must agree.
::testing::AssertionResult same_bits(const std::vector<float>& expected,
                                     const std::vector<float>& actual) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    if (std::memcmp(&expected[i], &actual[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << "element " << i << " of " << expected.size()
                                           << ": expected " << expected[i] << ", is " << actual[i];
    }
  }
  return ::testing::AssertionSuccess();
}

class SgdKernel : public GpuTest {
 protected:
  /// Three updates on the device and on the host, from the same numbers.
  void compare(std::size_t count, std::int64_t valid_count) {
    const BatchHeader header = header_for(valid_count);
    const std::vector<float> dw = numbers(count, 0);
    std::vector<float> v = numbers(count, 1), w = numbers(count, 2);
    const std::vector<float> v_before = v, w_before = w;

    const DeviceVector<BatchHeader> device_header({header});
    const DeviceVector<float> device_dw(dw), device_v(v), device_w(w);
    cudaStream_t stream = nullptr;
    TANDEM_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int step = 0; step < 3; ++step) {
      cuda::sgd_momentum(device_header.data(), device_dw.data(), device_v.data(), device_w.data(),
                         static_cast<std::int64_t>(count), stream);
      host::sgd_momentum(header, dw.data(), v.data(), w.data(), static_cast<std::int64_t>(count));
    }
    TANDEM_CUDA_TRY(cudaStreamSynchronize(stream));
    TANDEM_CUDA_TRY(cudaStreamDestroy(stream));

    EXPECT_TRUE(same_bits(v, device_v.to_host())) << "velocities";
    EXPECT_TRUE(same_bits(w, device_w.to_host())) << "weights";
    EXPECT_TRUE(same_bits(dw, device_dw.to_host())) << "gradients are only read";
    EXPECT_EQ(valid_count == 0, static_cast<bool>(same_bits(w_before, w)));
    EXPECT_EQ(valid_count == 0, static_cast<bool>(same_bits(v_before, v)));
  }
};

TEST_F(SgdKernel, EqualsTheTwinBitForBit) {
  for (const std::size_t count : {1, 255, 256, 257, 100003}) {
    SCOPED_TRACE(count);
    compare(count, 517);
  }
}

TEST_F(SgdKernel, ManyTensorsEqualTheTwinBitForBit) {
  const std::size_t counts[] = {1, 4096, 100003, 10, (std::size_t{1} << 21) + 5, 0, 257};
  for (const std::int64_t valid_count : {517, 0}) {
    const BatchHeader header = header_for(valid_count);
    std::vector<std::vector<float>> dw, v, w;
    std::vector<std::vector<bf16>> copies;
    std::deque<DeviceVector<float>> device_dw, device_v, device_w;  // they do not move
    std::deque<DeviceVector<bf16>> device_copies;
    std::vector<SgdTensor<float>> on_host, on_device;
    for (std::size_t i = 0; i < std::size(counts); ++i) {
      dw.push_back(numbers(counts[i], 0));
      v.push_back(numbers(counts[i], 1));
      w.push_back(numbers(counts[i], 2));
      copies.emplace_back(counts[i] + kGuard, bf16(-7.0f));
    }
    for (std::size_t i = 0; i < std::size(counts); ++i) {
      device_dw.emplace_back(dw[i]);
      device_v.emplace_back(v[i]);
      device_w.emplace_back(w[i]);
      device_copies.emplace_back(copies[i]);
      const bool velocity = i % 2 == 0, copy = i % 3 != 2;
      const auto elements = static_cast<std::int64_t>(counts[i]);
      on_host.push_back({dw[i].data(), velocity ? v[i].data() : nullptr, w[i].data(),
                         copy ? copies[i].data() : nullptr, elements});
      on_device.push_back({device_dw[i].data(), velocity ? device_v[i].data() : nullptr,
                           device_w[i].data(), copy ? device_copies[i].data() : nullptr, elements});
    }
    const DeviceVector<BatchHeader> device_header({header});
    const int count = static_cast<int>(on_host.size());
    host::sgd_many(header, on_host.data(), count);
    cudaStream_t stream = nullptr;
    TANDEM_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cuda::sgd_many(device_header.data(), on_device.data(), count, stream);
    TANDEM_CUDA_TRY(cudaStreamSynchronize(stream));
    TANDEM_CUDA_TRY(cudaStreamDestroy(stream));
    for (std::size_t i = 0; i < std::size(counts); ++i) {
      SCOPED_TRACE(counts[i]);
      EXPECT_TRUE(same_bits(w[i], device_w[i].to_host())) << "weights";
      EXPECT_TRUE(same_bits(v[i], device_v[i].to_host())) << "velocities";
      EXPECT_TRUE(same_bits(dw[i], device_dw[i].to_host())) << "gradients are only read";
      const std::vector<bf16> narrow = device_copies[i].to_host();
      EXPECT_TRUE(same_bits(std::vector<float>(copies[i].begin(), copies[i].end()),
                            std::vector<float>(narrow.begin(), narrow.end())))
          << "copies";
    }
  }
}

TEST_F(SgdKernel, StridesOverMoreElementsThanThreads) {
  compare((std::size_t{1} << 24) + 257, 517);
}

TEST_F(SgdKernel, CountBeyondTheFractionOfAFloat) { compare(257, (std::int64_t{1} << 24) + 1); }

TEST_F(SgdKernel, NothingChangesWithoutValidLabels) { compare(257, 0); }

TEST_F(SgdKernel, NoElementsIsNoLaunch) {
  EXPECT_NO_THROW(cuda::sgd_momentum(nullptr, nullptr, nullptr, nullptr, 0, nullptr));
}

TEST_F(SgdKernel, ASuccessfulLaunchLeavesAnEarlierErrorPending) {
  const DeviceVector<BatchHeader> header({header_for(1)});
  const DeviceVector<float> dw({1.0f}), v({0.0f}), w({1.0f});
  ASSERT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  EXPECT_NO_THROW(
      cuda::sgd_momentum(header.data(), dw.data(), v.data(), w.data(), 1, cudaStreamPerThread));
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  TANDEM_CUDA_TRY(cudaStreamSynchronize(cudaStreamPerThread));
}

TEST_F(SgdKernel, AFailedCallNamesItselfAndIsCleared) {
  try {
    TANDEM_CUDA_TRY(cudaSetDevice(-1));
    FAIL() << "no exception";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.status(), cudaErrorInvalidDevice);
    for (const char* part : {"sgd_test.cpp", "cudaSetDevice(-1)", "cudaErrorInvalidDevice"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace tandem::test
