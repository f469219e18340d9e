// SPDX-License-Identifier: Apache-2.0
// The first failure of a backend, and which operations it stops. Private to the backends.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <tandem/engine/error.hpp>
#include <tandem/engine/operation.hpp>
#include <utility>

namespace tandem {

/// Every operation carries the generation it was enqueued in; a failure stops its generation, and
/// reporting it starts the next. Thread-safe.
class FailureState {
 public:
  std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_relaxed); }
  bool stops(std::uint64_t generation) const noexcept {
    return generation <= stopped_.load(std::memory_order_relaxed);
  }

  /// There is a failure that has not been reported yet.
  bool pending() const noexcept { return stops(generation()); }

  /// Keeps the first failure of a generation, and names the operation that failed.
  void set(std::uint64_t generation, const BoundOperation& failed, const Error& error) {
    std::lock_guard lock(mutex_);
    if (stops(generation)) return;
    stopped_.store(generation, std::memory_order_relaxed);
    pending_ = Error(error.code(),
                     "operation " + failed.operation->name + " of stage " + failed.stage +
                         " failed at step " + std::to_string(failed.step) + ": " + error.what(),
                     error.hint());
  }

  /// Throws the failure that has not been reported yet, if there is one.
  void throw_pending() {
    std::lock_guard lock(mutex_);
    if (!pending_) return;
    const Error error = *std::exchange(pending_, std::nullopt);
    generation_.fetch_add(1, std::memory_order_relaxed);
    throw error;
  }

 private:
  std::mutex mutex_;
  std::optional<Error> pending_;
  std::atomic<std::uint64_t> generation_{1}, stopped_{0};
};

}  // namespace tandem
