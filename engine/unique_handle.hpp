// SPDX-License-Identifier: Apache-2.0
// The one owner template. Streams, events, and every library handle are aliases of it.
#pragma once

#include <utility>

namespace tandem {

/// Owns a handle and destroys it exactly once. `Traits` names the handle and how it ends:
///
///   struct Traits {
///     using Handle = ...;                        // copyable, comparable
///     static Handle null() noexcept;             // the value that owns nothing
///     static void destroy(Handle) noexcept;      // never called with null()
///   };
///
/// Move-only; a moved-from owner is empty; assigning over a live one destroys what it held;
/// self-move is harmless. Not thread-safe, as any value.
template <class Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;

  UniqueHandle() noexcept = default;
  ~UniqueHandle() { reset(); }

  /// Takes ownership of an existing handle. A named function, so that it never happens by accident.
  [[nodiscard]] static UniqueHandle adopt(Handle handle) noexcept {
    UniqueHandle owner;
    owner.handle_ = handle;
    return owner;
  }

  UniqueHandle(UniqueHandle&& other) noexcept : handle_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    UniqueHandle(std::move(other)).swap(*this);
    return *this;
  }
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;

  Handle get() const& noexcept { return handle_; }
  Handle get() const&& = delete;  // the handle would be dead by the time the caller has it

  explicit operator bool() const noexcept { return !(handle_ == Traits::null()); }

  /// Gives up ownership; the caller destroys the handle.
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, Traits::null()); }

  void reset() noexcept {
    if (Handle old = std::exchange(handle_, Traits::null()); !(old == Traits::null()))
      Traits::destroy(old);
  }

  void swap(UniqueHandle& other) noexcept { std::swap(handle_, other.handle_); }

 private:
  Handle handle_ = Traits::null();
};

}  // namespace tandem
