// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <tandem/engine/buffer.hpp>

namespace tandem {

Memory::Memory(Backend& backend, std::size_t bytes, MemoryKind kind, std::string_view purpose)
    : handle_(UniqueHandle<MemoryTraits>::adopt(
          {&backend, backend.allocate(bytes, kind, purpose), kind})),
      bytes_(bytes) {}

void copy_and_wait(StreamRef stream, void* target, const void* source, std::size_t bytes) {
  Operation copy;
  copy.kind = OpKind::copy;
  copy.name = "copy";
  copy.operands = {{-1, byte_desc(bytes), Access::read, "source"},
                   {-1, byte_desc(bytes), Access::write, "target"}};
  BoundOperation bound;
  bound.operation = &copy;
  bound.pointers[0] = const_cast<void*>(source);
  bound.pointers[1] = target;
  bound.stage = "set-up";
  stream.backend->enqueue(stream, bound);
  stream.backend->synchronise(stream);
}

namespace {

/// To pin memory takes longer than to copy as much, so a large copy goes through a little in parts.
constexpr std::size_t kStagingBytes = std::size_t{4} << 20;

/// Calls part(staging, offset, bytes) for all of the bytes, in order.
template <class Part>
void through_pinned(Backend& backend, std::size_t bytes, std::string_view purpose,
                    const Part& part) {
  const Memory staging(backend, std::min(bytes, kStagingBytes), MemoryKind::pinned, purpose);
  for (std::size_t offset = 0; offset < bytes; offset += staging.bytes())
    part(staging.data(), offset, std::min(staging.bytes(), bytes - offset));
}

}  // namespace

void upload(StreamRef stream, void* target, const void* source, std::size_t bytes) {
  if (!stream.backend->executes() || bytes == 0) return;
  through_pinned(*stream.backend, bytes, "staging for an upload",
                 [&](void* staging, std::size_t offset, std::size_t part) {
                   std::memcpy(staging, static_cast<const std::byte*>(source) + offset, part);
                   copy_and_wait(stream, static_cast<std::byte*>(target) + offset, staging, part);
                 });
}

void download(StreamRef stream, void* target, const void* source, std::size_t bytes) {
  if (!stream.backend->executes() || bytes == 0) return;
  through_pinned(*stream.backend, bytes, "staging for a download",
                 [&](void* staging, std::size_t offset, std::size_t part) {
                   copy_and_wait(stream, staging, static_cast<const std::byte*>(source) + offset,
                                 part);
                   std::memcpy(static_cast<std::byte*>(target) + offset, staging, part);
                 });
}

}  // namespace tandem
