// SPDX-License-Identifier: Apache-2.0
// A gate on the device: a kernel that waits for a flag in pinned memory. What
// tests/support/gate.hpp is for worker threads. And operations that launch something.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <tandem/engine/operation.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/tests/support/gpu_kernels.hpp>
#include <thread>
#include <utility>

namespace tandem::test {

/// Owns pinned memory that holds one T, value-initialised.
template <class T>
class Pinned {
 public:
  Pinned() {
    void* memory = nullptr;
    TANDEM_CUDA_TRY(cudaHostAlloc(&memory, sizeof(T), cudaHostAllocPortable));
    value_ = new (memory) T{};
  }
  ~Pinned() { cudaFreeHost(value_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  T* get() const { return value_; }
  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  T* value_ = nullptr;
};

/// Holds streams until the test opens it; stays open. A held kernel gives up after the time-out, so
/// that a bug fails the test instead of hanging the machine: the destructor adds the failure.
/// Everything that will be launched while it is closed must be loaded before.
class GpuGate {
 public:
  static constexpr std::uint64_t kTimeoutSeconds = 20;

  GpuGate() { preload_test_kernels(); }
  ~GpuGate() {
    open();
    cudaDeviceSynchronize();  // the kernels read the flags
    if (timed_out())
      ADD_FAILURE() << "work was held for " << kTimeoutSeconds
                    << " s and nobody opened the gate: what the host waited for was stuck behind "
                       "the held stream (an unwanted dependency between streams, a lazy load, or a "
                       "call that synchronises the device)";
  }

  void hold(cudaStream_t stream) {
    launch_hold(flags_.get(), kTimeoutSeconds * 1'000'000'000u, stream);
  }
  void open() { std::atomic_ref<unsigned>(flags_->open).store(1); }
  bool timed_out() const { return load(flags_->timed_out) != 0; }
  /// Blocks until `count` held kernels run.
  void wait_arrived(int count = 1) const {
    const auto start = std::chrono::steady_clock::now();
    while (load(flags_->arrived) < static_cast<unsigned>(count)) {
      if (std::chrono::steady_clock::now() - start > std::chrono::seconds(kTimeoutSeconds))
        throw std::runtime_error("no kernel has reached the gate");
      std::this_thread::yield();
    }
  }

 private:
  static unsigned load(unsigned& flag) { return std::atomic_ref<unsigned>(flag).load(); }
  Pinned<GateFlags> flags_;
};

/// A callable operation without operands that launches work on the native stream. Must outlive the
/// stream's use of it.
class Launch {
 public:
  using Body = std::function<void(cudaStream_t)>;
  Launch(std::string name, Body body) : body_(std::move(body)) {
    operation_.name = std::move(name);
    operation_.callable = {
        [](void* self, void* const*, const CallContext& context) {
          static_cast<Launch*>(self)->body_(static_cast<cudaStream_t>(context.native_stream));
        },
        this};
    bound_.operation = &operation_;
    bound_.stage = "test";
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  const BoundOperation& bound() const { return bound_; }

 private:
  Body body_;
  Operation operation_;
  BoundOperation bound_;
};

}  // namespace tandem::test
