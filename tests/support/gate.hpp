// SPDX-License-Identifier: Apache-2.0
// What tests order work with instead of sleeping: gates, counters, and operations made of a lambda.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <tandem/engine/backend.hpp>
#include <utility>
#include <vector>

namespace tandem::testing {

/// Holds whoever passes until the test opens it. Stays open afterwards.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  /// Blocks until `count` callers have reached the gate.
  void wait_arrived(int count = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrived_ = 0;
};

/// Opens a gate at the end of its scope, so that a failed assertion ends the test instead of
/// leaving it in a destructor that waits for held work. Declare it after what holds streams.
template <class AnyGate>
class [[nodiscard]] OpenOnExit {
 public:
  explicit OpenOnExit(AnyGate& gate) : gate_(gate) {}
  ~OpenOnExit() { gate_.open(); }
  OpenOnExit(const OpenOnExit&) = delete;
  OpenOnExit& operator=(const OpenOnExit&) = delete;

 private:
  AnyGate& gate_;
};

/// A number that only grows, and that one can wait for.
class Counter {
 public:
  void add(std::uint64_t n = 1) {
    std::lock_guard lock(mutex_);
    value_ += n;
    changed_.notify_all();
  }
  std::uint64_t value() const {
    std::lock_guard lock(mutex_);
    return value_;
  }
  void wait_for(std::uint64_t at_least) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return value_ >= at_least; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t value_ = 0;
};

/// An operation whose body is a function object, with addresses given directly. Must outlive the
/// stream's use of it.
class Work {
 public:
  struct Touch {
    void* data = nullptr;
    std::size_t bytes = 0;
    Access access = Access::read;
    std::string name;
  };

  explicit Work(std::string name, std::function<void()> body = {}, std::vector<Touch> touches = {},
                std::string stage = "test", std::uint64_t step = 0)
      : body_(std::move(body)), stage_(std::move(stage)) {
    operation_.name = std::move(name);
    operation_.callable = {&Work::call, this};
    for (std::size_t i = 0; i < touches.size(); ++i) {
      Operand operand;
      operand.desc = byte_desc(touches[i].bytes);
      operand.access = touches[i].access;
      operand.name = touches[i].name;
      operation_.operands.push_back(std::move(operand));
      bound_.pointers[i] = touches[i].data;
    }
    bound_.operation = &operation_;
    bound_.stage = stage_.c_str();
    bound_.step = step;
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  const BoundOperation& bound() const { return bound_; }

 private:
  static void call(void* user, void* const*, const CallContext&) {
    if (auto& body = static_cast<Work*>(user)->body_) body();
  }

  std::function<void()> body_;
  std::string stage_;
  Operation operation_;
  BoundOperation bound_;
};

}  // namespace tandem::testing
