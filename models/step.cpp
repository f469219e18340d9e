// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <tandem/engine/error.hpp>
#include <tandem/engine/registry.hpp>
#include <tandem/models/step.hpp>

namespace tandem {
namespace {

/// The three operations of a layer with weights.
struct LayerOps {
  OpKind forward, backward_data, backward_weights;
};

/// A linear layer is a convolution with kernel 1.
LayerOps ops_of(const Layer& layer) {
  if (layer.kind == LayerKind::transposed_conv)
    return {OpKind::tconv2x2_forward, OpKind::tconv2x2_backward_data,
            OpKind::tconv2x2_backward_weights};
  if (layer.kernel == 1)
    return {OpKind::conv1x1_forward, OpKind::conv1x1_backward_data,
            OpKind::conv1x1_backward_weights};
  if (layer.kernel == 2)
    return {OpKind::conv2x2_forward, OpKind::conv2x2_backward_data,
            OpKind::conv2x2_backward_weights};
  return {OpKind::conv3x3_forward, OpKind::conv3x3_backward_data, OpKind::conv3x3_backward_weights};
}

/// The order of pixels that a layer's operation reads and writes, given the order its input has.
Layout layout_of(const Layer& layer, Layout input) {
  if (!has_weights(layer.kind) || layer.kernel == 1) return input;
  return layer.kernel == 2 ? Layout::zorder : Layout::nhwc;
}

TensorDesc output_desc(const Layer& layer, TensorDesc x) {
  x.c = layer.out_channels;
  if (layer.kind == LayerKind::transposed_conv) {
    x.h *= 2;
    x.w *= 2;
  } else if (layer.stride == 2) {
    x.h /= 2;
    x.w /= 2;
  }
  return x;
}

TensorDesc parameter_desc(const ParameterSpec& spec, const Layer& layer) {
  if (spec.bias) return {DType::f32, Layout::flat, 1, 1, 1, layer.out_channels};
  const bool transposed = layer.kind == LayerKind::transposed_conv;
  const std::int64_t first = transposed ? layer.in_channels : layer.out_channels;
  const std::int64_t last = transposed ? layer.out_channels : layer.in_channels;
  return {DType::f32, Layout::nhwc, first, layer.kernel, layer.kernel, last};
}

/// Adds one operation named "<part>.<layer>.<operation>".
/// `of`, if any, tells operations of one kind of a layer apart: "decoder.10.dy.permute".
void add(PlanBuilder& plan, const Part& part, std::size_t layer, OpKind kind,
         std::vector<Operand> operands, const std::string& of = {}) {
  Operation operation;
  operation.kind = kind;
  operation.math = part.math;
  operation.name = fmt::format("{}.{}.{}{}", part.name, layer, of, op_info(kind).name);
  operation.operands = std::move(operands);
  plan.add(std::move(operation));
}

Tensor scratch(PlanBuilder& plan, const Part& part, std::size_t layer, const char* what,
               const TensorDesc& desc) {
  const std::string name = fmt::format("{}.{}.{}", part.name, layer, what);
  return {plan.add_buffer(name, desc, Scope::scratch, plan.stage()), desc};
}

Operand read(const PlanBuilder& plan, const Tensor& t) { return plan.read(t.buffer, t.desc); }
Operand write(const PlanBuilder& plan, const Tensor& t) { return plan.write(t.buffer, t.desc); }
Operand read_write(const PlanBuilder& plan, const Tensor& t) {
  return plan.read_write(t.buffer, t.desc);
}

/// Parameter `p` in the type that an operation on `type` wants: itself, or its copy.
Tensor parameter_as(PlanBuilder& plan, Part& part, std::size_t p, DType type) {
  const Tensor& parameter = part.parameters[p];
  if (parameter.desc.dtype == type) return parameter;
  Tensor& copy = part.copies[p];
  if (copy.buffer < 0) {
    copy.desc = parameter.desc;
    copy.desc.dtype = type;
    const std::string name = read(plan, parameter).name + ".copy";
    copy.buffer = plan.add_buffer(name, copy.desc, Scope::persistent);
  }
  return copy;
}

/// One pixel has one order: there a layout is only a name.
bool is_one_pixel(const TensorDesc& desc) { return desc.h * desc.w == 1; }

/// Equal, but perhaps for the name of the order of one pixel.
bool is_same_memory(TensorDesc a, const TensorDesc& b) {
  if (is_one_pixel(a)) a.layout = b.layout;
  return a == b;
}

/// The tensor with its pixels in another order: a permuted copy where they have to move.
Tensor in_layout(PlanBuilder& plan, const Part& part, std::size_t layer, const char* what,
                 const Tensor& x, Layout layout) {
  Tensor y = x;
  y.desc.layout = layout;
  if (x.desc.layout == layout || is_one_pixel(x.desc)) return y;
  y = scratch(plan, part, layer, what, y.desc);
  add(plan, part, layer, OpKind::permute, {read(plan, x), write(plan, y)}, std::string(what) + ".");
  return y;
}

/// The same memory as one pixel with a channel a number. `x` is in PyTorch's order.
Tensor as_features(const Tensor& x) {
  const TensorDesc& d = x.desc;
  return {x.buffer, {d.dtype, Layout::nhwc, d.n, 1, 1, d.h * d.w * d.c}};
}

}  // namespace

Part add_part(PlanBuilder& plan, const Sequential& model, std::string name, DType storage,
              Math math, Keep keep) {
  Part part;
  part.name = std::move(name);
  part.storage = storage;
  part.math = math;
  part.layers = model.layers();
  part.weight_of_layer.assign(part.layers.size(), -1);

  for (std::size_t i = 0; i < part.layers.size(); ++i) {
    if (part.layers[i].input != static_cast<int>(i) - 1)
      throw Error(ErrorCode::usage,
                  fmt::format("{}: layer {} reads layer {}; in this version a layer reads the one "
                              "before it",
                              part.name, i, part.layers[i].input));
  }

  for (const ParameterSpec& spec : model.parameters()) {
    const auto layer = static_cast<std::size_t>(spec.layer);
    const TensorDesc desc = parameter_desc(spec, part.layers[layer]);
    const auto persistent = [&](const char* suffix) {
      const std::string buffer = fmt::format("{}.{}{}", part.name, spec.name, suffix);
      return Tensor{plan.add_buffer(buffer, desc, Scope::persistent), desc};
    };
    if (!spec.bias) part.weight_of_layer[layer] = static_cast<int>(part.parameters.size());
    part.parameters.push_back(persistent(""));
    part.copies.push_back({});
    if (keep != Keep::weights) part.gradients.push_back(persistent(".gradient"));
    if (keep == Keep::weights_gradients_and_velocities)
      part.velocities.push_back(persistent(".velocity"));
  }
  return part;
}

void convert(PlanBuilder& plan, const std::string& name, const Tensor& from, const Tensor& to) {
  const auto add_move = [&](OpKind kind, const Tensor& x, const Tensor& y) {
    Operation operation;
    operation.kind = kind;
    operation.name = fmt::format("{}.{}", name, op_info(kind).name);
    operation.operands = {read(plan, x), write(plan, y)};
    plan.add(std::move(operation));
  };
  Tensor x = from;
  if (is_one_pixel(x.desc)) x.desc.layout = to.desc.layout;
  if (x.desc.dtype != to.desc.dtype) {
    const bool done = x.desc.layout == to.desc.layout;
    Tensor y = to;
    y.desc.layout = x.desc.layout;
    if (!done) y.buffer = plan.add_buffer(name + ".cast", y.desc, Scope::scratch, plan.stage());
    add_move(OpKind::cast, x, y);
    if (done) return;
    x = y;
  }
  add_move(x.desc == to.desc ? OpKind::copy : OpKind::permute, x, to);
}

Tape forward(PlanBuilder& plan, Part& part, const Tensor& input, const Tensor& output) {
  Tape tape;
  Tensor x = input;
  for (std::size_t i = 0; i < part.layers.size(); ++i) {
    const Layer& layer = part.layers[i];
    Tape::Step step{x, {}};
    if (const Layout wanted = layout_of(layer, x.desc.layout); wanted != x.desc.layout)
      step.x = in_layout(plan, part, i, "x", x, wanted);

    if (layer.kind == LayerKind::relu) {
      if (step.x.buffer == input.buffer) {  // which is not its to write
        step.x = scratch(plan, part, i, "x", x.desc);
        add(plan, part, i, OpKind::copy, {read(plan, x), write(plan, step.x)});
      }
      step.y = step.x;  // in place
      add(plan, part, i, OpKind::relu_forward, {read_write(plan, step.y)});
    } else if (layer.kind == LayerKind::sigmoid) {
      step.y = scratch(plan, part, i, "y", x.desc);
      add(plan, part, i, OpKind::sigmoid_forward, {read(plan, x), write(plan, step.y)});
    } else if (layer.kind == LayerKind::flatten) {
      step.y = as_features(in_layout(plan, part, i, "y", x, Layout::nchw));
    } else {
      const auto w = static_cast<std::size_t>(part.weight_of_layer[i]);
      const bool last = i + 1 == part.layers.size();
      TensorDesc desc = output_desc(layer, step.x.desc);
      if (last) desc.dtype = output.desc.dtype;
      step.y = last && is_same_memory(desc, output.desc) ? Tensor{output.buffer, desc}
                                                         : scratch(plan, part, i, "y", desc);
      const Tensor weight = parameter_as(plan, part, w, step.x.desc.dtype);
      const Tensor bias = parameter_as(plan, part, w + 1, desc.dtype);
      add(plan, part, i, ops_of(layer).forward,
          {read(plan, step.x), read(plan, weight), write(plan, step.y)});
      add(plan, part, i, OpKind::bias_forward, {read(plan, bias), read_write(plan, step.y)});
    }
    tape.steps.push_back(step);
    x = step.y;
  }
  if (x.buffer != output.buffer)
    convert(plan, fmt::format("{}.{}", part.name, part.layers.size()), x, output);
  return tape;
}

void backward(PlanBuilder& plan, const Part& part, const Tape& tape, const Tensor& doutput) {
  const auto trained = std::find_if(part.weight_of_layer.begin(), part.weight_of_layer.end(),
                                    [](int weight) { return weight >= 0; });
  const auto first = static_cast<std::size_t>(trained - part.weight_of_layer.begin());

  const std::size_t layers = part.layers.size();
  Tensor dy = in_layout(plan, part, layers, "dy", doutput, tape.steps.back().y.desc.layout);
  for (std::size_t i = layers; i-- > first;) {
    const Layer& layer = part.layers[i];
    const Tape::Step& step = tape.steps[i];

    Tensor dx = dy;
    if (layer.kind == LayerKind::relu) {
      add(plan, part, i, OpKind::relu_backward, {read(plan, step.y), read_write(plan, dy)});
    } else if (layer.kind == LayerKind::sigmoid) {
      add(plan, part, i, OpKind::sigmoid_backward, {read(plan, step.y), read_write(plan, dy)});
    } else if (layer.kind == LayerKind::flatten) {
      dx.desc = step.x.desc;
      if (!is_one_pixel(dx.desc)) dx.desc.layout = Layout::nchw;
    } else {
      const auto w = static_cast<std::size_t>(part.weight_of_layer[i]);
      const LayerOps ops = ops_of(layer);
      add(plan, part, i, OpKind::bias_backward,
          {read(plan, dy), write(plan, part.gradients[w + 1])});
      add(plan, part, i, ops.backward_weights,
          {read(plan, step.x), read(plan, dy), write(plan, part.gradients[w])});
      if (i == first) return;
      dx = scratch(plan, part, i, "dx", step.x.desc);
      const bool copied = part.copies[w].buffer >= 0;
      const Tensor& weight = copied ? part.copies[w] : part.parameters[w];
      add(plan, part, i, ops.backward_data, {read(plan, dy), read(plan, weight), write(plan, dx)});
    }
    dy = in_layout(plan, part, i, "dy", dx, tape.steps[i - 1].y.desc.layout);
  }
}

void regularise(PlanBuilder& plan, const Part& part, const Tensor& header, const Tensor& loss) {
  for (std::size_t i = 0; i < part.layers.size(); ++i) {
    if (part.layers[i].l2 == 0) continue;
    const auto w = static_cast<std::size_t>(part.weight_of_layer[i]);
    Operation operation;
    operation.kind = OpKind::l2_penalty;
    operation.name = fmt::format("{}.{}.{}", part.name, i, op_info(operation.kind).name);
    operation.l2 = static_cast<float>(part.layers[i].l2);
    operation.operands = {read(plan, header), read(plan, part.parameters[w]),
                          read_write(plan, part.gradients[w]), read_write(plan, loss)};
    plan.add(std::move(operation));
  }
}

void update(PlanBuilder& plan, const Part& part, const Tensor& header) {
  const auto add_update = [&](OpKind kind, std::vector<Operand> operands) {
    Operation operation;
    operation.kind = kind;
    operation.lane = Lane::update;
    operation.name = fmt::format("{}.{}", operands.back().name, op_info(kind).name);
    operation.operands = std::move(operands);
    plan.add(std::move(operation));
  };
  for (std::size_t p = 0; p < part.parameters.size(); ++p) {
    const Tensor& parameter = part.parameters[p];
    const Operand rates = read(plan, header), gradient = read(plan, part.gradients[p]);
    if (part.velocities.empty()) {
      add_update(OpKind::sgd, {rates, gradient, read_write(plan, parameter)});
    } else {
      add_update(OpKind::sgd_momentum, {rates, gradient, read_write(plan, part.velocities[p]),
                                        read_write(plan, parameter)});
    }
    // After the last reader of the copy, the gradient of the layer's input.
    if (part.copies[p].buffer >= 0)
      add_update(OpKind::cast, {read(plan, parameter), write(plan, part.copies[p])});
  }
}

}  // namespace tandem
