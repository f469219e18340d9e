// SPDX-License-Identifier: Apache-2.0
// Training on the CUDA backend: overlapping changes the time and nothing else, the lanes do
// overlap, an edge that is missing shows, and a failure leaves an engine that works.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/fuse.hpp>
#include <tandem/models/parameters.hpp>
#include <tandem/tests/support/gpu_classifier.hpp>
#include <tandem/tests/support/gpu_gate.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/gpu_hooks.hpp>
#include <tandem/tests/support/gpu_segmenter.hpp>
#include <tandem/tests/support/training_checks.hpp>
#include <vector>

namespace tandem::test {
namespace {

constexpr Precision kPrecisions[] = {Precision::fp32, Precision::tf32, Precision::bf16};

/// One line a tensor that differs, empty if none does.
std::string differences(const Parameters& a, const Parameters& b) {
  std::string text;
  if (a.size() != b.size()) return "another number of tensors";
  for (std::size_t t = 0; t < a.size(); ++t) {
    std::size_t differing = 0;
    for (std::size_t i = 0; i < a[t].data.size(); ++i)
      differing += std::memcmp(&a[t].data[i], &b[t].data[i], sizeof(float)) != 0;
    if (differing > 0)
      text += fmt::format("{}: {} of {} values differ\n", a[t].name, differing, a[t].data.size());
  }
  return text;
}

/// The first step whose loss differs, in words; empty if none does.
std::string differences(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return fmt::format("{} losses and {}", a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i])) return fmt::format("loss {}: {} and {}", i, a[i], b[i]);
  return "";
}

// --- the headline ---

struct Size {
  std::int64_t image, batch;
};
void PrintTo(const Size& size, std::ostream* out) {
  *out << "S = " << size.image << ", batch " << size.batch;
}

/// How many steps n there are whose training ran while batch n + 1 was encoded.
int overlapping_steps(const StageEvents& begin, const StageEvents& end, int steps) {
  const cudaEvent_t zero = begin.at("encode", 0);
  const auto time = [zero](cudaEvent_t event) {
    float milliseconds = 0;
    TANDEM_CUDA_TRY(cudaEventElapsedTime(&milliseconds, zero, event));
    return milliseconds;
  };
  int overlapping = 0;
  for (std::uint64_t n = 0; n + 1 < static_cast<std::uint64_t>(steps); ++n)
    overlapping += time(begin.at("encode", n + 1)) < time(end.at("train", n)) &&
                   time(begin.at("train", n)) < time(end.at("encode", n + 1));
  return overlapping;
}

class HeadlineHeavy : public GpuTest, public ::testing::WithParamInterface<Size> {};
INSTANTIATE_TEST_SUITE_P(Sizes, HeadlineHeavy, ::testing::Values(Size{256, 8}, Size{256, 32}),
                         [](const auto& tested) {
                           return fmt::format("batch_{}", tested.param.batch);
                         });

TEST_P(HeadlineHeavy, SerialAndOverlapGiveTheSameBits) {
  constexpr int kSteps = 200;
  const auto [image, batch] = GetParam();
  const StartValues start(still_config(image, batch, Precision::fp32, Schedule::serial));
  for (const Precision precision : kPrecisions) {
    SCOPED_TRACE(name_of(precision));
    const auto cuda = make_cuda_backend();
    std::vector<double> losses[2];
    Parameters weights[2];
    for (const Schedule schedule : {Schedule::serial, Schedule::overlap}) {
      HookedBackend backend(*cuda);
      StageEvents begin, end;
      for (const char* stage : {"encode", "train"})
        for (std::uint64_t step = 0; step < kSteps; ++step) {
          begin.make(stage, step);
          end.make(stage, step);
        }
      backend.before_stage = [&](const auto&... args) { begin.record(args...); };
      backend.after_stage = [&](const auto&... args) { end.record(args...); };
      StillSegmenter segmenter(backend, still_config(image, batch, precision, schedule), start);
      segmenter.train(0, kSteps);
      losses[schedule == Schedule::overlap] = segmenter.losses();
      weights[schedule == Schedule::overlap] = segmenter.trainer().trained();

      const int overlapping = overlapping_steps(begin, end, kSteps);
      if (schedule == Schedule::serial) {
        EXPECT_EQ(overlapping, 0) << "the measure sees an overlap where there is none";
      } else {
        EXPECT_GE(overlapping, kSteps / 2)
            << "of " << kSteps << " steps so many trained while the next batch was encoded";
      }
      RecordProperty(fmt::format("{}_{}_overlapping_steps", name_of(precision), name_of(schedule)),
                     overlapping);
    }
    ASSERT_EQ(losses[0].size(), static_cast<std::size_t>(kSteps));
    EXPECT_EQ(differences(losses[0], losses[1]), "") << "serial and overlap";
    EXPECT_EQ(differences(weights[0], weights[1]), "") << "serial and overlap";

    expect_moved(start.trained, weights[0]);
    EXPECT_LT(losses[0].back(), losses[0].front());
  }
}

// --- the classifier, whose pictures are augmented one batch ahead ---

class ClassifierHeavy : public GpuTest, public ::testing::WithParamInterface<Size> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ClassifierHeavy, ::testing::Values(Size{256, 8}, Size{256, 32}),
                         [](const auto& tested) {
                           return fmt::format("batch_{}", tested.param.batch);
                         });

TEST_P(ClassifierHeavy, SerialAndOverlapGiveTheSameBits) {
  constexpr int kSteps = 200;
  const auto [image, batch] = GetParam();
  const Parameters start = make_parameters(classifier(image, kSmallClasses), 0, 0);
  for (const Precision precision : kPrecisions) {
    SCOPED_TRACE(name_of(precision));
    const auto cuda = make_cuda_backend();
    std::vector<double> losses[2];
    Parameters weights[2];
    for (const Schedule schedule : {Schedule::serial, Schedule::overlap}) {
      StillClassifier classifier(*cuda, still_classifier_config(image, batch, precision, schedule),
                                 start);
      classifier.train(kSteps);
      losses[schedule == Schedule::overlap] = classifier.losses();
      weights[schedule == Schedule::overlap] = classifier.trainer().trained();
    }
    ASSERT_EQ(losses[0].size(), static_cast<std::size_t>(kSteps));
    EXPECT_EQ(differences(losses[0], losses[1]), "") << "serial and overlap";
    EXPECT_EQ(differences(weights[0], weights[1]), "") << "serial and overlap";
    expect_moved(start, weights[0]);
  }
}

class ClassifierOnCuda : public GpuTest, public ::testing::WithParamInterface<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, ClassifierOnCuda, ::testing::ValuesIn(kPrecisions),
                         [](const auto& tested) { return name_of(tested.param); });

/// The augmentation's kernels and their twin share every rounding, so it does not matter where it
/// takes place, nor in how many kernels.
TEST_P(ClassifierOnCuda, WhoAugmentsDoesNotMatter) {
  constexpr int kSteps = 12;
  const auto cuda = make_cuda_backend();
  EngineConfig config = small_classifier_config();
  config.precision = GetParam();
  const auto train = [&](std::vector<double>* losses) {
    SmallClassifier classifier(*cuda, config);
    classifier.train(0, kSteps);
    *losses = classifier.losses();
    return classifier.trainer().trained();
  };
  std::vector<double> fused_losses, plain_losses, worker_losses;
  const Parameters fused = train(&fused_losses);
  config.plain_augment = true;
  const Parameters plain = train(&plain_losses);
  config.augment_on_cpu = true;
  const Parameters workers = train(&worker_losses);
  ASSERT_EQ(fused_losses.size(), static_cast<std::size_t>(kSteps));
  EXPECT_EQ(differences(fused_losses, plain_losses), "") << "one kernel and one a part";
  EXPECT_EQ(differences(fused, plain), "") << "one kernel and one a part";
  EXPECT_EQ(differences(fused_losses, worker_losses), "") << "the GPU and the workers";
  EXPECT_EQ(differences(fused, workers), "") << "the GPU and the workers";
}

/// The short form of ClassifierHeavy, for the sanitizers; with everything fused besides.
TEST_P(ClassifierOnCuda, SchedulesGiveTheSameBits) {
  constexpr int kSteps = 12;
  const auto cuda = make_cuda_backend();
  for (const FuseOptions& fuse : {FuseOptions{}, kFuseAll}) {
    SCOPED_TRACE(fuse.any() ? "fused" : "plain");
    std::vector<double> losses;
    Parameters weights;
    for (const Schedule schedule : {Schedule::serial, Schedule::overlap, Schedule::graph}) {
      EngineConfig config = small_classifier_config(schedule);
      config.precision = GetParam();
      config.fuse = fuse;
      config.momentum = !fuse.any();  // so that updates are fused too
      config.scheduler.side_lanes = fuse.any();
      SmallClassifier classifier(*cuda, config);
      classifier.train(0, kSteps);
      if (schedule == Schedule::serial) {
        losses = classifier.losses();
        weights = classifier.trainer().trained();
        ASSERT_EQ(losses.size(), static_cast<std::size_t>(kSteps));
        expect_moved(classifier.start(), weights);
      }
      EXPECT_EQ(differences(losses, classifier.losses()), "") << name_of(schedule);
      EXPECT_EQ(differences(weights, classifier.trainer().trained()), "") << name_of(schedule);
    }
  }
}

// --- small networks from here on ---

class Training : public GpuTest, public ::testing::WithParamInterface<Precision> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!runs()) return;
    preload_test_kernels();
    cuda_ = make_cuda_backend();
    start_ = std::make_unique<StartValues>(config(Schedule::serial));
  }

  EngineConfig config(Schedule schedule) const { return still_config(64, 8, GetParam(), schedule); }

  /// Losses and weights of an ordinary run.
  struct Outcome {
    std::vector<double> losses;
    Parameters weights;
  };
  Outcome ordinary(Schedule schedule, int steps) {
    StillSegmenter segmenter(*cuda_, config(schedule), *start_);
    segmenter.train(0, steps);
    return {segmenter.losses(), segmenter.trainer().trained()};
  }

  std::unique_ptr<Backend> cuda_;
  std::unique_ptr<StartValues> start_;
};
INSTANTIATE_TEST_SUITE_P(Precisions, Training, ::testing::ValuesIn(kPrecisions),
                         [](const auto& tested) { return name_of(tested.param); });

TEST_P(Training, OneBatchEpochsGiveTheSameBits) {
  constexpr int kSteps = 12;
  const Outcome expected = ordinary(Schedule::serial, kSteps);
  for (const Schedule schedule : {Schedule::serial, Schedule::overlap}) {
    StillSegmenter segmenter(*cuda_, config(schedule), *start_);
    for (std::uint64_t step = 0; step < kSteps; ++step) segmenter.train(step, 1);
    EXPECT_EQ(differences(segmenter.losses(), expected.losses), "") << name_of(schedule);
    EXPECT_EQ(differences(segmenter.trainer().trained(), expected.weights), "")
        << name_of(schedule);
  }
}

TEST_P(Training, ThreeSlotsAndUnsharedMemoryGiveTheSameBits) {
  const Outcome expected = ordinary(Schedule::serial, 20);
  EngineConfig other = config(Schedule::overlap);
  other.slots = 3;
  other.scheduler.share_memory = false;
  StillSegmenter segmenter(*cuda_, other, *start_);
  segmenter.train(0, 20);
  EXPECT_EQ(differences(segmenter.losses(), expected.losses), "");
  EXPECT_EQ(differences(segmenter.trainer().trained(), expected.weights), "");
}

// --- lanes that are held ---

/// A stage on the batch of one step.
struct At {
  std::string stage;
  std::uint64_t step;
};
std::string to_string(const At& at) { return fmt::format("{} of step {}", at.stage, at.step); }

constexpr std::uint64_t kHeldStep = 4;
constexpr int kHeldSteps = 12;

/// Trains with `held` held until `awaited` has finished, which it must be able to do. `blocked`, if
/// given, must not have finished by then. Steps before kHeldStep run one by one, so that an edge
/// that is missing does them no harm.
std::vector<double> train_held(Backend& cuda, const EngineConfig& config, const StartValues& start,
                               const At& held, const At& awaited, Parameters* weights,
                               const At* blocked = nullptr) {
  HookedBackend backend(cuda);
  GpuGate gate;
  StageEvents end;
  for (const char* stage : {"copy", "encode", "train"})
    for (std::uint64_t step = 0; step < kHeldSteps; ++step) end.make(stage, step);
  backend.before_stage = [&](const std::string& stage, std::uint64_t step, cudaStream_t stream) {
    if (stage == held.stage && step == held.step) gate.hold(stream);
  };
  backend.after_stage = [&](const auto&... args) { end.record(args...); };
  StillSegmenter segmenter(backend, config, start);
  for (std::uint64_t step = 0; step < kHeldStep; ++step) segmenter.train(step, 1);

  // One push is one tick, in which stage k works on the batch pushed k ticks earlier. The host
  // itself waits once R + 2 ticks are in flight, so it must not go further.
  const auto last_push = [](const At& at) {
    return at.step + (at.stage == "copy" ? 0 : at.stage == "encode" ? 1 : 2);
  };
  std::uint64_t last = last_push(awaited);
  if (blocked != nullptr) last = std::max(last, last_push(*blocked));
  std::uint64_t step = kHeldStep;
  while (step <= last) segmenter.push(step++);
  gate.wait_arrived();
  EXPECT_EQ(cudaEventSynchronize(end.at(awaited.stage, awaited.step)), cudaSuccess);
  EXPECT_FALSE(gate.timed_out()) << to_string(awaited) << " waits for " << to_string(held);
  EXPECT_FALSE(completed(end.at(held.stage, held.step))) << to_string(held) << " was not held";
  if (blocked != nullptr) {
    EXPECT_FALSE(completed(end.at(blocked->stage, blocked->step)))
        << to_string(*blocked) << " did not wait for " << to_string(held);
  }
  gate.open();
  segmenter.train(step, kHeldSteps - static_cast<int>(step));
  *weights = segmenter.trainer().trained();
  return segmenter.losses();
}

TEST_P(Training, TheNextBatchIsEncodedWhileTrainingIsHeld) {
  const Outcome expected = ordinary(Schedule::serial, kHeldSteps);
  Parameters weights;
  const At blocked{"encode", 6};  // needs the slot of step 4
  const auto losses = train_held(*cuda_, config(Schedule::overlap), *start_, {"train", 4},
                                 {"encode", 5}, &weights, &blocked);
  EXPECT_EQ(differences(losses, expected.losses), "");
  EXPECT_EQ(differences(weights, expected.weights), "");
}

TEST_P(Training, TheNextBatchIsCopiedWhileEncodingIsHeld) {
  const Outcome expected = ordinary(Schedule::serial, kHeldSteps);
  Parameters weights;
  const At blocked{"train", 4};
  const auto losses = train_held(*cuda_, config(Schedule::overlap), *start_, {"encode", 4},
                                 {"copy", 5}, &weights, &blocked);
  EXPECT_EQ(differences(losses, expected.losses), "");
  EXPECT_EQ(differences(weights, expected.weights), "");
}

// Without an edge the other side runs through while one side is held, so the mismatch is certain.
TEST_P(Training, EveryEdgeIsNeeded) {
  const Outcome expected = ordinary(Schedule::serial, kHeldSteps);
  struct Case {
    Edge dropped;
    At held, awaited;
  };
  const Case cases[] = {
      {{Edge::free, 1}, {"train", 4}, {"encode", 6}},   // overwrites features still needed
      {{Edge::free, 0}, {"encode", 4}, {"copy", 6}},    // overwrites pictures still needed
      {{Edge::ready, 1}, {"encode", 4}, {"train", 4}},  // reads the features of step 2
      {{Edge::ready, 0}, {"copy", 4}, {"encode", 4}},   // reads the pictures of step 2
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(
        fmt::format("{} {}", c.dropped.kind == Edge::free ? "free" : "ready", c.dropped.handover));
    EngineConfig without = config(Schedule::overlap);
    without.scheduler.test_drop_edge = c.dropped;
    Parameters weights;
    const auto losses = train_held(*cuda_, without, *start_, c.held, c.awaited, &weights);
    ASSERT_EQ(losses.size(), expected.losses.size());
    // Without a `ready` edge earlier steps may read too early as well; without a `free` edge the
    // ring is still right until somebody is held.
    for (std::size_t step = 0; step < kHeldStep && c.dropped.kind == Edge::free; ++step)
      EXPECT_EQ(losses[step], expected.losses[step]);
    EXPECT_NE(losses[kHeldStep], expected.losses[kHeldStep])
        << "step 4 was to be trained on another batch";
    EXPECT_NE(differences(weights, expected.weights), "");
  }
}

// --- failures ---

TEST_P(Training, AfterAFailureTwentyStepsHaveTheBitsOfAFreshEngine) {
  const Outcome expected = ordinary(Schedule::serial, 20);
  struct Case {
    const char* when;
    std::string stage;
    std::uint64_t step;
  };
  const Case cases[] = {{"fill", "encode", 0}, {"steady state", "train", 6}, {"drain", "train", 9}};
  for (const Schedule schedule : {Schedule::serial, Schedule::overlap})
    for (const Case& c : cases) {
      SCOPED_TRACE(fmt::format("{}, {}", name_of(schedule), c.when));
      HookedBackend backend(*cuda_);
      bool armed = true;
      backend.before_stage = [&](const std::string& stage, std::uint64_t step, cudaStream_t) {
        if (armed && stage == c.stage && step == c.step) throw std::runtime_error("on purpose");
      };
      StillSegmenter segmenter(backend, config(schedule), *start_);
      try {
        segmenter.train(0, 10);
        ADD_FAILURE() << "no Error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::run_failed);
        for (const std::string& part :
             {std::string("hook"), c.stage, std::to_string(c.step), std::string("on purpose")})
          EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
      EXPECT_NO_THROW(segmenter.trainer().finish()) << "the failure is reported once";
      armed = false;
      segmenter.reset();
      segmenter.train(0, 20);
      EXPECT_EQ(differences(segmenter.losses(), expected.losses), "");
      EXPECT_EQ(differences(segmenter.trainer().trained(), expected.weights), "");
    }
}

TEST_P(Training, ANonFiniteWeightReachesTheLossAndNamesItsStep) {
  StillSegmenter segmenter(*cuda_, config(Schedule::overlap), *start_);
  for (std::size_t t = 0; t < start_->trained.size(); ++t) {
    SCOPED_TRACE(start_->trained[t].name);
    Parameters weights = start_->trained;
    weights[t].data[0] = std::nanf("");
    segmenter.trainer().set_trained(weights);
    try {
      segmenter.train(3, 5);
      ADD_FAILURE() << "no Error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::non_finite) << error.what();
      EXPECT_NE(std::string(error.what()).find("step 3"), std::string::npos) << error.what();
    }
  }
  segmenter.reset();
  EXPECT_NO_THROW(segmenter.train(0, 3));
}

}  // namespace
}  // namespace tandem::test
