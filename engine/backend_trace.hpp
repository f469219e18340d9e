// SPDX-License-Identifier: Apache-2.0
// The trace backend: nothing runs; every call becomes an entry of a list, from which the order that
// events and streams enforce can be proven and drawn.
#pragma once

#include <cstdint>
#include <string>
#include <tandem/engine/backend.hpp>
#include <vector>

namespace tandem {

struct TraceAccess {
  std::uintptr_t begin = 0, end = 0;  ///< addresses, end exclusive
  Access access = Access::read;
  std::string name;
};

struct TraceEntry {
  enum Kind : std::uint8_t { operation, record, wait, host_wait } kind = operation;
  int stream = -1;         ///< index into Trace::streams; -1 for a host wait on an event
  int event = -1;          ///< index into Trace::events; -1 for operations and stream waits
  int binds_to = -1;       ///< wait, host_wait: the entry index of the record waited for; -1: none
  std::string name;        ///< operation: its name
  std::string stage;       ///< operation
  std::uint64_t step = 0;  ///< operation
  std::vector<TraceAccess> accesses;  ///< operation
};

struct Trace {
  std::vector<std::string> streams, events;  ///< names, in order of creation
  std::vector<TraceEntry> entries;           ///< in order of issue
};

/// Addresses are real numbers but nothing is allocated; copies for set-up do nothing.
class TraceBackend final : public Backend {
 public:
  const Trace& trace() const noexcept { return trace_; }
  /// Forgets the entries, keeps streams and events (their records count as made long ago).
  void clear();

  const char* name() const noexcept override { return "trace"; }
  bool executes() const noexcept override { return false; }
  void* allocate(std::size_t bytes, MemoryKind kind, std::string_view purpose) override;
  void free(void* memory, MemoryKind kind) noexcept override;
  StreamRef create_stream(std::string_view name) override;
  void destroy_stream(StreamRef stream) noexcept override;
  EventRef create_event(std::string_view name) override;
  void destroy_event(EventRef event) noexcept override;
  void enqueue(StreamRef stream, const BoundOperation& operation) override;
  void record(EventRef event, StreamRef stream) override;
  void wait(StreamRef stream, EventRef event) override;
  bool query(EventRef event) override;
  void synchronise(EventRef event) override;
  void block(EventRef event) noexcept override;
  void synchronise(StreamRef stream) override;

 private:
  /// A record or a wait; a default StreamRef or EventRef for the one it does not concern.
  void add(TraceEntry::Kind kind, StreamRef stream, EventRef event);

  Trace trace_;
  std::vector<int> latest_record_;  // per event: entry index, -1 if never or cleared
  std::uintptr_t next_address_ = 1 << 20;
};

}  // namespace tandem
