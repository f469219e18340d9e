// SPDX-License-Identifier: Apache-2.0
// Ten steps of the segmenter and of the classifier against PyTorch, on any backend and in any
// precision; see tests/golden/parity/README.md for what the files hold.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <tandem/models/classifier.hpp>
#include <tandem/models/segmenter.hpp>
#include <tandem/models/trainer.hpp>
#include <tandem/tests/support/parity_data.hpp>
#include <utility>
#include <vector>

namespace tandem::test {

inline constexpr std::int64_t kClasses = 10, kBatch = 8;
inline constexpr int kSteps = 10;

/// A network, how it was trained, and what PyTorch computed.
class Reference {
 public:
  /// `file` is the name of the two files, without their endings.
  Reference(const std::string& file, const std::function<EngineConfig(std::int64_t)>& config) {
    const std::string path = TANDEM_SOURCE_DIR "/tests/golden/parity/" + file;
    index_ = nlohmann::json::parse(std::ifstream(path + ".json"));
    config_ = config(index_.at("image").get<std::int64_t>());
    samples_ = index_.at("samples").get<std::size_t>();
    rate_ = index_.at("lr").get<float>();
    values_.resize(index_.at("values").get<std::size_t>());
    std::ifstream binary(path + ".bin", std::ios::binary);
    binary.read(reinterpret_cast<char*>(values_.data()),
                static_cast<std::streamsize>(values_.size() * sizeof(double)));
    if (!binary || binary.peek() != std::ifstream::traits_type::eof()) {
      throw std::runtime_error(file + ".bin does not hold the values that its index names");
    }
  }
  const nlohmann::json& cases() const { return index_.at("cases"); }
  const nlohmann::json& partial() const { return index_.at("partial"); }
  const double* at(const nlohmann::json& offset) const {
    return values_.data() + offset.get<std::size_t>();
  }
  /// Both parts and the picture's size.
  const EngineConfig& config() const { return config_; }
  std::size_t samples() const { return samples_; }  ///< stored of each tensor
  float learning_rate() const { return rate_; }

  /// All elements of a small tensor; else element splitmix64(k) mod elements, one a sample.
  std::vector<double> sampled(const std::vector<float>& tensor) const {
    if (tensor.size() <= samples_) return {tensor.begin(), tensor.end()};
    std::vector<double> result(samples_);
    for (std::size_t k = 0; k < samples_; ++k) result[k] = tensor[splitmix64(k) % tensor.size()];
    return result;
  }

  /// All elements of a small tensor; else signed sums in which every element appears once.
  std::vector<double> sums(const std::vector<float>& tensor) const {
    if (tensor.size() <= samples_) return {tensor.begin(), tensor.end()};
    std::vector<double> result(samples_);
    for (std::size_t i = 0; i < tensor.size(); ++i) {
      const std::uint64_t h = splitmix64(i);
      result[h % samples_] += (h >> 8) % 2 == 0 ? tensor[i] : -tensor[i];
    }
    return result;
  }

 private:
  nlohmann::json index_;
  EngineConfig config_;
  std::size_t samples_ = 0;
  float rate_ = 0;
  std::vector<double> values_;  // little-endian in the file, as on every machine we run on
};

/// Of the segmenter.
inline const Reference& reference() {
  static const Reference instance("parity", [](std::int64_t image) {
    EngineConfig config;
    config.frozen = segmenter_encoder(image);
    config.trained = segmenter_decoder(image, kClasses);
    config.image = image;
    return config;
  });
  return instance;
}

inline const Reference& classifier_reference() {
  static const Reference instance("classifier", [](std::int64_t image) {
    EngineConfig config;
    config.trained = classifier(image, kClasses);
    config.image = image;
    return config;
  });
  return instance;
}

/// What is wrong on purpose.
enum class Fault {
  none,
  no_rate,       // the learning rate is 0
  frozen_layer,  // the largest trained layer is not updated
  dropped_bias,  // one bias gradient is not applied
  no_momentum,   // plain SGD
  input_scale,   // pictures scaled by 1/256 instead of 1/255
};

struct Training {
  Parameters gradients;  // of the first step
  std::vector<double> losses;
  Parameters change;  // W10 - W0
};

/// Indices of the trained parameters that a fault keeps from changing.
inline std::vector<std::size_t> kept_parameters(const Sequential& trained, Fault fault) {
  const std::vector<ParameterSpec> specs = trained.parameters();
  if (fault == Fault::frozen_layer) {
    const auto largest = std::max_element(
        specs.begin(), specs.end(),
        [](const ParameterSpec& a, const ParameterSpec& b) { return a.elements < b.elements; });
    const auto weight = static_cast<std::size_t>(largest - specs.begin());
    return {weight, weight + 1};
  }
  if (fault == Fault::dropped_bias) return {5};  // of the third layer
  return {};
}

/// Even seeds overlapped, odd ones serial.
inline Training train(Backend& backend, Precision precision, std::uint64_t seed, std::int64_t batch,
                      std::int64_t samples, int steps, Fault fault,
                      const Reference& reference = test::reference()) {
  EngineConfig config = reference.config();
  config.precision = precision;
  config.batch = batch;
  config.momentum = fault != Fault::no_momentum;
  if (fault == Fault::input_scale) config.input_scale = 1.0f / 256.0f;
  config.scheduler.schedule = seed % 2 == 0 ? Schedule::overlap : Schedule::serial;

  Training result;
  Trainer trainer(backend, config,
                  [&](const StepResult& step) { result.losses.push_back(step.loss); });
  // Layers with parameters are counted through both parts.
  const auto first_trained = static_cast<int>(config.frozen.parameters().size() / 2);
  const Parameters start = make_parameters(config.trained, seed, first_trained);
  trainer.set_frozen(make_parameters(config.frozen, seed, 0));
  trainer.set_trained(start);

  struct Kept {
    BufferId buffer;
    std::vector<float> values;
  };
  std::vector<Kept> kept;
  std::size_t parameter = 0;
  const std::vector<std::size_t> wanted = kept_parameters(config.trained, fault);
  for (const Operation& operation : trainer.scheduler().plan().stages.back().operations) {
    if (operation.kind != OpKind::sgd_momentum) continue;  // one a parameter, in their order
    if (std::count(wanted.begin(), wanted.end(), parameter++) == 0) continue;
    const Operand& weight = operation.operands[3];
    kept.push_back(
        {weight.buffer, std::vector<float>(static_cast<std::size_t>(weight.desc.elements()))});
    trainer.scheduler().read(weight.buffer, kept.back().values.data());
  }
  EXPECT_EQ(kept.size(), wanted.size());

  const std::vector<InputSlot> inputs = trainer.inputs();
  for (int step = 0; step < steps; ++step) {
    const int slot = step % static_cast<int>(inputs.size());
    trainer.wait_input_free(slot);
    BatchOptions options;
    options.batch = batch;
    options.image = config.image;
    options.samples = samples;
    options.step = static_cast<std::uint64_t>(step);
    options.learning_rate = fault == Fault::no_rate ? 0 : reference.learning_rate();
    fill_batch(inputs[static_cast<std::size_t>(slot)], options);
    trainer.step(slot);
    if (step == 0 || !kept.empty()) trainer.finish();
    if (step == 0) result.gradients = trainer.gradients();
    for (const Kept& k : kept) trainer.scheduler().write(k.buffer, k.values.data());
  }
  trainer.finish();

  result.change = trainer.trained();
  for (std::size_t t = 0; t < start.size(); ++t) {
    for (std::size_t i = 0; i < start[t].data.size(); ++i) {
      result.change[t].data[i] -= start[t].data[i];
    }
  }
  return result;
}

/// One line for each tensor with a value further from its reference than its bound.
inline std::vector<std::string> gradient_failures(const Parameters& gradients,
                                                  const nlohmann::json& test,
                                                  const Reference& reference = test::reference()) {
  std::vector<std::string> failures;
  const nlohmann::json& expected = test.at("gradients");
  if (gradients.size() != expected.size()) return {"gradient: wrong number of tensors"};
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    for (const bool of_sums : {false, true}) {
      const std::vector<double> values =
          of_sums ? reference.sums(gradients[t].data) : reference.sampled(gradients[t].data);
      const double* right = reference.at(expected[t].at(of_sums ? "sums" : "values"));
      const double* bound = reference.at(expected[t].at(of_sums ? "sum_bounds" : "value_bounds"));
      for (std::size_t k = 0; k < values.size(); ++k) {
        const double error = std::abs(values[k] - right[k]);
        if (error <= bound[k]) continue;
        failures.push_back(
            fmt::format("gradient of {}, seed {}: {} {} is {:.9g}, should be {:.9g}, error {:.3g}, "
                        "bound {:.3g}",
                        gradients[t].name, test.at("seed").get<int>(), of_sums ? "sum" : "value", k,
                        values[k], right[k], error, bound[k]));
        break;
      }
    }
  }
  return failures;
}

/// || a - b || / || b ||
inline double relative_error(const std::vector<double>& a, const double* b) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(error / size);
}

/// Mean of the middle two of an even number of values; NaN if any is NaN.
inline double median(std::vector<double> values) {
  for (const double value : values) {
    if (std::isnan(value)) return value;
  }
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return (values[middle - 1] + values[middle]) / 2;
}

/// What PyTorch's own run from a seed errs by: its losses, and the change of each tensor.
struct TorchErrors {
  double loss = 0;
  std::vector<double> changes;
};

/// Those of PyTorch's fp32 on the CPU, as stored.
inline TorchErrors stored_errors(const nlohmann::json& test) {
  TorchErrors errors{test.at("torch_loss_error").get<double>(), {}};
  for (const nlohmann::json& change : test.at("changes"))
    errors.changes.push_back(change.at("torch_error").get<double>());
  return errors;
}

/// How ten steps are judged.
struct TenSteps {
  /// One line for each tensor of the first step's gradients that is out of its bounds.
  std::function<std::vector<std::string>(const Parameters&, const nlohmann::json& test)> gradients;
  std::function<TorchErrors(const nlohmann::json& test)> torch;
  double max_error = 1e-2;  ///< that no median may exceed
};

/// Trains from every seed and returns one line for each check that fails. `ratio`, if given, gets
/// the largest quotient of our median error and PyTorch's.
inline std::vector<std::string> parity_failures(Backend& backend, Precision precision, Fault fault,
                                                const TenSteps& how, double* ratio = nullptr,
                                                const Reference& reference = test::reference()) {
  std::vector<std::string> failures;
  struct Errors {
    std::string name;
    std::vector<double> ours, torch;
  };
  std::vector<Errors> errors(1, {"loss", {}, {}});
  for (const nlohmann::json& test : reference.cases()) {
    const auto seed = test.at("seed").get<std::uint64_t>();
    const Training trained =
        train(backend, precision, seed, kBatch, kBatch, kSteps, fault, reference);
    for (std::string& failure : how.gradients(trained.gradients, test)) {
      failures.push_back(std::move(failure));
    }
    const auto losses = test.at("losses").get<std::vector<double>>();
    if (trained.losses.size() != losses.size()) return {"loss: wrong number of results"};
    if (!(trained.losses.back() <= 0.9 * trained.losses.front())) {
      failures.push_back(fmt::format("fall of the loss, seed {}: from {} to {}", seed,
                                     trained.losses.front(), trained.losses.back()));
    }
    const TorchErrors torch = how.torch(test);
    errors[0].ours.push_back(relative_error(trained.losses, losses.data()));
    errors[0].torch.push_back(torch.loss);
    const nlohmann::json& changes = test.at("changes");
    errors.resize(changes.size() + 1);
    for (std::size_t t = 0; t < changes.size(); ++t) {
      errors[t + 1].name = "change of " + changes[t].at("name").get<std::string>();
      errors[t + 1].ours.push_back(relative_error(reference.sums(trained.change.at(t).data),
                                                  reference.at(changes[t].at("sums"))));
      errors[t + 1].torch.push_back(torch.changes.at(t));
    }
  }
  for (const Errors& e : errors) {
    const double ours = median(e.ours), torch = median(e.torch);
    if (ratio) *ratio = std::max(*ratio, ours / torch);
    if (!(ours <= 2 * torch) || !(ours <= how.max_error)) {
      failures.push_back(
          fmt::format("{}: median error {:.3g}, PyTorch's {:.3g}", e.name, ours, torch));
    }
  }
  return failures;
}

/// True if one of the lines starts with `start`.
inline bool mentions(const std::vector<std::string>& lines, const std::string& start) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.rfind(start, 0) == 0; });
}

}  // namespace tandem::test
