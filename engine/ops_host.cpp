// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <stdexcept>
#include <tandem/engine/op_access.hpp>
#include <tandem/engine/ops_host.hpp>
#include <tandem/kernels/augment.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/binary_xent.hpp>
#include <tandem/kernels/cast.hpp>
#include <tandem/kernels/conv3x3.hpp>
#include <tandem/kernels/gemm.hpp>
#include <tandem/kernels/l2_penalty.hpp>
#include <tandem/kernels/permute.hpp>
#include <tandem/kernels/pointwise.hpp>
#include <tandem/kernels/sgd.hpp>
#include <tandem/kernels/softmax_xent.hpp>
#include <type_traits>

namespace tandem::host {

namespace {

/// Calls body(Type<T>) for the type of the storage.
template <class Body>
void with_type(DType type, Body body) {
  switch (type) {
    case DType::f32:
      return body(Type<float>{});
    case DType::bf16:
      return body(Type<bf16>{});
    case DType::f64:
      return body(Type<double>{});
    case DType::u8:
      break;
  }
  throw std::logic_error("a body without a version for u8; its check should have refused it");
}

/// The same where only float and double occur.
template <class Body>
void with_wide_type(DType type, Body body) {
  if (type == DType::f64) return body(Type<double>{});
  body(Type<float>{});
}

/// Calls body(Type<In>, Type<Out>) for a forward pass: outputs have the type of the inputs, or, if
/// they are logits, that of the sums.
template <class Body>
void with_types(DType in, DType out, Body body) {
  if (in == DType::bf16 && out == DType::f32) return body(Type<bf16>{}, Type<float>{});
  with_type(in, [&](auto type) { body(type, type); });
}

/// Convolution whose windows do not overlap: y's pixels, x's numbers a window, y's channels.
void conv_forward(std::int64_t taps, const Operation& op, void* const* p) {
  const TensorDesc &x = desc(op, 0), &y = desc(op, 2);
  with_types(x.dtype, y.dtype, [&](auto in, auto out) {
    using In = typename decltype(in)::type;
    using Out = typename decltype(out)::type;
    host::conv_forward(y.pixels(), taps * x.c, y.c, as<In>(p[0]), as<In>(p[1]), as<Out>(p[2]));
  });
}

void conv_backward_data(std::int64_t taps, const Operation& op, void* const* p) {
  const TensorDesc &dy = desc(op, 0), &dx = desc(op, 2);
  with_type(dy.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::conv_backward_data(dy.pixels(), taps * dx.c, dy.c, as<T>(p[0]), as<T>(p[1]), as<T>(p[2]));
  });
}

void conv_backward_weights(std::int64_t taps, const Operation& op, void* const* p) {
  const TensorDesc &x = desc(op, 0), &dy = desc(op, 1);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::conv_backward_weights(dy.pixels(), taps * x.c, dy.c, as<T>(p[0]), as<T>(p[1]),
                                as<Accumulator<T>>(p[2]));
  });
}

/// What an update leaves in the copy of its weights, if it has one.
void copy_weights(const Operation& op, void* const* p) {
  if (has_copy(op)) host::cast(as<float>(p[3]), as<bf16>(p[4]), desc(op, 3).elements());
}

void conv_update(std::int64_t taps, const Operation& op, void* const* p) {
  const TensorDesc &x = desc(op, 1), &dy = desc(op, 2);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto& header = *as<BatchHeader>(p[0]);
    gemm_update<T>(Transpose::yes, Transpose::no, dy.c, taps * x.c, dy.pixels(),
                   header.minus_rate_over_count, as<T>(p[2]), as<T>(p[1]), header.keep,
                   as<Accumulator<T>>(p[3]));
  });
  copy_weights(op, p);
}

/// A loss from logits: `twin` is called with what both of them take.
template <class Twin>
void cross_entropy(const Operation& op, void* const* p, Twin twin) {
  const TensorDesc& dlogits = desc(op, 3);
  with_type(dlogits.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    twin(*as<BatchHeader>(p[2]), as<Accumulator<T>>(p[0]), as<std::uint8_t>(p[1]), op.ignore_label,
         dlogits.pixels(), dlogits.c, as<T>(p[3]), as<StepResult>(p[4]));
  });
}

constexpr std::int64_t k1x1 = 1, k2x2 = 4;  // pixels a window

Conv3x3Shape conv3x3_shape(const TensorDesc& x, const TensorDesc& y) {
  return {x.n, x.h, x.w, x.c, y.c};
}

}  // namespace

void copy(const Operation& op, void* const* p) { std::memcpy(p[1], p[0], desc(op, 0).bytes()); }

void cast(const Operation& op, void* const* p) {
  const TensorDesc& x = desc(op, 0);
  if (x.dtype == DType::f32) return host::cast(as<float>(p[0]), as<bf16>(p[1]), x.elements());
  host::cast(as<bf16>(p[0]), as<float>(p[1]), x.elements());
}

void u8_to_float(const Operation& op, void* const* p) {
  const TensorDesc &x = desc(op, 0), &y = desc(op, 1);
  with_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::u8_to_float(image_shape(x), as<std::uint8_t>(p[0]), op.scale, order_of(y.layout),
                      as<T>(p[1]));
  });
}

void augment(const Operation& op, void* const* p) {
  const TensorDesc& y = desc(op, 3);
  with_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::augment(op.augment, p[2], y.n, as<std::uint8_t>(p[0]), draws_behind(p[1], y.n),
                  order_of(y.layout), as<T>(p[3]));
  });
}

void permute(const Operation& op, void* const* p) {
  const TensorDesc &x = desc(op, 0), &y = desc(op, 1);
  const auto body = [&](auto type) {
    using T = typename decltype(type)::type;
    host::permute(image_shape(x), order_of(x.layout), as<T>(p[0]), order_of(y.layout), as<T>(p[1]));
  };
  if (x.dtype == DType::u8) return body(Type<std::uint8_t>{});
  with_type(x.dtype, body);
}

void conv1x1_forward(const Operation& op, void* const* p) { conv_forward(k1x1, op, p); }
void conv1x1_backward_data(const Operation& op, void* const* p) { conv_backward_data(k1x1, op, p); }
void conv1x1_backward_weights(const Operation& op, void* const* p) {
  conv_backward_weights(k1x1, op, p);
}

void conv2x2_forward(const Operation& op, void* const* p) { conv_forward(k2x2, op, p); }
void conv2x2_backward_data(const Operation& op, void* const* p) { conv_backward_data(k2x2, op, p); }
void conv2x2_backward_weights(const Operation& op, void* const* p) {
  conv_backward_weights(k2x2, op, p);
}

void tconv2x2_forward(const Operation& op, void* const* p) {
  const TensorDesc &x = desc(op, 0), &y = desc(op, 2);
  with_types(x.dtype, y.dtype, [&](auto in, auto out) {
    using In = typename decltype(in)::type;
    using Out = typename decltype(out)::type;
    tconv_forward(x.pixels(), x.c, k2x2 * y.c, as<In>(p[0]), as<In>(p[1]), as<Out>(p[2]));
  });
}

void tconv2x2_backward_data(const Operation& op, void* const* p) {
  const TensorDesc &dy = desc(op, 0), &dx = desc(op, 2);
  with_type(dy.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    tconv_backward_data(dx.pixels(), dx.c, k2x2 * dy.c, as<T>(p[0]), as<T>(p[1]), as<T>(p[2]));
  });
}

void tconv2x2_backward_weights(const Operation& op, void* const* p) {
  const TensorDesc &x = desc(op, 0), &dy = desc(op, 1);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    tconv_backward_weights(x.pixels(), x.c, k2x2 * dy.c, as<T>(p[0]), as<T>(p[1]),
                           as<Accumulator<T>>(p[2]));
  });
}

void conv3x3_forward(const Operation& op, void* const* p) {
  const TensorDesc &x = desc(op, 0), &y = desc(op, 2);
  with_types(x.dtype, y.dtype, [&](auto in, auto out) {
    using In = typename decltype(in)::type;
    using Out = typename decltype(out)::type;
    host::conv3x3_forward(conv3x3_shape(x, y), as<In>(p[0]), as<In>(p[1]), as<Out>(p[2]),
                          as<In>(p[3]));
  });
}

void conv3x3_backward_data(const Operation& op, void* const* p) {
  const TensorDesc &dy = desc(op, 0), &dx = desc(op, 2);
  with_type(dy.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::conv3x3_backward_data(conv3x3_shape(dx, dy), as<T>(p[0]), as<T>(p[1]), as<T>(p[2]),
                                as<T>(p[3]));
  });
}

void conv3x3_backward_weights(const Operation& op, void* const* p) {
  const TensorDesc &x = desc(op, 0), &dy = desc(op, 1);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::conv3x3_backward_weights(conv3x3_shape(x, dy), as<T>(p[0]), as<T>(p[1]),
                                   as<Accumulator<T>>(p[2]), as<T>(p[3]));
  });
}

std::size_t conv3x3_forward_bytes(const Operation& op) {
  const TensorDesc &x = desc(op, 0), &y = desc(op, 2);
  const std::size_t element = size_of(x.dtype);
  return conv3x3_forward_workspace(conv3x3_shape(x, y), element) * element;
}

std::size_t conv3x3_backward_data_bytes(const Operation& op) {
  const TensorDesc &dy = desc(op, 0), &dx = desc(op, 2);
  const std::size_t element = size_of(dy.dtype);
  return conv3x3_backward_data_workspace(conv3x3_shape(dx, dy), element) * element;
}

std::size_t conv3x3_backward_weights_bytes(const Operation& op) {
  const TensorDesc &x = desc(op, 0), &dy = desc(op, 1);
  const std::size_t element = size_of(x.dtype);
  return conv3x3_backward_weights_workspace(conv3x3_shape(x, dy), element) * element;
}

void bias_forward(const Operation& op, void* const* p) {
  const TensorDesc& y = desc(op, 1);
  with_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::bias_forward(as<T>(p[0]), as<T>(p[1]), y.pixels(), y.c);
  });
}

void bias_backward(const Operation& op, void* const* p) {
  const TensorDesc& dy = desc(op, 0);
  with_type(dy.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::bias_backward(as<T>(p[0]), as<Accumulator<T>>(p[1]), dy.pixels(), dy.c);
  });
}

void relu_forward(const Operation& op, void* const* p) {
  const TensorDesc& y = desc(op, 0);
  with_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::relu_forward(as<T>(p[0]), y.elements());
  });
}

void relu_backward(const Operation& op, void* const* p) {
  const TensorDesc& y = desc(op, 0);
  with_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::relu_backward(as<T>(p[0]), as<T>(p[1]), y.elements());
  });
}

void sigmoid_forward(const Operation& op, void* const* p) {
  const TensorDesc& y = desc(op, 1);
  with_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::sigmoid_forward(as<T>(p[0]), as<T>(p[1]), y.elements());
  });
}

void sigmoid_backward(const Operation& op, void* const* p) {
  const TensorDesc& y = desc(op, 0);
  with_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::sigmoid_backward(as<T>(p[0]), as<T>(p[1]), y.elements());
  });
}

void softmax_cross_entropy(const Operation& op, void* const* p) {
  cross_entropy(op, p, [](auto&&... of) { host::softmax_cross_entropy(of...); });
}

void binary_cross_entropy(const Operation& op, void* const* p) {
  cross_entropy(op, p, [](auto&&... of) { host::binary_cross_entropy(of...); });
}

void l2_penalty(const Operation& op, void* const* p) {
  const TensorDesc& w = desc(op, 1);
  with_wide_type(w.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::l2_penalty(*as<BatchHeader>(p[0]), op.l2, as<T>(p[1]), as<T>(p[2]), w.elements(),
                     as<StepResult>(p[3]));
  });
}

void argmax(const Operation& op, void* const* p) {
  const TensorDesc& logits = desc(op, 0);
  with_wide_type(logits.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::argmax(as<T>(p[0]), logits.pixels(), logits.c, as<std::uint8_t>(p[1]));
  });
}

void sgd(const Operation& op, void* const* p) {
  const TensorDesc& w = desc(op, 2);
  with_wide_type(w.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::sgd(*as<BatchHeader>(p[0]), as<T>(p[1]), as<T>(p[2]), w.elements());
  });
}

void sgd_momentum(const Operation& op, void* const* p) {
  const TensorDesc& w = desc(op, 3);
  with_wide_type(w.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::sgd_momentum(*as<BatchHeader>(p[0]), as<T>(p[1]), as<T>(p[2]), as<T>(p[3]), w.elements());
  });
}

void bias_relu_forward(const Operation& op, void* const* p) {
  const TensorDesc& y = desc(op, 1);
  with_type(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::bias_relu_forward(as<T>(p[0]), as<T>(p[1]), y.pixels(), y.c);
  });
}

void relu_bias_backward(const Operation& op, void* const* p) {
  const TensorDesc& dy = desc(op, 1);
  with_type(dy.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::relu_bias_backward(as<T>(p[0]), as<T>(p[1]), as<Accumulator<T>>(p[2]), dy.pixels(), dy.c);
  });
}

void conv1x1_update(const Operation& op, void* const* p) { conv_update(k1x1, op, p); }
void conv2x2_update(const Operation& op, void* const* p) { conv_update(k2x2, op, p); }

void tconv2x2_update(const Operation& op, void* const* p) {
  const TensorDesc &x = desc(op, 1), &dy = desc(op, 2);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto& header = *as<BatchHeader>(p[0]);
    gemm_update<T>(Transpose::yes, Transpose::no, x.c, k2x2 * dy.c, x.pixels(),
                   header.minus_rate_over_count, as<T>(p[1]), as<T>(p[2]), header.keep,
                   as<Accumulator<T>>(p[3]));
  });
  copy_weights(op, p);
}

void sgd_many(const Operation& op, void* const* p) {
  with_wide_type(desc(op, 1).dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const std::vector<SgdTensor<T>> tensors = sgd_tensors<T>(op, p);
    host::sgd_many(*as<BatchHeader>(p[0]), tensors.data(), static_cast<int>(tensors.size()));
  });
}

void conv3x3_loss(const Operation& op, void* const* p) {
  const TensorDesc& x = desc(op, 0);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::conv3x3_loss(conv3x3_loss_shape(x, desc(op, 1)), *as<BatchHeader>(p[4]), as<T>(p[0]),
                       as<T>(p[1]), as<Accumulator<T>>(p[2]), as<std::uint8_t>(p[3]),
                       op.ignore_label, as<T>(p[5]), as<Accumulator<T>>(p[6]),
                       as<StepResult>(p[7]));
  });
}

void conv3x3_loss_backward(const Operation& op, void* const* p) {
  const TensorDesc& x = desc(op, 1);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    host::conv3x3_loss_backward(conv3x3_loss_shape(x, desc(op, 2)), as<T>(p[0]), as<T>(p[1]),
                                as<T>(p[2]), as<T>(p[3]), as<Accumulator<T>>(p[4]));
  });
}

}  // namespace tandem::host
