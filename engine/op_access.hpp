// SPDX-License-Identifier: Apache-2.0
// How the checks and bodies of the operations read their operation. Private to the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tandem/engine/operation.hpp>
#include <tandem/kernels/batch_header.hpp>
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

/// The draws behind the header of a batch of n, which may lie where the host cannot read it.
inline const AugmentDraw* draws_behind(void* header, std::int64_t n) {
  const std::size_t ids = static_cast<std::size_t>(n) * sizeof(std::int64_t);
  return reinterpret_cast<const AugmentDraw*>(as<std::byte>(header) + sizeof(BatchHeader) + ids);
}

/// True if an `augment` operation takes one kernel.
inline bool is_one_kernel(const Operation& op) { return !op.plain && augment_is_fused(op.augment); }

}  // namespace tandem
