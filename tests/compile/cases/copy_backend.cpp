// SPDX-License-Identifier: Apache-2.0
// Streams and events point at their backend.
// expect: use of deleted function
#include <tandem/engine/backend_trace.hpp>

void f(tandem::TraceBackend& backend) {
  tandem::TraceBackend& same = backend;
  static_cast<void>(same);
#if defined(MUST_NOT_COMPILE)
  tandem::TraceBackend copy = backend;
#endif
}
