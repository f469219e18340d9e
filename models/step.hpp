// SPDX-License-Identifier: Apache-2.0
// Turns a model's layers into operations of a plan: forward, backward, update.
#pragma once

#include <string>
#include <tandem/engine/plan.hpp>
#include <tandem/models/sequential.hpp>
#include <vector>

namespace tandem {

/// A buffer of a plan with the shape an operation sees.
struct Tensor {
  BufferId buffer = -1;
  TensorDesc desc;
};

/// A model inside a plan. Weights are persistent and in channels-last order.
struct Part {
  std::string name;  ///< prefix of its operations and buffers
  std::vector<Layer> layers;
  DType storage = DType::f32;      ///< of activations and their gradients
  Math math = Math::strict;        ///< of products of f32
  std::vector<Tensor> parameters;  ///< fp32, as Sequential::parameters()
  std::vector<Tensor> copies;      ///< bf16 copies of those that layers read so, buffer -1: none
  std::vector<Tensor> gradients;  ///< fp32 sums over the batch, one a parameter; trained parts only
  std::vector<Tensor> velocities;    ///< one a parameter; with momentum only
  std::vector<int> weight_of_layer;  ///< index into parameters, -1 for a layer without
};

/// What the optimizer keeps for each parameter.
enum class Keep { weights, weights_and_gradients, weights_gradients_and_velocities };

/// Adds the model's parameters (and what `keep` says) as persistent buffers. Throws Error{usage}
/// that names the layer if one reads from another than the layer before it: nothing adds the
/// gradients of two readers in this version.
Part add_part(PlanBuilder& plan, const Sequential& model, std::string name, DType storage,
              Math math, Keep keep);

/// What the backward pass needs of the forward pass.
struct Tape {
  struct Step {
    Tensor x;  ///< what the layer read, in the layout that its operation wants
    Tensor y;  ///< what it wrote; a ReLU writes over what it read, a flatten may only rename it.
               ///< A sigmoid has memory of its own: a ReLU before it needs its output later
  };
  std::vector<Step> steps;  ///< one a layer
};

/// Adds what turns `from` into `to`, a tensor of the same shape: a cast, a permutation of the
/// pixels, both, or a copy. Operations are named "<name>.<operation>".
void convert(PlanBuilder& plan, const std::string& name, const Tensor& from, const Tensor& to);

/// Adds y = layer(x) for every layer: GEMM or convolution, bias, ReLU, sigmoid, with a permutation
/// where a layer or `output` wants another order of the pixels. A linear layer is a convolution
/// with kernel 1 of pictures of one pixel; a flatten moves pixels to PyTorch's order, or nothing if
/// there is only one. The last layer writes `output`, whose type may be f32 where the storage is
/// bf16 (logits). Adds the copies of parameters that it reads. `input` is only read.
Tape forward(PlanBuilder& plan, Part& part, const Tensor& input, const Tensor& output);

/// Adds the gradients of every parameter, from the last layer to the first, given the gradient of
/// the last layer's output (which is overwritten). It ends at the first layer with parameters:
/// nothing trained lies before it.
void backward(PlanBuilder& plan, const Part& part, const Tape& tape, const Tensor& doutput);

/// Adds the penalty of each layer with an l2 to `loss`, and its gradient to those of the layer's
/// weight; between backward() and update().
void regularise(PlanBuilder& plan, const Part& part, const Tensor& header, const Tensor& loss);

/// Adds the optimizer's update of every parameter and of its copy, on the update lane: SGD, with
/// momentum where the part keeps velocities. Rates and the count come from the batch header.
void update(PlanBuilder& plan, const Part& part, const Tensor& header);

}  // namespace tandem
