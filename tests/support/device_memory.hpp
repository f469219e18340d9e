// SPDX-License-Identifier: Apache-2.0
// Device memory for tests of kernels: copies of vectors, with guards around them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstring>
#include <tandem/kernels/check.hpp>
#include <vector>

namespace tandem::test {

/// Device memory with a copy of a vector.
template <class T>
class DeviceVector {
 public:
  explicit DeviceVector(const std::vector<T>& values) : size_(values.size()) {
    TANDEM_CUDA_TRY(cudaMalloc(&data_, size_ * sizeof(T)));
    TANDEM_CUDA_TRY(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
    // A copy from pageable memory may return before its last bytes have arrived, and a non-blocking
    // stream does not wait for it: a kernel there would read what the allocation held before.
    TANDEM_CUDA_TRY(cudaDeviceSynchronize());
  }
  DeviceVector(const DeviceVector&) = delete;
  DeviceVector& operator=(const DeviceVector&) = delete;
  ~DeviceVector() { cudaFree(data_); }

  T* data() const { return static_cast<T*>(data_); }

  /// The contents now. What writes them must have been waited for.
  std::vector<T> to_host() const {
    std::vector<T> values(size_);
    TANDEM_CUDA_TRY(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t size_;
  void* data_ = nullptr;
};

/// A tensor in device memory, between guards. Who writes one is seen, also if it only carries the
/// operation on too far: the guards of a tensor with values are negative numbers, which ReLU, a
/// bias or an update would change, those of an output are NaN, which no copy of the former is. It
/// starts `offset` elements behind an address aligned to 256 bytes.
template <class T>
class GuardedVector {
 public:
  explicit GuardedVector(const std::vector<T>& values, std::size_t offset = 0)
      : GuardedVector(values, offset, kNegative) {}

  /// Full of NaN: for what a kernel only writes.
  static GuardedVector poisoned(std::size_t count, std::size_t offset = 0) {
    std::vector<T> values(count);
    std::memset(static_cast<void*>(values.data()), kNaN, count * sizeof(T));
    return GuardedVector(values, offset, kNaN);
  }

  T* data() const { return reinterpret_cast<T*>(memory_.data() + start_); }

  std::vector<T> to_host() const {
    const std::vector<unsigned char> bytes = memory_.to_host();
    std::vector<T> values(count_);
    std::memcpy(static_cast<void*>(values.data()), bytes.data() + start_, count_ * sizeof(T));
    return values;
  }

  /// Whether the guards are as they were.
  bool intact() const {
    const std::vector<unsigned char> bytes = memory_.to_host();
    const std::size_t end = start_ + count_ * sizeof(T);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if ((i < start_ || i >= end) && bytes[i] != guard_) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuardBytes = 256;
  // Repeated, they are such a number in every floating-point type.
  static constexpr unsigned char kNegative = 0xBF, kNaN = 0xFF;

  GuardedVector(const std::vector<T>& values, std::size_t offset, unsigned char guard)
      : count_(values.size()),
        start_(kGuardBytes + offset * sizeof(T)),
        guard_(guard),
        memory_(with_guards(values)) {}

  std::vector<unsigned char> with_guards(const std::vector<T>& values) const {
    const std::size_t size = values.size() * sizeof(T);
    std::vector<unsigned char> bytes(start_ + size + kGuardBytes, guard_);
    std::memcpy(bytes.data() + start_, values.data(), size);
    return bytes;
  }

  std::size_t count_;
  std::size_t start_;
  unsigned char guard_;
  DeviceVector<unsigned char> memory_;
};

/// A non-blocking stream; its owner waits for it before it goes.
class TestStream {
 public:
  TestStream() { TANDEM_CUDA_TRY(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  ~TestStream() { cudaStreamDestroy(stream_); }

  cudaStream_t get() const { return stream_; }
  void wait() const { TANDEM_CUDA_TRY(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace tandem::test
