// SPDX-License-Identifier: Apache-2.0
// An event has one owner: no copy assignment.
// expect: use of deleted function
#include <tandem/engine/stream.hpp>
#include <utility>

void f(tandem::Event& a, tandem::Event& b) {
  a = std::move(b);
#if defined(MUST_NOT_COMPILE)
  a = b;
#endif
}
