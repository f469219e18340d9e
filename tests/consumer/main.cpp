// SPDX-License-Identifier: Apache-2.0
// Somebody else's program: trains a segmenter for three steps through the installed package.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/models/parameters.hpp>
#include <tandem/models/segmenter.hpp>
#include <tandem/models/trainer.hpp>

int main() try {
  constexpr std::int64_t kImage = 32, kClasses = 4, kBatch = 2, kSteps = 3;
  tandem::EngineConfig config;
  config.frozen = tandem::segmenter_encoder(kImage);
  config.trained = tandem::segmenter_decoder(kImage, kClasses);
  config.image = kImage;
  config.batch = kBatch;

  const auto backend = tandem::make_host_backend();
  std::int64_t finite = 0;
  tandem::Trainer trainer(*backend, config, [&finite](const tandem::StepResult& result) {
    std::printf("step %d: loss %.4f\n", static_cast<int>(result.step), result.loss);
    finite += std::isfinite(result.loss) && result.loss > 0;
  });
  trainer.set_frozen(tandem::initialise(config.frozen, tandem::InitScheme::he, 0, 0));
  trainer.set_trained(tandem::initialise(config.trained, tandem::InitScheme::he, 0, 1));

  const std::shared_ptr<const tandem::Dataset> data =
      tandem::make_synthetic(kImage, kClasses, 0);
  tandem::LoaderOptions options;
  options.batch = kBatch;
  options.steps = kSteps;
  options.classes = kClasses;
  options.learning_rate = 0.1f;
  tandem::Loader loader(data, options, trainer.inputs(),
                        [&trainer](int slot) { trainer.wait_input_free(slot); });
  for (int slot = loader.next(); slot >= 0; slot = loader.next()) {
    trainer.step(slot);
    loader.submitted(slot);
  }
  trainer.finish();
  return finite == kSteps ? 0 : 1;
} catch (const tandem::Error& error) {
  std::fprintf(stderr, "consumer: %s\n", error.what());
  return static_cast<int>(error.code());
}
