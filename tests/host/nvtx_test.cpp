// SPDX-License-Identifier: Apache-2.0
// Ranges and names, as a tool sees them that NVTX loads into a child process.
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/engine/nvtx.hpp>
#include <tandem/tests/support/capturing_backend.hpp>
#include <tandem/tests/support/nvtx_recording.hpp>
#include <tandem/tests/support/small_segmenter.hpp>
#include <tandem/tests/support/synthetic_stages.hpp>

namespace tandem::testing {
namespace {

constexpr std::uint64_t kFirstStep = 100;  // so that a step is not a count by accident
constexpr std::uint64_t kSteps = 10;
constexpr std::uint64_t kGraphSteps = 16;  // under `graph`, enough for launches behind the captures
constexpr int kLoaderWorkers = 2;

// --- what runs in the child ---

LoaderOptions loader_options(std::int64_t batch) {
  LoaderOptions options;
  options.workers = kLoaderWorkers;
  options.batch = batch;
  options.classes = 10;
  options.first_step = kFirstStep;
  options.steps = kSteps;
  return options;
}

void train(Schedule schedule) {
  const auto backend = make_host_backend();
  const EngineConfig config = test::small_config(schedule);
  int results = 0;
  Trainer trainer(*backend, config, [&](const StepResult&) { ++results; });
  trainer.set_frozen(test::make_parameters(config.frozen, 0, 0));
  trainer.set_trained(test::make_parameters(config.trained, 0, 6));
  Loader loader(make_synthetic(config.image, 10, 0), loader_options(config.batch), trainer.inputs(),
                [&](int slot) { trainer.wait_input_free(slot); });
  for (int slot; (slot = loader.next()) >= 0;) {
    trainer.step(slot);
    loader.submitted(slot);
  }
  trainer.finish();
  EXPECT_EQ(results, static_cast<int>(kSteps));
}

TEST(NvtxChild, DISABLED_Serial) { train(Schedule::serial); }
TEST(NvtxChild, DISABLED_Overlap) { train(Schedule::overlap); }

TEST(NvtxChild, DISABLED_Graph) {
  const auto host = make_host_backend();
  CapturingBackend backend(*host);
  test::SmallSegmenter segmenter(backend, test::small_config(Schedule::graph));
  segmenter.train(kFirstStep, static_cast<int>(kGraphSteps));
  EXPECT_GT(backend.launches, segmenter.trainer().scheduler().graphs());
}

/// Steps 0 to 9, of which the end of stage transform fails at step 5; then steps 10 to 19.
TEST(NvtxChild, DISABLED_FailingStage) {
  const auto backend = make_host_backend();
  SyntheticStages stages;
  stages.after = [](int stage, std::uint64_t step) {
    if (stage == SyntheticStages::kTransform && step == 5) throw Error(ErrorCode::data, "planted");
  };
  Scheduler scheduler(*backend, stages.plan(2), {});
  const auto feed = [&](std::uint64_t first) {
    for (std::uint64_t step = first; step < first + 10; ++step) stages.feed(scheduler, step);
    scheduler.drain();
  };
  EXPECT_THROW(feed(0), Error);
  feed(10);
}

/// Nine good samples, then one that cannot be read.
class BrokenData final : public Dataset {
 public:
  std::int64_t image() const noexcept override { return 4; }
  std::int64_t epoch_size() const noexcept override { return 1000; }
  const std::vector<std::string>& class_names() const noexcept override { return names_; }
  void sample(std::int64_t index, std::uint8_t* picture, std::uint8_t* labels) const override {
    if (index == 9) throw Error(ErrorCode::data, "planted");
    std::memset(picture, 0, 3 * 4 * 4);
    std::memset(labels, 0, 4 * 4);
  }

 private:
  std::vector<std::string> names_{"only"};
};

/// Two batches of four arrive; the third fails, and nobody asks for the rest.
TEST(NvtxChild, DISABLED_FailingLoader) {
  constexpr std::int64_t kBatch = 4, kPixels = 4 * 4;
  constexpr int kSlots = 3;
  std::vector<Bytes> images(kSlots, Bytes(kBatch * kPixels * 3)), labels(kSlots, images[0]);
  std::vector<std::vector<std::int64_t>> headers(
      kSlots, std::vector<std::int64_t>(batch_header_bytes(kBatch) / sizeof(std::int64_t)));
  std::vector<InputSlot> slots;
  for (int s = 0; s < kSlots; ++s) {
    InputSlot slot;
    slot.images = images[s].data();
    slot.labels = labels[s].data();
    slot.header = reinterpret_cast<BatchHeader*>(headers[s].data());
    slot.batch = kBatch;
    slot.image = 4;
    slot.label_count = kPixels;
    slots.push_back(slot);
  }
  Loader loader(std::make_shared<BrokenData>(), loader_options(kBatch), slots, {});
  EXPECT_GE(loader.next(), 0);
  EXPECT_GE(loader.next(), 0);
  EXPECT_THROW(loader.next(), Error);
}

// --- what the parent asserts ---

/// Skips where the library was built without NVTX.
class Nvtx : public ::testing::Test {
 protected:
  void SetUp() override {
#if !defined(TANDEM_HAS_NVTX) || defined(NVTX_DISABLE)
    GTEST_SKIP() << "built without NVTX";
#endif
  }

  /// A good run with no faults.
  static std::vector<NvtxCall> calls_of(const std::string& child) {
    const NvtxRun run = run_under_nvtx("NvtxChild.DISABLED_" + child, TANDEM_NVTX_RECORDER);
    EXPECT_EQ(run.exit_code, 0) << run.output;
    EXPECT_FALSE(run.calls.empty()) << run.output;
    EXPECT_EQ(nvtx_faults(run.calls), std::vector<std::string>{});
    return run.calls;
  }

  static Plan plan_of(Schedule schedule) { return plan_training(test::small_config(schedule)); }

  static void expect_every_step(const std::vector<NvtxCall>& calls, Schedule schedule) {
    NvtxCounts expected = expected_ranges(plan_of(schedule), kFirstStep, kSteps);
    for (std::uint64_t n = kFirstStep; n < kFirstStep + kSteps; ++n)
      ++expected[{"stage", "load", std::to_string(n)}];
    EXPECT_EQ(without_set_up(opened(calls)), expected);
  }

  /// Stages are issued by one thread, one after the other; operations run in the thread of their
  /// stream, one after the other.
  static void expect_threads(const std::vector<NvtxCall>& calls, Schedule schedule) {
    std::set<std::string> streams;
    std::map<std::pair<std::string, std::string>, int> expected_runs;  // of (stream, operation)
    for (const Stage& stage : plan_of(schedule).stages) {
      const std::string stream =
          "tandem " + (schedule == Schedule::serial ? std::string("serial") : stage.name);
      streams.insert(stream);
      for (const Operation& operation : stage.operations)
        expected_runs[{stream, operation.name}] += static_cast<int>(kSteps);
    }

    const auto names = thread_names(calls);
    std::set<long> issuing;
    std::map<std::pair<std::string, std::string>, int> runs;
    std::map<long, int> depth;
    for (const NvtxCall& call : calls) {
      const bool named = names.count(call.thread) != 0;
      if (call.event == "push") {
        EXPECT_EQ(depth[call.thread]++, 0) << call.name;
        if (call.category == "stage") {
          issuing.insert(call.thread);
          EXPECT_FALSE(named) << "the caller's thread got a name";
        } else {
          ASSERT_TRUE(named) << call.name;
          if (call.step != "0") ++runs[{names.at(call.thread), call.name}];
        }
      }
      if (call.event == "pop") --depth[call.thread];
      if (call.event == "start") {
        ASSERT_TRUE(named);
        EXPECT_EQ(names.at(call.thread).rfind("tandem loader ", 0), 0U) << names.at(call.thread);
      }
    }
    EXPECT_EQ(issuing.size(), 1U);
    EXPECT_EQ(runs, expected_runs);

    std::set<std::string> all;
    for (const auto& [thread, name] : names) all.insert(name);
    std::set<std::string> expected = streams;
    for (int i = 0; i < kLoaderWorkers; ++i) expected.insert("tandem loader " + std::to_string(i));
    EXPECT_EQ(all, expected);
  }
};

TEST_F(Nvtx, SerialOpensARangeAStageAndAnOperationOfEveryStep) {
  const auto calls = calls_of("Serial");
  expect_every_step(calls, Schedule::serial);
  expect_threads(calls, Schedule::serial);
}

TEST_F(Nvtx, OverlapOpensARangeAStageAndAnOperationOfEveryStep) {
  const auto calls = calls_of("Overlap");
  expect_every_step(calls, Schedule::overlap);
  expect_threads(calls, Schedule::overlap);
}

// A launch here queues what was captured, so that operations say the step of their capture:
// tests/gpu/nvtx_test.cpp counts those too.
TEST_F(Nvtx, GraphOpensOneRangeATickThatIsLaunched) {
  const auto calls = calls_of("Graph");
  const auto stages_of = [](const NvtxCounts& counts) {
    NvtxCounts stages;
    for (const auto& [range, count] : counts)
      if (range[0] == "stage") stages[range] = count;
    return stages;
  };
  const NvtxCounts expected =
      expected_graph_ranges(plan_of(Schedule::graph), kFirstStep, kGraphSteps);
  EXPECT_EQ(stages_of(opened(calls)), stages_of(expected));
  EXPECT_EQ(expected.count({"stage", "tick", std::to_string(kFirstStep + 4)}), 1U);
  EXPECT_EQ(expected.count({"stage", "train", std::to_string(kFirstStep + 8)}), 0U);

  std::map<long, std::vector<std::string>> open;  // by thread
  for (const NvtxCall& call : calls) {
    if (call.event == "push") {
      for (const std::string& outer : open[call.thread]) EXPECT_NE(outer, "tick") << call.name;
      if (call.name == "tick") {
        EXPECT_TRUE(open[call.thread].empty()) << "a tick in another range";
      }
      open[call.thread].push_back(call.name);
    }
    if (call.event == "pop") open[call.thread].pop_back();
  }
}

TEST_F(Nvtx, NamesOfStagesArePublicInterface) {
  std::vector<std::string> names;
  for (const Stage& stage : plan_of(Schedule::overlap).stages) names.push_back(stage.name);
  EXPECT_EQ(names, (std::vector<std::string>{"copy", "encode", "train"}));
}

TEST_F(Nvtx, AFailingStageClosesItsRanges) {
  const auto calls = calls_of("FailingStage");
  const NvtxCounts counts = opened(calls);
  SyntheticStages stages;
  const Plan plan = stages.plan(2);
  // Up to the failure what was issued and executed depends on the threads; never more than once.
  const NvtxCounts most = expected_ranges(plan, 0, 20);
  for (const auto& [range, count] : counts) {
    EXPECT_EQ(most.count(range), 1U) << range[0] << ' ' << range[1] << ' ' << range[2];
    EXPECT_EQ(count, 1) << range[0] << ' ' << range[1] << ' ' << range[2];
  }
  EXPECT_EQ(counts.count({"stage", "transform", "5"}), 1U);
  EXPECT_EQ(counts.count({"operation", "scale", "5"}), 1U);
  EXPECT_EQ(counts.count({"operation", "map", "6"}), 0U) << "a skipped operation is not executed";
  for (const auto& [range, count] : expected_ranges(plan, 10, 10))
    EXPECT_EQ(counts.count(range), 1U) << range[0] << ' ' << range[1] << ' ' << range[2];
}

TEST_F(Nvtx, AFailingLoaderClosesItsRanges) {
  const auto calls = calls_of("FailingLoader");
  int open = 0;
  for (const NvtxCall& call : calls) open += call.event == "start";
  EXPECT_EQ(open, 3);
  EXPECT_EQ(opened(calls).count({"stage", "load", std::to_string(kFirstStep + 2)}), 1U);
}

/// The checks above find what they are there for.
TEST_F(Nvtx, ADroppedCallIsAFault) {
  const auto calls = calls_of("Overlap");
  for (const std::string event : {"push", "pop", "start", "end", "domain", "string"}) {
    std::size_t dropped = 0;
    while (dropped < calls.size() && calls[dropped].event != event) ++dropped;
    ASSERT_LT(dropped, calls.size()) << event;
    auto damaged = calls;
    damaged.erase(damaged.begin() + static_cast<std::ptrdiff_t>(dropped));
    EXPECT_FALSE(nvtx_faults(damaged).empty()) << event;
  }
  auto damaged = calls;
  for (NvtxCall& call : damaged) {
    if (call.event != "pop") continue;
    call.thread = -1;
    break;
  }
  EXPECT_EQ(nvtx_faults(damaged).size(), 2U) << "a pop in another thread";
}

TEST_F(Nvtx, ASpanEndsOnce) {
  // In this process, where no tool listens, and so nothing may happen either.
  nvtx::Span a(nvtx::Category::stage, "a", 1), b;
  b = std::move(a);
  b = {};
  EXPECT_FALSE(nvtx::listening());
}

TEST(NvtxOff, WithoutAToolNothingIsWritten) {
  const NvtxRun run = run_under_nvtx("NvtxChild.DISABLED_Overlap", "");
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_FALSE(run.recorded);
}

TEST(NvtxOff, AToolThatIsNotThereIsIgnored) {
  const NvtxRun run = run_under_nvtx("NvtxChild.DISABLED_Overlap", "/nowhere/tool.so");
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_FALSE(run.recorded);
}

TEST(NvtxOff, CompiledOutItLoadsNoTool) {
#if defined(TANDEM_HAS_NVTX) && !defined(NVTX_DISABLE)
  GTEST_SKIP() << "built with NVTX";
#endif
  const NvtxRun run = run_under_nvtx("NvtxChild.DISABLED_Overlap", TANDEM_NVTX_RECORDER);
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_FALSE(run.recorded);
}

}  // namespace
}  // namespace tandem::testing
