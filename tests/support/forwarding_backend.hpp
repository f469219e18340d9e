// SPDX-License-Identifier: Apache-2.0
// A backend that passes every call on to another one; for tests that count calls or add some.
#pragma once

#include <tandem/engine/backend.hpp>

namespace tandem::testing {

/// The other backend must outlive it.
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(Backend& inner) : inner_(inner) {}

  const char* name() const noexcept override { return inner_.name(); }
  bool executes() const noexcept override { return inner_.executes(); }
  void* allocate(std::size_t bytes, MemoryKind kind, std::string_view purpose) override {
    return inner_.allocate(bytes, kind, purpose);
  }
  void free(void* memory, MemoryKind kind) noexcept override { inner_.free(memory, kind); }
  StreamRef create_stream(std::string_view stream) override {
    return {this, inner_.create_stream(stream).id};
  }
  void destroy_stream(StreamRef stream) noexcept override {
    inner_.destroy_stream(to_inner(stream));
  }
  EventRef create_event(std::string_view event) override {
    return {this, inner_.create_event(event).id};
  }
  void destroy_event(EventRef event) noexcept override { inner_.destroy_event(to_inner(event)); }
  void prepare(const Plan& plan) override { inner_.prepare(plan); }
  void enqueue(StreamRef stream, const BoundOperation& operation) override {
    inner_.enqueue(to_inner(stream), operation);
  }
  void record(EventRef event, StreamRef stream) override {
    inner_.record(to_inner(event), to_inner(stream));
  }
  void wait(StreamRef stream, EventRef event) override {
    inner_.wait(to_inner(stream), to_inner(event));
  }
  bool query(EventRef event) override { return inner_.query(to_inner(event)); }
  void block(EventRef event) noexcept override { inner_.block(to_inner(event)); }
  void synchronise(EventRef event) override { inner_.synchronise(to_inner(event)); }
  void synchronise(StreamRef stream) override { inner_.synchronise(to_inner(stream)); }
  bool failed() const noexcept override { return inner_.failed(); }
  bool has_graphs() const noexcept override { return inner_.has_graphs(); }
  void begin_capture(StreamRef origin) override { inner_.begin_capture(to_inner(origin)); }
  GraphRef end_capture(StreamRef origin) override {
    return {this, inner_.end_capture(to_inner(origin)).id};
  }
  void launch(GraphRef graph, StreamRef stream) override {
    inner_.launch({&inner_, graph.id}, to_inner(stream));
  }
  void destroy_graph(GraphRef graph) noexcept override {
    inner_.destroy_graph({&inner_, graph.id});
  }

 protected:
  StreamRef to_inner(StreamRef stream) const { return {&inner_, stream.id}; }
  EventRef to_inner(EventRef event) const { return {&inner_, event.id}; }
  Backend& inner_;
};

}  // namespace tandem::testing
