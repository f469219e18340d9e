// SPDX-License-Identifier: Apache-2.0
// Memory of the CUDA backend over a long run, when there is not enough of it, and whether a slot is
// ever overwritten while somebody needs it.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <regex>
#include <string>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/plan.hpp>
#include <tandem/engine/registry.hpp>
#include <tandem/engine/scheduler.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/tests/support/gpu_gate.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/gpu_hooks.hpp>
#include <tandem/tests/support/gpu_segmenter.hpp>
#include <thread>
#include <vector>

namespace tandem::test {
namespace {

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  TANDEM_CUDA_TRY(cudaDeviceSynchronize());
  TANDEM_CUDA_TRY(cudaMemGetInfo(&free, &total));
  return free;
}

class MemoryOnCuda : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!runs()) return;
    preload_test_kernels();
    cuda_ = make_cuda_backend();
  }
  std::unique_ptr<Backend> cuda_;
};

/// Long runs, and memory in use, which a sanitizer would change.
class MemoryHeavy : public MemoryOnCuda {};

// --- a long run ---

TEST_F(MemoryHeavy, NothingGrowsBetweenStepTenAndStepOneThousand) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16})
    for (const Schedule schedule : {Schedule::serial, Schedule::overlap, Schedule::graph}) {
      SCOPED_TRACE(fmt::format("{}, {}", name_of(precision), name_of(schedule)));
      HookedBackend backend(*cuda_);
      const EngineConfig config = still_config(32, 4, precision, schedule);
      const StartValues start(config);
      StillSegmenter segmenter(backend, config, start);
      const int streams = backend.streams, events = backend.events;
      EXPECT_EQ(streams, schedule == Schedule::serial ? 1 : 3);
      segmenter.train(0, 10);
      const std::size_t after_10 = free_memory();
      segmenter.train(10, 990);
      EXPECT_EQ(free_memory(), after_10) << "free bytes of the device changed";
      EXPECT_EQ(segmenter.losses().size(), 1000u);
      EXPECT_EQ(backend.streams, streams) << "streams were created";
      EXPECT_EQ(backend.events, events) << "events were created";
    }
}

TEST_F(MemoryHeavy, NothingGrowsOverFortyEpochs) {
  HookedBackend backend(*cuda_);
  const EngineConfig config = still_config(32, 4, Precision::bf16, Schedule::overlap);
  const StartValues start(config);
  StillSegmenter segmenter(backend, config, start);
  const int streams = backend.streams, events = backend.events;
  std::size_t after_2 = 0;
  for (std::uint64_t epoch = 1; epoch <= 40; ++epoch) {
    segmenter.train(10 * (epoch - 1), 10);  // the pipeline is empty at the end of an epoch
    if (epoch == 2) after_2 = free_memory();
  }
  EXPECT_EQ(free_memory(), after_2) << "free bytes of the device changed";
  EXPECT_EQ(backend.streams, streams);
  EXPECT_EQ(backend.events, events);
}

TEST_F(MemoryHeavy, ANewTrainerEveryTimeKeepsNothing) {
  for (const Schedule schedule : {Schedule::overlap, Schedule::graph}) {
    SCOPED_TRACE(name_of(schedule));
    const EngineConfig config = still_config(32, 4, Precision::bf16, schedule);
    const StartValues start(config);
    std::size_t after_3 = 0;
    for (int i = 1; i <= 12; ++i) {  // under `graph` 48 captures
      StillSegmenter(*cuda_, config, start).train(0, 15);
      if (i == 3) after_3 = free_memory();
    }
    EXPECT_EQ(free_memory(), after_3) << "a trainer keeps memory of the device after its end";
  }
}

// --- not enough memory ---

TEST_F(MemoryHeavy, WhatDoesNotFitNamesBytesNeededAndFreeAndFreesEverything) {
  std::size_t free = 0, total = 0;
  TANDEM_CUDA_TRY(cudaMemGetInfo(&free, &total));
  EngineConfig config = still_config(256, 64, Precision::bf16, Schedule::overlap);
  // Each slot holds the pictures and labels of a batch: so many do not fit on any card.
  const std::size_t slot = static_cast<std::size_t>(64 * 256 * 256 * 4);
  config.slots = static_cast<int>(total / slot) + 1;
  const std::size_t needed = plan_memory(plan_training(config)).device_bytes;
  ASSERT_GT(needed, total);

  std::string message;
  const auto attempt = [&] {
    try {
      Trainer trainer(*cuda_, config);
      ADD_FAILURE() << "a trainer of " << needed << " bytes was made";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
      message = error.what();
    }
  };
  attempt();  // loads what the libraries keep
  const std::size_t before = free_memory();
  attempt();
  EXPECT_EQ(free_memory(), before) << "not everything was freed";
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);

  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_NE(message.find(std::to_string(needed) + " bytes needed"), std::string::npos) << message;
  std::smatch numbers;
  ASSERT_TRUE(std::regex_search(message, numbers, std::regex("needed, (\\d+) of (\\d+) bytes")))
      << message;
  EXPECT_EQ(numbers[2], std::to_string(total)) << message;
  EXPECT_GT(std::stoull(numbers[1]), 0u) << message;
  EXPECT_LE(std::stoull(numbers[1]), before) << message;

  // The backend still works.
  const EngineConfig fits = still_config(32, 4, Precision::bf16, Schedule::overlap);
  const StartValues start(fits);
  StillSegmenter segmenter(*cuda_, fits, start);
  EXPECT_NO_THROW(segmenter.train(0, 3));
}

// --- slots ---

/// Two stages whose bodies are launched by callables on the native stream.
///
///   copy     payload (pinned input) -> slot, number (pinned input) -> tag
///   consume  delay; sum (persistent) = checksum of slot; sum, tag -> result
class CheckedCopies {
 public:
  static constexpr std::size_t kWords = 1 << 16;
  struct Result {
    std::uint64_t sum = 0, number = 0;
  };

  std::uint64_t delay_ns = 0;  ///< before the consumer reads
  BufferId payload = -1, number = -1;

  Plan plan(int input_slots) {
    const TensorDesc words = byte_desc(kWords * 4), word = byte_desc(8);
    const TensorDesc outcome = byte_desc(sizeof(Result));
    PlanBuilder plan(2, input_slots);
    payload = plan.add_buffer("payload", words, Scope::input);
    number = plan.add_buffer("number", word, Scope::input);
    const BufferId slot = plan.add_buffer("slot", words, Scope::handover, 0);
    const BufferId tag = plan.add_buffer("tag", word, Scope::handover, 0);
    const BufferId sum = plan.add_buffer("sum", outcome, Scope::scratch, 1);
    const BufferId result = plan.add_buffer("result", outcome, Scope::result);

    plan.begin_stage("copy");
    plan.add(
        operation(OpKind::copy, "payload", {plan.read(payload, words), plan.write(slot, words)}));
    plan.add(operation(OpKind::copy, "number", {plan.read(number, word), plan.write(tag, word)}));
    plan.begin_stage("consume");
    Operation check =
        operation(OpKind::callable, "check",
                  {plan.read(slot, words), plan.read(tag, word), plan.write(sum, outcome)});
    check.callable = {
        [](void* self, void* const* p, const CallContext& context) {
          const auto stream = static_cast<cudaStream_t>(context.native_stream);
          const std::uint64_t delay = static_cast<CheckedCopies*>(self)->delay_ns;
          if (delay > 0) launch_delay(delay, stream);
          auto* out = static_cast<unsigned long long*>(p[2]);
          launch_checksum(static_cast<const std::uint32_t*>(p[0]), kWords, out, stream);
          TANDEM_CUDA_TRY(cudaMemcpyAsync(out + 1, p[1], 8, cudaMemcpyDeviceToDevice, stream));
        },
        this};
    plan.add(check);
    plan.add(
        operation(OpKind::copy, "result", {plan.read(sum, outcome), plan.write(result, outcome)}));
    return std::move(plan).build();
  }

  /// Fills an input slot with words that depend on `seed`; returns their checksum.
  std::uint64_t fill(Scheduler& scheduler, int slot, std::uint64_t seed) const {
    auto* words = static_cast<std::uint32_t*>(scheduler.address(payload, slot));
    const auto first = static_cast<std::uint32_t>(splitmix64(seed));
    const auto step = static_cast<std::uint32_t>(splitmix64(~seed)) | 1u;
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < kWords; ++i) {
      words[i] = first + i * step;
      sum += static_cast<std::uint64_t>(words[i]) * (i + 1);
    }
    std::memcpy(scheduler.address(number, slot), &seed, sizeof seed);
    return sum;
  }

 private:
  static Operation operation(OpKind kind, const char* name, std::vector<Operand> operands) {
    Operation op;
    op.kind = kind;
    op.name = name;
    op.operands = std::move(operands);
    return op;
  }
};

/// What came back, and how much of it is wrong.
struct Checked {
  std::vector<std::uint64_t> expected;  ///< checksum of each batch
  std::uint64_t results = 0, mismatches = 0, first_mismatch = 0;

  OnResult on_result() {
    return [this](std::uint64_t step, const void* bytes) {
      CheckedCopies::Result result;
      std::memcpy(&result, bytes, sizeof result);
      if (result.sum != expected.at(step) || result.number != step) {
        if (mismatches++ == 0) first_mismatch = step;
      }
      ++results;
    };
  }
};

TEST_F(MemoryHeavy, TenThousandRandomBatchesArriveAsTheyWereSubmitted) {
  constexpr std::uint64_t kBatches = 10000;
  for (const Schedule schedule : {Schedule::serial, Schedule::overlap}) {
    CheckedCopies stages;
    Checked checked;
    SchedulerOptions options;
    options.schedule = schedule;
    Scheduler scheduler(*cuda_, stages.plan(3), options, checked.on_result());
    for (std::uint64_t batch = 0; batch < kBatches; ++batch) {
      const int slot = static_cast<int>(batch % 3);
      scheduler.wait_input_free(slot);
      checked.expected.push_back(stages.fill(scheduler, slot, batch));
      scheduler.push(slot, batch);
    }
    scheduler.drain();
    EXPECT_EQ(checked.results, kBatches);
    EXPECT_EQ(checked.mismatches, 0u)
        << name_of(schedule) << ": the first is batch " << checked.first_mismatch;
  }
}

// The same with the copy held: a thread that waits for the slot overwrites it only afterwards, and
// one that does not wait is seen.
TEST_F(MemoryOnCuda, AnInputSlotIsFreeOnlyAfterItsCopy) {
  for (const bool waits : {true, false}) {
    CheckedCopies stages;
    Checked checked;
    HookedBackend backend(*cuda_);
    GpuGate gate;
    backend.before_stage = [&](const std::string& stage, std::uint64_t step, cudaStream_t stream) {
      if (stage == "copy" && step == 1) gate.hold(stream);
    };
    Scheduler scheduler(backend, stages.plan(2), {}, checked.on_result());
    checked.expected.push_back(stages.fill(scheduler, 0, 0));
    scheduler.push(0, 0);
    scheduler.drain();  // kernels are loaded
    checked.expected.push_back(stages.fill(scheduler, 1, 1));
    scheduler.push(1, 1);
    gate.wait_arrived();
    std::jthread overwriter([&] {
      if (waits) scheduler.wait_input_free(1);
      std::memset(scheduler.address(stages.payload, 1), 0xFF, CheckedCopies::kWords * 4);
    });
    if (!waits) overwriter.join();
    gate.open();
    scheduler.drain();
    if (waits) overwriter.join();
    EXPECT_EQ(checked.results, 2u);
    EXPECT_EQ(checked.mismatches, waits ? 0u : 1u);
  }
}

/// Two stages that hand over a slot full of the batch's number.
///
///   produce  slot = step in every word
///   consume  delay; wrong (persistent) += words of slot that are not this step's
class NumberedSlots {
 public:
  static constexpr std::size_t kWords = 1 << 16;
  std::uint64_t delay_ns = 0;
  BufferId wrong = -1;

  Plan plan() {
    const TensorDesc words = byte_desc(kWords * 4), count = byte_desc(8);
    PlanBuilder plan(2, 1);
    const BufferId slot = plan.add_buffer("slot", words, Scope::handover, 0);
    wrong = plan.add_buffer("wrong", count, Scope::persistent);
    plan.begin_stage("produce");
    Operation fill;
    fill.name = "fill";
    fill.operands = {plan.write(slot, words)};
    fill.callable = {[](void*, void* const* p, const CallContext& context) {
                       launch_fill(static_cast<std::uint32_t*>(p[0]), kWords,
                                   static_cast<std::uint32_t>(context.step),
                                   static_cast<cudaStream_t>(context.native_stream));
                     },
                     this};
    plan.add(fill);
    plan.begin_stage("consume");
    Operation check;
    check.name = "check";
    check.operands = {plan.read(slot, words), plan.read_write(wrong, count)};
    check.callable = {[](void* self, void* const* p, const CallContext& context) {
                        const auto stream = static_cast<cudaStream_t>(context.native_stream);
                        launch_delay(static_cast<NumberedSlots*>(self)->delay_ns, stream);
                        launch_count_other_than(static_cast<const std::uint32_t*>(p[0]), kWords,
                                                static_cast<std::uint32_t>(context.step),
                                                static_cast<unsigned long long*>(p[1]), stream);
                      },
                      this};
    plan.add(check);
    return std::move(plan).build();
  }

  std::uint64_t mismatches(Scheduler& scheduler) const {
    std::uint64_t count = 0;
    scheduler.read(wrong, &count);
    return count;
  }
};

/// Words that a consumer found wrong which is delayed by 5 ms, a thousand times what filling a slot
/// takes, before it reads.
std::uint64_t mismatches_of_a_slow_consumer(Backend& backend, std::uint64_t batches,
                                            const SchedulerOptions& options) {
  NumberedSlots stages;
  stages.delay_ns = 5'000'000;
  Scheduler scheduler(backend, stages.plan(), options);
  for (std::uint64_t step = 0; step < batches; ++step) scheduler.push(0, step);
  scheduler.drain();
  return stages.mismatches(scheduler);
}

TEST_F(MemoryHeavy, TenThousandBatchesThroughASlowConsumer) {  // 50 s
  EXPECT_EQ(mismatches_of_a_slow_consumer(*cuda_, 10000, {}), 0u);
}

// The run above sees the fault that it is there for. That no luck is needed to see it, the test
// below shows with a gate.
TEST_F(MemoryHeavy, WithoutTheFreeEdgeASlowConsumerFindsOtherBatches) {
  SchedulerOptions options;
  options.test_drop_edge = {Edge::free, 0};
  EXPECT_GT(mismatches_of_a_slow_consumer(*cuda_, 200, options), 0u);
}

TEST_F(MemoryOnCuda, WithoutTheFreeEdgeASlotIsOverwrittenWhileItIsRead) {
  for (const bool dropped : {false, true}) {
    NumberedSlots stages;
    HookedBackend backend(*cuda_);
    GpuGate gate;
    StageEvents end;
    for (std::uint64_t step = 0; step < 4; ++step) end.make("produce", step);
    backend.before_stage = [&](const std::string& stage, std::uint64_t step, cudaStream_t stream) {
      if (stage == "consume" && step == 1) gate.hold(stream);
    };
    backend.after_stage = [&](const auto&... args) { end.record(args...); };
    SchedulerOptions options;
    if (dropped) options.test_drop_edge = {Edge::free, 0};
    Scheduler scheduler(backend, stages.plan(), options);
    scheduler.push(0, 0);
    scheduler.drain();
    ASSERT_EQ(stages.mismatches(scheduler), 0u);
    for (std::uint64_t step = 1; step < 4; ++step) scheduler.push(0, step);
    gate.wait_arrived();
    // Step 3 writes the slot of step 1. With the edge it cannot, so the step before it is awaited.
    EXPECT_EQ(cudaEventSynchronize(end.at("produce", dropped ? 3 : 2)), cudaSuccess);
    EXPECT_EQ(completed(end.at("produce", 3)), dropped);
    EXPECT_FALSE(gate.timed_out());
    gate.open();
    scheduler.drain();
    EXPECT_EQ(stages.mismatches(scheduler), dropped ? NumberedSlots::kWords : 0u);
  }
}

// --- libraries on two lanes ---

// A product with many terms and a small result, which libraries split into parts that meet in the
// workspace: the weight gradient of the last transposed convolution.
TEST_F(MemoryHeavy, TheSameProductOnTwoLanesAtOnceAThousandTimes) {
  constexpr int kRepeats = 1000;
  struct Case {
    const char* name;
    DType type;
    Math math;
  };
  for (const Case& c :
       {Case{"fp32", DType::f32, Math::strict}, Case{"tf32", DType::f32, Math::tf32},
        Case{"bf16", DType::bf16, Math::strict}}) {
    SCOPED_TRACE(c.name);
    Operation op;
    op.kind = OpKind::tconv2x2_backward_weights;
    op.name = "product";
    op.math = c.math;
    op.operands = {{0, {c.type, Layout::zorder, 2, 128, 128, 32}, Access::read, "x", false},
                   {1, {c.type, Layout::zorder, 2, 256, 256, 16}, Access::read, "dy", false},
                   {2, {DType::f32, Layout::nhwc, 32, 2, 2, 16}, Access::write, "dw", false}};
    check_operation(op);
    const std::size_t words = op.operands[2].desc.bytes() / 4;

    std::vector<Memory> factors;
    const Stream set_up = make_stream(*cuda_, "set-up");
    for (int i = 0; i < 2; ++i) {
      const std::size_t bytes = op.operands[static_cast<std::size_t>(i)].desc.bytes();
      std::vector<std::uint8_t> values(bytes);
      const std::size_t size = size_of(c.type);
      for (std::size_t e = 0; e < bytes / size; ++e) {
        const float value =
            static_cast<float>(splitmix64(e + (static_cast<std::uint64_t>(i) << 40)) >> 40) /
                8388608.0f -
            1.0f;
        const bf16 narrow(value);
        std::memcpy(
            values.data() + e * size,
            size == 2 ? static_cast<const void*>(&narrow) : static_cast<const void*>(&value), size);
      }
      factors.emplace_back(*cuda_, bytes, MemoryKind::device, "a factor");
      upload(set_up.get(), factors.back().data(), values.data(), bytes);
    }
    const Memory expected(*cuda_, words * 4, MemoryKind::device, "a product");
    const auto bound_to = [&](void* result) {
      BoundOperation bound;
      bound.operation = &op;
      bound.stage = "test";
      bound.pointers[0] = factors[0].data();
      bound.pointers[1] = factors[1].data();
      bound.pointers[2] = result;
      return bound;
    };
    cuda_->enqueue(set_up.get(), bound_to(expected.data()));
    cuda_->synchronise(set_up.get());

    struct Lane {
      Stream stream;
      Memory result, wrong;
      std::unique_ptr<Launch> poison, compare;
    };
    std::vector<Lane> lanes(2);
    for (Lane& lane : lanes) {
      lane.stream = make_stream(*cuda_, "a lane");
      lane.result = Memory(*cuda_, words * 4, MemoryKind::device, "a product");
      lane.wrong = Memory(*cuda_, 8, MemoryKind::device, "a count");
      lane.poison = std::make_unique<Launch>("poison", [&](cudaStream_t s) {
        launch_fill(static_cast<std::uint32_t*>(lane.result.data()), words, 0xFFFFFFFFu, s);
      });
      lane.compare = std::make_unique<Launch>("compare", [&](cudaStream_t s) {
        launch_count_differing(static_cast<std::uint32_t*>(lane.result.data()),
                               static_cast<std::uint32_t*>(expected.data()), words,
                               static_cast<unsigned long long*>(lane.wrong.data()), s);
      });
    }
    // Both lanes wait at a gate, so that they start together, each with some products queued.
    GpuGate gate;
    Launch hold("hold", [&](cudaStream_t s) { gate.hold(s); });
    for (Lane& lane : lanes) cuda_->enqueue(lane.stream.get(), hold.bound());
    gate.wait_arrived(2);
    for (int i = 0; i < kRepeats; ++i) {
      for (Lane& lane : lanes) {
        cuda_->enqueue(lane.stream.get(), lane.poison->bound());
        cuda_->enqueue(lane.stream.get(), bound_to(lane.result.data()));
        cuda_->enqueue(lane.stream.get(), lane.compare->bound());
      }
      if (i == 20) gate.open();
    }
    for (Lane& lane : lanes) {
      cuda_->synchronise(lane.stream.get());
      std::uint64_t wrong = 1;
      download(lane.stream.get(), &wrong, lane.wrong.data(), sizeof wrong);
      EXPECT_EQ(wrong, 0u) << "values that differ from those of the lane alone";
    }
  }
}

}  // namespace
}  // namespace tandem::test
