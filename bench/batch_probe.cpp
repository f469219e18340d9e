// SPDX-License-Identifier: Apache-2.0
#include "batch_probe.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <numeric>
#include <tandem/engine/error.hpp>
#include <tandem/engine/profile_source.hpp>
#include <utility>
#include <vector>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "profile_session.hpp"

namespace tandem::program {
namespace {

using Clock = std::chrono::steady_clock;

/// Gives what was freed back to the system, at the end of a scope: as long as the process keeps it
/// for itself, the system says that it is taken.
class [[nodiscard]] FreedMemoryReturner {
 public:
  FreedMemoryReturner() = default;
  ~FreedMemoryReturner() {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
  }
  FreedMemoryReturner(const FreedMemoryReturner&) = delete;
  FreedMemoryReturner& operator=(const FreedMemoryReturner&) = delete;
};

}  // namespace

LoaderOptions make_ready(Trainer& trainer, const EngineConfig& config, const ProbeJob& job) {
  trainer.set_frozen(job.frozen);
  trainer.set_trained(job.trained);
  LoaderOptions loader = job.loader;
  loader.batch = config.batch;
  if (config.input_memory == MemoryKind::device) fill_inputs(trainer, config, job.data, loader);
  return loader;
}

TrainingProbe::TrainingProbe(const Device& device, ProbeJob job,
                             std::function<void(std::int64_t)> on_trial)
    : device_(device), job_(std::move(job)), on_trial_(std::move(on_trial)) {}

EngineConfig TrainingProbe::config_for(std::int64_t batch) const {
  EngineConfig config = job_.config;
  config.batch = batch;
  return config;
}

std::int64_t TrainingProbe::largest_batch() const {
  const auto check = [this](std::int64_t batch) { plan_training(config_for(batch)); };
  check(1);
  std::int64_t low = 1, high = kMaxBatch + 1;  // what is taken, and what is not
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    try {
      check(middle);
      low = middle;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::usage) throw;
      high = middle;
    }
  }
  return low;
}

std::size_t TrainingProbe::predict_bytes(std::int64_t batch) {
  const EngineConfig config = config_for(batch);
  std::size_t bytes = memory_need(device_, plan_training(config), config.scheduler);
  if (job_.beside_predictor)
    bytes += memory_need(device_, plan_prediction(config), config.scheduler);
  return bytes;
}

BatchTrial TrainingProbe::run(std::int64_t batch, std::int64_t warmup, std::int64_t steps,
                              double seconds) {
  return run_as(job_.config.scheduler.schedule, batch, warmup, steps, seconds, nullptr);
}

BatchTrial TrainingProbe::run_as(Schedule schedule, std::int64_t batch, std::int64_t warmup,
                                 std::int64_t steps, double seconds, StageSeconds* stages) try {
  on_trial_(batch);
  EngineConfig config = config_for(batch);
  config.scheduler.schedule = schedule;
  const FreedMemoryReturner returner;
  const std::unique_ptr<Backend> backend = make_backend(device_);
  const std::size_t free_before = device_.is_cuda() ? free_memory(device_) : 0;
  std::vector<Clock::time_point> times;  // the start, then the end of each step
  Trainer trainer(*backend, config, [&](const StepResult&) { times.push_back(Clock::now()); });
  LoaderOptions loader = make_ready(trainer, config, job_);
  // The host hears of a step when it issues a later one. The trial ends when it has heard of
  // enough, so that every measured step is heard of equally late, with others under way behind it.
  loader.steps = std::uint64_t{1} << 40;  // more than there will be
  const auto between = [&times](std::size_t from, std::size_t to) {
    return std::chrono::duration<double>(times[to] - times[from]).count();
  };
  const auto first = static_cast<std::size_t>(warmup);
  std::size_t last = 0;
  const auto goes_on = [&] {
    last = times.size() - 1;
    return last < first + static_cast<std::size_t>(steps) || between(first, last) < seconds;
  };
  times.push_back(Clock::now());
  run_steps(trainer, config, job_.data, loader, check_interrupt, {}, goes_on);

  BatchTrial trial;
  for (std::size_t i = first; i < last; ++i) trial.step_seconds.push_back(between(i, i + 1));
  // On a GPU what is gone, with what the libraries took; the host's figure is everybody's.
  const std::size_t free_after = device_.is_cuda() ? free_memory(device_) : 0;
  trial.bytes = device_.is_cuda()
                    ? free_before - std::min(free_before, free_after)
                    : memory_need(device_, trainer.scheduler().plan(), config.scheduler);
  if (stages != nullptr) *stages = time_stages(trainer.scheduler(), 0.05);
  return trial;
} catch (const std::bad_alloc&) {
  throw Error(ErrorCode::out_of_memory, "not enough host memory for the data of a batch");
}

Observation TrainingProbe::observe(std::int64_t batch, double step_seconds, double seconds) {
  if (!device_.is_cuda()) return not_observed("the host backend uses no GPU");
  if (seconds == 0) return not_observed("not asked for: --observe 0");
  constexpr int kSkipped = 10, kMostTimed = 200;
  on_trial_(batch);
  EngineConfig config = config_for(batch);
  const int stages = static_cast<int>(plan_training(config).stages.size());
  const auto steps = static_cast<std::uint64_t>(
      std::clamp(seconds / step_seconds, static_cast<double>(kSkipped + 10), 1e9));
  const int timed = static_cast<int>(std::min<std::uint64_t>(kMostTimed, steps - kSkipped));
  Observer observer(device_, stages, kSkipped, timed, seconds / 2);
  config.scheduler.stage_timer = observer.timer();
  const std::unique_ptr<Backend> backend = make_backend(device_);
  Trainer trainer(*backend, config, [](const StepResult&) {});
  LoaderOptions loader = make_ready(trainer, config, job_);
  loader.steps = steps;
  run_steps(trainer, config, job_.data, loader, [&observer] {
    check_interrupt();
    observer.on_step();
  });
  return observer.result();
}

void TrainingProbe::add_split_of(std::int64_t batch, Json& row) {
  if (job_.config.scheduler.schedule == Schedule::graph)
    return add_no_split(row, "a captured step is not recorded");
  on_trial_(batch);
  EngineConfig config = config_for(batch);
  const Plan plan = plan_training(config);
  std::vector<std::string> stages;
  for (const Stage& stage : plan.stages) stages.push_back(stage.name);
  Recorder recorder(std::move(stages));
  const ProfileView view = make_profile_view(device_, "auto", recorder, false);
  const std::unique_ptr<Backend> backend = make_backend(device_, view.source.get());
  Trainer trainer(*backend, config, [](const StepResult&) {});
  LoaderOptions loader = make_ready(trainer, config, job_);

  ProfileSession::Setup setup;
  setup.schedule.wait = 6;  // as `tandem profile`: both edges lie in the steady state
  setup.schedule.warmup = 1;
  setup.schedule.active = 3;
  setup.schedule.repeat = 1;
  setup.steps = setup.schedule.steps();
  setup.multiprocessors = device_.multiprocessors;
  ProfileSession session(setup, view.source.get(), recorder, trainer);
  loader.steps = setup.steps + steps_behind(plan);
  run_steps(
      trainer, config, job_.data, loader, [&] { session.before_step(); },
      [&] { session.before_batch(); });
  session.finish();
  const ProfileSummary& seen = session.summary();
  add_split(row, seen);
  row["sm_fill_pct"] = seen.fill_known ? Json(seen.sm_fill_percent()) : Json(nullptr);
  row["split_source"] = view.source->name();
}

OverlapSeen TrainingProbe::see_overlap(std::int64_t batch, std::int64_t warmup, std::int64_t steps,
                                       double seconds, std::int64_t repeats,
                                       std::optional<double> own) {
  const bool overlaps = job_.config.scheduler.schedule != Schedule::serial;
  OverlapSeen seen;
  const auto seconds_a_step = [&](Schedule schedule, StageSeconds* stages) {
    const BatchTrial trial = run_as(schedule, batch, warmup, steps, seconds, stages);
    return std::accumulate(trial.step_seconds.begin(), trial.step_seconds.end(), 0.0) /
           static_cast<double>(trial.step_seconds.size());
  };
  std::vector<double> others, owns;
  for (std::int64_t i = 0; i < repeats; ++i) {
    others.push_back(seconds_a_step(overlaps ? Schedule::serial : Schedule::overlap,
                                    i == 0 ? &seen.stages : nullptr));
    if (!own) owns.push_back(seconds_a_step(job_.config.scheduler.schedule, nullptr));
  }
  const double other = median_of(others), mine = own ? *own : median_of(owns);
  seen.serial = overlaps ? other : mine;
  seen.overlapped = overlaps ? mine : other;
  return seen;
}

void add_overlap(Json& row, const OverlapSeen& seen, const OverlapAnswer& answer) {
  Json stages = Json::object();
  for (const auto& [name, seconds] : seen.stages) stages[name] = 1e3 * seconds;
  row["stage_ms"] = stages;
  row["t_a_ms"] = 1e3 * answer.a;
  row["t_b_ms"] = 1e3 * answer.b;
  row["serial_ms"] = 1e3 * seen.serial;
  row["overlap_ms"] = 1e3 * seen.overlapped;
  row["predicted_speedup"] = answer.bound;
  row["measured_speedup"] = answer.speedup;
  row["overlap_eff"] = answer.efficiency;
  row["overlap"] = answer.sentence;
}

}  // namespace tandem::program
