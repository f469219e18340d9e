// SPDX-License-Identifier: Apache-2.0
#include "profile_session.hpp"

#include <fmt/format.h>

#include <tandem/engine/error.hpp>
#include <tandem/engine/profile_memory.hpp>
#include <utility>

#include "gzip.hpp"

namespace tandem::program {

std::string trace_file(const std::string& folder, std::uint64_t cycle, bool gzip) {
  return fmt::format("{}/cycle{}.trace.json{}", folder, cycle, gzip ? ".gz" : "");
}

std::uint64_t steps_behind(const Plan& plan) {
  return static_cast<std::uint64_t>(plan.window()) + plan.stages.size() - 1;
}

ProfileSession::ProfileSession(Setup setup, ProfileSource* source, Recorder& recorder,
                               Trainer& trainer)
    : setup_(std::move(setup)),
      source_(source),
      recorder_(recorder),
      trainer_(trainer),
      tail_(steps_behind(trainer.scheduler().plan())),
      host_lane_(recorder.lane("feeding thread")),
      loading_(recorder.text("wait for a batch")),
      issuing_(recorder.text("issue a step")) {}

void ProfileSession::before_batch() {
  const std::uint64_t now = profile_clock();
  if (issuing_since_ != 0 && recording_) add(RecordKind::issuing, issuing_, issuing_since_, now);
  issuing_since_ = 0;
  loading_since_ = now;
}

void ProfileSession::before_step() {
  if (interrupted()) throw Error(ErrorCode::interrupted, "interrupted");
  if (recording_) add(RecordKind::loading, loading_, loading_since_, profile_clock());
  const ProfileAction action =
      next_ < setup_.steps ? setup_.schedule.action_at(next_) : ProfileAction::none;
  const bool recorded = action == ProfileAction::record || action == ProfileAction::record_and_save;
  if (!recorded) capture_.reset();
  if (last_ && (action != ProfileAction::none ? !recorded || closed_ : behind_ == tail_)) {
    trainer_.finish();
    end_cycle();
  }
  if (action != ProfileAction::none && !recording_) {
    if (source_ != nullptr) source_->start();
    recording_ = true;
  }
  if (recorded) {
    if (!first_) {
      first_ = next_;
      capture_.emplace(nvtx::Category::capture, "profile", next_);
    }
    last_ = next_;
    closed_ = action == ProfileAction::record_and_save;
  } else if (last_) {
    ++behind_;
  }
  ++next_;
  issuing_since_ = profile_clock();
}

void ProfileSession::finish() {
  capture_.reset();
  if (last_) end_cycle();
}

void ProfileSession::add(RecordKind kind, TextId name, std::uint64_t begin, std::uint64_t end) {
  Record record;
  record.kind = kind;
  record.name = name;
  record.begin = begin;
  record.end = end;
  record.step = kind == RecordKind::issuing ? next_ - 1 : next_;
  record.lane = host_lane_;
  recorder_.add(record);
}

void ProfileSession::end_cycle() {
  const std::uint64_t first = *std::exchange(first_, {}), last = *std::exchange(last_, {});
  recording_ = closed_ = false;
  behind_ = 0;
  if (source_ == nullptr) {
    ++summary_.cycles;
    summary_.steps += last - first + 1;
    static_cast<void>(recorder_.take());  // of the feeding thread
    return;
  }
  source_->stop();
  const Recording recording = recorder_.take();
  CycleFile cycle;
  cycle.window = window_of(recording, first, last);
  summary_.add(recording, cycle.window, setup_.multiprocessors);
  if (!setup_.folder.empty()) {
    std::vector<CounterSample> counters;
    if (setup_.memory) counters = live_memory(recording, trainer_.scheduler().plan());
    const TraceText text = chrome_trace(recording, cycle.window, counters, setup_.trace);
    cycle.file = trace_file(setup_.folder, files_.size() + 1, setup_.gzip);
    cycle.events = text.events;
    cycle.dropped = text.dropped;
    write_file(cycle.file, setup_.gzip ? gzip(text.json) : text.json);
  }
  files_.push_back(std::move(cycle));
}

Json milliseconds_a_step(std::uint64_t nanoseconds, const ProfileSummary& s) {
  return 1e-6 * static_cast<double>(nanoseconds) / static_cast<double>(s.steps);
}

namespace {

/// The kinds of the split, with the names that users know.
constexpr std::pair<RecordKind, const char*> kSplit[] = {
    {RecordKind::kernel, "kernel"},       {RecordKind::copy, "copy"},
    {RecordKind::memset, "memset"},       {RecordKind::runtime, "runtime"},
    {RecordKind::loading, "data_loader"}, {RecordKind::issuing, "host"}};

}  // namespace

void add_split(Json& row, const ProfileSummary& s) {
  Json split = Json::object(), hidden = Json::object();
  for (const auto& [kind, name] : kSplit) {
    const auto k = static_cast<std::size_t>(kind);
    split[name] = milliseconds_a_step(s.split[k], s);
    hidden[name] = milliseconds_a_step(s.under_way[k] - s.split[k], s);
  }
  split["rest"] = milliseconds_a_step(s.rest, s);
  row["split_ms"] = split;
  row["hidden_ms"] = hidden;
}

void add_no_split(Json& row, const char* reason) {
  row["split_ms"] = row["hidden_ms"] = row["sm_fill_pct"] = nullptr;
  row["split_reason"] = reason;
}

}  // namespace tandem::program
