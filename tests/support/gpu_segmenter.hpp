// SPDX-License-Identifier: Apache-2.0
// The segmenter at any size on batches that are made once: for long runs on a fast device, where
// making each batch would take most of the time.
#pragma once

#include <cstdint>
#include <memory>
#include <tandem/models/segmenter.hpp>
#include <tandem/models/trainer.hpp>
#include <tandem/tests/support/parity_data.hpp>
#include <tandem/tests/support/small_segmenter.hpp>
#include <vector>

namespace tandem::test {

/// Batches that differ; step n trains on batch n mod 8.
inline constexpr int kStillBatches = 8;

inline EngineConfig still_config(std::int64_t image, std::int64_t batch, Precision precision,
                                 Schedule schedule) {
  EngineConfig config;
  config.frozen = segmenter_encoder(image);
  config.trained = segmenter_decoder(image, 10);
  config.image = image;
  config.batch = batch;
  config.precision = precision;
  config.input_slots = kStillBatches;
  config.scheduler.schedule = schedule;
  return config;
}

/// He initialisation with biases that are not zero, for one size of the network. Made once, because
/// the large networks take a while.
struct StartValues {
  Parameters frozen, trained;
  explicit StartValues(const EngineConfig& config, std::uint64_t seed = 0)
      : frozen(make_parameters(config.frozen, seed, 0)),
        trained(make_parameters(config.trained, seed, 20)) {}
};

/// Fills input slot i with pictures i * batch and following.
inline void fill_still_inputs(const Trainer& trainer, const EngineConfig& config, float rate,
                              float momentum) {
  const std::vector<InputSlot> inputs = trainer.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    BatchOptions options;
    options.batch = options.samples = config.batch;
    options.image = config.image;
    options.first_image = static_cast<std::int64_t>(i) * config.batch;
    options.learning_rate = rate;
    options.momentum = momentum;
    fill_batch(inputs[i], options);
  }
}

/// A trainer on batches that stay in their input slots.
class StillSegmenter {
 public:
  static constexpr float kRate = 0.05f, kMomentum = 0.9f;

  StillSegmenter(Backend& backend, const EngineConfig& config, const StartValues& start,
                 float rate = kRate)
      : start_(start), trainer_(backend, config, [this](const StepResult& result) {
          results_.push_back(result);
          losses_.push_back(result.loss);
        }) {
    fill_still_inputs(trainer_, config, rate, kMomentum);
    trainer_.set_frozen(start_.frozen);
    trainer_.set_trained(start_.trained);
  }

  /// Weights and losses as at the start.
  void reset() {
    trainer_.set_trained(start_.trained);
    results_.clear();
    losses_.clear();
  }

  /// Issues one step; returns as soon as it is queued.
  void push(std::uint64_t step) {
    const int slot = static_cast<int>(step % kStillBatches);
    trainer_.wait_input_free(slot);
    trainer_.inputs()[static_cast<std::size_t>(slot)].header->step = step;
    trainer_.step(slot);
  }
  void train(std::uint64_t first_step, int steps) {
    for (int i = 0; i < steps; ++i) push(first_step + static_cast<std::uint64_t>(i));
    trainer_.finish();
  }

  Trainer& trainer() noexcept { return trainer_; }
  const std::vector<StepResult>& results() const noexcept { return results_; }
  const std::vector<double>& losses() const noexcept { return losses_; }

 private:
  const StartValues& start_;
  std::vector<StepResult> results_;
  std::vector<double> losses_;
  Trainer trainer_;  // last: its callback uses the members above
};

}  // namespace tandem::test
