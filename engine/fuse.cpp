// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <set>
#include <tandem/engine/fuse.hpp>
#include <tandem/engine/op_access.hpp>
#include <tandem/engine/registry.hpp>
#include <tandem/kernels/sgd.hpp>

namespace tandem {
namespace {

using Operations = std::vector<Operation>;

/// "decoder.3.relu_backward" -> "decoder.3.relu_bias_backward": a fused operation keeps the place
/// of the part it stands for.
std::string renamed(const Operation& part, OpKind kind) {
  const std::size_t dot = part.name.rfind('.');
  const std::string place = dot == std::string::npos ? "" : part.name.substr(0, dot + 1);
  return place + op_info(kind).name;
}

/// The first part with another kind and other operands, checked as every operation is.
Operation fused(const Operation& part, OpKind kind, std::vector<Operand> operands) {
  Operation operation = part;
  operation.kind = kind;
  operation.name = renamed(part, kind);
  operation.operands = std::move(operands);
  check_operation(operation);
  return operation;
}

bool touches(const Operation& operation, BufferId buffer) {
  return std::any_of(operation.operands.begin(), operation.operands.end(),
                     [&](const Operand& o) { return o.buffer == buffer; });
}

bool writes_to(const Operation& operation, BufferId buffer) {
  return std::any_of(operation.operands.begin(), operation.operands.end(),
                     [&](const Operand& o) { return o.buffer == buffer && writes(o.access); });
}

BufferId buffer_of(const Operation& operation, std::size_t operand) {
  return operation.operands[operand].buffer;
}

/// Two neighbours that work on the same tensor.
void fuse_pointwise(Operations& operations) {
  for (std::size_t i = 0; i + 1 < operations.size(); ++i) {
    const Operation &first = operations[i], &second = operations[i + 1];
    std::optional<Operation> both;
    if (first.kind == OpKind::bias_forward && second.kind == OpKind::relu_forward &&
        buffer_of(first, 1) == buffer_of(second, 0) &&
        first.operands[1].desc == second.operands[0].desc)
      both = fused(first, OpKind::bias_relu_forward, first.operands);
    if (first.kind == OpKind::relu_backward && second.kind == OpKind::bias_backward &&
        buffer_of(first, 1) == buffer_of(second, 0) &&
        first.operands[1].desc == second.operands[0].desc)
      both = fused(first, OpKind::relu_bias_backward,
                   {first.operands[0], first.operands[1], second.operands[1]});
    if (!both) continue;
    operations[i] = std::move(*both);
    operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

/// What lies between the last ReLU's output and its gradient, in the order a plan has it.
constexpr OpKind kHead[] = {
    OpKind::permute,                   // 0: x zorder -> x raster
    OpKind::conv3x3_forward,           // 1: x, w -> logits
    OpKind::bias_forward,              // 2: b, logits
    OpKind::softmax_cross_entropy,     // 3: logits, labels, header -> dlogits, result
    OpKind::bias_backward,             // 4: dlogits -> db
    OpKind::conv3x3_backward_weights,  // 5: x, dlogits -> dw
    OpKind::conv3x3_backward_data,     // 6: dlogits, w -> dx raster
    OpKind::permute,                   // 7: dx raster -> dx zorder
    OpKind::relu_backward,             // 8: x zorder, dx
};
constexpr std::size_t kHeadLength = std::size(kHead);

/// The head from operation `at` on, where it is all there and nothing else sees what lies inside.
bool is_head(const Operations& operations, std::size_t at) {
  if (at + kHeadLength > operations.size()) return false;
  const Operation* const part = operations.data() + at;
  for (std::size_t i = 0; i < kHeadLength; ++i)
    if (part[i].kind != kHead[i]) return false;

  const TensorDesc& x = part[0].operands[0].desc;
  if (x.layout != Layout::zorder || x.c != kHeadChannels) return false;
  if (!conv3x3_loss_takes(conv3x3_loss_shape(x, part[1].operands[1].desc))) return false;
  if (x.dtype == DType::f32 && part[1].math == Math::strict) return false;

  const auto same = [&](std::size_t a, std::size_t i, std::size_t b, std::size_t j) {
    return buffer_of(part[a], i) == buffer_of(part[b], j);
  };
  const bool linked = same(0, 1, 1, 0) && same(0, 1, 5, 0) &&                      // x raster
                      same(1, 2, 2, 1) && same(1, 2, 3, 0) &&                      // logits
                      same(3, 3, 4, 0) && same(3, 3, 5, 1) && same(3, 3, 6, 0) &&  // dlogits
                      same(1, 1, 6, 1) &&                                          // w
                      same(6, 2, 7, 0) && same(7, 1, 8, 1) && same(0, 0, 8, 0);
  if (!linked) return false;
  for (const BufferId inside : {buffer_of(part[0], 1), buffer_of(part[1], 2), buffer_of(part[3], 3),
                                buffer_of(part[6], 2)}) {
    for (std::size_t i = 0; i < operations.size(); ++i)
      if ((i < at || i >= at + kHeadLength) && touches(operations[i], inside)) return false;
  }
  return true;
}

void fuse_head(Plan& plan, Operations& operations) {
  for (std::size_t at = 0; at < operations.size(); ++at) {
    if (!is_head(operations, at)) continue;
    const Operation* const part = operations.data() + at;
    const Operand &x = part[0].operands[0], &w = part[1].operands[1];
    Operand dlogits = part[3].operands[3];  // now with the channels of x
    dlogits.desc = x.desc;
    plan.buffers[static_cast<std::size_t>(dlogits.buffer)].bytes = dlogits.desc.bytes();
    Operand dx = part[7].operands[1];

    Operation forward = fused(part[1], OpKind::conv3x3_loss,
                              {x, w, part[2].operands[0], part[3].operands[1], part[3].operands[2],
                               dlogits, part[4].operands[1], part[3].operands[4]});
    forward.ignore_label = part[3].ignore_label;
    dlogits.access = Access::read;
    Operation backward =
        fused(part[6], OpKind::conv3x3_loss_backward, {dlogits, x, w, dx, part[5].operands[2]});
    const auto begin = operations.begin() + static_cast<std::ptrdiff_t>(at);
    operations.erase(begin + 2, begin + static_cast<std::ptrdiff_t>(kHeadLength));
    operations[at] = std::move(forward);
    operations[at + 1] = std::move(backward);
  }
}

std::optional<OpKind> update_of(OpKind backward_weights) {
  switch (backward_weights) {
    case OpKind::conv1x1_backward_weights:
      return OpKind::conv1x1_update;
    case OpKind::conv2x2_backward_weights:
      return OpKind::conv2x2_update;
    case OpKind::tconv2x2_backward_weights:
      return OpKind::tconv2x2_update;
    default:
      return std::nullopt;
  }
}

/// Index of the only operation besides `except` that touches the buffer, if there is just one.
std::optional<std::size_t> only_user(const Operations& operations, BufferId buffer,
                                     std::size_t except) {
  std::optional<std::size_t> user;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (i == except || !touches(operations[i], buffer)) continue;
    if (user) return std::nullopt;
    user = i;
  }
  return user;
}

///   backward_weights x, dy -> dw   ...   sgd dw -> w   [cast w -> copy]
///
/// becomes, behind the last operation that reads w or its copy,
///
///   update x, dy -> w [and copy]
bool fuse_one_update(Operations& operations, std::size_t at) {
  const Operation& product = operations[at];
  const std::optional<OpKind> kind = update_of(product.kind);
  if (!kind) return false;
  const auto sgd_at = only_user(operations, buffer_of(product, 2), at);
  if (!sgd_at || *sgd_at < at || operations[*sgd_at].kind != OpKind::sgd) return false;
  const Operation& sgd = operations[*sgd_at];
  const BufferId w = buffer_of(sgd, 2);
  std::optional<std::size_t> cast_at;
  if (const std::size_t next = *sgd_at + 1; next < operations.size() &&
                                            operations[next].kind == OpKind::cast &&
                                            buffer_of(operations[next], 0) == w)
    cast_at = next;

  std::size_t behind = at;
  for (std::size_t i = at + 1; i < *sgd_at; ++i) {
    const Operation& other = operations[i];
    for (const std::size_t operand : {std::size_t{0}, std::size_t{1}})
      if (writes_to(other, buffer_of(product, operand))) return false;
    if (writes_to(other, w)) return false;
    if (touches(other, w) || (cast_at && touches(other, buffer_of(operations[*cast_at], 1))))
      behind = i;
  }

  std::vector<Operand> operands{sgd.operands[0], product.operands[0], product.operands[1],
                                sgd.operands[2]};
  if (cast_at) operands.push_back(operations[*cast_at].operands[1]);
  Operation update = fused(product, *kind, std::move(operands));
  update.lane = sgd.lane;
  const auto erase = [&](std::size_t i) {
    operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(i));
  };
  if (cast_at) erase(*cast_at);
  erase(*sgd_at);
  const auto place = operations.begin() + static_cast<std::ptrdiff_t>(behind) + 1;
  operations.insert(place, std::move(update));
  erase(at);
  return true;
}

void fuse_updates(Operations& operations) {
  for (std::size_t i = 0; i < operations.size();)
    if (!fuse_one_update(operations, i)) ++i;
}

/// One launch, in the place of the last of them, for the updates with the same header that are
/// left.
void fuse_many(Operations& operations) {
  const auto is_update = [](const Operation& o) {
    return o.kind == OpKind::sgd || o.kind == OpKind::sgd_momentum;
  };
  Operations rest;
  Operation many;
  int tensors = 0;
  const auto finish = [&] {
    if (tensors == 0) return;
    check_operation(many);
    rest.push_back(std::move(many));
    many = {};
    tensors = 0;
  };
  const std::size_t last = [&] {
    std::size_t found = operations.size();
    for (std::size_t i = 0; i < operations.size(); ++i)
      if (is_update(operations[i])) found = i;
    return found;
  }();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    Operation& operation = operations[i];
    if (!is_update(operation)) {
      // What reads a weight between its update and the last one has to see it updated.
      if (tensors > 0 && i < last &&
          std::any_of(many.operands.begin(), many.operands.end(),
                      [&](const Operand& o) { return touches(operation, o.buffer); }))
        finish();
      rest.push_back(std::move(operation));
      continue;
    }
    std::vector<Operand> tensor(operation.operands.begin() + 1, operation.operands.end());
    const Operand& w = tensor.back();
    if (i + 1 < operations.size() && operations[i + 1].kind == OpKind::cast &&
        buffer_of(operations[i + 1], 0) == w.buffer)
      tensor.push_back(operations[++i].operands[1]);
    if (tensors == kMaxSgdTensors || many.operands.size() + tensor.size() > kMaxOperands ||
        (tensors > 0 && many.operands[0].buffer != operation.operands[0].buffer))
      finish();
    if (tensors == 0) {
      many = operation;
      many.kind = OpKind::sgd_many;
      many.name = renamed(operation, OpKind::sgd_many);
      many.operands = {operation.operands[0]};
    }
    many.operands.insert(many.operands.end(), tensor.begin(), tensor.end());
    ++tensors;
    if (i >= last) finish();
  }
  operations = std::move(rest);
}

/// Which of them a kernel takes is the backend's to know: it depends on sizes and type.
void prefer_own_kernels(Operations& operations) {
  for (Operation& operation : operations) {
    switch (operation.kind) {
      case OpKind::conv1x1_forward:
      case OpKind::conv1x1_backward_weights:
      case OpKind::conv1x1_update:
      case OpKind::conv2x2_update:
      case OpKind::tconv2x2_update:
        operation.own_kernel = true;
        break;
      default:
        break;
    }
  }
}

std::set<BufferId> used_buffers(const Plan& plan) {
  std::set<BufferId> used;
  for (const Stage& stage : plan.stages)
    for (const Operation& operation : stage.operations)
      for (const Operand& operand : operation.operands) used.insert(operand.buffer);
  return used;
}

}  // namespace

Plan fuse(Plan plan, const FuseOptions& options) {
  if (!options.any()) return plan;
  std::set<BufferId> released = used_buffers(plan);
  for (Stage& stage : plan.stages) {
    if (options.head) fuse_head(plan, stage.operations);
    if (options.pointwise) fuse_pointwise(stage.operations);
    if (options.update) fuse_updates(stage.operations);
    if (options.many) fuse_many(stage.operations);
    if (options.products) prefer_own_kernels(stage.operations);
  }
  for (const BufferId buffer : used_buffers(plan)) released.erase(buffer);
  for (const BufferId buffer : released) plan.buffers[static_cast<std::size_t>(buffer)].bytes = 0;
  validate(plan);
  return plan;
}

}  // namespace tandem
