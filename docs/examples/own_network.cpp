// SPDX-License-Identifier: Apache-2.0
// Trains a network of one's own with a data set of one's own: find the bright square.
// Exits 0 if overlapping the frozen part with the training of the rest changed no bit.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <tandem/models/tandem.hpp>

namespace {

constexpr std::int64_t kImage = 32;

/// A grey picture with one bright square; label 1 inside it, 0 outside.
class Squares final : public tandem::Dataset {
 public:
  std::int64_t image() const noexcept override { return kImage; }
  std::int64_t epoch_size() const noexcept override { return 1000; }
  const std::vector<std::string>& class_names() const noexcept override { return names_; }

  void sample(std::int64_t index, std::uint8_t* picture, std::uint8_t* labels) const override {
    const std::int64_t left = index * 7 % (kImage - 8), top = index * 13 % (kImage - 8);
    for (std::int64_t y = 0; y < kImage; ++y) {
      for (std::int64_t x = 0; x < kImage; ++x) {
        const bool inside = x >= left && x < left + 8 && y >= top && y < top + 8;
        labels[y * kImage + x] = inside ? 1 : 0;
        for (int c = 0; c < 3; ++c)
          picture[(y * kImage + x) * 3 + c] = inside ? 230 : static_cast<std::uint8_t>(60 + x + y);
      }
    }
  }

 private:
  std::vector<std::string> names_{"ground", "square"};
};

struct Run {
  std::vector<double> losses;
  std::string weights;
};

Run train(tandem::Schedule schedule) {
  tandem::EngineConfig config;
  config.frozen = tandem::Sequential(3).conv(16, 1).relu().conv(32, 2, 2);
  config.trained = tandem::Sequential(32).transposed_conv(16, 2, 2).relu().conv(2, 3, 1, 1);
  config.image = kImage;
  config.batch = 16;
  config.scheduler.schedule = schedule;

  Run run;
  const std::unique_ptr<tandem::Backend> backend = tandem::make_host_backend();
  tandem::Trainer trainer(*backend, config, [&](const tandem::StepResult& result) {
    run.losses.push_back(result.loss);
  });
  trainer.set_frozen(tandem::initialise(config.frozen, tandem::InitScheme::he, 1, 0));
  trainer.set_trained(tandem::initialise(config.trained, tandem::InitScheme::he, 1, 1));

  tandem::LoaderOptions options;
  options.batch = config.batch;
  options.steps = 100;
  options.classes = 2;
  options.learning_rate = 0.1f;
  options.momentum = 0.9f;
  tandem::Loader loader(std::make_shared<Squares>(), options, trainer.inputs(),
                        [&](int slot) { trainer.wait_input_free(slot); });
  for (int slot; (slot = loader.next()) >= 0;) {
    trainer.step(slot);
    loader.submitted(slot);
  }
  trainer.finish();
  run.weights = tandem::parameters_sha256(trainer.trained());
  return run;
}

}  // namespace

int main() try {
  const Run serial = train(tandem::Schedule::serial);
  const Run overlap = train(tandem::Schedule::overlap);
  const bool same = serial.losses == overlap.losses && serial.weights == overlap.weights;
  std::printf("loss %.4f -> %.4f, serial and overlap %s\n", serial.losses.front(),
              serial.losses.back(), same ? "agree bit for bit" : "DIFFER");
  return same && serial.losses.back() < 0.5 * serial.losses.front() ? 0 : 1;
} catch (const tandem::Error& error) {
  std::fprintf(stderr, "own_network: %s\n", error.what());
  return static_cast<int>(error.code());
}
