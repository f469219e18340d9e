// SPDX-License-Identifier: Apache-2.0
// An allocation has one owner.
// expect: use of deleted function
#include <tandem/engine/buffer.hpp>
#include <utility>

void f(tandem::Memory& memory) {
  tandem::Memory moved = std::move(memory);
#if defined(MUST_NOT_COMPILE)
  tandem::Memory copy = moved;
#endif
}
