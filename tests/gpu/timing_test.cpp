// SPDX-License-Identifier: Apache-2.0
// Times of stages by timed events, on stages whose least length is known: a spin of a number of
// ticks cannot be over before the fastest clock has made them.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/engine/cuda_timing.hpp>
#include <tandem/engine/scheduler.hpp>
#include <tandem/kernels/spin.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <vector>

namespace tandem {
namespace {

constexpr std::int64_t kTicks = 1'000'000;

/// Two stages that spin, the second four times as long.
class StageTiming : public test::GpuTest {
 protected:
  static void spin(void* ticks, void* const*, const CallContext& context) {
    cuda::spin(*static_cast<std::int64_t*>(ticks), 2, 32,
               static_cast<CUstream_st*>(context.native_stream));
  }

  Plan plan() {
    PlanBuilder plan;
    const TensorDesc desc = byte_desc(256);
    const BufferId handover = plan.add_buffer("handover", desc, Scope::handover, 0);
    for (int k = 0; k < 2; ++k) {
      plan.begin_stage(k == 0 ? "a" : "b");
      Operation operation;
      operation.name = "spin";
      operation.operands = {k == 0 ? plan.write(handover, desc) : plan.read(handover, desc)};
      operation.callable = {spin, &ticks_[k]};
      plan.add(std::move(operation));
    }
    return std::move(plan).build();
  }

  std::vector<StageSpan> run(Schedule schedule, int batches, int skip, int count) {
    const auto backend = make_cuda_backend();
    CudaStageTimer timer(0, 2, skip, count);
    SchedulerOptions options;
    options.schedule = schedule;
    options.stage_timer = &timer;
    Scheduler scheduler(*backend, plan(), options);
    for (int n = 0; n < batches; ++n) scheduler.push(0, static_cast<std::uint64_t>(n));
    scheduler.drain();
    return timer.spans();
  }

  static double least_seconds(std::int64_t ticks) {
    int khz = 0;
    EXPECT_EQ(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0), cudaSuccess);
    EXPECT_GT(khz, 0);
    return static_cast<double>(ticks) / (1e3 * khz);
  }

  std::int64_t ticks_[2] = {kTicks, 4 * kTicks};
};

TEST_F(StageTiming, EachSpanIsAtLeastTheSpin) {
  for (const Schedule schedule : {Schedule::serial, Schedule::overlap}) {
    SCOPED_TRACE(name_of(schedule));
    const std::vector<StageSpan> spans = run(schedule, 12, 2, 6);
    ASSERT_EQ(spans.size(), 12u);
    for (int stage = 0; stage < 2; ++stage)
      EXPECT_EQ(std::count_if(spans.begin(), spans.end(),
                              [&](const StageSpan& s) { return s.stage == stage; }),
                6);
    for (const StageSpan& span : spans)
      EXPECT_GE(span.end - span.begin, least_seconds(ticks_[span.stage])) << span.stage;
    EXPECT_GT(busy_percent(spans), 0);
    EXPECT_LE(busy_percent(spans), 100);
  }
}

// In one stream the spans follow each other; the resolution of an event is half a microsecond.
TEST_F(StageTiming, SerialSpansDoNotMeet) {
  std::vector<StageSpan> spans = run(Schedule::serial, 8, 0, 8);
  ASSERT_EQ(spans.size(), 16u);
  std::sort(spans.begin(), spans.end(),
            [](const StageSpan& a, const StageSpan& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < spans.size(); ++i) {
    EXPECT_NE(spans[i].stage, spans[i - 1].stage);
    EXPECT_GE(spans[i].begin, spans[i - 1].end - 1e-6);
  }
}

TEST_F(StageTiming, AShortRunHasFewerSpans) {
  EXPECT_EQ(run(Schedule::overlap, 3, 1, 100).size(), 4u);
  EXPECT_TRUE(run(Schedule::overlap, 3, 3, 100).empty());
}

TEST_F(StageTiming, LeavesTheCallersErrorAndDevice) {
  cudaGetLastError();
  ASSERT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  run(Schedule::overlap, 4, 0, 4);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

}  // namespace
}  // namespace tandem
