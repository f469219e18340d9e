// SPDX-License-Identifier: Apache-2.0
// How the checks and bodies of the operations read their operation. Private to the engine.
#pragma once

#include <cstddef>
#include <tandem/engine/operation.hpp>
#include <tandem/kernels/permute_math.hpp>

namespace tandem {

/// Stands for a type where a function takes one as an argument.
template <class T>
struct Type {
  using type = T;
};

template <class T>
T* as(void* pointer) {
  return static_cast<T*>(pointer);
}

inline const TensorDesc& desc(const Operation& op, std::size_t index) {
  return op.operands[index].desc;
}

inline ImageShape image_shape(const TensorDesc& d) { return {d.n, d.h, d.w, d.c}; }

inline ImageOrder order_of(Layout layout) {
  if (layout == Layout::nchw) return ImageOrder::nchw;
  return layout == Layout::zorder ? ImageOrder::zorder : ImageOrder::nhwc;
}

}  // namespace tandem
