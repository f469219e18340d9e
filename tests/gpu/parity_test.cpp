// SPDX-License-Identifier: Apache-2.0
// The segmenter and the classifier on the CUDA backend against PyTorch: step-1 gradients of every
// tensor against float64 within derived bounds, and ten steps beside PyTorch's own on the same GPU,
// in fp32, tf32 and bf16. The latter need the file that tests/golden/parity/torch_on_gpu.py writes;
// its path is taken from TANDEM_TORCH_PARITY.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/parity_checks.hpp>

namespace tandem::test {
namespace {

/// Bounds of the norms of gradient errors in tf32 and bf16.
const nlohmann::json& norm_bounds(Precision precision, const Reference& values = reference()) {
  const auto load = [](const char* file) {
    return nlohmann::json::parse(
        std::ifstream(std::string(TANDEM_SOURCE_DIR "/tests/golden/parity/") + file));
  };
  static const nlohmann::json segmenter = load("precision.json");
  static const nlohmann::json classifier = load("classifier_precision.json");
  return (&values == &reference() ? segmenter : classifier).at(name_of(precision));
}

/// One line for each tensor whose gradient is further from its reference than its bound, by the
/// norm over the stored values or over the stored sums. A tensor whose bound would be as large as
/// its gradient has none (classifier, bf16: layers far from the loss). `share`, if given, gets the
/// largest share of a bound that was used.
std::vector<std::string> norm_failures(Precision precision, const Parameters& gradients,
                                       const nlohmann::json& test, double* share = nullptr,
                                       const Reference& values = reference()) {
  std::vector<std::string> failures;
  const nlohmann::json& expected = test.at("gradients");
  const nlohmann::json& bounds =
      norm_bounds(precision, values).at(test.at("seed").get<std::size_t>());
  if (gradients.size() != expected.size()) return {"gradient: wrong number of tensors"};
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    for (const bool of_sums : {false, true}) {
      const std::vector<double> ours =
          of_sums ? values.sums(gradients[t].data) : values.sampled(gradients[t].data);
      const double* right = values.at(expected[t].at(of_sums ? "sums" : "values"));
      const nlohmann::json& stored =
          bounds.at(of_sums ? "sum_norm_bounds" : "value_norm_bounds").at(t);
      if (stored.is_null()) continue;
      const auto bound = stored.get<double>();
      double squares = 0;
      for (std::size_t k = 0; k < ours.size(); ++k)
        squares += (ours[k] - right[k]) * (ours[k] - right[k]);
      const double error = std::sqrt(squares);
      if (share != nullptr) *share = std::max(*share, error / bound);
      if (error <= bound) continue;
      failures.push_back(fmt::format(
          "gradient of {} in {}, seed {}: norm of the error of the {} is {:.3g}, bound {:.3g}",
          gradients[t].name, name_of(precision), test.at("seed").get<int>(),
          of_sums ? "sums" : "values", error, bound));
    }
  }
  return failures;
}

std::vector<std::string> gradient_failures_in(Precision precision, const Parameters& gradients,
                                              const nlohmann::json& test,
                                              const Reference& values = reference()) {
  if (precision == Precision::fp32) return gradient_failures(gradients, test, values);
  return norm_failures(precision, gradients, test, nullptr, values);
}

std::string lines(const std::vector<std::string>& failures) {
  return fmt::format("{}", fmt::join(failures, "\n"));
}

class ParityOnCuda : public GpuTest, public ::testing::WithParamInterface<Precision> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!runs()) return;
    cuda_ = make_cuda_backend();
  }

  Precision precision() const { return GetParam(); }
  Training one_step(std::uint64_t seed, std::int64_t batch = kBatch,
                    std::int64_t samples = kBatch) {
    return train(*cuda_, precision(), seed, batch, samples, 1, Fault::none);
  }
  std::vector<std::string> gradient_check(const Parameters& gradients, const nlohmann::json& test) {
    return gradient_failures_in(precision(), gradients, test);
  }

  std::unique_ptr<Backend> cuda_;
};
INSTANTIATE_TEST_SUITE_P(Precisions, ParityOnCuda,
                         ::testing::Values(Precision::fp32, Precision::tf32, Precision::bf16),
                         [](const auto& tested) { return name_of(tested.param); });

// --- the first step ---

TEST_P(ParityOnCuda, StepOneGradientsAreThoseOfFloat64) {
  double share = 0;
  for (const nlohmann::json& test : reference().cases()) {
    const Training trained = one_step(test.at("seed").get<std::uint64_t>());
    EXPECT_EQ(lines(gradient_check(trained.gradients, test)), "");
    if (precision() != Precision::fp32) norm_failures(precision(), trained.gradients, test, &share);
  }
  if (share > 0) RecordProperty("largest_share_of_a_bound", fmt::format("{:.3f}", share));
}

TEST_P(ParityOnCuda, AGradientThatIsMissingWrongOrNanIsFound) {
  const nlohmann::json& test = reference().cases().at(0);
  const Training trained = one_step(0);
  ASSERT_EQ(lines(gradient_check(trained.gradients, test)), "");
  for (std::size_t t = 0; t < trained.gradients.size(); ++t) {
    const std::string line = "gradient of " + trained.gradients[t].name;
    Parameters missing = trained.gradients, doubled = trained.gradients, nan = trained.gradients;
    for (float& value : missing[t].data) value = 0;
    for (float& value : doubled[t].data) value *= 2;
    nan[t].data.back() = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(mentions(gradient_check(missing, test), line)) << line << " set to 0";
    EXPECT_TRUE(mentions(gradient_check(doubled, test), line)) << line << " doubled";
    EXPECT_TRUE(mentions(gradient_check(nan, test), line)) << line << " with a NaN";
    EXPECT_EQ(gradient_check(missing, test).empty(), false);
  }
  // Other weights give other gradients, in every tensor.
  const std::vector<std::string> failures = gradient_check(one_step(1).gradients, test);
  for (const NamedTensor& tensor : trained.gradients)
    EXPECT_TRUE(mentions(failures, "gradient of " + tensor.name)) << tensor.name << " of seed 1";
}

TEST_P(ParityOnCuda, APartialBatchHasTheGradientsOfTheSmallerBatch) {
  const nlohmann::json& test = reference().partial();
  const auto samples = test.at("samples").get<std::int64_t>();
  ASSERT_LT(samples, kBatch);
  if (precision() == Precision::fp32) {
    EXPECT_EQ(lines(gradient_check(one_step(0, kBatch, samples).gradients, test)), "");
    EXPECT_EQ(lines(gradient_check(one_step(0, samples, samples).gradients, test)), "");
    EXPECT_TRUE(mentions(gradient_check(one_step(0).gradients, test), "gradient of 0.weight"));
    return;
  }
  // No bounds are stored for it, so: as near to float64 as the rounding of a batch of 8 allows, in
  // the norm of each tensor relative to its own. A smaller batch averages less: sqrt(8 / 5) < 1.3.
  const Training padded = one_step(0, kBatch, samples);
  const nlohmann::json& full = reference().cases().at(0);
  const nlohmann::json& bounds = norm_bounds(precision()).at(0);
  for (std::size_t t = 0; t < padded.gradients.size(); ++t) {
    const nlohmann::json& expected = test.at("gradients").at(t);
    const double error = relative_error(reference().sums(padded.gradients[t].data),
                                        reference().at(expected.at("sums")));
    double norm = 0;
    const std::size_t count = std::min(reference().samples(), padded.gradients[t].data.size());
    const double* sums_of_full = reference().at(full.at("gradients").at(t).at("sums"));
    for (std::size_t k = 0; k < count; ++k) norm += sums_of_full[k] * sums_of_full[k];
    const double bound = 1.3 * bounds.at("sum_norm_bounds").at(t).get<double>() / std::sqrt(norm);
    EXPECT_TRUE(error <= bound) << padded.gradients[t].name << ": relative error " << error
                                << ", allowed " << bound;
  }
}

// The classifier's, whose every layer is trained.
TEST_P(ParityOnCuda, TheClassifiersStepOneGradientsAreThoseOfFloat64) {
  const Reference& values = classifier_reference();
  const auto one_step_of = [&](std::uint64_t seed) {
    return train(*cuda_, precision(), seed, kBatch, kBatch, 1, Fault::none, values);
  };
  double share = 0;
  for (const nlohmann::json& test : values.cases()) {
    const Training trained = one_step_of(test.at("seed").get<std::uint64_t>());
    EXPECT_EQ(lines(gradient_failures_in(precision(), trained.gradients, test, values)), "");
    if (precision() != Precision::fp32)
      norm_failures(precision(), trained.gradients, test, &share, values);
  }
  if (share > 0) RecordProperty("largest_share_of_a_bound", fmt::format("{:.3f}", share));

  // Gradients of other weights, and one that is missing, are found in every tensor with a bound.
  const nlohmann::json& test = values.cases().at(0);
  const auto failures_of = [&](const Parameters& gradients) {
    return gradient_failures_in(precision(), gradients, test, values);
  };
  const Parameters good = one_step_of(0).gradients;
  const std::vector<std::string> others = failures_of(one_step_of(1).gradients);
  std::size_t bounded = 0;
  for (std::size_t t = 0; t < good.size(); ++t) {
    if (precision() != Precision::fp32 &&
        norm_bounds(precision(), values).at(0).at("sum_norm_bounds").at(t).is_null())
      continue;
    ++bounded;
    const std::string line = "gradient of " + good[t].name;
    Parameters missing = good;
    for (float& value : missing[t].data) value = 0;
    EXPECT_TRUE(mentions(failures_of(missing), line)) << line << " set to 0";
    EXPECT_TRUE(mentions(others, line)) << line << " of seed 1";
  }
  EXPECT_GE(bounded, precision() == Precision::bf16 ? 4u : good.size());
}

// --- ten steps ---

/// PyTorch's errors on this GPU in one precision.
class TorchOnGpu {
 public:
  /// Why there are none; empty if there are.
  static std::string missing() {
    const char* path = std::getenv("TANDEM_TORCH_PARITY");
    if (path == nullptr || *path == '\0')
      return "TANDEM_TORCH_PARITY is not set: run tests/golden/parity/torch_on_gpu.py first";
    if (!std::ifstream(path)) return fmt::format("{} cannot be read", path);
    return "";
  }

  explicit TorchOnGpu(Precision precision)
      : runs_(nlohmann::json::parse(std::ifstream(std::getenv("TANDEM_TORCH_PARITY")))
                  .at("precisions")
                  .at(name_of(precision))) {}

  TorchErrors operator()(const nlohmann::json& test) const {
    const nlohmann::json& run = runs_.at(test.at("seed").get<std::size_t>());
    return {run.at("loss_error").get<double>(), run.at("change_errors").get<std::vector<double>>()};
  }

 private:
  nlohmann::json runs_;
};

class TenStepsOnCudaHeavy : public ParityOnCuda {
 protected:
  void SetUp() override {
    ParityOnCuda::SetUp();
    if (!runs()) return;
    const std::string reason = TorchOnGpu::missing();
    if (reason.empty()) return;
    ASSERT_FALSE(gpu_is_required()) << "TANDEM_REQUIRE_GPU=1, but " << reason;
    GTEST_SKIP() << reason;
  }

  /// `torch`: the precision of PyTorch's runs.
  std::vector<std::string> failures(Fault fault, Precision torch, double* ratio = nullptr) {
    const auto check = [this](const Parameters& gradients, const nlohmann::json& test) {
      return gradient_check(gradients, test);
    };
    // Only fp32 has a limit of its own; the others are as far off as PyTorch's.
    const double max_error =
        torch == Precision::fp32 ? 1e-2 : std::numeric_limits<double>::infinity();
    return parity_failures(*cuda_, precision(), fault, {check, TorchOnGpu(torch), max_error},
                           ratio);
  }
};
INSTANTIATE_TEST_SUITE_P(Precisions, TenStepsOnCudaHeavy,
                         ::testing::Values(Precision::fp32, Precision::tf32, Precision::bf16),
                         [](const auto& tested) { return name_of(tested.param); });

TEST_P(TenStepsOnCudaHeavy, ErrAtMostTwiceAsMuchAsPyTorch) {
  double ratio = 0;
  EXPECT_EQ(lines(failures(Fault::none, precision(), &ratio)), "");
  RecordProperty("largest_error_over_pytorch", fmt::format("{:.3f}", ratio));
}

TEST_P(TenStepsOnCudaHeavy, ALearningRateOfZeroIsFound) {
  const std::vector<std::string> found = failures(Fault::no_rate, precision());
  EXPECT_TRUE(mentions(found, "fall of the loss")) << lines(found);
  EXPECT_TRUE(mentions(found, "change of 0.weight")) << lines(found);
  EXPECT_FALSE(mentions(found, "gradient")) << lines(found);  // the first step's are right
}

TEST_P(TenStepsOnCudaHeavy, AFrozenLayerIsFound) {
  const std::vector<std::string> found = failures(Fault::frozen_layer, precision());
  EXPECT_TRUE(mentions(found, "change of 0.weight")) << lines(found);
  EXPECT_FALSE(mentions(found, "gradient")) << lines(found);
}

TEST_P(TenStepsOnCudaHeavy, ADroppedBiasGradientIsFound) {
  const std::vector<std::string> found = failures(Fault::dropped_bias, precision());
  EXPECT_TRUE(mentions(found, "change of 4.bias")) << lines(found);
  EXPECT_FALSE(mentions(found, "gradient")) << lines(found);
}

TEST_P(TenStepsOnCudaHeavy, MissingMomentumIsFound) {
  const std::vector<std::string> found = failures(Fault::no_momentum, precision());
  EXPECT_TRUE(mentions(found, "change of 0.weight")) << lines(found);
  EXPECT_TRUE(mentions(found, "loss")) << lines(found);
  EXPECT_FALSE(mentions(found, "gradient")) << lines(found);
}

// A precision that is coarser than the one asked for.
TEST_P(TenStepsOnCudaHeavy, CoarserArithmeticThanAskedForIsFound) {
  if (precision() == Precision::fp32) GTEST_SKIP() << "fp32 is the finest there is";
  const Precision finer = precision() == Precision::tf32 ? Precision::fp32 : Precision::tf32;
  const std::vector<std::string> found = failures(Fault::none, finer);
  EXPECT_TRUE(mentions(found, "change of 0.weight")) << lines(found);
}

}  // namespace
}  // namespace tandem::test
