// SPDX-License-Identifier: Apache-2.0
// Networks on rows of numbers, with sigmoids, binary cross-entropy and L2, against ten steps of
// PyTorch in double (tests/golden/dense/make_dense.py), on any backend.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tandem/engine/backend.hpp>
#include <tandem/models/trainer.hpp>
#include <vector>

namespace tandem::test {

inline const nlohmann::json& dense_golden() {
  static const nlohmann::json file =
      nlohmann::json::parse(std::ifstream(TANDEM_SOURCE_DIR "/tests/golden/dense/dense.json"));
  return file;
}

inline const nlohmann::json& dense_run(const std::string& name) {
  for (const nlohmann::json& run : dense_golden().at("runs"))
    if (run.at("name") == name) return run;
  throw std::runtime_error("dense.json has no run " + name);
}

/// The networks of make_dense.py.
inline Sequential keras_example(double l2 = 0.01) {
  return Sequential(1).linear(1, 16).relu().linear(16, 32).l2(l2).relu().linear(32, 2).sigmoid();
}
inline Sequential hidden_sigmoids() {
  return Sequential(3)
      .linear(3, 6)
      .l2(0.02)
      .relu()
      .sigmoid()
      .linear(6, 5)
      .sigmoid()
      .linear(5, 3)
      .l2(0.005);
}

struct DenseOutcome {
  std::vector<double> losses;
  Parameters first_gradients, end;
};

inline Parameters dense_parameters(const Sequential& model, const nlohmann::json& values) {
  Parameters parameters;
  for (const ParameterSpec& spec : model.parameters())
    parameters.push_back({spec.name, spec.shape, values.at(spec.name).get<std::vector<float>>()});
  return parameters;
}

/// Trains as make_dense.py did.
inline DenseOutcome train_dense(Backend& backend, const Sequential& model,
                                const nlohmann::json& run, EngineConfig config = {}) {
  const auto rows = run.at("rows").get<std::vector<float>>();
  const auto labels = run.at("labels").get<std::vector<std::uint8_t>>();
  config.trained = model;
  config.features = model.in_channels();
  config.batch = dense_golden().at("batch");
  DenseOutcome outcome;
  Trainer trainer(backend, config,
                  [&](const StepResult& result) { outcome.losses.push_back(result.loss); });
  trainer.set_trained(dense_parameters(model, run.at("start")));
  const InputSlot slot = trainer.inputs().front();
  EXPECT_EQ(slot.features, config.features);
  const auto batch = static_cast<std::size_t>(config.batch);
  const std::size_t floats = batch * static_cast<std::size_t>(config.features);
  for (std::size_t step = 0; step * batch < labels.size(); ++step) {
    trainer.wait_input_free(0);
    std::memcpy(slot.images, rows.data() + step * floats, floats * sizeof(float));
    std::memcpy(slot.labels, labels.data() + step * batch, batch);
    *slot.header = {};
    slot.header->step = step;
    slot.header->samples = slot.header->capacity = static_cast<std::int32_t>(batch);
    slot.header->valid_count = config.batch;
    slot.header->learning_rate = dense_golden().at("lr");
    slot.header->momentum = dense_golden().at("momentum");
    finish_header(*slot.header);
    trainer.step(0);
    trainer.finish();
    if (step == 0 && !config.fuse.update) outcome.first_gradients = trainer.gradients();
  }
  outcome.end = trainer.trained();
  return outcome;
}

/// Largest of the relative errors, by the norm, of what is `ours - start` beside `right - start`.
inline double dense_error(const Parameters& ours, const nlohmann::json& right,
                          const nlohmann::json* start = nullptr) {
  double worst = 0;
  for (const NamedTensor& tensor : ours) {
    const auto expected = right.at(tensor.name).get<std::vector<double>>();
    std::vector<double> from(expected.size(), 0.0);
    if (start != nullptr) from = start->at(tensor.name).get<std::vector<double>>();
    EXPECT_EQ(tensor.data.size(), expected.size()) << tensor.name;
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double off = static_cast<double>(tensor.data[i]) - expected[i];
      const double moved = expected[i] - from[i];
      error += off * off;
      norm += moved * moved;
    }
    const double relative = std::sqrt(error / norm);
    if (std::isnan(relative)) return relative;
    worst = std::max(worst, relative);
  }
  return worst;
}

struct DenseErrors {
  double loss = 0, gradients = 0, updates = 0;
};

inline DenseErrors dense_errors(const DenseOutcome& ours, const nlohmann::json& run) {
  DenseErrors errors;
  const auto losses = run.at("losses").get<std::vector<double>>();
  EXPECT_EQ(ours.losses.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    errors.loss = std::max(errors.loss, std::abs(ours.losses.at(i) - losses[i]) / losses[i]);
  }
  errors.gradients = dense_error(ours.first_gradients, run.at("first_gradients"));
  errors.updates = dense_error(ours.end, run.at("end"), &run.at("start"));
  return errors;
}

/// In fp32. The longest path through the largest of these networks and back has fewer than 200
/// roundings, of 2^-24 each: 1.2e-5 of the absolute terms. Over ten steps each starts from the
/// error of the one before.
inline constexpr double kDenseGradientBound = 2e-5, kDenseBound = 10 * kDenseGradientBound;

inline bool is_dense_parity(const DenseErrors& errors) {
  return errors.loss <= kDenseBound && errors.gradients <= kDenseGradientBound &&
         errors.updates <= kDenseBound;
}

inline std::string to_text(const DenseErrors& errors) {
  return fmt::format("losses {:.2g}, first gradients {:.2g}, updates {:.2g}", errors.loss,
                     errors.gradients, errors.updates);
}

}  // namespace tandem::test
