// SPDX-License-Identifier: Apache-2.0
// Replaces patterns of a plan's operations by operations that do the same in fewer passes over
// memory. The plain plan stays the reference.
#pragma once

#include <tandem/engine/plan.hpp>

namespace tandem {

/// Which patterns are replaced. The first keeps every bit; the others round differently.
struct FuseOptions {
  /// bias_forward + relu_forward, and relu_backward + bias_backward, in one pass each.
  bool pointwise = false;
  /// SGD without momentum inside the product that makes the gradient of a weight: the gradient is
  /// never written, and weights += -lr / count * gradient is rounded once instead of twice. The
  /// bf16 copy of the weight comes with it.
  bool update = false;
  /// Every other update of a stage in one launch, with the bf16 copies of the weights; keeps the
  /// bits too.
  bool many = false;
  /// A 3x3 convolution behind a ReLU with the loss, from pixels in Z-order: everything from the
  /// activation to its gradient in two passes, without logits. For what conv3x3_loss_takes(), in
  /// bf16, f64 or with products in TF32; not in strict f32, which the tensor cores cannot do.
  bool head = false;

  /// Products that a library does badly by kernels of our own, where the backend has one for the
  /// sizes: 1x1 layers of few channels, and updates of wide layers from few pixels.
  bool products = false;

  bool any() const noexcept { return pointwise || update || many || head || products; }
};
inline constexpr FuseOptions kFuseAll{true, true, true, true, true};

/// The plan with what the options ask for. An update moves behind the last reader of its weight
/// (the gradient of the layer's input); a pattern whose operands something between its parts
/// touches stays as it is. Buffers that nothing uses any more take no memory.
Plan fuse(Plan plan, const FuseOptions& options);

}  // namespace tandem
