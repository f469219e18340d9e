// SPDX-License-Identifier: Apache-2.0
// Real training as what the batch-size finder tries.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/finder.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/engine/overlap.hpp>
#include <tandem/models/parameters.hpp>
#include <tandem/models/trainer.hpp>

#include "device.hpp"
#include "measure.hpp"

namespace tandem::program {

/// What is trained in a trial. The batch size is the trial's; a loader is used where the inputs lie
/// in pinned memory.
struct ProbeJob {
  EngineConfig config;
  Parameters frozen, trained;
  std::shared_ptr<const Dataset> data;
  LoaderOptions loader;           ///< but for batch and steps
  bool beside_predictor = false;  ///< the memory has to hold a predictor of the same batch too
};

/// What overlapping brings at one batch size.
struct OverlapSeen {
  StageSeconds stages;                ///< each alone
  double serial = 0, overlapped = 0;  ///< seconds a step
};

/// Each trial has a backend and a trainer of its own, made from the same weights, and ends with
/// both: nothing of it is left, neither memory nor state.
class TrainingProbe final : public BatchProbe {
 public:
  /// `on_trial` is called before each trial.
  TrainingProbe(const Device& device, ProbeJob job,
                std::function<void(std::int64_t batch)> on_trial);

  /// What memory_need() says of the plan at that size.
  std::size_t predict_bytes(std::int64_t batch) override;
  BatchTrial run(std::int64_t batch, std::int64_t warmup, std::int64_t steps) override;

  /// Times the stages of a size that `run` came through, and tries it `repeats` times in the other
  /// order: serial for a job that overlaps, overlap for one that does not. `own` is what the job's
  /// own order takes a step.
  OverlapSeen see_overlap(std::int64_t batch, std::int64_t warmup, std::int64_t steps,
                          std::int64_t repeats, double own);

 private:
  EngineConfig config_for(std::int64_t batch) const;
  BatchTrial run_as(Schedule schedule, std::int64_t batch, std::int64_t warmup, std::int64_t steps,
                    StageSeconds* stages);

  const Device& device_;
  ProbeJob job_;
  std::function<void(std::int64_t)> on_trial_;
};

}  // namespace tandem::program
