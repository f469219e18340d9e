// SPDX-License-Identifier: Apache-2.0
#include <tandem/engine/backend_trace.hpp>

namespace tandem {
namespace {

constexpr std::uintptr_t kAlignment = 256;

// Streams and events are numbered in order of creation; null stays free for "none", -1.
void* to_id(std::size_t index) { return reinterpret_cast<void*>(index + 1); }
int to_index(void* id) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(id)) - 1; }

}  // namespace

void TraceBackend::clear() {
  trace_.entries.clear();
  latest_record_.assign(latest_record_.size(), -1);
}

void* TraceBackend::allocate(std::size_t bytes, MemoryKind, std::string_view) {
  void* memory = reinterpret_cast<void*>(next_address_);
  // At least one byte apart, so that no two allocations have the same address.
  next_address_ += (bytes + kAlignment) / kAlignment * kAlignment;
  return memory;
}

void TraceBackend::free(void*, MemoryKind) noexcept {}

StreamRef TraceBackend::create_stream(std::string_view name) {
  trace_.streams.emplace_back(name);
  return {this, to_id(trace_.streams.size() - 1)};
}

void TraceBackend::destroy_stream(StreamRef) noexcept {}

EventRef TraceBackend::create_event(std::string_view name) {
  trace_.events.emplace_back(name);
  latest_record_.push_back(-1);
  return {this, to_id(trace_.events.size() - 1)};
}

void TraceBackend::destroy_event(EventRef) noexcept {}

void TraceBackend::enqueue(StreamRef stream, const BoundOperation& bound) {
  const Operation& operation = *bound.operation;
  TraceEntry entry;
  entry.kind = TraceEntry::operation;
  entry.stream = to_index(stream.id);
  entry.name = operation.name;
  entry.stage = bound.stage;
  entry.step = bound.step;
  for (std::size_t i = 0; i < operation.operands.size(); ++i) {
    const Operand& operand = operation.operands[i];
    const auto begin = reinterpret_cast<std::uintptr_t>(bound.pointers[i]);
    entry.accesses.push_back({begin, begin + operand.desc.bytes(), operand.access, operand.name});
  }
  trace_.entries.push_back(std::move(entry));
}

void TraceBackend::add(TraceEntry::Kind kind, StreamRef stream, EventRef event) {
  TraceEntry entry;
  entry.kind = kind;
  entry.stream = to_index(stream.id);
  entry.event = to_index(event.id);
  if (entry.event >= 0) {
    int& latest = latest_record_[static_cast<std::size_t>(entry.event)];
    if (kind == TraceEntry::record) {
      latest = static_cast<int>(trace_.entries.size());
    } else {
      entry.binds_to = latest;
    }
  }
  trace_.entries.push_back(std::move(entry));
}

void TraceBackend::record(EventRef event, StreamRef stream) {
  add(TraceEntry::record, stream, event);
}
void TraceBackend::wait(StreamRef stream, EventRef event) { add(TraceEntry::wait, stream, event); }
void TraceBackend::block(EventRef event) noexcept { add(TraceEntry::host_wait, {}, event); }

bool TraceBackend::query(EventRef) { return true; }

void TraceBackend::synchronise(EventRef event) { block(event); }

void TraceBackend::synchronise(StreamRef stream) { add(TraceEntry::host_wait, stream, {}); }

}  // namespace tandem
