// SPDX-License-Identifier: Apache-2.0
// Times of stages on the GPU, by timed events: a type of their own, since the events that order the
// stages are untimed. Needs no CUDA header.
#pragma once

#include <memory>
#include <tandem/engine/stage_timer.hpp>
#include <vector>

namespace tandem {

/// Records a pair of timed events round some executions of each stage of a scheduler on the cuda
/// backend. It costs two records a stage, so time a run of its own and not the one that counts.
/// Must outlive the scheduler. Not thread-safe.
class CudaStageTimer final : public StageTimer {
 public:
  /// Times executions `skip` .. `skip` + `count` - 1 of each of `stages` stages; creates all events
  /// now. Throws Error{run_failed}.
  CudaStageTimer(int device, int stages, int skip, int count);
  ~CudaStageTimer() override;

  void begin(int stage, StreamRef stream) override;
  void end(int stage, StreamRef stream) override;

  /// What was timed, in seconds from the first stage's first begin. Only after the scheduler has
  /// drained, without a failure. Throws Error{run_failed}.
  std::vector<StageSpan> spans() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
