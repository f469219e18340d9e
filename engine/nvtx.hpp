// SPDX-License-Identifier: Apache-2.0
// Ranges and names for Nsight Systems and other tools that listen to NVTX, in the domain `tandem`.
// Names of ranges are public interface: docs/profiling.md lists them.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

struct CUstream_st;

namespace tandem::nvtx {

enum class Category : std::uint32_t {
  stage = 1,  ///< a stage's part of one step
  operation,  ///< one operation of a stage
  capture,    ///< the recorded steps of a cycle, for tools that start and stop with a range
};

namespace detail {

/// Set for good once it is known that no tool listens; from the start where NVTX is compiled out.
extern std::atomic<bool> silent;
inline bool is_silent() noexcept { return silent.load(std::memory_order_relaxed); }

/// False, and nothing to pop, if no tool listens.
bool push(Category category, const std::string& name, std::uint64_t step);
void pop() noexcept;
/// 0 if no tool listens.
std::uint64_t start(Category category, const std::string& name, std::uint64_t step);
void end(std::uint64_t range) noexcept;

}  // namespace detail

/// True if a tool listens. The first call loads the tool.
bool listening() noexcept;

/// A range from here to the end of the scope, in this thread. Without a tool it costs one branch
/// at each end.
class [[nodiscard]] Range {
 public:
  Range(Category category, const std::string& name, std::uint64_t step)
      : pushed_(!detail::is_silent() && detail::push(category, name, step)) {}
  ~Range() {
    if (pushed_) detail::pop();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  const bool pushed_;
};

/// A range that may begin in one thread and end in another. It ends with the object, or when
/// another is moved in. Not thread-safe.
class [[nodiscard]] Span {
 public:
  Span() = default;
  Span(Category category, const std::string& name, std::uint64_t step)
      : range_(detail::is_silent() ? 0 : detail::start(category, name, step)) {}
  Span(Span&& other) noexcept : range_(std::exchange(other.range_, 0)) {}
  Span& operator=(Span&& other) noexcept {
    Span(std::move(other)).swap(*this);
    return *this;
  }
  ~Span() {
    if (range_ != 0) detail::end(range_);
  }

 private:
  void swap(Span& other) noexcept { std::swap(range_, other.range_); }
  std::uint64_t range_ = 0;
};

/// Names the calling thread.
void name_thread(const std::string& name) noexcept;

/// Names a stream of the CUDA runtime; belongs to the CUDA half.
void name_stream(CUstream_st* stream, const std::string& name) noexcept;

}  // namespace tandem::nvtx
