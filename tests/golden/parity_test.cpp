// SPDX-License-Identifier: Apache-2.0
// Ten steps of the segmenter and of the classifier on the host against PyTorch; see
// parity/README.md for what the files hold.
#include <tandem/engine/backend_host.hpp>
#include <tandem/tests/support/parity_checks.hpp>

namespace tandem::test {
namespace {

std::vector<std::string> host_failures(Fault fault, double* ratio = nullptr,
                                       const Reference& values = reference()) {
  const auto backend = make_host_backend();
  const auto check = [&](const Parameters& gradients, const nlohmann::json& test) {
    return gradient_failures(gradients, test, values);
  };
  return parity_failures(*backend, Precision::fp32, fault, {check, stored_errors}, ratio, values);
}

/// One step from seed 0.
Training host_train(std::int64_t batch, std::int64_t samples, Fault fault,
                    const Reference& values = reference()) {
  const auto backend = make_host_backend();
  return train(*backend, Precision::fp32, 0, batch, samples, 1, fault, values);
}

void expect_useful(const Reference& values, double least_alive, double most_width) {
  ASSERT_EQ(values.cases().size(), 8u);
  for (const nlohmann::json& test : values.cases()) {
    const auto losses = test.at("losses").get<std::vector<double>>();
    ASSERT_EQ(losses.size(), static_cast<std::size_t>(kSteps));
    EXPECT_LE(losses.back(), 0.9 * losses.front());
    for (const char* when : {"alive_first", "alive_last"}) {
      for (const double share : test.at(when).get<std::vector<double>>()) {
        EXPECT_GE(share, least_alive);
        EXPECT_LE(share, 1 - least_alive);
      }
    }
    for (const nlohmann::json& gradient : test.at("gradients")) {
      EXPECT_LT(gradient.at("median_bound").get<double>(), most_width) << gradient.at("name");
    }
  }
}

TEST(Parity, StoredValuesAreUseful) { expect_useful(reference(), 0.2, 0.1); }

TEST(Parity, TenStepsAreThoseOfPyTorch) {
  double ratio = 0;
  const std::vector<std::string> failures = host_failures(Fault::none, &ratio);
  EXPECT_TRUE(failures.empty()) << fmt::format("{}", fmt::join(failures, "\n"));
  RecordProperty("largest_error_over_pytorch", fmt::format("{:.3f}", ratio));
}

TEST(Parity, ALearningRateOfZeroIsFound) {
  const std::vector<std::string> failures = host_failures(Fault::no_rate);
  EXPECT_TRUE(mentions(failures, "fall of the loss"));
  EXPECT_TRUE(mentions(failures, "change of 0.weight"));
  EXPECT_FALSE(mentions(failures, "gradient"));  // the first step's are right
}

TEST(Parity, AFrozenLayerIsFound) {
  const std::vector<std::string> failures = host_failures(Fault::frozen_layer);
  EXPECT_TRUE(mentions(failures, "change of 0.weight"));
  EXPECT_TRUE(mentions(failures, "loss"));
  EXPECT_FALSE(mentions(failures, "gradient"));
}

TEST(Parity, ADroppedBiasGradientIsFound) {
  const std::vector<std::string> failures = host_failures(Fault::dropped_bias);
  EXPECT_TRUE(mentions(failures, "change of 4.bias"));
  EXPECT_TRUE(mentions(failures, "loss"));
  EXPECT_FALSE(mentions(failures, "gradient"));
}

TEST(Parity, MissingMomentumIsFound) {
  const std::vector<std::string> failures = host_failures(Fault::no_momentum);
  EXPECT_TRUE(mentions(failures, "change of 0.weight"));
  EXPECT_TRUE(mentions(failures, "loss"));
  EXPECT_FALSE(mentions(failures, "gradient"));
}

TEST(Parity, AWrongInputScaleIsFoundByTheGradients) {
  const nlohmann::json& test = reference().cases().at(0);
  const Training trained = host_train(kBatch, kBatch, Fault::input_scale);
  EXPECT_TRUE(mentions(gradient_failures(trained.gradients, test), "gradient of 0.weight"));
}

TEST(Parity, ANaNGradientIsFound) {
  const nlohmann::json& test = reference().cases().at(0);
  Training trained = host_train(kBatch, kBatch, Fault::none);
  EXPECT_TRUE(gradient_failures(trained.gradients, test).empty());
  trained.gradients[2].data.back() = std::nanf("");  // seen by its sum, whether sampled or not
  EXPECT_TRUE(mentions(gradient_failures(trained.gradients, test), "gradient of 2.weight"));
}

TEST(Parity, APartialBatchHasTheGradientsOfTheSmallerBatch) {
  const nlohmann::json& test = reference().partial();
  const auto samples = test.at("samples").get<std::int64_t>();
  ASSERT_LT(samples, kBatch);
  const Training padded = host_train(kBatch, samples, Fault::none);
  const Training small = host_train(samples, samples, Fault::none);
  // Both within the bounds of one reference, hence within twice the bounds of each other.
  for (const Training* trained : {&padded, &small}) {
    const std::vector<std::string> failures = gradient_failures(trained->gradients, test);
    EXPECT_TRUE(failures.empty()) << fmt::format("{}", fmt::join(failures, "\n"));
  }
  // The full batch is another one.
  const Training full = host_train(kBatch, kBatch, Fault::none);
  EXPECT_TRUE(mentions(gradient_failures(full.gradients, test), "gradient of 0.weight"));
}

// --- the classifier ---

TEST(ClassifierParity, StoredValuesAreUseful) { expect_useful(classifier_reference(), 0.1, 0.2); }

TEST(ClassifierParity, TenStepsAreThoseOfPyTorch) {
  double ratio = 0;
  const auto failures = host_failures(Fault::none, &ratio, classifier_reference());
  EXPECT_TRUE(failures.empty()) << fmt::format("{}", fmt::join(failures, "\n"));
  RecordProperty("largest_error_over_pytorch", fmt::format("{:.3f}", ratio));
}

TEST(ClassifierParity, AFrozenLayerIsFound) {
  const auto failures = host_failures(Fault::frozen_layer, nullptr, classifier_reference());
  EXPECT_TRUE(mentions(failures, "change of 10.weight"));
  EXPECT_TRUE(mentions(failures, "loss"));
  EXPECT_FALSE(mentions(failures, "gradient"));  // the first step's are right
}

TEST(ClassifierParity, MissingMomentumIsFound) {
  const auto failures = host_failures(Fault::no_momentum, nullptr, classifier_reference());
  EXPECT_TRUE(mentions(failures, "change of 12.weight"));
  EXPECT_FALSE(mentions(failures, "gradient"));
}

TEST(ClassifierParity, AWrongInputScaleIsFoundByTheGradients) {
  const Reference& values = classifier_reference();
  const Training trained = host_train(kBatch, kBatch, Fault::input_scale, values);
  const auto failures = gradient_failures(trained.gradients, values.cases().at(0), values);
  EXPECT_TRUE(mentions(failures, "gradient of 0.weight"));
}

TEST(ClassifierParity, APartialBatchHasTheGradientsOfTheSmallerBatch) {
  const Reference& values = classifier_reference();
  const nlohmann::json& test = values.partial();
  const auto samples = test.at("samples").get<std::int64_t>();
  ASSERT_LT(samples, kBatch);
  for (const std::int64_t batch : {kBatch, samples}) {
    const Training trained = host_train(batch, samples, Fault::none, values);
    const auto failures = gradient_failures(trained.gradients, test, values);
    EXPECT_TRUE(failures.empty()) << fmt::format("{}", fmt::join(failures, "\n"));
  }
  const Training full = host_train(kBatch, kBatch, Fault::none, values);
  EXPECT_TRUE(mentions(gradient_failures(full.gradients, test, values), "gradient of 0.weight"));
}

}  // namespace
}  // namespace tandem::test
