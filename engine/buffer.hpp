// SPDX-License-Identifier: Apache-2.0
// Memory of a backend, and copies in and out of it for set-up and inspection (not for the step).
#pragma once

#include <cstddef>
#include <string_view>
#include <tandem/engine/backend.hpp>
#include <tandem/engine/unique_handle.hpp>

namespace tandem {

struct MemoryTraits {
  struct Handle {
    Backend* backend = nullptr;
    void* data = nullptr;
    MemoryKind kind = MemoryKind::device;
    friend bool operator==(const Handle& a, const Handle& b) noexcept { return a.data == b.data; }
  };
  static Handle null() noexcept { return {}; }
  static void destroy(Handle memory) noexcept { memory.backend->free(memory.data, memory.kind); }
};

/// Owns an allocation of a backend.
class Memory {
 public:
  Memory() = default;
  Memory(Backend& backend, std::size_t bytes, MemoryKind kind, std::string_view purpose);

  void* data() const noexcept { return handle_.get().data; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  UniqueHandle<MemoryTraits> handle_;
  std::size_t bytes_ = 0;
};

/// Copies between two addresses of the backend's memory and waits. For set-up and inspection.
void copy_and_wait(StreamRef stream, void* target, const void* source, std::size_t bytes);

/// Copies host bytes to `target` through pinned memory and waits. For set-up.
void upload(StreamRef stream, void* target, const void* source, std::size_t bytes);

/// Copies `source` to host bytes through pinned memory and waits. For set-up and inspection.
void download(StreamRef stream, void* target, const void* source, std::size_t bytes);

}  // namespace tandem
