// SPDX-License-Identifier: Apache-2.0
// An event is no stream.
// expect: cannot convert
#include <tandem/engine/stream.hpp>
#include <utility>

void wait(tandem::Backend& backend, tandem::StreamRef stream, tandem::EventRef event) {
  backend.wait(stream, event);
#if defined(MUST_NOT_COMPILE)
  backend.wait(event, event);
#endif
}
