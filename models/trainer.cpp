// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tandem/engine/error.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/models/step.hpp>
#include <tandem/models/trainer.hpp>

namespace tandem {
namespace {

/// What a batch brings along, in the slot it lies in.
struct BatchTensors {
  Tensor images, labels, header;
};

/// Buffers that the host side needs after planning, beside the plan itself.
struct Planned {
  Plan plan;
  BatchTensors input;
  Part frozen, trained;
};

void check_config(const EngineConfig& config) {
  if (config.batch < 1 || config.batch > kMaxBatch)
    throw Error(ErrorCode::usage,
                fmt::format("batch is {}; allowed: 1 .. {}", config.batch, kMaxBatch));
  if (config.frozen.out_channels() != config.trained.in_channels())
    throw Error(ErrorCode::usage,
                fmt::format("the frozen part ends in {} channels, the trained part starts with {}",
                            config.frozen.out_channels(), config.trained.in_channels()));
}

void add_copy(PlanBuilder& plan, const std::string& name, const Tensor& from, const Tensor& to) {
  Operation operation;
  operation.kind = OpKind::copy;
  operation.name = name;
  operation.operands = {plan.read(from.buffer, from.desc), plan.write(to.buffer, to.desc)};
  plan.add(std::move(operation));
}

Tensor add_tensor(PlanBuilder& plan, std::string name, const TensorDesc& desc, Scope scope,
                  int index = 0) {
  return {plan.add_buffer(std::move(name), desc, scope, index), desc};
}

TensorDesc image_desc(const EngineConfig& config, DType type, Layout layout,
                      std::int64_t channels) {
  return {type, layout, config.batch, config.image, config.image, channels};
}

DType storage_of(const EngineConfig& config) {
  return config.precision == Precision::bf16 ? DType::bf16 : DType::f32;
}
Math math_of(const EngineConfig& config) {
  return config.precision == Precision::tf32 ? Math::tf32 : Math::strict;
}

TensorDesc labels_desc(const EngineConfig& config) {
  return image_desc(config, DType::u8, Layout::nhwc, 1);
}

TensorDesc header_desc(const EngineConfig& config) {
  return byte_desc(batch_header_bytes(config.batch));
}

/// Stage 0: the batch leaves its input slot.
BatchTensors add_copy_stage(PlanBuilder& plan, const EngineConfig& config,
                            const BatchTensors& input) {
  plan.begin_stage("copy");
  const BatchTensors batch{
      add_tensor(plan, "images", input.images.desc, Scope::handover, 0),
      add_tensor(plan, "labels", input.labels.desc, Scope::handover, 0),
      add_tensor(plan, "header", header_desc(config), Scope::handover, 0),
  };
  add_copy(plan, "images", input.images, batch.images);
  add_copy(plan, "labels", input.labels, batch.labels);
  add_copy(plan, "header", input.header, batch.header);
  return batch;
}

/// Stage 1: features = frozen(images). Labels and header pass through.
Tensor add_encode_stage(PlanBuilder& plan, const EngineConfig& config, Part& frozen,
                        BatchTensors& batch) {
  plan.begin_stage("encode");
  const Tensor x = add_tensor(plan, "x", image_desc(config, frozen.storage, Layout::zorder, 3),
                              Scope::scratch, plan.stage());
  Operation convert;
  convert.kind = OpKind::u8_to_float;
  convert.name = "u8_to_float";
  convert.scale = config.input_scale;
  convert.operands = {plan.read(batch.images.buffer, batch.images.desc),
                      plan.write(x.buffer, x.desc)};
  plan.add(std::move(convert));

  std::int64_t side = config.image;
  for (const Layer& layer : frozen.layers) {
    if (layer.kind == LayerKind::transposed_conv) side *= 2;
    if (layer.kind == LayerKind::conv && layer.stride == 2) side /= 2;
  }
  const TensorDesc desc{frozen.storage, Layout::zorder, config.batch,
                        side,           side,           config.frozen.out_channels()};
  const Tensor features = add_tensor(plan, "features", desc, Scope::handover, 1);
  forward(plan, frozen, x, features);

  const Tensor labels = add_tensor(plan, "labels", batch.labels.desc, Scope::handover, 1);
  const Tensor header = add_tensor(plan, "header", batch.header.desc, Scope::handover, 1);
  add_copy(plan, "labels", batch.labels, labels);
  add_copy(plan, "header", batch.header, header);
  batch.labels = labels;
  batch.header = header;
  return features;
}

/// The loss of every pixel and its gradient, p - y.
Tensor add_loss(PlanBuilder& plan, DType storage, const Tensor& logits, const BatchTensors& batch,
                const Tensor& loss) {
  TensorDesc desc = logits.desc;
  desc.dtype = storage;
  const Tensor dlogits = add_tensor(plan, "dlogits", desc, Scope::scratch, plan.stage());
  Operation operation;
  operation.kind = OpKind::softmax_cross_entropy;
  operation.name = "loss";
  operation.operands = {
      plan.read(logits.buffer, logits.desc), plan.read(batch.labels.buffer, batch.labels.desc),
      plan.read(batch.header.buffer, batch.header.desc), plan.write(dlogits.buffer, dlogits.desc),
      plan.write(loss.buffer, loss.desc)};
  plan.add(std::move(operation));
  return dlogits;
}

/// Stage 2, the training step: forward, loss, backward, update, and the loss to the host.
void add_train_stage(PlanBuilder& plan, const EngineConfig& config, Part& trained,
                     const Tensor& features, const BatchTensors& batch) {
  plan.begin_stage("train");
  const TensorDesc logits_desc =
      image_desc(config, DType::f32, Layout::nhwc, config.trained.out_channels());
  const TensorDesc loss_desc = byte_desc(sizeof(StepResult));
  const Tensor logits = add_tensor(plan, "logits", logits_desc, Scope::scratch, plan.stage());
  const Tensor loss = add_tensor(plan, "loss", loss_desc, Scope::scratch, plan.stage());
  const Tensor result = add_tensor(plan, "result", loss_desc, Scope::result);

  const Tape tape = forward(plan, trained, features, logits);
  const Tensor dlogits = add_loss(plan, trained.storage, logits, batch, loss);
  backward(plan, trained, tape, dlogits);
  update(plan, trained, batch.header);
  add_copy(plan, "result", loss, result);
}

/// Stage 2 of a prediction: the class of every pixel to the host.
void add_predict_stage(PlanBuilder& plan, const EngineConfig& config, Part& trained,
                       const Tensor& features) {
  plan.begin_stage("decode");
  const TensorDesc logits_desc =
      image_desc(config, DType::f32, Layout::nhwc, config.trained.out_channels());
  const Tensor logits = add_tensor(plan, "logits", logits_desc, Scope::scratch, plan.stage());
  const Tensor classes =
      add_tensor(plan, "classes", labels_desc(config), Scope::scratch, plan.stage());
  const Tensor result = add_tensor(plan, "result", labels_desc(config), Scope::result);

  forward(plan, trained, features, logits);
  Operation argmax;
  argmax.kind = OpKind::argmax;
  argmax.name = "argmax";
  argmax.operands = {plan.read(logits.buffer, logits.desc),
                     plan.write(classes.buffer, classes.desc)};
  plan.add(std::move(argmax));
  add_copy(plan, "result", classes, result);
}

Planned make_plan(const EngineConfig& config, bool training) {
  check_config(config);
  PlanBuilder plan(config.slots, config.input_slots, config.input_memory);
  Planned planned;
  planned.input = {
      add_tensor(plan, "input.images", image_desc(config, DType::u8, Layout::nhwc, 3),
                 Scope::input),
      add_tensor(plan, "input.labels", labels_desc(config), Scope::input),
      add_tensor(plan, "input.header", header_desc(config), Scope::input),
  };
  planned.frozen =
      add_part(plan, config.frozen, "encoder", storage_of(config), math_of(config), Keep::weights);
  planned.trained = add_part(plan, config.trained, "decoder", storage_of(config), math_of(config),
                             !training         ? Keep::weights
                             : config.momentum ? Keep::weights_gradients_and_velocities
                                               : Keep::weights_and_gradients);

  BatchTensors batch = add_copy_stage(plan, config, planned.input);
  const Tensor features = add_encode_stage(plan, config, planned.frozen, batch);
  if (training) {
    add_train_stage(plan, config, planned.trained, features, batch);
  } else {
    add_predict_stage(plan, config, planned.trained, features);
  }
  planned.plan = std::move(plan).build();
  return planned;
}

// --- values in PyTorch's order <-> persistent buffers

void write_part(Scheduler& scheduler, const Part& part, const Sequential& model,
                const Parameters& values) {
  check_parameters(model, values, part.name);
  const std::vector<ParameterSpec> specs = model.parameters();
  for (std::size_t p = 0; p < specs.size(); ++p) {
    const std::vector<float> engine_order = to_channels_last(specs[p], values[p].data);
    scheduler.write(part.parameters[p].buffer, engine_order.data());
    if (part.copies[p].buffer < 0) continue;
    const std::vector<bf16> copy(engine_order.begin(), engine_order.end());
    scheduler.write(part.copies[p].buffer, copy.data());
  }
}

Parameters read_part(Scheduler& scheduler, const std::vector<Tensor>& tensors,
                     const Sequential& model) {
  Parameters values;
  const std::vector<ParameterSpec> specs = model.parameters();
  for (std::size_t p = 0; p < specs.size(); ++p) {
    std::vector<float> engine_order(static_cast<std::size_t>(specs[p].elements));
    scheduler.read(tensors[p].buffer, engine_order.data());
    values.push_back({specs[p].name, specs[p].shape, from_channels_last(specs[p], engine_order)});
  }
  return values;
}

std::vector<InputSlot> input_slots(const Scheduler& scheduler, const BatchTensors& input) {
  std::vector<InputSlot> slots;
  for (int s = 0; s < scheduler.plan().input_slots; ++s) {
    InputSlot slot;
    slot.batch = input.images.desc.n;
    slot.image = input.images.desc.h;
    slot.images = static_cast<std::uint8_t*>(scheduler.address(input.images.buffer, s));
    slot.labels = static_cast<std::uint8_t*>(scheduler.address(input.labels.buffer, s));
    slot.header = static_cast<BatchHeader*>(scheduler.address(input.header.buffer, s));
    slots.push_back(slot);
  }
  return slots;
}

}  // namespace

const char* name_of(Precision precision) noexcept {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::tf32:
      return "tf32";
    case Precision::bf16:
      break;
  }
  return "bf16";
}

Plan plan_training(const EngineConfig& config) { return make_plan(config, true).plan; }
Plan plan_prediction(const EngineConfig& config) { return make_plan(config, false).plan; }

struct Trainer::Impl {
  Impl(Backend& backend, const EngineConfig& the_config, OnStep the_on_step)
      : config(the_config),
        planned(make_plan(config, true)),
        on_step(std::move(the_on_step)),
        scheduler(backend, planned.plan, config.scheduler,
                  [this](std::uint64_t step, const void* result) { deliver(step, result); }) {}

  void deliver(std::uint64_t step, const void* bytes) {
    last = *static_cast<const StepResult*>(bytes);
    last.step = step;
    if (!std::isfinite(last.loss))
      throw Error(ErrorCode::non_finite, fmt::format("the loss of step {} is {}", step, last.loss),
                  "lower the learning rate, or look for non-finite values in the initial weights");
    if (on_step) on_step(last);
  }

  const EngineConfig config;
  const Planned planned;
  const OnStep on_step;
  StepResult last;
  std::uint64_t device_steps = 0;  // names of steps whose header only the device can read
  Scheduler scheduler;
};

Trainer::Trainer(Backend& backend, const EngineConfig& config, OnStep on_step)
    : impl_(std::make_unique<Impl>(backend, config, std::move(on_step))) {}
Trainer::~Trainer() = default;

void Trainer::set_frozen(const Parameters& values) {
  write_part(impl_->scheduler, impl_->planned.frozen, impl_->config.frozen, values);
}

void Trainer::set_trained(const Parameters& values) {
  write_part(impl_->scheduler, impl_->planned.trained, impl_->config.trained, values);
  for (const Tensor& velocity : impl_->planned.trained.velocities) {
    const std::vector<float> zero(static_cast<std::size_t>(velocity.desc.elements()), 0.0f);
    impl_->scheduler.write(velocity.buffer, zero.data());
  }
}

Parameters Trainer::frozen() const {
  return read_part(impl_->scheduler, impl_->planned.frozen.parameters, impl_->config.frozen);
}

Parameters Trainer::trained() const {
  return read_part(impl_->scheduler, impl_->planned.trained.parameters, impl_->config.trained);
}

Parameters Trainer::gradients() const {
  Parameters sums =
      read_part(impl_->scheduler, impl_->planned.trained.gradients, impl_->config.trained);
  const auto count = static_cast<float>(std::max<std::int64_t>(impl_->last.valid_count, 1));
  for (NamedTensor& tensor : sums)
    for (float& value : tensor.data) value /= count;
  return sums;
}

std::vector<InputSlot> Trainer::inputs() const {
  return input_slots(impl_->scheduler, impl_->planned.input);
}
void Trainer::wait_input_free(int slot) { impl_->scheduler.wait_input_free(slot); }

void Trainer::step(int slot) {
  std::uint64_t step = impl_->device_steps++;
  if (impl_->config.input_memory == MemoryKind::pinned) {
    const void* header = impl_->scheduler.address(impl_->planned.input.header.buffer, slot);
    step = static_cast<const BatchHeader*>(header)->step;
  }
  impl_->scheduler.push(slot, step);
}
void Trainer::finish() { impl_->scheduler.drain(); }

const Scheduler& Trainer::scheduler() const noexcept { return impl_->scheduler; }
Scheduler& Trainer::scheduler() noexcept { return impl_->scheduler; }

struct Predictor::Impl {
  Impl(Backend& backend, const EngineConfig& the_config, OnPrediction on_prediction)
      : config(the_config),
        planned(make_plan(config, false)),
        scheduler(backend, planned.plan, config.scheduler,
                  [callback = std::move(on_prediction)](std::uint64_t step, const void* classes) {
                    if (callback) callback(step, static_cast<const std::uint8_t*>(classes));
                  }) {}

  const EngineConfig config;
  const Planned planned;
  std::uint64_t next_step = 0;
  Scheduler scheduler;
};

Predictor::Predictor(Backend& backend, const EngineConfig& config, OnPrediction on_prediction)
    : impl_(std::make_unique<Impl>(backend, config, std::move(on_prediction))) {}
Predictor::~Predictor() = default;

void Predictor::set_frozen(const Parameters& values) {
  write_part(impl_->scheduler, impl_->planned.frozen, impl_->config.frozen, values);
}
void Predictor::set_trained(const Parameters& values) {
  write_part(impl_->scheduler, impl_->planned.trained, impl_->config.trained, values);
}

std::vector<InputSlot> Predictor::inputs() const {
  return input_slots(impl_->scheduler, impl_->planned.input);
}
void Predictor::wait_input_free(int slot) { impl_->scheduler.wait_input_free(slot); }

void Predictor::predict(int slot) {
  impl_->scheduler.push(slot, impl_->next_step);
  ++impl_->next_step;
}
void Predictor::finish() { impl_->scheduler.drain(); }

}  // namespace tandem
