// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tandem/engine/augment_draw.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/kernels/augment.hpp>
#include <tandem/kernels/softmax_xent.hpp>
#include <tandem/models/step.hpp>
#include <tandem/models/trainer.hpp>

namespace tandem {
namespace {

/// What a batch brings along, in the slot it lies in. `images` is what the next stage reads: bytes,
/// floats, or in the end the features.
struct BatchTensors {
  Tensor images, labels, header;
};

/// Buffers that the host side needs after planning, beside the plan itself.
struct Planned {
  Plan plan;
  BatchTensors input;
  Part frozen, trained;
  Tensor augment_tables;  ///< buffer -1: no such stage
};

bool has_frozen(const EngineConfig& config) { return !config.frozen.layers().empty(); }
bool has_augment_stage(const EngineConfig& config) {
  return config.augment.has_value() && !config.augment_on_cpu;
}
bool takes_floats(const EngineConfig& config) {
  return config.augment.has_value() && config.augment_on_cpu;
}

/// In messages and in names of buffers. Without a frozen part the trained one is all there is.
constexpr const char* kFrozenName = "encoder";
const char* trained_name(const EngineConfig& config) {
  return has_frozen(config) ? "decoder" : "model";
}

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::usage, what); }

/// picture_sizes() of a part; errors name the part.
std::vector<PictureSize> sizes_of(const char* part, const Sequential& model,
                                  const PictureSize& picture) {
  try {
    return picture_sizes(model, picture.height, picture.width);
  } catch (const Error& error) {
    refuse(fmt::format("{}: {}", part, error.what()));
  }
}

/// What the network reads.
PictureSize input_size(const EngineConfig& config) {
  if (config.features > 0) return {config.features, 1, 1};
  return {3, config.image, config.image};
}
/// What comes out of the frozen part: what the trained part reads.
PictureSize features_size(const EngineConfig& config) {
  if (!has_frozen(config)) return input_size(config);
  return sizes_of(kFrozenName, config.frozen, input_size(config)).back();
}
/// What comes out of the trained part: a channel a class.
PictureSize logits_size(const EngineConfig& config) {
  return sizes_of(trained_name(config), config.trained, features_size(config)).back();
}

void check_config(const EngineConfig& config) {
  constexpr std::int64_t kMostSide = 8192, kMostFeatures = 65536;
  if (config.batch < 1 || config.batch > kMaxBatch)
    refuse(fmt::format("batch is {}; allowed: 1 .. {}", config.batch, kMaxBatch));
  if (config.features == 0 && (config.image < 1 || config.image > kMostSide))
    refuse(fmt::format("image is {}; allowed: 1 .. {}", config.image, kMostSide));
  if (config.trained.layers().empty()) refuse("the trained part has 0 layers; allowed: 1 or more");

  if (config.features < 0 || config.features > kMostFeatures)
    refuse(fmt::format("features is {}; allowed: 0 .. {}", config.features, kMostFeatures));
  if (config.features > 0 && config.augment)
    refuse(fmt::format("augment is set, but {} features a sample are no picture", config.features));
  const Sequential& first = has_frozen(config) ? config.frozen : config.trained;
  if (const std::int64_t channels = input_size(config).channels; first.in_channels() != channels)
    refuse(fmt::format("the {} part starts with {} channels; {} have {}",
                       has_frozen(config) ? "frozen" : "trained", first.in_channels(),
                       config.features > 0 ? "samples" : "pictures", channels));
  if (const PictureSize features = features_size(config);
      features.channels != config.trained.in_channels())
    refuse(fmt::format("the frozen part ends in {} channels, the trained part starts with {}",
                       features.channels, config.trained.in_channels()));
  if (const std::int64_t classes = logits_size(config).channels; classes > kMaxClasses)
    refuse(fmt::format("the trained part ends in {} channels, one a class; allowed: 1 .. {}",
                       classes, kMaxClasses));

  if (config.trained.ends_in_sigmoid() && config.trained.layers().size() < 2)
    refuse("the trained part is a sigmoid alone; allowed: layers before it");
  for (std::size_t i = 0; i < config.frozen.layers().size(); ++i)
    if (const double l2 = config.frozen.layers()[i].l2; l2 != 0)
      refuse(fmt::format("{}: layer {}: l2 is {}, but the part is not trained; allowed: 0",
                         kFrozenName, i, l2));

  if (!config.augment) {
    if (config.augment_on_cpu) refuse("augment_on_cpu is on, but augment is not set");
    return;
  }
  const AugmentSpec& augment = *config.augment;
  check_augment(augment);
  if (augment.in_h != augment.in_w)
    refuse(fmt::format("augmentation: in_h is {} and in_w is {}; allowed: squares", augment.in_h,
                       augment.in_w));
  for (const auto& [name, value] : {std::pair{"out_h", augment.out_h}, {"out_w", augment.out_w}})
    if (value != config.image)
      refuse(fmt::format("augmentation: {} is {}; allowed: the network's image size, {}", name,
                         value, config.image));
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

DType storage_of(const EngineConfig& config) {
  return config.precision == Precision::bf16 ? DType::bf16 : DType::f32;
}
Math math_of(const EngineConfig& config) {
  return config.precision == Precision::tf32 ? Math::tf32 : Math::strict;
}

TensorDesc picture_desc(const EngineConfig& config, DType type, Layout layout,
                        const PictureSize& size) {
  return {type, layout, config.batch, size.height, size.width, size.channels};
}

/// Between stages: in Z-order, as most layers want it, where there is one.
TensorDesc handed_on_desc(const EngineConfig& config, const PictureSize& size) {
  const bool power_of_two = (size.height & (size.height - 1)) == 0;
  const bool zorder = size.height == size.width && power_of_two;
  return picture_desc(config, storage_of(config), zorder ? Layout::zorder : Layout::nhwc, size);
}

/// The data set's pictures, or what the loader's workers made of them, or its rows.
TensorDesc input_desc(const EngineConfig& config) {
  if (config.features > 0) {  // in the layout of the first layer: one pixel has one order
    TensorDesc desc = handed_on_desc(config, input_size(config));
    desc.dtype = DType::f32;
    return desc;
  }
  const std::int64_t side = has_augment_stage(config) ? config.augment->in_h : config.image;
  return picture_desc(config, takes_floats(config) ? DType::f32 : DType::u8, Layout::nhwc,
                      {3, side, side});
}

TensorDesc logits_desc(const EngineConfig& config) {
  return picture_desc(config, DType::f32, Layout::nhwc, logits_size(config));
}

/// One label a pixel of the logits.
TensorDesc labels_desc(const EngineConfig& config) {
  TensorDesc desc = logits_desc(config);
  desc.dtype = DType::u8;
  desc.c = 1;
  return desc;
}

TensorDesc header_desc(const EngineConfig& config) {
  return byte_desc(batch_header_bytes(config.batch));
}

/// Stage 0: the batch leaves its input slot.
void add_copy_stage(PlanBuilder& plan, BatchTensors& batch) {
  plan.begin_stage("copy");
  const BatchTensors copied{
      add_tensor(plan, "images", batch.images.desc, Scope::handover, 0),
      add_tensor(plan, "labels", batch.labels.desc, Scope::handover, 0),
      add_tensor(plan, "header", batch.header.desc, Scope::handover, 0),
  };
  add_copy(plan, "images", batch.images, copied.images);
  add_copy(plan, "labels", batch.labels, copied.labels);
  add_copy(plan, "header", batch.header, copied.header);
  batch = copied;
}

/// What later stages need passes through a stage that has made `images`.
void pass_on(PlanBuilder& plan, const Tensor& images, BatchTensors& batch) {
  const BatchTensors passed{
      images,
      add_tensor(plan, "labels", batch.labels.desc, Scope::handover, plan.stage()),
      add_tensor(plan, "header", batch.header.desc, Scope::handover, plan.stage()),
  };
  add_copy(plan, "labels", batch.labels, passed.labels);
  add_copy(plan, "header", batch.header, passed.header);
  batch = passed;
}

/// images = augment(images): what the network reads. Returns the tables, which the host fills.
Tensor add_augment_stage(PlanBuilder& plan, const EngineConfig& config, BatchTensors& batch) {
  plan.begin_stage("augment");
  const std::size_t bytes = augment_table_bytes(*config.augment);
  const Tensor tables = add_tensor(plan, "augment.tables", byte_desc(bytes), Scope::persistent);
  const TensorDesc desc = handed_on_desc(config, {3, config.image, config.image});
  const Tensor x = add_tensor(plan, "x", desc, Scope::handover, plan.stage());
  Operation augment;
  augment.kind = OpKind::augment;
  augment.name = "augment";
  augment.augment = *config.augment;
  augment.plain = config.plain_augment;
  augment.operands = {plan.read(batch.images.buffer, batch.images.desc),
                      plan.read(batch.header.buffer, batch.header.desc),
                      plan.read(tables.buffer, tables.desc), plan.write(x.buffer, x.desc)};
  plan.add(std::move(augment));
  pass_on(plan, x, batch);
  return tables;
}

/// The network's input as its first layer reads it, in the stage of that layer.
Tensor add_input(PlanBuilder& plan, const EngineConfig& config, const Tensor& images) {
  if (has_augment_stage(config)) return images;
  const TensorDesc desc = handed_on_desc(config, input_size(config));
  if (images.desc == desc) return images;
  const Tensor x = add_tensor(plan, "x", desc, Scope::scratch, plan.stage());
  if (takes_floats(config) || config.features > 0) {
    convert(plan, "input", images, x);
    return x;
  }
  Operation to_float;
  to_float.kind = OpKind::u8_to_float;
  to_float.name = "u8_to_float";
  to_float.scale = config.input_scale;
  to_float.operands = {plan.read(images.buffer, images.desc), plan.write(x.buffer, x.desc)};
  plan.add(std::move(to_float));
  return x;
}

/// images = frozen(images): the features.
void add_encode_stage(PlanBuilder& plan, const EngineConfig& config, Part& frozen,
                      BatchTensors& batch) {
  plan.begin_stage("encode");
  const Tensor x = add_input(plan, config, batch.images);
  const TensorDesc desc = handed_on_desc(config, features_size(config));
  const Tensor features = add_tensor(plan, "features", desc, Scope::handover, plan.stage());
  forward(plan, frozen, x, features);
  pass_on(plan, features, batch);
}

/// What the trained part reads, in its stage.
Tensor add_features(PlanBuilder& plan, const EngineConfig& config, const BatchTensors& batch) {
  return has_frozen(config) ? batch.images : add_input(plan, config, batch.images);
}

/// The loss of every pixel and its gradient.
Tensor add_loss(PlanBuilder& plan, OpKind kind, DType storage, const Tensor& logits,
                const BatchTensors& batch, const Tensor& loss) {
  TensorDesc desc = logits.desc;
  desc.dtype = storage;
  const Tensor dlogits = add_tensor(plan, "dlogits", desc, Scope::scratch, plan.stage());
  Operation operation;
  operation.kind = kind;
  operation.name = "loss";
  operation.operands = {
      plan.read(logits.buffer, logits.desc), plan.read(batch.labels.buffer, batch.labels.desc),
      plan.read(batch.header.buffer, batch.header.desc), plan.write(dlogits.buffer, dlogits.desc),
      plan.write(loss.buffer, loss.desc)};
  plan.add(std::move(operation));
  return dlogits;
}

/// The last stage, the training step: forward, loss, backward, update, and the loss to the host.
void add_train_stage(PlanBuilder& plan, const EngineConfig& config, Part& trained,
                     const BatchTensors& batch) {
  plan.begin_stage("train");
  const TensorDesc loss_desc = byte_desc(sizeof(StepResult));
  const Tensor x = add_features(plan, config, batch);
  const Tensor logits =
      add_tensor(plan, "logits", logits_desc(config), Scope::scratch, plan.stage());
  const Tensor loss = add_tensor(plan, "loss", loss_desc, Scope::scratch, plan.stage());
  const Tensor result = add_tensor(plan, "result", loss_desc, Scope::result);

  const Tape tape = forward(plan, trained, x, logits);
  const OpKind loss_kind = config.trained.ends_in_sigmoid() ? OpKind::binary_cross_entropy
                                                            : OpKind::softmax_cross_entropy;
  const Tensor dlogits = add_loss(plan, loss_kind, trained.storage, logits, batch, loss);
  backward(plan, trained, tape, dlogits);
  regularise(plan, trained, batch.header, loss);
  update(plan, trained, batch.header);
  add_copy(plan, "result", loss, result);
}

/// The last stage of a prediction: the class of every pixel, or picture, to the host.
void add_predict_stage(PlanBuilder& plan, const EngineConfig& config, Part& trained,
                       const BatchTensors& batch) {
  plan.begin_stage("decode");
  const Tensor x = add_features(plan, config, batch);
  const Tensor logits =
      add_tensor(plan, "logits", logits_desc(config), Scope::scratch, plan.stage());
  const Tensor classes =
      add_tensor(plan, "classes", labels_desc(config), Scope::scratch, plan.stage());
  const Tensor result = add_tensor(plan, "result", labels_desc(config), Scope::result);

  forward(plan, trained, x, logits);
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
      add_tensor(plan, "input.images", input_desc(config), Scope::input),
      add_tensor(plan, "input.labels", labels_desc(config), Scope::input),
      add_tensor(plan, "input.header", header_desc(config), Scope::input),
  };
  planned.frozen = add_part(plan, config.frozen, kFrozenName, storage_of(config), math_of(config),
                            Keep::weights);
  planned.trained =
      add_part(plan, config.trained, trained_name(config), storage_of(config), math_of(config),
               !training         ? Keep::weights
               : config.momentum ? Keep::weights_gradients_and_velocities
                                 : Keep::weights_and_gradients);

  if (config.trained.ends_in_sigmoid()) {
    // The loss takes it along, from the logits; and it leaves the largest of them the largest.
    planned.trained.layers.pop_back();
    planned.trained.weight_of_layer.pop_back();
  }

  BatchTensors batch = planned.input;
  add_copy_stage(plan, batch);
  if (has_augment_stage(config)) planned.augment_tables = add_augment_stage(plan, config, batch);
  if (has_frozen(config)) add_encode_stage(plan, config, planned.frozen, batch);
  if (training) {
    add_train_stage(plan, config, planned.trained, batch);
  } else {
    add_predict_stage(plan, config, planned.trained, batch);
  }
  planned.plan = fuse(std::move(plan).build(), config.fuse);
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
    scheduler.write(part.copies[p].buffer, to_bf16(engine_order).data());
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

/// Once, before the first batch.
void fill_tables(Scheduler& scheduler, const EngineConfig& config, const Tensor& tables) {
  if (tables.buffer < 0) return;
  std::vector<std::byte> bytes(tables.desc.bytes());
  fill_augment_tables(*config.augment, bytes.data());
  scheduler.write(tables.buffer, bytes.data());
}

std::vector<InputSlot> input_slots(const Scheduler& scheduler, const EngineConfig& config,
                                   const BatchTensors& input) {
  std::vector<InputSlot> slots;
  for (int s = 0; s < scheduler.plan().input_slots; ++s) {
    InputSlot slot;
    void* images = scheduler.address(input.images.buffer, s);
    if (takes_floats(config)) {
      slot.floats = static_cast<float*>(images);
    } else {
      slot.images = static_cast<std::uint8_t*>(images);
    }
    slot.labels = static_cast<std::uint8_t*>(scheduler.address(input.labels.buffer, s));
    slot.header = static_cast<BatchHeader*>(scheduler.address(input.header.buffer, s));
    slot.batch = config.batch;
    slot.image = config.augment ? config.augment->in_h : input_size(config).height;
    slot.features = config.features;
    slot.label_count = input.labels.desc.h * input.labels.desc.w;
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
                  [this](std::uint64_t step, const void* result) { deliver(step, result); }) {
    fill_tables(scheduler, config, planned.augment_tables);
  }

  void deliver(std::uint64_t step, const void* bytes) {
    last = *static_cast<const StepResult*>(bytes);
    last.step = step;
    if (!std::isfinite(last.loss))
      throw Error(ErrorCode::non_finite,
                  fmt::format("the loss of step {} is {}", step,
                              std::isnan(last.loss) ? "nan" : fmt::to_string(last.loss)),
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
  if (impl_->config.fuse.update)
    throw Error(ErrorCode::usage,
                "there are no gradients: fuse.update applies them where they are made");
  Parameters sums =
      read_part(impl_->scheduler, impl_->planned.trained.gradients, impl_->config.trained);
  const auto count = static_cast<float>(std::max<std::int64_t>(impl_->last.valid_count, 1));
  for (NamedTensor& tensor : sums)
    for (float& value : tensor.data) value /= count;
  return sums;
}

std::vector<InputSlot> Trainer::inputs() const {
  return input_slots(impl_->scheduler, impl_->config, impl_->planned.input);
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
                  }) {
    fill_tables(scheduler, config, planned.augment_tables);
  }

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
  return input_slots(impl_->scheduler, impl_->config, impl_->planned.input);
}
void Predictor::wait_input_free(int slot) { impl_->scheduler.wait_input_free(slot); }

void Predictor::predict(int slot) {
  impl_->scheduler.push(slot, impl_->next_step);
  ++impl_->next_step;
}
void Predictor::finish() { impl_->scheduler.drain(); }

}  // namespace tandem
