// SPDX-License-Identifier: Apache-2.0
// What runs operations. Three implementations: cuda (the product), host (streams are worker
// threads), trace (a list, to prove the order). One contract suite runs on all: tests/contract.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tandem/engine/operation.hpp>

namespace tandem {

class Backend;
struct Plan;

/// Names a stream without owning it: operations of one stream run in the order they were enqueued.
struct StreamRef {
  Backend* backend = nullptr;
  void* id = nullptr;
  friend bool operator==(StreamRef a, StreamRef b) noexcept { return a.id == b.id; }
};

/// Names an event without owning it. An event stands for the latest record made of it.
struct EventRef {
  Backend* backend = nullptr;
  void* id = nullptr;
  friend bool operator==(EventRef a, EventRef b) noexcept { return a.id == b.id; }
};

/// Names captured work without owning it.
struct GraphRef {
  Backend* backend = nullptr;
  void* id = nullptr;
  friend bool operator==(GraphRef a, GraphRef b) noexcept { return a.id == b.id; }
};

enum class MemoryKind : std::uint8_t {
  device,  ///< where operations run fastest
  pinned,  ///< host memory that the device can copy from and to while the host goes on
};

/// The interface. Unless a function says otherwise it may be called from any thread, but calls that
/// name the same stream must not run at the same time; synchronise(), block() and query() always
/// may. Functions throw tandem::Error; those marked noexcept report nothing.
///
/// Failure: after the first operation that fails, the bodies of later operations are skipped, on
/// all streams, while records and waits still happen, so that nothing deadlocks. The next
/// synchronise() throws the failure, once, naming operation, stage and step. Operations enqueued
/// before it threw stay skipped; those enqueued afterwards run.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const char* name() const noexcept = 0;  ///< "host", "trace", "cuda"

  /// False for a backend that only lists its calls: its memory may not be touched.
  virtual bool executes() const noexcept { return true; }

  /// Zero-filled, at least 256-byte aligned. Throws Error{out_of_memory} that names `purpose`, the
  /// bytes needed and the bytes there are.
  virtual void* allocate(std::size_t bytes, MemoryKind kind, std::string_view purpose) = 0;
  virtual void free(void* memory, MemoryKind kind) noexcept = 0;

  virtual StreamRef create_stream(std::string_view name) = 0;
  /// Runs what is queued, then ends the stream.
  virtual void destroy_stream(StreamRef stream) noexcept = 0;

  virtual EventRef create_event(std::string_view name) = 0;
  /// Safe while records or waits of it are still queued.
  virtual void destroy_event(EventRef event) noexcept = 0;

  /// Chooses, once and for all, what the backend is free to choose for the plan's operations, such
  /// as a library's algorithms. Called before the first operation of the plan is enqueued.
  virtual void prepare(const Plan&) {}

  /// Queues an operation. Returns before it has run.
  virtual void enqueue(StreamRef stream, const BoundOperation& operation) = 0;

  /// The event completes when everything now queued on the stream has run.
  virtual void record(EventRef event, StreamRef stream) = 0;

  /// Later work of the stream waits for the latest record made of the event before this call; a
  /// record made later does not move it. An event never recorded does not wait.
  virtual void wait(StreamRef stream, EventRef event) = 0;

  /// True if the latest record has completed, or none was made.
  virtual bool query(EventRef event) = 0;

  /// Blocks the calling thread until the latest record made before this call has completed. Throws
  /// a pending failure.
  virtual void synchronise(EventRef event) = 0;

  /// As synchronise(), but leaves a pending failure to the thread that owns the run.
  virtual void block(EventRef event) noexcept = 0;

  /// Blocks the calling thread until the stream is empty. Throws a pending failure.
  virtual void synchronise(StreamRef stream) = 0;

  /// Whether an operation has failed and no function has thrown that yet: until then nothing that
  /// is queued runs. Only a backend that lists its calls never has one.
  virtual bool failed() const noexcept { return false; }

  /// Whether the four functions below work.
  virtual bool has_graphs() const noexcept { return false; }

  /// From here to end_capture() what this thread queues on `origin`, and on streams that wait for
  /// an event recorded there, does not run: it becomes the content of a graph, addresses and all.
  /// Every such stream has to be joined, by a wait of `origin`, before the end. Records and waits
  /// in between are edges of the graph and nothing outside it. Throws Error{run_failed}.
  virtual void begin_capture(StreamRef origin);
  /// The graph, ready to be launched. Throws Error{run_failed} with the reason if something in it
  /// cannot be captured; then no stream is capturing any more and nothing of it will run.
  virtual GraphRef end_capture(StreamRef origin);
  /// Queues the graph's content as one piece of work.
  virtual void launch(GraphRef graph, StreamRef stream);
  /// Safe while launches of it are still queued.
  virtual void destroy_graph(GraphRef graph) noexcept;

 protected:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
};

}  // namespace tandem
