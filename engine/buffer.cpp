// SPDX-License-Identifier: Apache-2.0
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

void upload(StreamRef stream, void* target, const void* source, std::size_t bytes) {
  if (!stream.backend->executes() || bytes == 0) return;
  Memory staging(*stream.backend, bytes, MemoryKind::pinned, "staging for an upload");
  std::memcpy(staging.data(), source, bytes);
  copy_and_wait(stream, target, staging.data(), bytes);
}

void download(StreamRef stream, void* target, const void* source, std::size_t bytes) {
  if (!stream.backend->executes() || bytes == 0) return;
  Memory staging(*stream.backend, bytes, MemoryKind::pinned, "staging for a download");
  copy_and_wait(stream, staging.data(), source, bytes);
  std::memcpy(target, staging.data(), bytes);
}

}  // namespace tandem
