// SPDX-License-Identifier: Apache-2.0
// Real training as what the batch-size finder tries.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/finder.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/engine/overlap.hpp>
#include <tandem/models/parameters.hpp>
#include <tandem/models/trainer.hpp>

#include "device.hpp"
#include "measure.hpp"
#include "options.hpp"

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

/// Gives a trainer of the job at one size its weights, and its inputs where they lie on the device.
/// Returns what the loader is to do but for the steps.
LoaderOptions make_ready(Trainer& trainer, const EngineConfig& config, const ProbeJob& job);

/// Each trial has a backend and a trainer of its own, made from the same weights, and ends with
/// both: nothing of it is left, neither memory nor state.
class TrainingProbe final : public BatchProbe {
 public:
  /// `on_trial` is called before each trial.
  TrainingProbe(const Device& device, ProbeJob job,
                std::function<void(std::int64_t batch)> on_trial);

  /// The largest size that the engine and its kernels take with these networks and pictures.
  /// Throws Error{usage} if that is none.
  std::int64_t largest_batch() const;
  /// What memory_need() says of the plan at that size.
  std::size_t predict_bytes(std::int64_t batch) override;
  BatchTrial run(std::int64_t batch, std::int64_t warmup, std::int64_t steps,
                 double seconds) override;

  /// Times the stages of a size that `run` came through, and tries it `repeats` times in the other
  /// order: serial for a job that overlaps, overlap for one that does not. `own` is what the job's
  /// own order takes a step; without it that is tried as well, in turn with the other.
  OverlapSeen see_overlap(std::int64_t batch, std::int64_t warmup, std::int64_t steps,
                          double seconds, std::int64_t repeats,
                          std::optional<double> own = std::nullopt);

  /// A run of its own of about `seconds` at a size that `run` came through, whose steps take
  /// `step_seconds`: what the GPU is seen to do meanwhile. Not observed on the host.
  Observation observe(std::int64_t batch, double step_seconds, double seconds);

  /// A run of its own of ten steps, three of them recorded: adds split_ms, hidden_ms and
  /// sm_fill_pct, with split_source or, where they are null, split_reason.
  void add_split_of(std::int64_t batch, Json& row);

 private:
  EngineConfig config_for(std::int64_t batch) const;
  BatchTrial run_as(Schedule schedule, std::int64_t batch, std::int64_t warmup, std::int64_t steps,
                    double seconds, StageSeconds* stages);

  const Device& device_;
  ProbeJob job_;
  std::function<void(std::int64_t)> on_trial_;
};

/// stage_ms, t_a_ms, t_b_ms, serial_ms, overlap_ms, predicted_speedup, measured_speedup,
/// overlap_eff and the sentence as overlap.
void add_overlap(Json& row, const OverlapSeen& seen, const OverlapAnswer& answer);

}  // namespace tandem::program
