// SPDX-License-Identifier: Apache-2.0
// Owners of streams, events and graphs. Functions take the references (StreamRef, EventRef, ...).
#pragma once

#include <tandem/engine/backend.hpp>
#include <tandem/engine/unique_handle.hpp>

namespace tandem {

struct StreamTraits {
  using Handle = StreamRef;
  static Handle null() noexcept { return {}; }
  static void destroy(Handle stream) noexcept { stream.backend->destroy_stream(stream); }
};

struct EventTraits {
  using Handle = EventRef;
  static Handle null() noexcept { return {}; }
  static void destroy(Handle event) noexcept { event.backend->destroy_event(event); }
};

struct GraphTraits {
  using Handle = GraphRef;
  static Handle null() noexcept { return {}; }
  static void destroy(Handle graph) noexcept { graph.backend->destroy_graph(graph); }
};

using Stream = UniqueHandle<StreamTraits>;
using Event = UniqueHandle<EventTraits>;
using Graph = UniqueHandle<GraphTraits>;

inline Stream make_stream(Backend& backend, std::string_view name) {
  return Stream::adopt(backend.create_stream(name));
}
inline Event make_event(Backend& backend, std::string_view name) {
  return Event::adopt(backend.create_event(name));
}

}  // namespace tandem
