// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tandem/engine/alignment.hpp>
#include <tandem/engine/augment_draw.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/op_access.hpp>
#include <tandem/engine/ops_host.hpp>
#include <tandem/engine/registry.hpp>
#include <tandem/kernels/augment.hpp>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/pointwise.hpp>
#include <tandem/kernels/sgd.hpp>
#include <tandem/kernels/softmax_xent.hpp>

namespace tandem {

namespace {

/// An operand as operation.hpp documents it.
struct OperandSpec {
  const char* name = nullptr;
  Access access = Access::read;
};

constexpr OperandSpec r(const char* name) { return {name, Access::read}; }
constexpr OperandSpec w(const char* name) { return {name, Access::write}; }
constexpr OperandSpec rw(const char* name) { return {name, Access::read_write}; }

struct OpSpec {
  OpKind kind;
  OpInfo info;
  std::array<OperandSpec, 8> operands;  // the last ones may be empty

  bool last_is_optional = false;  // an operation may come without its last operand

  constexpr std::size_t operand_count() const {
    std::size_t count = 0;
    while (count < operands.size() && operands[count].name != nullptr) ++count;
    return count;
  }
};

const OpSpec& spec_of(OpKind kind) noexcept;

const char* name_of(Access access) {
  if (access == Access::read_write) return "read_write";
  return access == Access::read ? "read" : "write";
}

// --- messages ---

/// By the registry's table; behind it the workspace, and of a kind without one its own names.
std::string operand_name(const Operation& op, std::size_t index) {
  const OpSpec& spec = spec_of(op.kind);
  if (index < spec.operand_count()) return spec.operands[index].name;
  return spec.operand_count() > 0 ? "workspace" : op.operands[index].name;
}

/// "x f32 nhwc 1x5x5x3".
std::string operand_text(const Operation& op, std::size_t index) {
  return fmt::format("{} {}", operand_name(op, index), to_string(op.operands[index].desc));
}

[[noreturn]] void refuse(const Operation& op, const std::string& what) {
  std::string operands;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    operands += (i == 0 ? "" : ", ") + operand_text(op, i);
  }
  throw Error(ErrorCode::usage, fmt::format("{} '{}': {} (operands: {})",
                                            spec_of(op.kind).info.name, op.name, what, operands));
}

/// Refuses unless `holds`; `requirement` completes "x is ..., required ...".
void require(const Operation& op, std::size_t index, bool holds, const std::string& requirement) {
  if (holds) return;
  refuse(op, fmt::format("{} is {}, required {}", operand_name(op, index),
                         to_string(op.operands[index].desc), requirement));
}

// --- what several checks ask for ---

/// Sums, logits and gradients of weights of a storage type.
DType wide(DType type) { return type == DType::bf16 ? DType::f32 : type; }

void require_type(const Operation& op, std::size_t index, DType type) {
  require(op, index, desc(op, index).dtype == type, name_of(type));
}

void require_float(const Operation& op, std::size_t index) {
  require(op, index, desc(op, index).dtype != DType::u8, "f32, bf16 or f64");
}

void require_wide(const Operation& op, std::size_t index) {
  const DType type = desc(op, index).dtype;
  require(op, index, type == DType::f32 || type == DType::f64, "f32 or f64");
}

void require_layout(const Operation& op, std::size_t index, Layout layout) {
  require(op, index, desc(op, index).layout == layout, name_of(layout));
}

void require_channels_last(const Operation& op, std::size_t index) {
  const Layout layout = desc(op, index).layout;
  require(op, index, layout == Layout::nhwc || layout == Layout::zorder, "nhwc or zorder");
}

void require_dims(const Operation& op, std::size_t index, std::int64_t n, std::int64_t h,
                  std::int64_t w, std::int64_t c) {
  const TensorDesc& d = desc(op, index);
  require(op, index, d.n == n && d.h == h && d.w == w && d.c == c,
          fmt::format("{}x{}x{}x{}", n, h, w, c));
}

void require_dims_of(const Operation& op, std::size_t index, const TensorDesc& other) {
  require_dims(op, index, other.n, other.h, other.w, other.c);
}

void require_same(const Operation& op, std::size_t index, const TensorDesc& other) {
  require(op, index, desc(op, index) == other, to_string(other));
}

void require_bytes(const Operation& op, std::size_t index, std::size_t bytes) {
  require(op, index, desc(op, index).bytes() >= bytes, fmt::format("at least {} bytes", bytes));
}

/// What holds for every tensor: sizes of at least 1 that do not overflow, and a Z-order that
/// exists.
void check_tensor(const Operation& op, std::size_t index) {
  const TensorDesc& d = desc(op, index);
  std::int64_t elements = 1;
  for (const std::int64_t size : {d.n, d.h, d.w, d.c}) {
    require(op, index, size >= 1, "sizes of at least 1");
    constexpr std::int64_t kLargest = std::int64_t{1} << 48;
    require(op, index, size <= kLargest / elements, "at most 2^48 elements");
    elements *= size;
  }
  if (d.layout == Layout::zorder) {
    require(op, index, d.h == d.w && (d.h & (d.h - 1)) == 0 && d.h <= 65536,
            "a square whose side is a power of two up to 65536 for zorder");
  }
}

// --- shape checks, one a kind ---

void check_copy(const Operation& op) {
  const std::size_t bytes = desc(op, 0).bytes();
  require(op, 1, desc(op, 1).bytes() == bytes, fmt::format("{} bytes, as src", bytes));
}

void check_cast(const Operation& op) {
  const DType from = desc(op, 0).dtype;
  require(op, 0, from == DType::f32 || from == DType::bf16, "f32 or bf16");
  require_type(op, 1, from == DType::f32 ? DType::bf16 : DType::f32);
  require_layout(op, 1, desc(op, 0).layout);
  require_dims_of(op, 1, desc(op, 0));
}

void check_u8_to_float(const Operation& op) {
  require_type(op, 0, DType::u8);
  require_layout(op, 0, Layout::nhwc);
  require_float(op, 1);
  require_channels_last(op, 1);
  require_dims_of(op, 1, desc(op, 0));
}

void check_augmentation(const Operation& op) {
  const AugmentSpec& spec = op.augment;
  try {
    check_augment(spec);
  } catch (const Error& error) {
    refuse(op, error.what());
  }
  const std::int64_t n = desc(op, 0).n;
  require_type(op, 0, DType::u8);
  require_layout(op, 0, Layout::nhwc);
  require_dims(op, 0, n, spec.in_h, spec.in_w, kAugmentChannels);
  require_bytes(op, 1, batch_header_bytes(n));
  require_bytes(op, 2, augment_table_bytes(spec));
  require_float(op, 3);
  require_channels_last(op, 3);
  require_dims(op, 3, n, spec.out_h, spec.out_w, kAugmentChannels);
}

void check_permute(const Operation& op) {
  require(op, 0, desc(op, 0).layout != Layout::flat, "nchw, nhwc or zorder");
  require(op, 1, desc(op, 1).layout != Layout::flat, "nchw, nhwc or zorder");
  require_type(op, 1, desc(op, 0).dtype);
  require_dims_of(op, 1, desc(op, 0));
}

enum class Filter { conv1x1, conv2x2, tconv2x2, conv3x3 };
enum class Pass { forward, backward_data, backward_weights, update };

/// Positions of x (or dx), w (or dw) and y (or dy) among the operands.
struct ConvOperands {
  std::size_t x, w, y;
};

constexpr ConvOperands conv_operands(Pass pass) {
  if (pass == Pass::forward) return {0, 1, 2};
  if (pass == Pass::update) return {1, 3, 2};
  return pass == Pass::backward_data ? ConvOperands{2, 1, 0} : ConvOperands{0, 2, 1};
}

template <Filter filter, Pass pass>
void check_conv(const Operation& op) {
  constexpr ConvOperands at = conv_operands(pass);
  const TensorDesc &x = desc(op, at.x), &y = desc(op, at.y), &filters = desc(op, at.w);

  // One type, but for gradients of weights and for logits.
  require_float(op, at.x);
  if constexpr (pass == Pass::forward) {
    require(op, at.y, y.dtype == x.dtype || y.dtype == wide(x.dtype),
            fmt::format("{} or, as logits, {}", name_of(x.dtype), name_of(wide(x.dtype))));
  } else {
    require_type(op, at.y, x.dtype);
  }
  constexpr bool sums = pass == Pass::backward_weights || pass == Pass::update;
  require_type(op, at.w, sums ? wide(x.dtype) : x.dtype);
  if constexpr (pass == Pass::update) {
    require_bytes(op, 0, sizeof(BatchHeader));
    if (has_copy(op)) {
      require(op, at.x, x.dtype == DType::bf16, "bf16 where there is a copy of w");
      require_type(op, 4, DType::bf16);
      require_layout(op, 4, filters.layout);
      require_dims_of(op, 4, filters);
    }
  }

  if constexpr (filter == Filter::conv1x1) {
    require_channels_last(op, at.x);
    require_layout(op, at.y, x.layout);
    require_dims(op, at.y, x.n, x.h, x.w, y.c);
    require_dims(op, at.w, y.c, 1, 1, x.c);
  } else if constexpr (filter == Filter::conv2x2) {
    require_layout(op, at.x, Layout::zorder);
    require_layout(op, at.y, Layout::zorder);
    require(op, at.x, x.h >= 2, "a side of at least 2");
    require_dims(op, at.y, x.n, x.h / 2, x.w / 2, y.c);
    require_dims(op, at.w, y.c, 2, 2, x.c);
  } else if constexpr (filter == Filter::tconv2x2) {
    require_layout(op, at.x, Layout::zorder);
    require_layout(op, at.y, Layout::zorder);
    require_dims(op, at.y, x.n, 2 * x.h, 2 * x.w, y.c);
    require_dims(op, at.w, x.c, 2, 2, y.c);
  } else {
    require_layout(op, at.x, Layout::nhwc);
    require_layout(op, at.y, Layout::nhwc);
    require_dims(op, at.y, x.n, x.h, x.w, y.c);
    require_dims(op, at.w, y.c, 3, 3, x.c);
  }

  // The sizes of the matrix products.
  constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
  require(op, at.x, x.pixels() <= kLargest, "at most 2^31 - 1 pixels");
  require(op, at.y, y.pixels() <= kLargest, "at most 2^31 - 1 pixels");
  const std::int64_t taps = filters.h * filters.w;
  require(op, at.w, taps * x.c <= kLargest && taps * y.c <= kLargest,
          "at most 2^31 - 1 weights a channel");
}

void check_bias_forward(const Operation& op) {
  require_float(op, 1);
  require_channels_last(op, 1);
  require_type(op, 0, desc(op, 1).dtype);
  require_dims(op, 0, 1, 1, 1, desc(op, 1).c);
}

/// Of a bias's gradient: its first sums fit into what a lane of the cuda backend has for them.
void require_bias_sums_fit(const Operation& op, std::size_t dy) {
  const TensorDesc& d = desc(op, dy);
  const std::size_t bytes = cuda::bias_backward_workspace_bytes(d.pixels(), d.c, size_of(d.dtype));
  require(op, dy, bytes <= kLaneWorkspace,
          fmt::format("so few channels that their sums take at most {} bytes; these take {}",
                      kLaneWorkspace, bytes));
}

void check_bias_backward(const Operation& op) {
  require_float(op, 0);
  require_channels_last(op, 0);
  require_bias_sums_fit(op, 0);
  require_type(op, 1, wide(desc(op, 0).dtype));
  require_dims(op, 1, 1, 1, 1, desc(op, 0).c);
}

void check_relu_forward(const Operation& op) { require_float(op, 0); }

void check_relu_backward(const Operation& op) {
  require_float(op, 0);
  require_same(op, 1, desc(op, 0));
}

void check_sigmoid_forward(const Operation& op) {
  require_float(op, 0);
  require_same(op, 1, desc(op, 0));
}

void check_bias_relu_forward(const Operation& op) { check_bias_forward(op); }

void check_relu_bias_backward(const Operation& op) {
  check_relu_backward(op);
  require_channels_last(op, 1);
  require_bias_sums_fit(op, 1);
  require_type(op, 2, wide(desc(op, 1).dtype));
  require_dims(op, 2, 1, 1, 1, desc(op, 1).c);
}

void require_classes(const Operation& op, std::size_t logits) {
  require_wide(op, logits);
  require_layout(op, logits, Layout::nhwc);
  require(op, logits, desc(op, logits).c <= kMaxClasses, fmt::format("1..{} classes", kMaxClasses));
}

/// One byte a pixel of the logits.
void require_class_map(const Operation& op, std::size_t index, const TensorDesc& logits) {
  require_type(op, index, DType::u8);
  require_layout(op, index, Layout::nhwc);
  require_dims(op, index, logits.n, logits.h, logits.w, 1);
}

void check_cross_entropy(const Operation& op) {
  const TensorDesc& logits = desc(op, 0);
  require_classes(op, 0);
  require_class_map(op, 1, logits);
  require_bytes(op, 2, sizeof(BatchHeader));
  require_float(op, 3);
  require(op, 3, wide(desc(op, 3).dtype) == logits.dtype,
          fmt::format("a type whose sums are {}", name_of(logits.dtype)));
  require_layout(op, 3, Layout::nhwc);
  require_dims_of(op, 3, logits);
  require_bytes(op, 4, sizeof(StepResult));
}

void check_argmax(const Operation& op) {
  require_classes(op, 0);
  require_class_map(op, 1, desc(op, 0));
}

void check_l2_penalty(const Operation& op) {
  require_bytes(op, 0, sizeof(BatchHeader));
  require_wide(op, 1);
  require_type(op, 2, desc(op, 1).dtype);
  require_dims_of(op, 2, desc(op, 1));
  require_bytes(op, 3, sizeof(StepResult));
  if (!(op.l2 >= 0) || !std::isfinite(op.l2))
    refuse(op, fmt::format("l2 is {}; allowed: finite numbers from 0", op.l2));
}

/// header, then gradient, velocity if any, and weights, all alike.
template <std::size_t weights>
void check_sgd(const Operation& op) {
  require_bytes(op, 0, sizeof(BatchHeader));
  require_wide(op, weights);
  for (std::size_t i = 1; i < weights; ++i) {
    require_type(op, i, desc(op, weights).dtype);
    require_dims_of(op, i, desc(op, weights));
  }
}

/// An image tensor of the head [N,S,S,16], and the filter.
void check_head(const Operation& op, std::size_t image, std::size_t filter) {
  const TensorDesc &x = desc(op, image), &w = desc(op, filter);
  require_float(op, image);
  require_layout(op, image, Layout::zorder);
  require_dims(op, image, x.n, x.h, x.h, kHeadChannels);
  require_dims(op, filter, w.n, 3, 3, kHeadChannels);
  require(op, image, conv3x3_loss_takes(conv3x3_loss_shape(x, w)),
          fmt::format("a side of 32 to 16384 that is a power of two, fewer than 2^31 pixels, and 2 "
                      "to {} classes",
                      kHeadChannels));
}

void check_conv3x3_loss(const Operation& op) {
  const TensorDesc &x = desc(op, 0), &w = desc(op, 1);
  check_head(op, 0, 1);
  require_type(op, 1, x.dtype);
  for (const std::size_t bias : {std::size_t{2}, std::size_t{6}}) {
    require_type(op, bias, wide(x.dtype));
    require_dims(op, bias, 1, 1, 1, w.n);
  }
  require_class_map(op, 3, x);
  require_bytes(op, 4, sizeof(BatchHeader));
  require_same(op, 5, x);
  require_bytes(op, 7, sizeof(StepResult));
}

void check_conv3x3_loss_backward(const Operation& op) {
  const TensorDesc& x = desc(op, 1);
  check_head(op, 1, 2);
  require_same(op, 0, x);
  require_type(op, 2, x.dtype);
  require_same(op, 3, x);
  require_type(op, 4, wide(x.dtype));
  require_dims_of(op, 4, desc(op, 2));
}

/// Any number of tensors, each as operation.hpp says.
void check_sgd_many(const Operation& op) {
  const auto has = [&](std::size_t i, Access access) {
    return i < op.operands.size() && op.operands[i].access == access;
  };
  if (!has(0, Access::read)) refuse(op, "the first operand has to be a header that is read");
  require_bytes(op, 0, sizeof(BatchHeader));
  for (std::size_t i = 1; i < op.operands.size(); ++i) check_tensor(op, i);
  int tensors = 0;
  for (std::size_t i = 1; i < op.operands.size(); ++tensors) {
    const std::size_t dw = i, w = has(dw + 2, Access::read_write) ? dw + 2 : dw + 1;
    if (!has(dw, Access::read) || !has(dw + 1, Access::read_write) || !has(w, Access::read_write))
      refuse(op,
             fmt::format("operand {} begins no tensor: dw read, [v and] w read and written", dw));
    require_wide(op, w);
    require_type(op, w, desc(op, 1).dtype);
    for (i = dw; i < w; ++i) {
      require_type(op, i, desc(op, w).dtype);
      require_dims_of(op, i, desc(op, w));
    }
    if (has(++i, Access::write)) {
      require_type(op, i, DType::bf16);
      require_dims_of(op, i, desc(op, w));
      ++i;
    }
  }
  if (tensors < 1 || tensors > kMaxSgdTensors)
    refuse(op, fmt::format("{} tensors; allowed: 1 .. {}", tensors, kMaxSgdTensors));
}

void check_callable(const Operation& op) {
  if (op.callable.function == nullptr) refuse(op, "the function is null");
}

std::size_t no_workspace(const Operation&) { return 0; }

std::size_t augment_workspace(const Operation& op) {
  return is_one_kernel(op) ? 0 : augment_plain_bytes(op.augment, desc(op, 0).n);
}

/// Enough for the host's body and for the CUDA body, which widens bf16 operands.
template <std::size_t (*host_bytes)(const Operation&)>
std::size_t conv3x3_workspace(const Operation& op) {
  std::size_t widened = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    if (desc(op, i).dtype == DType::bf16) widened += conv3x3_widened_bytes(op, i);
  }
  return std::max(host_bytes(op), widened);
}

// --- the table ---

constexpr OpInfo info(const char* name, void (*check)(const Operation&),
                      void (*body)(const Operation&, void* const*),
                      std::size_t (*workspace)(const Operation&) = no_workspace) {
  return {name, check, workspace, body};
}

using K = OpKind;

// clang-format off
constexpr std::array<OpSpec, kOpKindCount> kSpecs = {{
  {K::copy,        info("copy", check_copy, host::copy),                      {r("src"), w("dst")}},
  {K::cast,        info("cast", check_cast, host::cast),                      {r("x"), w("y")}},
  {K::u8_to_float, info("u8_to_float", check_u8_to_float, host::u8_to_float), {r("x"), w("y")}},
  {K::augment,     info("augment", check_augmentation, host::augment, augment_workspace),
   {r("x"), r("header"), r("tables"), w("y")}},
  {K::permute,     info("permute", check_permute, host::permute),             {r("x"), w("y")}},

  {K::conv1x1_forward,
   info("conv1x1_forward", check_conv<Filter::conv1x1, Pass::forward>, host::conv1x1_forward),
   {r("x"), r("w"), w("y")}},
  {K::conv1x1_backward_data,
   info("conv1x1_backward_data", check_conv<Filter::conv1x1, Pass::backward_data>,
        host::conv1x1_backward_data),
   {r("dy"), r("w"), w("dx")}},
  {K::conv1x1_backward_weights,
   info("conv1x1_backward_weights", check_conv<Filter::conv1x1, Pass::backward_weights>,
        host::conv1x1_backward_weights),
   {r("x"), r("dy"), w("dw")}},

  {K::conv2x2_forward,
   info("conv2x2_forward", check_conv<Filter::conv2x2, Pass::forward>, host::conv2x2_forward),
   {r("x"), r("w"), w("y")}},
  {K::conv2x2_backward_data,
   info("conv2x2_backward_data", check_conv<Filter::conv2x2, Pass::backward_data>,
        host::conv2x2_backward_data),
   {r("dy"), r("w"), w("dx")}},
  {K::conv2x2_backward_weights,
   info("conv2x2_backward_weights", check_conv<Filter::conv2x2, Pass::backward_weights>,
        host::conv2x2_backward_weights),
   {r("x"), r("dy"), w("dw")}},

  {K::tconv2x2_forward,
   info("tconv2x2_forward", check_conv<Filter::tconv2x2, Pass::forward>, host::tconv2x2_forward),
   {r("x"), r("w"), w("y")}},
  {K::tconv2x2_backward_data,
   info("tconv2x2_backward_data", check_conv<Filter::tconv2x2, Pass::backward_data>,
        host::tconv2x2_backward_data),
   {r("dy"), r("w"), w("dx")}},
  {K::tconv2x2_backward_weights,
   info("tconv2x2_backward_weights", check_conv<Filter::tconv2x2, Pass::backward_weights>,
        host::tconv2x2_backward_weights),
   {r("x"), r("dy"), w("dw")}},

  {K::conv3x3_forward,
   info("conv3x3_forward", check_conv<Filter::conv3x3, Pass::forward>, host::conv3x3_forward,
        conv3x3_workspace<host::conv3x3_forward_bytes>),
   {r("x"), r("w"), w("y")}},
  {K::conv3x3_backward_data,
   info("conv3x3_backward_data", check_conv<Filter::conv3x3, Pass::backward_data>,
        host::conv3x3_backward_data, conv3x3_workspace<host::conv3x3_backward_data_bytes>),
   {r("dy"), r("w"), w("dx")}},
  {K::conv3x3_backward_weights,
   info("conv3x3_backward_weights", check_conv<Filter::conv3x3, Pass::backward_weights>,
        host::conv3x3_backward_weights, conv3x3_workspace<host::conv3x3_backward_weights_bytes>),
   {r("x"), r("dy"), w("dw")}},

  {K::bias_forward,  info("bias_forward", check_bias_forward, host::bias_forward),    {r("b"), rw("y")}},
  {K::bias_backward, info("bias_backward", check_bias_backward, host::bias_backward), {r("dy"), w("db")}},
  {K::relu_forward,  info("relu_forward", check_relu_forward, host::relu_forward),    {rw("y")}},
  {K::relu_backward, info("relu_backward", check_relu_backward, host::relu_backward), {r("y"), rw("dy")}},
  {K::sigmoid_forward,
   info("sigmoid_forward", check_sigmoid_forward, host::sigmoid_forward), {r("x"), w("y")}},
  {K::sigmoid_backward,
   info("sigmoid_backward", check_relu_backward, host::sigmoid_backward), {r("y"), rw("dy")}},

  {K::softmax_cross_entropy,
   info("softmax_cross_entropy", check_cross_entropy, host::softmax_cross_entropy),
   {r("logits"), r("labels"), r("header"), w("dlogits"), w("result")}},
  {K::binary_cross_entropy,
   info("binary_cross_entropy", check_cross_entropy, host::binary_cross_entropy),
   {r("logits"), r("labels"), r("header"), w("dlogits"), w("result")}},
  {K::argmax, info("argmax", check_argmax, host::argmax), {r("logits"), w("y")}},

  {K::l2_penalty, info("l2_penalty", check_l2_penalty, host::l2_penalty),
   {r("header"), r("w"), rw("dw"), rw("result")}},
  {K::sgd,          info("sgd", check_sgd<2>, host::sgd), {r("header"), r("dw"), rw("w")}},
  {K::sgd_momentum, info("sgd_momentum", check_sgd<3>, host::sgd_momentum),
   {r("header"), r("dw"), rw("v"), rw("w")}},

  {K::bias_relu_forward, info("bias_relu_forward", check_bias_relu_forward, host::bias_relu_forward),
   {r("b"), rw("y")}},
  {K::relu_bias_backward,
   info("relu_bias_backward", check_relu_bias_backward, host::relu_bias_backward),
   {r("y"), rw("dy"), w("db")}},
  {K::conv1x1_update,
   info("conv1x1_update", check_conv<Filter::conv1x1, Pass::update>, host::conv1x1_update),
   {r("header"), r("x"), r("dy"), rw("w"), w("copy")}, true},
  {K::conv2x2_update,
   info("conv2x2_update", check_conv<Filter::conv2x2, Pass::update>, host::conv2x2_update),
   {r("header"), r("x"), r("dy"), rw("w"), w("copy")}, true},
  {K::tconv2x2_update,
   info("tconv2x2_update", check_conv<Filter::tconv2x2, Pass::update>, host::tconv2x2_update),
   {r("header"), r("x"), r("dy"), rw("w"), w("copy")}, true},
  {K::sgd_many, info("sgd_many", check_sgd_many, host::sgd_many), {}},
  {K::conv3x3_loss, info("conv3x3_loss", check_conv3x3_loss, host::conv3x3_loss),
   {r("x"), r("w"), r("b"), r("labels"), r("header"), w("dlogits"), w("db"), w("result")}},
  {K::conv3x3_loss_backward,
   info("conv3x3_loss_backward", check_conv3x3_loss_backward, host::conv3x3_loss_backward),
   {r("dlogits"), r("x"), r("w"), w("dx"), w("dw")}},

  {K::callable, info("callable", check_callable, nullptr), {}},
}};
// clang-format on

constexpr bool in_order_of_kinds() {
  for (std::size_t i = 0; i < kSpecs.size(); ++i) {
    if (static_cast<std::size_t>(kSpecs[i].kind) != i) return false;
  }
  return true;
}
static_assert(in_order_of_kinds(), "a kind is missing or out of order in the registry");

const OpSpec& spec_of(OpKind kind) noexcept { return kSpecs[static_cast<std::size_t>(kind)]; }

/// The workspace that a plan appended, if it has: a written operand that is large enough.
void check_workspace(const Operation& op) {
  const std::size_t index = spec_of(op.kind).operand_count();
  if (op.operands.size() <= index) return;
  const std::size_t bytes = op_info(op.kind).workspace(op);
  const Operand& workspace = op.operands[index];
  if (workspace.desc.bytes() < bytes || !writes(workspace.access)) {
    refuse(op,
           fmt::format("the workspace has {} bytes and access {}, required at least {} and write",
                       workspace.desc.bytes(), name_of(workspace.access), bytes));
  }
}

}  // namespace

std::int64_t conv3x3_chunk(const TensorDesc& image) noexcept {
  constexpr std::int64_t kPixels = std::int64_t{1} << 19;
  return std::clamp<std::int64_t>(kPixels / (image.h * image.w), 1, image.n);
}

std::size_t conv3x3_widened_bytes(const Operation& op, std::size_t index) noexcept {
  const std::size_t filter = op.kind == OpKind::conv3x3_backward_weights ? 2 : 1;
  const TensorDesc& d = desc(op, index);
  const std::int64_t first = index == filter ? d.n : conv3x3_chunk(d);
  const auto bytes = static_cast<std::size_t>(first * d.h * d.w * d.c) * sizeof(float);
  return aligned_size(bytes);
}

const OpInfo& op_info(OpKind kind) noexcept { return spec_of(kind).info; }

void check_aliases(const Operation& op) {
  if (op.kind == OpKind::callable) return;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Operand &a = op.operands[j], &b = op.operands[i];
      if (a.buffer < 0 || a.buffer != b.buffer) continue;
      if (!writes(a.access) && !writes(b.access)) continue;
      refuse(op, fmt::format("operands {} ({}) and {} ({}) are the same buffer, number {}, which "
                             "the operation writes; required: two buffers, or reading only",
                             j, operand_name(op, j), i, operand_name(op, i), a.buffer));
    }
  }
}

void check_operation(const Operation& op) {
  if (op.operands.size() > kMaxOperands) {
    refuse(op, fmt::format("{} operands, allowed at most {}", op.operands.size(), kMaxOperands));
  }
  check_aliases(op);
  const OpSpec& spec = spec_of(op.kind);
  // These have any number of operands.
  if (op.kind == OpKind::callable || op.kind == OpKind::sgd_many) return spec.info.check(op);

  std::size_t count = spec.operand_count();
  if (spec.last_is_optional && op.operands.size() == count - 1) --count;
  const bool has_workspace = op.operands.size() == count + 1 && op.operands.back().workspace &&
                             spec.info.workspace != no_workspace;
  if (op.operands.size() != count && !has_workspace) {
    refuse(op, fmt::format("{} operands, required {}", op.operands.size(), count));
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (op.operands[i].access != spec.operands[i].access) {
      refuse(op, fmt::format("{} has access {}, required {}", spec.operands[i].name,
                             name_of(op.operands[i].access), name_of(spec.operands[i].access)));
    }
    check_tensor(op, i);
  }
  spec.info.check(op);
  check_workspace(op);
}

}  // namespace tandem
