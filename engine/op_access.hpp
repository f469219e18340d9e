// SPDX-License-Identifier: Apache-2.0
// How the checks and bodies of the operations read their operation. Private to the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tandem/engine/operation.hpp>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/conv3x3_loss.hpp>
#include <tandem/kernels/permute_math.hpp>
#include <tandem/kernels/sgd.hpp>
#include <vector>

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

/// The tensors of a sgd_many operation, T being the type of the weights.
template <class T>
std::vector<SgdTensor<T>> sgd_tensors(const Operation& op, void* const* p) {
  std::vector<SgdTensor<T>> tensors;
  for (std::size_t i = 1; i < op.operands.size();) {
    SgdTensor<T> t;
    t.elements = desc(op, i).elements();
    t.dw = as<T>(p[i++]);
    const auto is = [&](Access access) {
      return i < op.operands.size() && op.operands[i].access == access;
    };
    if (i + 1 < op.operands.size() && op.operands[i + 1].access == Access::read_write)
      t.v = as<T>(p[i++]);
    t.w = as<T>(p[i++]);
    if (is(Access::write)) t.copy = as<bf16>(p[i++]);
    tensors.push_back(t);
  }
  return tensors;
}

/// Whether an update of weights also writes their copy, operand 4.
inline bool has_copy(const Operation& op) { return op.operands.size() > 4; }

/// The sizes of conv3x3_loss and conv3x3_loss_backward: of an image tensor, and of the filter.
inline Conv3x3LossShape conv3x3_loss_shape(const TensorDesc& image, const TensorDesc& filter) {
  return {image.n, image.h, filter.n};
}

/// True if an `augment` operation takes one kernel.
inline bool is_one_kernel(const Operation& op) { return !op.plain && augment_is_fused(op.augment); }

}  // namespace tandem
