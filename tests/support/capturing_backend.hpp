// SPDX-License-Identifier: Apache-2.0
// Graphs on a backend that has none: what is queued while capturing is kept, and queued again, with
// the addresses and steps of the capture, by each launch.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tandem/engine/error.hpp>
#include <tandem/tests/support/forwarding_backend.hpp>
#include <utility>
#include <vector>

namespace tandem::testing {

class CapturingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  std::string refuse;            ///< why end_capture() throws; empty: it does not
  std::optional<Error> failure;  ///< of an operation, which the next function that can throws
  int launches = 0;
  std::set<void*> alive;  ///< graphs that have not been destroyed

  bool failed() const noexcept override {
    return failure.has_value() || ForwardingBackend::failed();
  }
  void synchronise(EventRef event) override {
    throw_failure();
    ForwardingBackend::synchronise(event);
  }
  void synchronise(StreamRef stream) override {
    throw_failure();
    ForwardingBackend::synchronise(stream);
  }
  bool has_graphs() const noexcept override { return true; }
  void begin_capture(StreamRef) override { capturing_ = std::make_unique<Calls>(); }
  GraphRef end_capture(StreamRef) override {
    const auto calls = std::move(capturing_);
    throw_failure();
    if (!refuse.empty()) throw Error(ErrorCode::run_failed, refuse);
    auto* graph = new Calls(std::move(*calls));
    alive.insert(graph);
    return {this, graph};
  }
  void launch(GraphRef graph, StreamRef) override {
    ++launches;
    for (const auto& call : *static_cast<Calls*>(graph.id)) call();
  }
  void destroy_graph(GraphRef graph) noexcept override {
    alive.erase(graph.id);
    delete static_cast<Calls*>(graph.id);
  }

  void enqueue(StreamRef stream, const BoundOperation& operation) override {
    call([=, this] { ForwardingBackend::enqueue(stream, operation); });
  }
  void record(EventRef event, StreamRef stream) override {
    call([=, this] { ForwardingBackend::record(event, stream); });
  }
  void wait(StreamRef stream, EventRef event) override {
    call([=, this] { ForwardingBackend::wait(stream, event); });
  }

 private:
  void throw_failure() {
    if (failure) throw Error(*std::exchange(failure, std::nullopt));
  }

  using Calls = std::vector<std::function<void()>>;
  void call(std::function<void()> function) {
    if (capturing_) {
      capturing_->push_back(std::move(function));
    } else {
      function();
    }
  }
  std::unique_ptr<Calls> capturing_;
};

}  // namespace tandem::testing
