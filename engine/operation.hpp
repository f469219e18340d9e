// SPDX-License-Identifier: Apache-2.0
// Operations as plain values: what is done, to which buffers, reading and writing what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tandem/engine/tensor.hpp>
#include <tandem/kernels/augment.hpp>
#include <vector>

namespace tandem {

/// Every operation there is. The comment gives the operands in order (r read, w written, rw both)
/// and the definition. T is f32, bf16 or f64; gradients of weights and biases, master weights and
/// logits are f32 when T is bf16 and T otherwise. Pixels of x and y are in the same layout except
/// where stated. Registered once, in registry.cpp.
enum class OpKind : std::uint8_t {
  copy,         ///< src r, dst w. Equal byte counts.
  cast,         ///< x r, y w. Same layout and shape; f32 to bf16, or bf16 to f32.
  u8_to_float,  ///< x r u8 nhwc, y w T nhwc|zorder. y = scale * x.
  /// x r u8 nhwc [N,in_h,in_w,3], header r, tables r flat, y w T [N,out_h,out_w,3] nhwc|zorder.
  /// y = what `augment` says, with each sample's draw from the header. Workspace where it is not
  /// done by one kernel.
  augment,
  permute,  ///< x r, y w. Same type and shape, layouts among nchw, nhwc, zorder.

  conv1x1_forward,           ///< x r [N,H,W,C], w r [K,1,1,C], y w [N,H,W,K]. nhwc or zorder.
  conv1x1_backward_data,     ///< dy r, w r, dx w.
  conv1x1_backward_weights,  ///< x r, dy r, dw w.

  conv2x2_forward,           ///< x r [N,H,W,C] zorder, w r [K,2,2,C], y w [N,H/2,W/2,K] zorder.
  conv2x2_backward_data,     ///< dy r, w r, dx w.
  conv2x2_backward_weights,  ///< x r, dy r, dw w.

  tconv2x2_forward,           ///< x r [N,H,W,C] zorder, w r [C,2,2,K], y w [N,2H,2W,K] zorder.
  tconv2x2_backward_data,     ///< dy r, w r, dx w.
  tconv2x2_backward_weights,  ///< x r, dy r, dw w.

  conv3x3_forward,  ///< x r [N,H,W,C] nhwc, w r [K,3,3,C], y w [N,H,W,K] nhwc, pad 1. Workspace.
  conv3x3_backward_data,     ///< dy r, w r, dx w. Workspace.
  conv3x3_backward_weights,  ///< x r, dy r, dw w. Workspace.

  bias_forward,      ///< b r [1,1,1,K], y rw [N,H,W,K]. y += b, in place.
  bias_backward,     ///< dy r [N,H,W,K], db w [1,1,1,K]. Sum over pixels.
  relu_forward,      ///< y rw. y = y < 0 ? 0 : y, in place; a NaN stays a NaN.
  relu_backward,     ///< y r, dy rw. dy = y <= 0 ? 0 : dy, in place.
  sigmoid_forward,   ///< x r, y w. y = 1 / (1 + exp(-x)); a NaN stays a NaN.
  sigmoid_backward,  ///< y r, dy rw. dy *= y * (1 - y), in place.

  /// logits r [N,H,W,K] nhwc, labels r u8 [N,H,W,1] nhwc, header r, dlogits w T [N,H,W,K] nhwc,
  /// result w (a StepResult). dlogits = softmax(logits) - onehot(label), NOT divided by the count;
  /// 0 where label == ignore_label. loss = sum of -log softmax(logits)[label] / valid_count.
  softmax_cross_entropy,
  /// The same operands. A class's target is 1 for the label and 0 else; a label's loss is the mean
  /// over its classes. dlogits = (sigmoid(logits) - target) / K, NOT divided by the count; 0 where
  /// label == ignore_label. loss = sum of the labels' losses / valid_count.
  binary_cross_entropy,
  argmax,  ///< logits r [N,H,W,K] nhwc, y w u8 [N,H,W,1] nhwc. First index of the largest value.

  /// header r, w r, dw rw, result rw. The loss with l2 * sum of w^2 added: result.loss is, and
  /// dw += count * 2 * l2 * w. Nothing if count is 0.
  l2_penalty,

  /// header r, dw r, w rw. w += -lr * (dw / count + weight_decay * w). Nothing if count is 0.
  sgd,
  /// header r, dw r, v rw, w rw. PyTorch's SGD without dampening or Nesterov:
  /// v = momentum * v + dw / count + weight_decay * w; w += -lr * v. Nothing if count is 0.
  sgd_momentum,

  // What a plan's fusion puts in the place of several of the above; see fuse.hpp.
  bias_relu_forward,   ///< b r, y rw. bias_forward, then relu_forward.
  relu_bias_backward,  ///< y r, dy rw, db w. relu_backward, then bias_backward of the new dy.
  /// header r, x r, dy r, w rw (gradients' type), [copy w, if x is bf16]. w = keep * w - lr / count
  /// * (what the backward_weights of the same name makes of x and dy): its update by SGD in one
  /// product, and the cast of w to its copy. Without a valid label w keeps its bits where x is
  /// finite: the product is made all the same, and 0 times what is not finite is NaN.
  conv1x1_update,
  conv2x2_update,
  tconv2x2_update,
  /// header r, then for each tensor: dw r, [v rw,] w rw, [copy w bf16]. sgd, or sgd_momentum where
  /// there is a v, and the cast of w to its copy.
  sgd_many,
  /// x r [N,S,S,16] zorder, w r [K,3,3,16], b r [1,1,1,K] (gradients' type), labels r u8 [N,S,S,1]
  /// nhwc, header r, dlogits w [N,S,S,16] zorder, db w [1,1,1,K], result w. conv3x3_forward,
  /// bias_forward, softmax_cross_entropy and bias_backward; channels K .. 15 of dlogits are 0.
  conv3x3_loss,
  /// dlogits r [N,S,S,16] zorder, x r, w r, dx w, dw w. conv3x3_backward_data and relu_backward (x
  /// being the output of that ReLU), and conv3x3_backward_weights.
  conv3x3_loss_backward,

  callable,  ///< any operands. A user's or a test's own function, see Callable.
};
inline constexpr int kOpKindCount = static_cast<int>(OpKind::callable) + 1;

enum class Access : std::uint8_t { read = 1, write = 2, read_write = 3 };
constexpr bool reads(Access a) noexcept { return (static_cast<int>(a) & 1) != 0; }
constexpr bool writes(Access a) noexcept { return (static_cast<int>(a) & 2) != 0; }

/// Index of a buffer in its plan.
using BufferId = std::int32_t;

/// One buffer as an operation sees it. The access covers desc.bytes() bytes from the buffer's
/// start.
struct Operand {
  BufferId buffer = -1;
  TensorDesc desc;
  Access access = Access::read;
  std::string name;        ///< for messages, traces and pictures
  bool workspace = false;  ///< written before it is read; its contents mean nothing outside
};

/// Where an operation runs within its stage: on the stage's stream, or (later) on a side stream
/// that joins before the next reader of what it writes. A scheduler that has no side streams runs
/// everything on the main lane, in list order.
enum class Lane : std::uint8_t { main, update };

/// How a sum of f32 products is computed. Says nothing about bf16 and f64, whose products have one
/// way; the host always computes `strict`.
enum class Math : std::uint8_t {
  strict,  ///< fp32 products and sums
  tf32,    ///< factors rounded to TF32 (11 significant bits), fp32 sums
};

/// What a callable is told about the launch it belongs to.
struct CallContext {
  std::uint64_t step = 0;
  void* native_stream = nullptr;  ///< a cudaStream_t on the cuda backend, null on the host
};

/// A function of the user's, as plain data. It may throw: that is a failure of the operation.
struct Callable {
  void (*function)(void* user, void* const* pointers, const CallContext& context) = nullptr;
  void* user = nullptr;
};

struct Operation {
  OpKind kind = OpKind::callable;
  std::string name;  ///< unique within its stage, for example "decoder.3.backward_weights"
  std::vector<Operand> operands;
  Lane lane = Lane::main;
  Math math = Math::strict;
  bool own_kernel = false;  ///< products: not by the library where a kernel of ours takes the sizes
  float scale = 1.0f;       ///< u8_to_float
  AugmentSpec augment;      ///< augment
  bool plain = false;       ///< augment: one kernel a part, also where one could do it all
  int ignore_label = 255;   ///< softmax_cross_entropy, binary_cross_entropy
  float l2 = 0;             ///< l2_penalty
  Callable callable;        ///< callable
};

/// Most operands an operation may have.
inline constexpr std::size_t kMaxOperands = 64;

/// An operation with its addresses: what a backend gets. `operation` must stay alive until the
/// stream has run it.
struct BoundOperation {
  const Operation* operation = nullptr;
  void* pointers[kMaxOperands] = {};  ///< one per operand
  const char* stage = "";             ///< must outlive the operation too
  std::uint64_t step = 0;
};

}  // namespace tandem
