// SPDX-License-Identifier: Apache-2.0
// A stream has one owner.
// expect: use of deleted function
#include <tandem/engine/stream.hpp>
#include <utility>

void f(tandem::Stream& stream) {
  tandem::Stream moved = std::move(stream);
#if defined(MUST_NOT_COMPILE)
  tandem::Stream copy = moved;
#endif
}
