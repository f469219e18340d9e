// SPDX-License-Identifier: Apache-2.0
// Ten steps of the segmenter against PyTorch, on any backend and in any precision; see
// tests/golden/parity/README.md for what the files hold.
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
#include <tandem/models/segmenter.hpp>
#include <tandem/models/trainer.hpp>
#include <tandem/tests/support/parity_data.hpp>
#include <utility>
#include <vector>

namespace tandem::test {

inline constexpr std::int64_t kImage = 64, kClasses = 10, kBatch = 8;
inline constexpr int kSteps = 10, kDecoderLayer = 7;  // the encoder has layers 0 to 6
inline constexpr std::size_t kValues = 256;           // stored of each tensor

/// The stored values.
class Reference {
 public:
  Reference() {
    const std::string folder = TANDEM_SOURCE_DIR "/tests/golden/parity/";
    index_ = nlohmann::json::parse(std::ifstream(folder + "parity.json"));
    values_.resize(index_.at("values").get<std::size_t>());
    std::ifstream file(folder + "parity.bin", std::ios::binary);
    file.read(reinterpret_cast<char*>(values_.data()),
              static_cast<std::streamsize>(values_.size() * sizeof(double)));
    if (!file || file.peek() != std::ifstream::traits_type::eof()) {
      throw std::runtime_error("parity.bin does not hold the values that parity.json names");
    }
  }
  const nlohmann::json& cases() const { return index_.at("cases"); }
  const nlohmann::json& partial() const { return index_.at("partial"); }
  const double* at(const nlohmann::json& offset) const {
    return values_.data() + offset.get<std::size_t>();
  }

 private:
  nlohmann::json index_;
  std::vector<double> values_;  // little-endian in the file, as on every machine we run on
};

inline const Reference& reference() {
  static const Reference instance;
  return instance;
}

/// All elements of a small tensor; else element splitmix64(k) mod elements for k < 256.
inline std::vector<double> sampled(const std::vector<float>& tensor) {
  if (tensor.size() <= kValues) return {tensor.begin(), tensor.end()};
  std::vector<double> result(kValues);
  for (std::size_t k = 0; k < kValues; ++k) result[k] = tensor[splitmix64(k) % tensor.size()];
  return result;
}

/// All elements of a small tensor; else 256 signed sums in which every element appears once.
inline std::vector<double> sums(const std::vector<float>& tensor) {
  if (tensor.size() <= kValues) return {tensor.begin(), tensor.end()};
  std::vector<double> result(kValues);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const std::uint64_t h = splitmix64(i);
    result[h % kValues] += (h >> 8) % 2 == 0 ? tensor[i] : -tensor[i];
  }
  return result;
}

/// What is wrong on purpose.
enum class Fault {
  none,
  no_rate,       // the learning rate is 0
  frozen_layer,  // the first decoder layer is not updated
  dropped_bias,  // one bias gradient is not applied
  no_momentum,   // plain SGD
  input_scale,   // pictures scaled by 1/256 instead of 1/255
};

struct Training {
  Parameters gradients;  // of the first step
  std::vector<double> losses;
  Parameters change;  // W10 - W0
};

/// The weights (and their buffers) that a fault keeps from changing, by their number of elements,
/// which at this size no two tensors of the decoder share.
inline std::vector<std::int64_t> kept_sizes(Fault fault) {
  if (fault == Fault::frozen_layer) return {1024 * 512 * 4, 512};
  if (fault == Fault::dropped_bias) return {128};
  return {};
}

/// Even seeds overlapped, odd ones serial.
inline Training train(Backend& backend, Precision precision, std::uint64_t seed, std::int64_t batch,
                      std::int64_t samples, int steps, Fault fault) {
  EngineConfig config;
  config.precision = precision;
  config.frozen = segmenter_encoder(kImage);
  config.trained = segmenter_decoder(kImage, kClasses);
  config.image = kImage;
  config.batch = batch;
  config.momentum = fault != Fault::no_momentum;
  if (fault == Fault::input_scale) config.input_scale = 1.0f / 256.0f;
  config.scheduler.schedule = seed % 2 == 0 ? Schedule::overlap : Schedule::serial;

  Training result;
  Trainer trainer(backend, config,
                  [&](const StepResult& step) { result.losses.push_back(step.loss); });
  const Parameters start = make_parameters(config.trained, seed, kDecoderLayer);
  trainer.set_frozen(make_parameters(config.frozen, seed, 0));
  trainer.set_trained(start);

  struct Kept {
    BufferId buffer;
    std::vector<float> values;
  };
  std::vector<Kept> kept;
  for (const Operation& operation : trainer.scheduler().plan().stages.back().operations) {
    if (operation.kind != OpKind::sgd_momentum) continue;
    const Operand& weight = operation.operands[3];
    for (const std::int64_t size : kept_sizes(fault)) {
      if (weight.desc.elements() != size) continue;
      kept.push_back({weight.buffer, std::vector<float>(static_cast<std::size_t>(size))});
      trainer.scheduler().read(weight.buffer, kept.back().values.data());
    }
  }
  EXPECT_EQ(kept.size(), kept_sizes(fault).size());

  const std::vector<InputSlot> inputs = trainer.inputs();
  for (int step = 0; step < steps; ++step) {
    const int slot = step % static_cast<int>(inputs.size());
    trainer.wait_input_free(slot);
    BatchOptions options;
    options.batch = batch;
    options.samples = samples;
    options.step = static_cast<std::uint64_t>(step);
    if (fault == Fault::no_rate) options.learning_rate = 0;
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
                                                  const nlohmann::json& test) {
  std::vector<std::string> failures;
  const nlohmann::json& expected = test.at("gradients");
  if (gradients.size() != expected.size()) return {"gradient: wrong number of tensors"};
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    for (const bool of_sums : {false, true}) {
      const std::vector<double> values =
          of_sums ? sums(gradients[t].data) : sampled(gradients[t].data);
      const double* right = reference().at(expected[t].at(of_sums ? "sums" : "values"));
      const double* bound = reference().at(expected[t].at(of_sums ? "sum_bounds" : "value_bounds"));
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
                                                const TenSteps& how, double* ratio = nullptr) {
  std::vector<std::string> failures;
  struct Errors {
    std::string name;
    std::vector<double> ours, torch;
  };
  std::vector<Errors> errors(1, {"loss", {}, {}});
  for (const nlohmann::json& test : reference().cases()) {
    const auto seed = test.at("seed").get<std::uint64_t>();
    const Training trained = train(backend, precision, seed, kBatch, kBatch, kSteps, fault);
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
      errors[t + 1].ours.push_back(
          relative_error(sums(trained.change.at(t).data), reference().at(changes[t].at("sums"))));
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
