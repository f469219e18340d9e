// SPDX-License-Identifier: Apache-2.0
// Training on the GPU seen by CUPTI and by timed events; and CUPTI's own header against the places
// where we look for the fields of its records.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/engine/cuda_events_source.hpp>
#include <tandem/engine/cuda_info.hpp>
#include <tandem/engine/cupti.hpp>
#include <tandem/engine/profile_summary.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/gpu_segmenter.hpp>
#if __has_include(<cupti.h>)
#include <cupti.h>
#define TANDEM_TEST_HAS_CUPTI_HEADER 1
#endif

namespace tandem {
namespace {

#if defined(TANDEM_TEST_HAS_CUPTI_HEADER)
namespace layout = cupti_layout;

template <class Record>
constexpr bool lies_at(const layout::Work& at) {
  return offsetof(Record, start) == at.begin && offsetof(Record, end) == at.end &&
         offsetof(Record, streamId) == at.stream &&
         offsetof(Record, correlationId) == at.correlation;
}
// What a library of CUDA 12 hands over, and the newest that this header knows.
static_assert(lies_at<CUpti_ActivityKernel9>(layout::kKernelAt));
static_assert(lies_at<CUpti_ActivityMemcpy5>(layout::kMemcpyAt));
static_assert(lies_at<CUpti_ActivityMemset4>(layout::kMemsetAt));
#if CUPTI_API_VERSION >= 130001
static_assert(lies_at<CUpti_ActivityKernel10>(layout::kKernelAt));
static_assert(lies_at<CUpti_ActivityMemcpy6>(layout::kMemcpyAt));
#endif
static_assert(offsetof(CUpti_ActivityMemcpy5, bytes) == layout::kMemcpyAt.bytes);
static_assert(offsetof(CUpti_ActivityMemcpy5, copyKind) == layout::kCopyDirection);
static_assert(offsetof(CUpti_ActivityMemset4, bytes) == layout::kMemsetAt.bytes);
static_assert(offsetof(CUpti_ActivityKernel9, gridX) == layout::kKernelGrid);
static_assert(offsetof(CUpti_ActivityKernel9, gridY) == layout::kKernelGrid + 4);
static_assert(offsetof(CUpti_ActivityKernel9, gridZ) == layout::kKernelGrid + 8);
static_assert(offsetof(CUpti_ActivityKernel9, name) == layout::kKernelName);
static_assert(offsetof(CUpti_ActivityAPI, cbid) == layout::kCallId);
static_assert(offsetof(CUpti_ActivityAPI, start) == layout::kCallBegin);
static_assert(offsetof(CUpti_ActivityAPI, end) == layout::kCallEnd);
static_assert(offsetof(CUpti_ActivityAPI, correlationId) == layout::kCallCorrelation);
static_assert(offsetof(CUpti_ActivityExternalCorrelation, externalKind) == layout::kExternalKind);
static_assert(offsetof(CUpti_ActivityExternalCorrelation, externalId) == layout::kExternalValue);
static_assert(offsetof(CUpti_ActivityExternalCorrelation, correlationId) ==
              layout::kExternalCorrelation);
static_assert(CUPTI_ACTIVITY_KIND_MEMCPY == layout::kMemcpy);
static_assert(CUPTI_ACTIVITY_KIND_MEMSET == layout::kMemset);
static_assert(CUPTI_ACTIVITY_KIND_DRIVER == layout::kDriverCall);
static_assert(CUPTI_ACTIVITY_KIND_RUNTIME == layout::kRuntimeCall);
static_assert(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL == layout::kKernel);
static_assert(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION == layout::kExternalId);
static_assert(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 == layout::kOurIds);
static_assert(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED == 1);
static_assert(CUPTI_CB_DOMAIN_DRIVER_API == 1 && CUPTI_CB_DOMAIN_RUNTIME_API == 2);
#endif

class GpuProfile : public test::GpuTest {
 protected:
  struct Seen {
    Plan plan;
    Recording recording;
    Parameters trained;
    std::vector<double> losses;
    std::string no_graph_reason;
  };

  static CuptiLibrary cupti() { return load_cupti(std::atoi(query_cuda().runtime.c_str())); }

  /// 12 steps; with a source, those from 4 to 9 are recorded.
  static Seen train(Schedule schedule, Recorder& recorder, ProfileSource* source) {
    const EngineConfig config = test::still_config(32, 8, Precision::fp32, schedule);
    const test::StartValues start(config);
    CudaOptions options;
    options.listener = source;
    const auto backend = make_cuda_backend(options);
    test::StillSegmenter segmenter(*backend, config, start);
    segmenter.train(0, 4);
    if (source != nullptr) source->start();
    segmenter.train(4, 6);
    if (source != nullptr) source->stop();
    segmenter.train(10, 2);
    return {segmenter.trainer().scheduler().plan(), recorder.take(), segmenter.trainer().trained(),
            segmenter.losses(), segmenter.trainer().scheduler().no_graph_reason()};
  }

  /// Every operation of the recorded steps was seen, in its stage, and nothing of other steps.
  /// Returns how many records each had.
  static std::map<std::string, int> check(const Seen& seen, Schedule schedule) {
    std::map<std::string, int> found;
    for (const Record& record : seen.recording.records) {
      if (!is_device(record.kind)) continue;
      EXPECT_LE(record.begin, record.end);
      EXPECT_GE(record.step, 4u);
      EXPECT_LE(record.step, 9u) << seen.recording.texts[record.name];
      const std::string path = seen.recording.texts[record.path];
      const std::string stage = path.substr(0, path.find('/'));
      EXPECT_EQ(seen.recording.lanes[static_cast<std::size_t>(record.lane)],
                schedule == Schedule::serial ? "serial" : stage);
      ++found[path + " " + std::to_string(record.step)];
    }
    for (const Stage& stage : seen.plan.stages)
      for (const Operation& operation : stage.operations)
        for (int step = 4; step <= 9; ++step) {
          const std::string key = stage.name + "/" + operation.name + " " + std::to_string(step);
          EXPECT_GE(found[key], 1) << key;
        }
    return found;
  }

  static ProfileSummary summary_of(const Seen& seen) {
    ProfileSummary summary;
    summary.add(seen.recording, window_of(seen.recording, 5, 9),
                query_cuda().devices.front().multiprocessors);
    return summary;
  }
};

TEST_F(GpuProfile, CuptiSeesEveryOperationOfTheRecordedSteps) {
  for (const Schedule schedule : {Schedule::serial, Schedule::overlap}) {
    SCOPED_TRACE(name_of(schedule));
    Recorder recorder({"copy", "encode", "train"});
    const CuptiSource made = make_cupti_source(cupti(), recorder, false);
    if (made.source == nullptr) GTEST_SKIP() << "CUPTI: " << made.reason;
    const Seen seen = train(schedule, recorder, made.source.get());
    check(seen, schedule);
    EXPECT_EQ(seen.recording.dropped, 0u);
    const ProfileSummary summary = summary_of(seen);
    EXPECT_TRUE(summary.fill_known);
    EXPECT_TRUE(summary.warm);
    EXPECT_GT(summary.sm_fill_percent(), 0);
    EXPECT_LE(summary.sm_fill_percent(), summary.kernel_busy_percent());
    EXPECT_LE(summary.kernel_busy_percent(), 100);
    EXPECT_GT(summary.under_way[static_cast<std::size_t>(RecordKind::copy)], 0u);
    EXPECT_GT(summary.under_way[static_cast<std::size_t>(RecordKind::runtime)], 0u);
    if (schedule == Schedule::serial) {
      EXPECT_EQ(summary.overlap_percent(), 0);
    }
  }
}

/// Streams of the device run in order, so records that CUPTI converts to our clock have to.
TEST_F(GpuProfile, CuptiTellsTheTimeOfOurClock) {
  Recorder recorder({"copy", "encode", "train"});
  const CuptiSource made = make_cupti_source(cupti(), recorder, false);
  if (made.source == nullptr) GTEST_SKIP() << "CUPTI: " << made.reason;
  const std::uint64_t before = profile_clock();
  const Seen seen = train(Schedule::overlap, recorder, made.source.get());
  const std::uint64_t after = profile_clock();
  ASSERT_FALSE(seen.recording.records.empty());
  for (const Record& record : seen.recording.records) {
    EXPECT_GT(record.begin, before);
    EXPECT_LT(record.end, after);
  }
}

TEST_F(GpuProfile, EventsSeeEveryOperationOnce) {
  for (const Schedule schedule : {Schedule::serial, Schedule::overlap}) {
    SCOPED_TRACE(name_of(schedule));
    Recorder recorder({"copy", "encode", "train"});
    const auto source = make_cuda_events_source(0, recorder, true);
    const Seen seen = train(schedule, recorder, source.get());
    for (const auto& [operation, count] : check(seen, schedule)) EXPECT_EQ(count, 1) << operation;
    const ProfileSummary summary = summary_of(seen);
    EXPECT_FALSE(summary.fill_known);
    EXPECT_GT(summary.kernel_busy_percent(), 0);
    for (const Record& record : seen.recording.records) EXPECT_NE(record.shapes, 0u);
  }
}

TEST_F(GpuProfile, WhatIsTimedWithEventsIsNotCaptured) {
  Recorder recorder({"copy", "encode", "train"});
  const auto source = make_cuda_events_source(0, recorder, false);
  const Seen seen = train(Schedule::graph, recorder, source.get());
  EXPECT_EQ(seen.no_graph_reason, "operations are timed with events");
  for (const auto& [operation, count] : check(seen, Schedule::graph))
    EXPECT_EQ(count, 1) << operation;
  EXPECT_EQ(seen.recording.dropped, 0u);
}

TEST_F(GpuProfile, IsSeenWithoutAChangeOfItsBits) {
  Recorder recorder({"copy", "encode", "train"});
  const Seen plain = train(Schedule::overlap, recorder, nullptr);
  const auto events = make_cuda_events_source(0, recorder, false);
  const Seen timed = train(Schedule::overlap, recorder, events.get());
  EXPECT_EQ(timed.losses, plain.losses);
  EXPECT_TRUE(test::same_bits(timed.trained, plain.trained));
  const CuptiSource made = make_cupti_source(cupti(), recorder, false);
  if (made.source == nullptr) GTEST_SKIP() << "CUPTI: " << made.reason;
  const Seen seen = train(Schedule::overlap, recorder, made.source.get());
  EXPECT_EQ(seen.losses, plain.losses);
  EXPECT_TRUE(test::same_bits(seen.trained, plain.trained));
}

TEST_F(GpuProfile, CuptiIsLeftToWhoHasIt) {
  const CuptiLibrary library = cupti();
  if (!library.functions) GTEST_SKIP() << "CUPTI: " << library.reason;
  void* other = nullptr;
  void (*ignore)(void*, int, std::uint32_t, const void*) = [](void*, int, std::uint32_t,
                                                              const void*) {};
  if (library.functions->subscribe(&other, reinterpret_cast<void*>(ignore), nullptr) != 0)
    GTEST_SKIP() << "CUPTI is held by a tool";
  Recorder recorder({"copy", "encode", "train"});
  const CuptiSource refused = make_cupti_source(library, recorder, false);
  EXPECT_EQ(refused.source, nullptr);
  EXPECT_NE(refused.reason.find("cuptiSubscribe"), std::string::npos) << refused.reason;
  EXPECT_EQ(library.functions->unsubscribe(other), 0);
  EXPECT_NE(make_cupti_source(library, recorder, false).source, nullptr);
}

}  // namespace
}  // namespace tandem
