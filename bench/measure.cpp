// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <algorithm>
#include <map>
#include <tandem/engine/error.hpp>

#include "common.hpp"

namespace tandem::program {

void check_interrupt() {
  if (interrupted()) throw Error(ErrorCode::interrupted, "interrupted; no results were written");
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void fill_inputs(Trainer& trainer, const EngineConfig& config,
                 const std::shared_ptr<const Dataset>& data, LoaderOptions options) {
  Scheduler& scheduler = trainer.scheduler();
  const Plan& plan = scheduler.plan();
  const auto samples = static_cast<std::size_t>(config.batch);
  std::vector<std::uint8_t> images(samples * static_cast<std::size_t>(data->sample_bytes()));
  std::vector<std::uint8_t> labels(samples * static_cast<std::size_t>(data->label_count()));
  // 64-bit words, as the header and the sample ids behind it want their alignment.
  std::vector<std::uint64_t> header((batch_header_bytes(config.batch) + 7) / 8);
  InputSlot staging;
  staging.images = images.data();
  staging.labels = labels.data();
  staging.header = reinterpret_cast<BatchHeader*>(header.data());
  staging.batch = config.batch;
  staging.image = data->image();
  staging.features = data->features();
  staging.label_count = data->label_count();
  const std::map<std::string, const void*> sources{{"input.images", images.data()},
                                                   {"input.labels", labels.data()},
                                                   {"input.header", header.data()}};

  options.steps = static_cast<std::uint64_t>(plan.input_slots);
  Loader loader(data, options, {staging}, [](int) {});
  for (int slot = 0; loader.next() >= 0; ++slot) {
    for (std::size_t b = 0; b < plan.buffers.size(); ++b)
      if (plan.buffers[b].scope == Scope::input)
        scheduler.write(static_cast<BufferId>(b), sources.at(plan.buffers[b].name), slot);
    loader.submitted(0);
  }
}

void run_steps(Trainer& trainer, const EngineConfig& config,
               const std::shared_ptr<const Dataset>& data, const LoaderOptions& options,
               const std::function<void()>& before_step, const std::function<void()>& before_batch,
               const std::function<bool()>& goes_on) {
  const auto ask = [&] {
    if (goes_on && !goes_on()) return false;
    if (before_batch) before_batch();
    return true;
  };
  if (config.input_memory == MemoryKind::device) {
    for (std::uint64_t step = 0; step < options.steps && ask(); ++step) {
      before_step();
      trainer.step(static_cast<int>(step % static_cast<std::uint64_t>(config.input_slots)));
    }
  } else {
    Loader loader(data, options, trainer.inputs(),
                  [&trainer](int slot) { trainer.wait_input_free(slot); });
    for (int slot; ask() && (slot = loader.next()) >= 0;) {
      before_step();
      trainer.step(slot);
      loader.submitted(slot);
    }
  }
  trainer.finish();
}

StageSeconds time_stages(Scheduler& scheduler, double seconds) {
  constexpr int kMostRepeats = 1000;
  StageSeconds stages;
  for (std::size_t i = 0; i < scheduler.plan().stages.size(); ++i) {
    check_interrupt();
    const int stage = static_cast<int>(i);
    const double once = scheduler.time_stage(stage, 1);
    const int repeats =
        std::clamp(static_cast<int>(seconds / std::max(once, 1e-6)), 3, kMostRepeats);
    stages.emplace_back(scheduler.plan().stages[i].name,
                        scheduler.time_stage(stage, repeats) / repeats);
  }
  return stages;
}

}  // namespace tandem::program
