// SPDX-License-Identifier: Apache-2.0
// Trains a model, or predicts with it, in stages: copy -> [augment] -> [encode] -> train.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tandem/engine/backend.hpp>
#include <tandem/engine/fuse.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/engine/scheduler.hpp>
#include <tandem/models/parameters.hpp>
#include <tandem/models/sequential.hpp>
#include <vector>

namespace tandem {

/// Largest batch.
inline constexpr std::int64_t kMaxBatch = 65535;

/// What activations are stored in and products are computed in. Weights, gradients of weights,
/// logits, loss and all sums are fp32 in each.
enum class Precision : std::uint8_t {
  fp32,  ///< fp32 storage, fp32 products
  tf32,  ///< fp32 storage, products of factors rounded to TF32; as fp32 on the host
  bf16,  ///< bf16 storage of activations, their gradients and the weights that layers read
};
const char* name_of(Precision precision) noexcept;

/// Sizes and switches of a training or prediction engine. Everything that changes from step to
/// step (learning rate, momentum, weight decay, count) is in the batch header instead.
struct EngineConfig {
  Sequential frozen{3};       ///< runs one batch ahead; never written; no layers: no such stage
  Sequential trained{16};     ///< ends in one channel a class, at full resolution or at 1 x 1; it
                              ///< has as many labels a sample as pixels come out of it. The loss is
                              ///< softmax cross-entropy of its output, or, where it ends in a
                              ///< sigmoid, binary cross-entropy: every class a yes or no of its own
  std::int64_t image = 256;   ///< S of the network's input
  std::int64_t features = 0;  ///< numbers a sample that the network reads in place of a picture, as
                              ///< channels of one pixel; 0: pictures. `image` says nothing then
  std::int64_t batch = 8;     ///< N, at least 1
  float input_scale = 1.0f / 255.0f;  ///< uint8 -> float factor, where nothing augments
  /// Where it is set, a stage of its own makes the network's input (out_h = out_w = image) from
  /// the data set's pictures (in_h = in_w), one batch ahead; the draws come with the header. With
  /// `augment_on_cpu` the loader's workers do it, and the input slots hold floats.
  std::optional<AugmentSpec> augment;
  bool augment_on_cpu = false;
  bool plain_augment = false;  ///< one kernel a part instead of the fused one
  Precision precision = Precision::fp32;
  FuseOptions fuse;      ///< which operations are put together; none: the plain plan
  bool momentum = true;  ///< keep a velocity a weight; off: plain SGD
  int slots = 2;         ///< R
  int input_slots = 4;
  MemoryKind input_memory = MemoryKind::pinned;
  SchedulerOptions scheduler;
};

/// Called in step order on the thread that pushes. A non-finite loss is thrown before this is
/// called for its step.
using OnStep = std::function<void(const StepResult& result)>;

/// The plan of one training step, without running it.
Plan plan_training(const EngineConfig& config);
/// The plan of a prediction: the same stages, the last one forward only, argmax to the host.
Plan plan_prediction(const EngineConfig& config);

/// Trains. Not thread-safe, except wait_input_free(). The backend must outlive it.
///
///   Trainer trainer(backend, config, on_step);
///   trainer.set_frozen(...); trainer.set_trained(...);
///   Loader loader(data, options, trainer.inputs(), [&](int s) { trainer.wait_input_free(s); });
///   for (int slot; (slot = loader.next()) >= 0;) { trainer.step(slot); loader.submitted(slot); }
///   trainer.finish();
///   trainer.trained();  // the new weights
class Trainer {
 public:
  Trainer(Backend& backend, const EngineConfig& config, OnStep on_step = {});
  ~Trainer();

  /// Set and get values in PyTorch's order. Only while nothing is in flight. Setting the trained
  /// part also sets its velocities to zero. Throws Error{data} if they do not fit.
  void set_frozen(const Parameters& values);
  void set_trained(const Parameters& values);
  Parameters frozen() const;
  Parameters trained() const;
  /// Gradients of the last step, divided by its valid count, in PyTorch's order. Throws
  /// Error{usage} where `fuse.update` keeps none.
  Parameters gradients() const;

  std::vector<InputSlot> inputs() const;
  void wait_input_free(int slot);

  /// One step on the batch in input slot `slot` (see Scheduler::push). Results and errors name the
  /// step of the batch's header; if the inputs lie in device memory, where the host cannot read the
  /// header, steps are counted from 0. Throws Error{non_finite} that names the step if a loss is
  /// not finite: at most window() steps after it happened, and then nothing is in flight.
  void step(int slot);
  /// Waits for every step and delivers its result.
  void finish();

  const Scheduler& scheduler() const noexcept;
  Scheduler& scheduler() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Called in batch order with the predicted classes, [N, S, S] raster or [N], of batch `step`.
using OnPrediction = std::function<void(std::uint64_t step, const std::uint8_t* classes)>;

/// Predicts, through the same stages and scheduler.
class Predictor {
 public:
  Predictor(Backend& backend, const EngineConfig& config, OnPrediction on_prediction);
  ~Predictor();

  void set_frozen(const Parameters& values);
  void set_trained(const Parameters& values);
  std::vector<InputSlot> inputs() const;
  void wait_input_free(int slot);
  void predict(int slot);
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
