// SPDX-License-Identifier: Apache-2.0
// The segmenter at S = 32 with its trainer, for tests that train a little.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tandem/models/segmenter.hpp>
#include <tandem/models/trainer.hpp>
#include <tandem/tests/support/parity_data.hpp>
#include <vector>

namespace tandem::test {

inline EngineConfig small_config(Schedule schedule = Schedule::overlap) {
  EngineConfig config;
  config.frozen = segmenter_encoder(32);
  config.trained = segmenter_decoder(32, 10);
  config.image = 32;
  config.batch = 4;
  config.scheduler.schedule = schedule;
  return config;
}

inline bool same_bits(const Parameters& a, const Parameters& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t t = 0; t < a.size(); ++t) {
    if (a[t].name != b[t].name || a[t].shape != b[t].shape) return false;
    if (a[t].data.size() != b[t].data.size()) return false;
    if (std::memcmp(a[t].data.data(), b[t].data.data(), a[t].data.size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

/// What training has added to a tensor, relative to the other's: |(a - start) - (b - start)| over
/// |b - start|, in the norm of the sum of squares.
inline double update_error(const NamedTensor& a, const NamedTensor& b, const NamedTensor& start) {
  double difference = 0, moved = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    const double x = a.data[i], y = b.data[i], s = start.data[i];
    difference += (x - y) * (x - y);
    moved += (y - s) * (y - s);
  }
  return std::sqrt(difference / moved);
}

/// A trainer that starts from weights made of `seed`. Step n trains on pictures 4n to 4n + 3.
class SmallSegmenter {
 public:
  SmallSegmenter(Backend& backend, const EngineConfig& config, std::uint64_t seed = 0)
      : frozen_start_(make_parameters(config.frozen, seed, 0)),
        trained_start_(make_parameters(config.trained, seed, 6)),
        image_(config.image),
        batch_(config.batch),
        trainer_(backend, config, [this](const StepResult& result) {
          results_.push_back(result);
          losses_.push_back(result.loss);
        }) {
    reset();
  }

  void reset() {
    trainer_.set_frozen(frozen_start_);
    trainer_.set_trained(trained_start_);
  }

  void train(std::uint64_t first_step, int steps) {
    for (int i = 0; i < steps; ++i) feed(first_step + static_cast<std::uint64_t>(i), false);
    trainer_.finish();
  }

  /// One step whose labels are all ignored.
  void train_ignored(std::uint64_t step) {
    feed(step, true);
    trainer_.finish();
  }

  Trainer& trainer() noexcept { return trainer_; }
  const Parameters& frozen_start() const noexcept { return frozen_start_; }
  const Parameters& trained_start() const noexcept { return trained_start_; }
  const std::vector<StepResult>& results() const noexcept { return results_; }
  const std::vector<double>& losses() const noexcept { return losses_; }

 private:
  void feed(std::uint64_t step, bool ignore_all) {
    const std::vector<InputSlot> inputs = trainer_.inputs();
    const int slot = next_slot_;
    next_slot_ = (next_slot_ + 1) % static_cast<int>(inputs.size());
    trainer_.wait_input_free(slot);
    BatchOptions options;
    options.batch = options.samples = batch_;
    options.image = image_;
    options.first_image = static_cast<std::int64_t>(step) * batch_;
    options.ignore_all = ignore_all;
    options.step = step;
    fill_batch(inputs[static_cast<std::size_t>(slot)], options);
    trainer_.step(slot);
  }

  Parameters frozen_start_, trained_start_;
  std::int64_t image_, batch_;
  int next_slot_ = 0;
  std::vector<StepResult> results_;
  std::vector<double> losses_;
  Trainer trainer_;  // last: its callback uses the members above
};

}  // namespace tandem::test
