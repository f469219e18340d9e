// SPDX-License-Identifier: Apache-2.0
// The classifier at S = 32 with its trainer, on pictures that are augmented, for tests that train a
// little.
#pragma once

#include <cstdint>
#include <cstring>
#include <tandem/engine/augment_draw.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/kernels/augment.hpp>
#include <tandem/models/classifier.hpp>
#include <tandem/models/segmenter.hpp>
#include <tandem/models/trainer.hpp>
#include <tandem/tests/support/parity_data.hpp>
#include <vector>

namespace tandem::test {

inline constexpr std::int64_t kSmallClasses = 10;

/// The article's chain for a network of S x S pixels: a crop of half the picture, resized, rotated,
/// blurred, scaled to 0 .. 1.
inline AugmentSpec article_augment(std::int64_t image) {
  AugmentSpec spec;
  spec.in_h = spec.in_w = spec.out_h = spec.out_w = image;
  spec.crop_h = spec.crop_w = image / 2;
  spec.rotate = true;
  spec.blur_taps = 7;
  return spec;
}

inline EngineConfig small_classifier_config(Schedule schedule = Schedule::overlap) {
  EngineConfig config;
  config.trained = classifier(32, kSmallClasses);
  config.image = 32;
  config.batch = 4;
  config.augment = article_augment(32);
  config.scheduler.schedule = schedule;
  return config;
}

/// The draws of a step, which depend on its number and the picture's alone.
inline void draw_batch(const AugmentSpec& spec, const InputSlot& slot) {
  AugmentRanges ranges;
  ranges.flip_probability = 0.5;
  for (std::int64_t n = 0; n < slot.batch; ++n)
    augment_draws(slot.header)[n] =
        draw_augment(spec, ranges, 7, slot.header->step, sample_ids(slot.header)[n]);
}

/// A trainer that starts from weights made of `seed`. Step n trains on pictures 4n to 4n + 3, each
/// with draws of its own where the configuration augments.
class SmallClassifier {
 public:
  SmallClassifier(Backend& backend, const EngineConfig& config, std::uint64_t seed = 0)
      : config_(config),
        start_(make_parameters(config.trained, seed, 0)),
        trainer_(backend, config,
                 [this](const StepResult& result) { losses_.push_back(result.loss); }) {
    if (!config.frozen.layers().empty())
      trainer_.set_frozen(make_parameters(config.frozen, seed, 40));
    trainer_.set_trained(start_);
    if (config.augment) {
      tables_.resize(augment_table_bytes(*config.augment));
      fill_augment_tables(*config.augment, tables_.data());
    }
  }

  void train(std::uint64_t first_step, int steps) {
    for (int i = 0; i < steps; ++i) feed(first_step + static_cast<std::uint64_t>(i));
    trainer_.finish();
  }

  Trainer& trainer() noexcept { return trainer_; }
  const Parameters& start() const noexcept { return start_; }
  const std::vector<double>& losses() const noexcept { return losses_; }

 private:
  void feed(std::uint64_t step) {
    const int number = next_slot_;
    const std::vector<InputSlot> inputs = trainer_.inputs();
    next_slot_ = (next_slot_ + 1) % static_cast<int>(inputs.size());
    trainer_.wait_input_free(number);
    InputSlot slot = inputs[static_cast<std::size_t>(number)];
    std::vector<std::uint8_t> pictures;  // where the workers augment, the slot has room for floats
    if (slot.floats != nullptr) {
      pictures.resize(static_cast<std::size_t>(slot.batch * slot.image * slot.image * 3));
      slot.images = pictures.data();
    }
    BatchOptions options;
    options.batch = options.samples = slot.batch;
    options.image = slot.image;
    options.classes = kSmallClasses;
    options.first_image = static_cast<std::int64_t>(step) * slot.batch;
    options.step = step;
    options.learning_rate = 0.02f;
    fill_batch(slot, options);
    if (config_.augment) draw_batch(*config_.augment, slot);
    if (slot.floats != nullptr)
      host::augment(*config_.augment, tables_.data(), slot.batch, slot.images,
                    augment_draws(slot.header), ImageOrder::nhwc, slot.floats);
    trainer_.step(number);
  }

  EngineConfig config_;
  Parameters start_;
  std::vector<std::uint8_t> tables_;
  int next_slot_ = 0;
  std::vector<double> losses_;
  Trainer trainer_;  // last: its callback uses the members above
};

}  // namespace tandem::test
