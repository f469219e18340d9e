// SPDX-License-Identifier: Apache-2.0
// The CUDA bodies of the operations: which kernel or library call, with which sizes.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <tandem/engine/algorithm_cache.hpp>
#include <tandem/engine/cuda_lane.hpp>
#include <tandem/engine/op_access.hpp>
#include <tandem/engine/registry.hpp>
#include <tandem/kernels/augment.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/binary_xent.hpp>
#include <tandem/kernels/cast.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/conv1x1_few.hpp>
#include <tandem/kernels/l2_penalty.hpp>
#include <tandem/kernels/permute.hpp>
#include <tandem/kernels/pointwise.hpp>
#include <tandem/kernels/sgd.hpp>
#include <tandem/kernels/softmax_xent.hpp>
#include <tandem/kernels/weight_update.hpp>

namespace tandem {
namespace {

/// Calls body(Type<T>) for the type of the storage.
template <class Body>
void with_type(DType type, Body body) {
  switch (type) {
    case DType::f32:
      return body(Type<float>{});
    case DType::bf16:
      return body(Type<bf16>{});
    case DType::u8:
    case DType::f64:
      break;
  }
  throw std::logic_error("the CUDA backend stores f32 and bf16");
}

// --- layers that are products ---

/// A product and which operands are its factors and its result.
struct MatmulCall {
  MatmulProblem problem;
  std::size_t a, b, c;
};

/// The product that an operation is, as host::conv_forward and its neighbours state it: windows of
/// D inputs that each meet K outputs, or, transposed, pixels of C inputs that each meet D outputs.
std::optional<MatmulCall> as_matmul(const Operation& op) {
  const auto call = [&](bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k,
                        std::size_t a, std::size_t b, std::size_t c = 2) {
    return MatmulCall{{desc(op, a).dtype, desc(op, c).dtype, op.math, ta, tb, m, n, k}, a, b, c};
  };
  const auto update = [](MatmulCall product) {
    product.problem.update = true;
    return product;
  };
  std::int64_t taps = 4;
  switch (op.kind) {
    case OpKind::conv1x1_forward:
      taps = 1;
      [[fallthrough]];
    case OpKind::conv2x2_forward: {  // y [windows,K] = x [windows,D] w^T, w [K,D]
      const TensorDesc &x = desc(op, 0), &y = desc(op, 2);
      return call(false, true, y.pixels(), y.c, taps * x.c, 0, 1);
    }
    case OpKind::conv1x1_backward_data:
      taps = 1;
      [[fallthrough]];
    case OpKind::conv2x2_backward_data: {  // dx [windows,D] = dy [windows,K] w
      const TensorDesc &dy = desc(op, 0), &dx = desc(op, 2);
      return call(false, false, dy.pixels(), taps * dx.c, dy.c, 0, 1);
    }
    case OpKind::conv1x1_backward_weights:
      taps = 1;
      [[fallthrough]];
    case OpKind::conv2x2_backward_weights: {  // dw [K,D] = dy^T x
      const TensorDesc &x = desc(op, 0), &dy = desc(op, 1);
      return call(true, false, dy.c, taps * x.c, dy.pixels(), 1, 0);
    }
    case OpKind::tconv2x2_forward: {  // y [windows,D] = x [windows,C] w, w [C,D]
      const TensorDesc &x = desc(op, 0), &y = desc(op, 2);
      return call(false, false, x.pixels(), taps * y.c, x.c, 0, 1);
    }
    case OpKind::tconv2x2_backward_data: {  // dx [windows,C] = dy [windows,D] w^T
      const TensorDesc &dy = desc(op, 0), &dx = desc(op, 2);
      return call(false, true, dx.pixels(), dx.c, taps * dy.c, 0, 1);
    }
    case OpKind::tconv2x2_backward_weights: {  // dw [C,D] = x^T dy
      const TensorDesc &x = desc(op, 0), &dy = desc(op, 1);
      return call(true, false, x.c, taps * dy.c, x.pixels(), 0, 1);
    }
    case OpKind::conv1x1_update:
      taps = 1;
      [[fallthrough]];
    case OpKind::conv2x2_update: {
      const TensorDesc &x = desc(op, 1), &dy = desc(op, 2);
      return update(call(true, false, dy.c, taps * x.c, dy.pixels(), 2, 1, 3));
    }
    case OpKind::tconv2x2_update: {
      const TensorDesc &x = desc(op, 1), &dy = desc(op, 2);
      return update(call(true, false, x.c, taps * dy.c, x.pixels(), 1, 2, 3));
    }
    default:
      return std::nullopt;
  }
}

/// The sizes of an update that a kernel of our own does, with the copy of the weights; all others
/// are a product of the library and a cast.
std::optional<WeightUpdateShape> as_weight_update(const Operation& op,
                                                  const MatmulProblem& problem) {
  const WeightUpdateShape shape{problem.m, problem.n, problem.k};
  if (!op.own_kernel || !problem.update || problem.in != DType::bf16 || !weight_update_takes(shape))
    return std::nullopt;
  return shape;
}

void run_matmul(const Operation& op, const MatmulCall& call, void* const* p, const CudaLane& lane) {
  const void *a = p[call.a], *b = p[call.b];
  if (!call.problem.update) return lane.algorithms->matmul(lane, call.problem, a, b, p[call.c]);
  const auto* header = as<BatchHeader>(p[0]);
  auto* copy = has_copy(op) ? as<bf16>(p[4]) : nullptr;
  if (const auto shape = as_weight_update(op, call.problem))
    return cuda::weight_update(*shape, header, static_cast<const bf16*>(a),
                               static_cast<const bf16*>(b), as<float>(p[call.c]), copy,
                               lane.stream);
  lane.algorithms->matmul(lane, call.problem, a, b, p[call.c], header);
  if (copy != nullptr)
    cuda::cast(as<float>(p[call.c]), copy, desc(op, call.c).elements(), lane.stream);
}

/// The sizes of a 1x1 layer of few channels, which has kernels of its own.
std::optional<Conv1x1FewShape> as_conv1x1_few(const Operation& op) {
  const auto shape_if_taken = [&](std::size_t x, std::size_t y) -> std::optional<Conv1x1FewShape> {
    const Conv1x1FewShape shape{desc(op, x).pixels(), desc(op, x).c, desc(op, y).c};
    if (!op.own_kernel || !conv1x1_few_takes(shape)) return std::nullopt;
    return shape;
  };
  switch (op.kind) {
    case OpKind::conv1x1_forward:
      return shape_if_taken(0, 2);
    case OpKind::conv1x1_backward_weights:
      return shape_if_taken(0, 1);
    case OpKind::conv1x1_update:
      return shape_if_taken(1, 2);
    default:
      return std::nullopt;
  }
}

void run_conv1x1_few(const Operation& op, const Conv1x1FewShape& shape, void* const* p,
                     const CudaLane& lane) {
  static_assert(cuda::conv1x1_few_workspace_bytes({1 << 30, kFewChannels, kFewOutputs}) <=
                kLaneWorkspace);
  with_type(desc(op, 1).dtype, [&](auto type) {  // w, dy or x: of the storage's type
    using T = typename decltype(type)::type;
    if (op.kind == OpKind::conv1x1_update)
      return cuda::conv1x1_few_update(shape, as<BatchHeader>(p[0]), as<T>(p[1]), as<T>(p[2]),
                                      as<float>(p[3]), has_copy(op) ? as<bf16>(p[4]) : nullptr,
                                      lane.workspace, lane.stream);
    if (op.kind == OpKind::conv1x1_backward_weights)
      return cuda::conv1x1_few_backward_weights(shape, as<T>(p[0]), as<T>(p[1]), as<float>(p[2]),
                                                lane.workspace, lane.stream);
    if (desc(op, 2).dtype == DType::f32)
      return cuda::conv1x1_few_forward(shape, as<T>(p[0]), as<T>(p[1]), as<float>(p[2]),
                                       lane.stream);
    cuda::conv1x1_few_forward(shape, as<T>(p[0]), as<T>(p[1]), as<T>(p[2]), lane.stream);
  });
}

// --- 3x3 convolutions ---

/// A 3x3 convolution and which of its three operands are images; the other one is the filter.
struct ConvCall {
  ConvProblem problem;
  std::size_t images[2];
};

/// In bf16 an image's gradient is bf16 too, and the library computes it from bf16 operands where it
/// can. Logits and gradients of weights are fp32: there, and where it cannot, the operands are
/// widened first and the products computed in TF32, which holds the 8 significant bits of bf16
/// exactly. Either way the products are those of bf16 and the sums fp32.
std::optional<ConvCall> as_conv3x3(const Operation& op, const CudaLane& lane) {
  const auto call = [&](ConvPass pass, std::size_t x, std::size_t y) {
    const TensorDesc& d = desc(op, x);
    ConvCall made{{pass, DType::f32, op.math, d.n, d.h, d.w, d.c, desc(op, y).c}, {x, y}};
    if (d.dtype != DType::bf16) return made;
    made.problem.math = Math::tf32;
    if (pass != ConvPass::backward_data) return made;
    ConvProblem native = made.problem;
    native.storage = DType::bf16;
    native.n = conv3x3_chunk(d);
    if (lane.algorithms->supports(lane, native)) made.problem.storage = DType::bf16;
    return made;
  };
  switch (op.kind) {
    case OpKind::conv3x3_forward:
      return call(ConvPass::forward, 0, 2);
    case OpKind::conv3x3_backward_data:
      return call(ConvPass::backward_data, 2, 0);
    case OpKind::conv3x3_backward_weights:
      return call(ConvPass::backward_weights, 0, 1);
    default:
      return std::nullopt;
  }
}

/// Calls body(problem of the chunk, its first image) for each chunk of images, in order.
template <class Body>
void for_each_chunk(const Operation& op, const ConvCall& call, Body body) {
  const std::int64_t step = conv3x3_chunk(desc(op, call.images[0]));
  for (std::int64_t first = 0; first < call.problem.n; first += step) {
    ConvProblem chunk = call.problem;
    chunk.n = std::min(step, call.problem.n - first);
    chunk.accumulate = chunk.pass == ConvPass::backward_weights && first > 0;
    body(chunk, first);
  }
}

void run_conv3x3(const Operation& op, const ConvCall& call, void* const* p, const CudaLane& lane) {
  constexpr std::size_t kOutput = 2;
  // An operand as the library sees it: in place, or, if it has to be widened, a copy of one chunk.
  struct Seen {
    bool images, widened;
    std::int64_t image;  // elements an image
    std::byte* copy;
  } seen[3];
  std::byte* workspace = as<std::byte>(p[3]);
  for (std::size_t i = 0; i < 3; ++i) {
    const TensorDesc& d = desc(op, i);
    seen[i] = {i == call.images[0] || i == call.images[1],
               d.dtype == DType::bf16 && call.problem.storage == DType::f32, d.h * d.w * d.c,
               workspace};
    if (seen[i].widened) workspace += conv3x3_widened_bytes(op, i);
  }

  for_each_chunk(op, call, [&](const ConvProblem& chunk, std::int64_t first) {
    std::byte* at[3];
    for (std::size_t i = 0; i < 3; ++i) {
      const auto skipped = static_cast<std::size_t>(seen[i].images ? first * seen[i].image : 0);
      at[i] = seen[i].widened ? seen[i].copy
                              : as<std::byte>(p[i]) + skipped * size_of(desc(op, i).dtype);
      const std::int64_t count = seen[i].images ? chunk.n * seen[i].image : desc(op, i).elements();
      if (seen[i].widened && i != kOutput)
        cuda::cast(as<bf16>(p[i]) + skipped, as<float>(at[i]), count, lane.stream);
    }
    lane.algorithms->conv3x3(lane, chunk, at[0], at[1], at[kOutput]);
    if (seen[kOutput].widened)
      cuda::cast(as<float>(at[kOutput]), as<bf16>(p[kOutput]) + first * seen[kOutput].image,
                 chunk.n * seen[kOutput].image, lane.stream);
  });
}

}  // namespace

void choose_algorithms(const Operation& op, const CudaLane& lane) {
  if (as_conv1x1_few(op)) return;
  if (const auto call = as_matmul(op); call && !as_weight_update(op, call->problem))
    lane.algorithms->choose(lane, call->problem);
  if (const auto call = as_conv3x3(op, lane))
    for_each_chunk(op, *call, [&](const ConvProblem& chunk, std::int64_t) {
      lane.algorithms->choose(lane, chunk);
    });
}

void run_on_cuda(const Operation& op, void* const* p, const CudaLane& lane) {
  if (const auto shape = as_conv1x1_few(op)) return run_conv1x1_few(op, *shape, p, lane);
  if (const auto call = as_matmul(op)) return run_matmul(op, *call, p, lane);
  if (const auto call = as_conv3x3(op, lane)) return run_conv3x3(op, *call, p, lane);

  switch (op.kind) {
    case OpKind::copy:
      TANDEM_CUDA_TRY(
          cudaMemcpyAsync(p[1], p[0], desc(op, 0).bytes(), cudaMemcpyDefault, lane.stream));
      return;
    case OpKind::cast: {
      const std::int64_t count = desc(op, 0).elements();
      if (desc(op, 0).dtype == DType::f32)
        return cuda::cast(as<float>(p[0]), as<bf16>(p[1]), count, lane.stream);
      return cuda::cast(as<bf16>(p[0]), as<float>(p[1]), count, lane.stream);
    }
    case OpKind::u8_to_float: {
      const TensorDesc& y = desc(op, 1);
      return with_type(y.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        cuda::u8_to_float(image_shape(y), as<std::uint8_t>(p[0]), op.scale, order_of(y.layout),
                          as<T>(p[1]), lane.stream);
      });
    }
    case OpKind::augment: {
      const TensorDesc& y = desc(op, 3);
      const auto* pictures = as<std::uint8_t>(p[0]);
      const AugmentDraw* draws = draws_behind(p[1], y.n);
      return with_type(y.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        if (is_one_kernel(op)) {
          cuda::augment_fused(op.augment, p[2], y.n, pictures, draws, order_of(y.layout),
                              as<T>(p[3]), lane.stream);
        } else {
          cuda::augment_plain(op.augment, p[2], y.n, pictures, draws, order_of(y.layout),
                              as<T>(p[3]), p[4], lane.stream);
        }
      });
    }
    case OpKind::permute: {
      const TensorDesc &x = desc(op, 0), &y = desc(op, 1);
      const auto body = [&](auto type) {
        using T = typename decltype(type)::type;
        cuda::permute(image_shape(x), order_of(x.layout), as<T>(p[0]), order_of(y.layout),
                      as<T>(p[1]), lane.stream);
      };
      if (x.dtype == DType::u8) return body(Type<std::uint8_t>{});
      return with_type(x.dtype, body);
    }
    case OpKind::bias_forward: {
      const TensorDesc& y = desc(op, 1);
      return with_type(y.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        cuda::bias_forward(as<T>(p[0]), as<T>(p[1]), y.pixels(), y.c, lane.stream);
      });
    }
    case OpKind::bias_backward: {
      const TensorDesc& dy = desc(op, 0);
      return with_type(dy.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        cuda::bias_backward(as<T>(p[0]), as<float>(p[1]), dy.pixels(), dy.c, lane.workspace,
                            lane.stream);
      });
    }
    case OpKind::relu_forward:
      return with_type(desc(op, 0).dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        cuda::relu_forward(as<T>(p[0]), desc(op, 0).elements(), lane.stream);
      });
    case OpKind::relu_backward:
      return with_type(desc(op, 0).dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        cuda::relu_backward(as<T>(p[0]), as<T>(p[1]), desc(op, 0).elements(), lane.stream);
      });
    case OpKind::sigmoid_forward:
      return with_type(desc(op, 0).dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        cuda::sigmoid_forward(as<T>(p[0]), as<T>(p[1]), desc(op, 0).elements(), lane.stream);
      });
    case OpKind::sigmoid_backward:
      return with_type(desc(op, 0).dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        cuda::sigmoid_backward(as<T>(p[0]), as<T>(p[1]), desc(op, 0).elements(), lane.stream);
      });
    case OpKind::bias_relu_forward: {
      const TensorDesc& y = desc(op, 1);
      return with_type(y.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        cuda::bias_relu_forward(as<T>(p[0]), as<T>(p[1]), y.pixels(), y.c, lane.stream);
      });
    }
    case OpKind::relu_bias_backward: {
      const TensorDesc& dy = desc(op, 1);
      return with_type(dy.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        cuda::relu_bias_backward(as<T>(p[0]), as<T>(p[1]), as<float>(p[2]), dy.pixels(), dy.c,
                                 lane.workspace, lane.stream);
      });
    }
    case OpKind::sgd_many: {
      const std::vector<SgdTensor<float>> tensors = sgd_tensors<float>(op, p);
      return cuda::sgd_many(as<BatchHeader>(p[0]), tensors.data(), static_cast<int>(tensors.size()),
                            lane.stream);
    }
    case OpKind::conv3x3_loss: {
      const TensorDesc& x = desc(op, 0);
      return with_type(x.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        cuda::conv3x3_loss(conv3x3_loss_shape(x, desc(op, 1)), as<BatchHeader>(p[4]), as<T>(p[0]),
                           as<T>(p[1]), as<float>(p[2]), as<std::uint8_t>(p[3]), op.ignore_label,
                           as<T>(p[5]), as<float>(p[6]), as<StepResult>(p[7]), lane.workspace,
                           lane.stream);
      });
    }
    case OpKind::conv3x3_loss_backward: {
      const TensorDesc& x = desc(op, 1);
      return with_type(x.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        cuda::conv3x3_loss_backward(conv3x3_loss_shape(x, desc(op, 2)), as<T>(p[0]), as<T>(p[1]),
                                    as<T>(p[2]), as<T>(p[3]), as<float>(p[4]), lane.workspace,
                                    lane.stream);
      });
    }
    case OpKind::softmax_cross_entropy:
    case OpKind::binary_cross_entropy: {
      const TensorDesc& dlogits = desc(op, 3);
      return with_type(dlogits.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        const auto loss = op.kind == OpKind::softmax_cross_entropy ? cuda::softmax_cross_entropy<T>
                                                                   : cuda::binary_cross_entropy<T>;
        loss(as<BatchHeader>(p[2]), as<float>(p[0]), as<std::uint8_t>(p[1]), op.ignore_label,
             dlogits.pixels(), dlogits.c, as<T>(p[3]), as<StepResult>(p[4]), lane.workspace,
             lane.stream);
      });
    }
    case OpKind::l2_penalty:
      return cuda::l2_penalty(as<BatchHeader>(p[0]), op.l2, as<float>(p[1]), as<float>(p[2]),
                              desc(op, 1).elements(), as<StepResult>(p[3]), lane.workspace,
                              lane.stream);
    case OpKind::argmax: {
      const TensorDesc& logits = desc(op, 0);
      return cuda::argmax(as<float>(p[0]), logits.pixels(), logits.c, as<std::uint8_t>(p[1]),
                          lane.stream);
    }
    case OpKind::sgd:
      return cuda::sgd(as<BatchHeader>(p[0]), as<float>(p[1]), as<float>(p[2]),
                       desc(op, 2).elements(), lane.stream);
    case OpKind::sgd_momentum:
      return cuda::sgd_momentum(as<BatchHeader>(p[0]), as<float>(p[1]), as<float>(p[2]),
                                as<float>(p[3]), desc(op, 3).elements(), lane.stream);
    default:
      throw std::logic_error("an operation without a CUDA body");
  }
}

}  // namespace tandem
