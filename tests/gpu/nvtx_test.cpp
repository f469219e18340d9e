// SPDX-License-Identifier: Apache-2.0
// Ranges and names on the CUDA backend. tests/host/nvtx_test.cpp shows that the checks can fail.
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/nvtx_recording.hpp>
#include <tandem/tests/support/small_segmenter.hpp>

namespace tandem::testing {
namespace {

constexpr std::uint64_t kFirstStep = 100, kSteps = 10, kGraphSteps = 16;

TEST(NvtxGpuChild, DISABLED_Overlap) {
  const auto backend = make_cuda_backend();
  test::SmallSegmenter segmenter(*backend, test::small_config(Schedule::overlap));
  segmenter.train(kFirstStep, static_cast<int>(kSteps));
}

TEST(NvtxGpuChild, DISABLED_Graph) {
  const auto backend = make_cuda_backend();
  test::SmallSegmenter segmenter(*backend, test::small_config(Schedule::graph));
  segmenter.train(kFirstStep, static_cast<int>(kGraphSteps));
  EXPECT_EQ(segmenter.trainer().scheduler().no_graph_reason(), "");
}

class NvtxGpu : public test::GpuTest {};

TEST_F(NvtxGpu, OperationsLieInTheRangeOfTheirStageAndStreamsAreNamed) {
#if !defined(TANDEM_HAS_NVTX) || defined(NVTX_DISABLE)
  GTEST_SKIP() << "built without NVTX";
#endif
  const NvtxRun run = run_under_nvtx("NvtxGpuChild.DISABLED_Overlap", TANDEM_NVTX_RECORDER);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  // A library may have a domain of its own, which the recorder sees as any tool would.
  const std::vector<NvtxCall> calls = of_tandem(run.calls);
  EXPECT_EQ(nvtx_faults(calls), std::vector<std::string>{});
  const Plan plan = plan_training(test::small_config(Schedule::overlap));
  EXPECT_EQ(without_set_up(opened(calls)), expected_ranges(plan, kFirstStep, kSteps));

  std::set<long> threads;
  std::set<std::string> streams;
  std::vector<NvtxCall> open;
  for (const NvtxCall& call : calls) {
    if (call.event == "stream") streams.insert(call.name);
    if (call.event == "push") {
      threads.insert(call.thread);
      if (call.category == "operation" && call.step != "0") {
        ASSERT_EQ(open.size(), 1U) << call.name;
        EXPECT_EQ(open.back().category, "stage");
        EXPECT_EQ(open.back().step, call.step);
      }
      open.push_back(call);
    }
    if (call.event == "pop") open.pop_back();
  }
  EXPECT_EQ(threads.size(), 1U) << "the thread that issues";
  for (const Stage& stage : plan.stages) EXPECT_EQ(streams.count("tandem " + stage.name), 1U);
}

// What a graph holds has ranges when it is captured, and a launch has one for all of it.
TEST_F(NvtxGpu, GraphOpensOneRangeATickThatIsLaunched) {
#if !defined(TANDEM_HAS_NVTX) || defined(NVTX_DISABLE)
  GTEST_SKIP() << "built without NVTX";
#endif
  const NvtxRun run = run_under_nvtx("NvtxGpuChild.DISABLED_Graph", TANDEM_NVTX_RECORDER);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const std::vector<NvtxCall> calls = of_tandem(run.calls);
  EXPECT_EQ(nvtx_faults(calls), std::vector<std::string>{});
  const Plan plan = plan_training(test::small_config(Schedule::graph));
  EXPECT_EQ(without_set_up(opened(calls)), expected_graph_ranges(plan, kFirstStep, kGraphSteps));
}

}  // namespace
}  // namespace tandem::testing
