// SPDX-License-Identifier: Apache-2.0
// The classifier at any size on pictures that are made once and augmented anew in each step: for
// long runs on a fast device.
#pragma once

#include <cstdint>
#include <tandem/models/classifier.hpp>
#include <tandem/models/trainer.hpp>
#include <tandem/tests/support/gpu_segmenter.hpp>
#include <tandem/tests/support/parity_data.hpp>
#include <tandem/tests/support/small_classifier.hpp>
#include <vector>

namespace tandem::test {

inline EngineConfig still_classifier_config(std::int64_t image, std::int64_t batch,
                                            Precision precision, Schedule schedule) {
  EngineConfig config;
  config.trained = classifier(image, kSmallClasses);
  config.image = image;
  config.batch = batch;
  config.augment = article_augment(image);
  config.precision = precision;
  config.input_slots = kStillBatches;
  config.scheduler.schedule = schedule;
  return config;
}

/// A trainer on pictures that stay in their input slots; step n's draws are its own.
class StillClassifier {
 public:
  /// With the rate the loss neither stands still nor grows at any of the sizes tested.
  static constexpr float kRate = 0.001f, kMomentum = 0.9f;
  /// Without momentum so slow that a ReLU which a rounding turns is not amplified over a thousand
  /// steps. At 32 x 32 pixels sums in another order (two of OpenBLAS' kernels) make an error of
  /// 3e-4 in what a tensor was given, at three times the rate one of 2e-3.
  static constexpr float kSlowRate = 1e-5f;

  StillClassifier(Backend& backend, const EngineConfig& config, const Parameters& start,
                  float rate = kRate)
      : augment_(*config.augment), trainer_(backend, config, [this](const StepResult& result) {
          losses_.push_back(result.loss);
        }) {
    fill_still_inputs(trainer_, config, rate, kMomentum);
    trainer_.set_trained(start);
  }

  void train(int steps) {
    const std::vector<InputSlot> inputs = trainer_.inputs();
    for (int step = 0; step < steps; ++step) {
      const int slot = step % kStillBatches;
      trainer_.wait_input_free(slot);
      const InputSlot& input = inputs[static_cast<std::size_t>(slot)];
      input.header->step = static_cast<std::uint64_t>(step);
      draw_batch(augment_, input);
      trainer_.step(slot);
    }
    trainer_.finish();
  }

  Trainer& trainer() noexcept { return trainer_; }
  const std::vector<double>& losses() const noexcept { return losses_; }

 private:
  AugmentSpec augment_;
  std::vector<double> losses_;
  Trainer trainer_;  // last: its callback uses the members above
};

}  // namespace tandem::test
