// SPDX-License-Identifier: Apache-2.0
// The graph schedule on the GPU: captured ticks give the bits of a serial run, take no memory that
// is not given back, and where a capture cannot be made training goes on without one.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/gpu_segmenter.hpp>
#include <tandem/tests/support/short_epochs.hpp>

namespace tandem::test {
namespace {

constexpr Precision kPrecisions[] = {Precision::fp32, Precision::tf32, Precision::bf16};
constexpr int kPeriod = 4;  // lcm(R, R + 2) for R = 2

class GraphOnCuda : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (runs()) cuda_ = make_cuda_backend();
  }
  std::unique_ptr<Backend> cuda_;
};

struct Outcome {
  std::vector<double> losses;
  Parameters weights;
  int graphs = 0;
  std::string reason;
};

Outcome train(Backend& backend, const EngineConfig& config, const StartValues& start, int steps) {
  StillSegmenter segmenter(backend, config, start);
  segmenter.train(0, steps);
  const Scheduler& scheduler = segmenter.trainer().scheduler();
  return {segmenter.losses(), segmenter.trainer().trained(), scheduler.graphs(),
          scheduler.no_graph_reason()};
}

void expect_equal(const Outcome& serial, const Outcome& graph) {
  EXPECT_EQ(graph.reason, "");
  EXPECT_EQ(graph.graphs, kPeriod);
  EXPECT_EQ(serial.losses, graph.losses);
  EXPECT_TRUE(same_bits(serial.weights, graph.weights));
  EXPECT_LT(serial.losses.back(), serial.losses.front());
}

TEST_F(GraphOnCuda, GivesTheBitsOfSerial) {
  const StartValues start(still_config(32, 4, Precision::fp32, Schedule::serial));
  for (const Precision precision : kPrecisions) {
    SCOPED_TRACE(name_of(precision));
    expect_equal(train(*cuda_, still_config(32, 4, precision, Schedule::serial), start, 100),
                 train(*cuda_, still_config(32, 4, precision, Schedule::graph), start, 100));
  }
}

// The count of labels comes with the header, so a captured tick trains on a short batch too.
TEST_F(GraphOnCuda, ShortLastBatchesKeepTheBits) {
  for (const Precision precision : kPrecisions) {
    SCOPED_TRACE(name_of(precision));
    const EngineConfig segmenter = still_config(32, 4, precision, Schedule::graph);
    const StartValues start(segmenter);
    expect_short_batches_keep_the_bits(*cuda_, segmenter, start.frozen, start.trained);
    EngineConfig classifier = small_classifier_config(Schedule::graph);
    classifier.precision = precision;
    expect_short_batches_keep_the_bits(*cuda_, classifier, {},
                                       make_parameters(classifier.trained, 0, 0));
  }
}

class GraphHeavy : public GraphOnCuda {};

TEST_F(GraphHeavy, GivesTheBitsOfSerialInFullSize) {
  constexpr int kSteps = 200;
  const StartValues start(still_config(256, 8, Precision::fp32, Schedule::serial));
  for (const Precision precision : kPrecisions) {
    SCOPED_TRACE(name_of(precision));
    expect_equal(train(*cuda_, still_config(256, 8, precision, Schedule::serial), start, kSteps),
                 train(*cuda_, still_config(256, 8, precision, Schedule::graph), start, kSteps));
  }
}

TEST_F(GraphOnCuda, OfADecoderThatDivergesTheLossIsStillReported) {
  EngineConfig config = still_config(32, 4, Precision::tf32, Schedule::graph);
  StartValues start(config);
  start.trained.front().data.front() = std::numeric_limits<float>::quiet_NaN();
  StillSegmenter segmenter(*cuda_, config, start);
  try {
    segmenter.train(0, 50);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::non_finite) << error.what();
  }
}

/// A stage whose operation is not allowed while a stream is captured.
TEST_F(GraphOnCuda, GoesOnWithoutGraphsWhereAnOperationCannotBeCaptured) {
  static std::atomic<int> runs_of_operation;
  runs_of_operation = 0;
  PlanBuilder builder;
  const TensorDesc bytes = byte_desc(256);
  const BufferId input = builder.add_buffer("input", bytes, Scope::input);
  const BufferId handed = builder.add_buffer("handed", bytes, Scope::handover, 0);
  const BufferId result = builder.add_buffer("result", bytes, Scope::result);
  const auto copy = [&](const char* name, BufferId from, BufferId to) {
    Operation operation;
    operation.kind = OpKind::copy;
    operation.name = name;
    operation.operands = {builder.read(from, bytes), builder.write(to, bytes)};
    builder.add(std::move(operation));
  };
  builder.begin_stage("copy");
  copy("in", input, handed);
  builder.begin_stage("work");
  Operation waits;
  waits.name = "waits";
  waits.operands = {builder.read(handed, bytes)};
  waits.callable.function = [](void*, void* const*, const CallContext& context) {
    ++runs_of_operation;
    TANDEM_CUDA_TRY(cudaStreamSynchronize(static_cast<cudaStream_t>(context.native_stream)));
  };
  builder.add(std::move(waits));
  copy("out", handed, result);

  cudaGetLastError();
  std::vector<std::uint64_t> delivered;
  SchedulerOptions options;
  options.schedule = Schedule::graph;
  Scheduler scheduler(*cuda_, std::move(builder).build(), options,
                      [&](std::uint64_t step, const void*) { delivered.push_back(step); });
  for (std::uint64_t n = 0; n < 20; ++n) {
    const int slot = static_cast<int>(n % 4);
    scheduler.wait_input_free(slot);
    scheduler.push(slot, n);
  }
  scheduler.drain();
  EXPECT_EQ(delivered.size(), 20u);
  EXPECT_EQ(runs_of_operation, 20 + 1) << "each batch once, and one attempt to capture";
  EXPECT_NE(scheduler.no_graph_reason().find("waits"), std::string::npos)
      << scheduler.no_graph_reason();
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "an error of the capture was left pending";
}

}  // namespace
}  // namespace tandem::test
