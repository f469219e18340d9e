// SPDX-License-Identifier: Apache-2.0
#include <tandem/engine/backend.hpp>
#include <tandem/engine/error.hpp>

namespace tandem {
namespace {

[[noreturn]] void no_graphs(const Backend& backend) {
  throw Error(ErrorCode::run_failed,
              std::string("the ") + backend.name() + " backend has no graphs");
}

}  // namespace

void Backend::begin_capture(StreamRef) { no_graphs(*this); }
GraphRef Backend::end_capture(StreamRef) { no_graphs(*this); }
void Backend::launch(GraphRef, StreamRef) { no_graphs(*this); }
void Backend::destroy_graph(GraphRef) noexcept {}

}  // namespace tandem
