// SPDX-License-Identifier: Apache-2.0
// A handle taken from a temporary owner is dead already.
// expect: use of deleted function
#include <tandem/engine/stream.hpp>
#include <utility>

void f(tandem::Backend& backend) {
  tandem::Stream stream = tandem::make_stream(backend, "lane");
  tandem::StreamRef alive = stream.get();
  static_cast<void>(alive);
#if defined(MUST_NOT_COMPILE)
  tandem::StreamRef dead = tandem::make_stream(backend, "lane").get();
#endif
}
