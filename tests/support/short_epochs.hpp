// SPDX-License-Identifier: Apache-2.0
// Epochs that end with a batch which is not full, through the loader, on any backend.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <tandem/engine/backend.hpp>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/fuse.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/models/trainer.hpp>
#include <tandem/tests/support/small_classifier.hpp>
#include <tandem/tests/support/small_segmenter.hpp>
#include <vector>

namespace tandem::test {

/// Batches an epoch of 4 x batch + 2 samples; the last holds two. Not a multiple of the 4 ticks
/// that are captured, so that each of them is launched for full batches and for one of two.
inline constexpr int kShortEpochSteps = 5, kShortEpochs = 6, kLastSamples = 2;

struct ShortEpochs {
  std::vector<double> losses;
  std::vector<std::int64_t> valid;  ///< labels of each batch
  Parameters weights;
  int graphs = 0;
};

/// Trains on made-up data. `drain`: waits at the end of each epoch, as the program does, so that
/// the short batch is never part of a captured tick; without it it is, but for the last epoch.
inline ShortEpochs train_short_epochs(Backend& backend, const EngineConfig& config,
                                      const Parameters& frozen, const Parameters& trained,
                                      LastBatch last, bool drain) {
  ShortEpochs outcome;
  Trainer trainer(backend, config, [&](const StepResult& result) {
    outcome.losses.push_back(result.loss);
    outcome.valid.push_back(result.valid_count);
  });
  if (!frozen.empty()) trainer.set_frozen(frozen);
  trainer.set_trained(trained);
  const bool a_picture = trainer.inputs().front().label_count == 1;
  const std::shared_ptr<const Dataset> data =
      a_picture ? make_synthetic_classes(config.image, kSmallClasses, 11)
                : make_synthetic(config.image, kSmallClasses, 11);
  LoaderOptions options;
  options.workers = 2;
  options.batch = config.batch;
  options.steps = kShortEpochSteps;
  options.samples = (kShortEpochSteps - 1) * config.batch + kLastSamples;
  options.last_batch = last;
  options.classes = kSmallClasses;
  options.learning_rate = 0.02f;
  options.momentum = config.momentum ? 0.9f : 0.0f;
  if (config.augment) options.augment = LoaderAugment{*config.augment, {}, 3, false, false};
  for (int epoch = 0; epoch < kShortEpochs; ++epoch) {
    options.first_step = static_cast<std::uint64_t>(epoch * kShortEpochSteps);
    options.first_sample = epoch * options.samples;
    Loader loader(data, options, trainer.inputs(),
                  [&trainer](int slot) { trainer.wait_input_free(slot); });
    for (int slot; (slot = loader.next()) >= 0;) {
      trainer.step(slot);
      loader.submitted(slot);
    }
    if (drain) trainer.finish();
  }
  trainer.finish();
  outcome.weights = trainer.trained();
  outcome.graphs = trainer.scheduler().graphs();
  return outcome;
}

/// Holds graph to serial, for the default plan of a GPU, with a short batch of either kind.
/// `backend` has graphs.
inline void expect_short_batches_keep_the_bits(Backend& backend, EngineConfig config,
                                               const Parameters& frozen,
                                               const Parameters& trained) {
  constexpr int kPeriod = 4;  // lcm(R, R + 2) for R = 2
  config.fuse = kFuseAll;
  config.scheduler.side_lanes = true;
  for (const LastBatch last : {LastBatch::partial, LastBatch::pad}) {
    config.scheduler.schedule = Schedule::serial;
    const ShortEpochs serial =
        train_short_epochs(backend, config, frozen, trained, last, /*drain=*/true);
    ASSERT_EQ(serial.losses.size(), static_cast<std::size_t>(kShortEpochs * kShortEpochSteps));
    for (std::size_t step = 0; step < serial.valid.size(); ++step) {
      const bool is_last = step % kShortEpochSteps == kShortEpochSteps - 1;
      const std::int64_t samples = is_last ? kLastSamples : config.batch;
      EXPECT_EQ(serial.valid[step] * config.batch, serial.valid[0] * samples) << "step " << step;
    }
    config.scheduler.schedule = Schedule::graph;
    for (const bool drain : {true, false}) {
      const ShortEpochs graph = train_short_epochs(backend, config, frozen, trained, last, drain);
      EXPECT_EQ(graph.graphs, kPeriod);
      EXPECT_EQ(graph.valid, serial.valid);
      EXPECT_EQ(graph.losses, serial.losses);
      EXPECT_TRUE(same_bits(graph.weights, serial.weights));
    }
  }
}

}  // namespace tandem::test
