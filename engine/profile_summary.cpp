// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <tandem/engine/error.hpp>
#include <tandem/engine/profile_summary.hpp>
#include <utility>

namespace tandem {
namespace {

/// A record begins or ends.
struct Change {
  std::uint64_t time = 0;
  bool begins = false;
  const Record* record = nullptr;
};

std::vector<Change> changes_in(const Recording& recording, const ProfileWindow& window) {
  std::vector<Change> changes;
  for (const Record& record : recording.records) {
    const std::uint64_t begin = std::max(record.begin, window.begin);
    const std::uint64_t end = std::min(record.end, window.end);
    if (begin >= end) continue;
    changes.push_back({begin, true, &record});
    changes.push_back({end, false, &record});
  }
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return a.time < b.time; });
  return changes;
}

double milliseconds(double nanoseconds) { return 1e-6 * nanoseconds; }

}  // namespace

ProfileWindow window_of(const Recording& recording, std::uint64_t first_step,
                        std::uint64_t last_step) {
  const int last_stage = static_cast<int>(recording.stages.size()) - 1;
  if (recording.dropped > 0) {
    // The step that the last stage had begun when there was no more room is not whole.
    std::uint64_t begun = first_step;
    for (const Record& record : recording.records)
      if (is_device(record.kind) && record.stage == last_stage && record.step != Record::kNoStep)
        begun = std::max(begun, record.step);
    if (begun == first_step)
      throw Error(ErrorCode::run_failed,
                  fmt::format("there was no room for the records of step {}: {} were too many",
                              first_step, recording.dropped));
    last_step = std::min(last_step, begun - 1);
  }
  ProfileWindow window;
  window.first_step = first_step;
  window.last_step = last_step;
  std::uint64_t first_begin = Record::kNoStep;
  for (const Record& record : recording.records) {
    if (!is_device(record.kind) || record.step == Record::kNoStep) continue;
    if (record.step >= first_step && record.step <= last_step) {
      first_begin = std::min(first_begin, record.begin);
      window.end = std::max(window.end, record.end);
    } else if (record.step + 1 == first_step && record.stage == last_stage) {
      window.begin = std::max(window.begin, record.end);
      window.warm = true;
    }
  }
  if (first_begin == Record::kNoStep)
    throw Error(ErrorCode::run_failed,
                fmt::format("steps {} to {} were to be recorded, but no work of them was seen",
                            first_step, last_step));
  if (!window.warm) window.begin = first_begin;
  return window;
}

void ProfileSummary::add(const Recording& recording, const ProfileWindow& window,
                         int multiprocessors) {
  stages = recording.stages;
  stage.resize(stages.size());
  ++cycles;
  steps += window.steps();
  dropped += recording.dropped;
  wall += window.end - window.begin;
  warm &= window.warm;

  std::array<int, kRecordKinds> running{};
  std::vector<int> in_stage(stages.size()), on_lane(recording.lanes.size());
  int lanes = 0;  // with device work
  std::uint64_t blocks = 0, now = window.begin;
  const auto pass_to = [&](std::uint64_t time) {
    const std::uint64_t passed = time - std::exchange(now, time);
    bool counted = false;
    for (std::size_t kind = 0; kind < running.size(); ++kind) {
      if (running[kind] == 0) continue;
      under_way[kind] += passed;
      if (!std::exchange(counted, true)) split[kind] += passed;
    }
    if (!counted) rest += passed;
    for (std::size_t s = 0; s < in_stage.size(); ++s)
      if (in_stage[s] > 0) stage[s] += passed;
    if (lanes >= 2) overlapped += passed;
    if (multiprocessors > 0)
      fill += static_cast<double>(passed) *
              std::min(1.0, static_cast<double>(blocks) / multiprocessors);
  };
  fill_known &= multiprocessors > 0;
  for (const Change& change : changes_in(recording, window)) {
    pass_to(change.time);
    const Record& record = *change.record;
    const int by = change.begins ? 1 : -1;
    running[static_cast<std::size_t>(record.kind)] += by;
    if (change.begins) {
      ++records;
      if (record.kind == RecordKind::kernel) {
        KernelTimes& kernel = kernels[recording.texts[record.name]];
        ++kernel.count;
        kernel.nanoseconds +=
            std::min(record.end, window.end) - std::max(record.begin, window.begin);
        fill_known &= record.blocks > 0;
      }
    }
    if (!is_device(record.kind)) continue;
    if (record.stage >= 0) in_stage[static_cast<std::size_t>(record.stage)] += by;
    int& on = on_lane[static_cast<std::size_t>(record.lane)];
    lanes -= on > 0 ? 1 : 0;
    on += by;
    lanes += on > 0 ? 1 : 0;
    if (record.kind == RecordKind::kernel)
      blocks = change.begins ? blocks + record.blocks : blocks - record.blocks;
  }
  pass_to(window.end);
}

double ProfileSummary::kernel_busy_percent() const {
  return 100 * share(under_way[static_cast<std::size_t>(RecordKind::kernel)]);
}

std::vector<std::pair<std::string, KernelTimes>> top_kernels(const ProfileSummary& summary,
                                                             std::size_t count) {
  std::vector<std::pair<std::string, KernelTimes>> top(summary.kernels.begin(),
                                                       summary.kernels.end());
  std::stable_sort(top.begin(), top.end(), [](const auto& a, const auto& b) {
    return a.second.nanoseconds > b.second.nanoseconds;
  });
  top.resize(std::min(count, top.size()));
  return top;
}

std::vector<Finding> findings_of(const ProfileSummary& s, const ProfileFacts& facts) {
  constexpr double kMostLoading = 0.05, kMostCopying = 0.1, kLowBusy = 50, kHighBusy = 90;
  constexpr double kHighFill = 80, kLowFillWhileBusy = 0.5, kLittleOverlap = 5, kUnequal = 2;
  constexpr double kShortKernel = 10e3, kMostMemory = 0.9;  // nanoseconds; part

  std::vector<Finding> findings;
  const auto find = [&](const char* rule, std::string text) {
    findings.push_back({rule, std::move(text)});
  };
  const double busy = s.kernel_busy_percent();
  const double steps = static_cast<double>(std::max<std::uint64_t>(s.steps, 1));

  bool explained = false;  // why kernels do not run all the time
  if (const double loading = s.share(s.of(RecordKind::loading)); loading > kMostLoading) {
    explained = true;
    find("loader_bound",
         fmt::format("In {:.1f} % of the time nothing runs and the next batch is not there: use "
                     "more loader threads, or move augmentation to the device.",
                     100 * loading));
  }
  if (const double copying = s.share(s.of(RecordKind::copy)); copying > kMostCopying) {
    explained = true;
    find("copy_bound",
         fmt::format("In {:.1f} % of the time only copies run: smaller inputs (bytes in place of "
                     "floats), or stages on streams of their own, which copy beside the work.",
                     100 * copying));
  }
  std::uint64_t kernels = 0, kernel_time = 0;
  for (const auto& [name, times] : s.kernels) {
    kernels += times.count;
    kernel_time += times.nanoseconds;
  }
  const double mean =
      kernels == 0 ? 0 : static_cast<double>(kernel_time) / static_cast<double>(kernels);
  if (facts.gpu && !explained && busy < kLowBusy && kernels > 0 && mean < kShortKernel) {
    explained = true;
    find("launch_bound",
         fmt::format("Kernels run in {:.1f} % of the time, {:.0f} a step with {:.1f} us each: they "
                     "end before the host has queued the next. A larger batch makes them longer, "
                     "fused operations and the schedule graph save launches.",
                     busy, static_cast<double>(kernels) / steps, 1e-3 * mean));
  }
  if (!explained && busy < kLowBusy)
    find("low_busy",
         fmt::format("Kernels run in {:.1f} % of the time: a larger batch gives the device more to "
                     "do. It makes fewer updates an epoch, and the learning rate may have to "
                     "follow.",
                     busy));
  if (s.fill_known && busy >= kHighBusy && s.sm_fill_percent() >= kHighFill)
    find("gpu_full",
         fmt::format("Kernels run in {:.1f} % of the time and have blocks for {:.1f} % of the "
                     "multiprocessors: neither a larger batch nor more overlap gives much.",
                     busy, s.sm_fill_percent()));
  if (s.fill_known && busy >= kLowBusy && s.sm_fill_percent() < kLowFillWhileBusy * busy)
    find("low_fill",
         fmt::format("Running kernels have blocks for {:.1f} % of the multiprocessors: a larger "
                     "batch, or stages side by side, would use the others.",
                     100 * s.sm_fill_percent() / busy));

  if (facts.overlap && s.stage.size() >= 2) {
    if (s.overlap_percent() < kLittleOverlap)
      find("no_overlap",
           fmt::format("Two streams work at once in {:.1f} % of the time: overlapping brings "
                       "nothing here, serial is as good.",
                       s.overlap_percent()));
    std::vector<std::size_t> order(s.stage.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return s.stage[a] > s.stage[b]; });
    const double longest = static_cast<double>(s.stage[order[0]]);
    const double next = static_cast<double>(s.stage[order[1]]);
    if (longest > kUnequal * next)
      find("stages_unequal",
           fmt::format("Stage {} works {:.3f} ms a step, the next longest, {}, {:.3f} ms: what "
                       "overlap can hide is the shorter one.",
                       s.stages[order[0]], milliseconds(longest / steps), s.stages[order[1]],
                       milliseconds(next / steps)));
  }
  if (facts.memory_needed > 0 && static_cast<double>(facts.memory_needed) >
                                     kMostMemory * static_cast<double>(facts.memory_there))
    find("memory_full",
         fmt::format("Training needs {:.1f} of the {:.1f} MiB that are free: a smaller batch{}.",
                     static_cast<double>(facts.memory_needed) / (1 << 20),
                     static_cast<double>(facts.memory_there) / (1 << 20),
                     facts.gpu ? ", or bf16 where it is not in use" : ""));
  if (facts.gpu && facts.strict_products)
    find("full_precision",
         "Products are computed in fp32, without tensor cores: try tf32, or bf16.");
  if (!s.warm)
    find("not_warm",
         "The step before the first recorded one was not seen, so work that was under way is "
         "missing: warm up for at least one step.");
  if (s.dropped > 0)
    find("dropped",
         fmt::format("{} records were too many, so the figures are of fewer steps than asked "
                     "for: record fewer a cycle.",
                     s.dropped));
  return findings;
}

}  // namespace tandem
