// SPDX-License-Identifier: Apache-2.0
// The host backend against PyTorch on rows of numbers.
#include <memory>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/fuse.hpp>
#include <tandem/models/model_json.hpp>
#include <tandem/tests/support/dense_checks.hpp>

namespace tandem::test {
namespace {

DenseOutcome on_host(const Sequential& model, const nlohmann::json& run, EngineConfig config = {}) {
  const std::unique_ptr<Backend> backend = make_host_backend();
  return train_dense(*backend, model, run, config);
}

TEST(Dense, TheKerasExampleTrainsAsInPyTorch) {
  const nlohmann::json& run = dense_run("keras_example");
  const DenseErrors errors = dense_errors(on_host(keras_example(), run), run);
  EXPECT_TRUE(is_dense_parity(errors)) << to_text(errors);
}

TEST(Dense, HiddenSigmoidsTrainAsInPyTorch) {
  const nlohmann::json& run = dense_run("hidden_sigmoids");
  const DenseErrors errors = dense_errors(on_host(hidden_sigmoids(), run), run);
  EXPECT_TRUE(is_dense_parity(errors)) << to_text(errors);
}

// Each of the three checks sees it.
TEST(Dense, AnotherL2IsSeen) {
  const nlohmann::json& run = dense_run("keras_example");
  for (const double l2 : {0.0, 0.005, 0.0101}) {
    const DenseErrors errors = dense_errors(on_host(keras_example(l2), run), run);
    EXPECT_GT(errors.loss, kDenseBound) << l2;
    EXPECT_GT(errors.gradients, kDenseGradientBound) << l2;
    EXPECT_GT(errors.updates, kDenseBound) << l2;
  }
}

TEST(Dense, SoftmaxInPlaceOfTheSigmoidIsSeen) {
  const nlohmann::json& run = dense_run("keras_example");
  const Sequential softmax =
      Sequential(1).linear(1, 16).relu().linear(16, 32).l2(0.01).relu().linear(32, 2);
  EXPECT_FALSE(is_dense_parity(dense_errors(on_host(softmax, run), run)));
}

TEST(Dense, OtherSchedulesAndFusedOperationsGiveTheSameBits) {
  for (const auto& [name, model] :
       {std::pair("keras_example", keras_example()), {"hidden_sigmoids", hidden_sigmoids()}}) {
    const nlohmann::json& run = dense_run(name);
    EngineConfig config;
    config.scheduler.schedule = Schedule::serial;
    const DenseOutcome plain = on_host(model, run, config);
    config.scheduler.schedule = Schedule::overlap;
    config.scheduler.side_lanes = true;
    config.fuse.pointwise = config.fuse.many = true;
    const DenseOutcome other = on_host(model, run, config);
    EXPECT_EQ(plain.losses, other.losses) << name;
    ASSERT_EQ(plain.end.size(), other.end.size());
    for (std::size_t t = 0; t < plain.end.size(); ++t)
      EXPECT_EQ(plain.end[t].data, other.end[t].data) << plain.end[t].name;
  }
}

// The update inside a product has no gradient that a penalty could be added to.
TEST(Dense, FusedUpdatesLeaveLayersWithL2Alone) {
  const nlohmann::json& run = dense_run("keras_example");
  EngineConfig config;
  config.momentum = false;
  const DenseOutcome plain = on_host(keras_example(), run, config);
  config.fuse = kFuseAll;
  const DenseOutcome fused = on_host(keras_example(), run, config);
  ASSERT_EQ(plain.losses.size(), fused.losses.size());
  for (std::size_t i = 0; i < plain.losses.size(); ++i)
    EXPECT_LE(std::abs(fused.losses[i] - plain.losses[i]), kDenseBound * plain.losses[i]) << i;

  config.trained = keras_example();
  config.features = 1;
  int updates = 0, penalties = 0;
  for (const Operation& operation : plan_training(config).stages.back().operations) {
    updates += operation.kind == OpKind::conv1x1_update;
    penalties += operation.kind == OpKind::l2_penalty;
  }
  EXPECT_EQ(updates, 2);
  EXPECT_EQ(penalties, 1);
}

TEST(Dense, TheExampleFileIsThatNetwork) {
  const Model model = read_model(TANDEM_SOURCE_DIR "/docs/examples/keras.json");
  EXPECT_EQ(model.features, 1);
  EXPECT_TRUE(model.frozen.layers().empty());
  const Sequential expected = keras_example();
  ASSERT_EQ(model.trained.layers().size(), expected.layers().size());
  for (std::size_t i = 0; i < expected.layers().size(); ++i) {
    const Layer &ours = model.trained.layers()[i], &right = expected.layers()[i];
    EXPECT_EQ(ours.kind, right.kind) << i;
    EXPECT_EQ(ours.in_channels, right.in_channels) << i;
    EXPECT_EQ(ours.out_channels, right.out_channels) << i;
    EXPECT_EQ(ours.l2, right.l2) << i;
  }
}

}  // namespace
}  // namespace tandem::test
