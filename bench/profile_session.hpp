// SPDX-License-Identifier: Apache-2.0
// A run whose steps are recorded in cycles, and what it saw.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tandem/engine/chrome_trace.hpp>
#include <tandem/engine/nvtx.hpp>
#include <tandem/engine/profile_schedule.hpp>
#include <tandem/engine/profile_source.hpp>
#include <tandem/engine/profile_summary.hpp>
#include <tandem/models/trainer.hpp>
#include <vector>

#include "common.hpp"

namespace tandem::program {

/// A trace that was written.
struct CycleFile {
  std::string file;
  ProfileWindow window;
  std::uint64_t events = 0, dropped = 0;
};

/// The file of a cycle's trace; cycles are counted from 1.
std::string trace_file(const std::string& folder, std::uint64_t cycle, bool gzip);

/// When a step's last stage, k = K - 1, ends, the host may have fed so many steps behind it.
std::uint64_t steps_behind(const Plan& plan);

/// Follows the schedule through a run of one batch size: starts and stops the source, and makes a
/// trace and a part of the summary of each cycle.
///
///   step      0 1 2 3 4 5 6 7 8 9 | 10 ...          wait 6, warmup 1, active 3
///   action    . . . . . . w r r s | . . . . . . w ...
///   source                [-------|-----------]      the steps behind the last recorded one keep
///   cycle                   |-----|                  pipeline and host at work until it is done
///
/// Behind those, at most R + K + 1, the pipeline is drained, so that all that was recorded is
/// there, and starts anew. Where fewer steps are between two cycles, their edges are those of a
/// pipeline that fills and drains.
class ProfileSession {
 public:
  struct Setup {
    ProfileSchedule schedule;
    std::uint64_t steps = 0;  // of the schedule; what comes behind belongs to no cycle
    std::string folder;       // of the traces; empty: none are written
    TraceOptions trace;
    bool gzip = false;
    bool memory = false;
    int multiprocessors = 0;
  };

  /// Without a source cycles are only marked, for another tool.
  ProfileSession(Setup setup, ProfileSource* source, Recorder& recorder, Trainer& trainer);

  /// To be called before a batch is fetched, and before its step is fed. The latter throws
  /// Error{interrupted}.
  void before_batch();
  void before_step();
  /// When nothing is in flight: what is left of the last cycle.
  void finish();

  const ProfileSummary& summary() const noexcept { return summary_; }
  const std::vector<CycleFile>& files() const noexcept { return files_; }

 private:
  void add(RecordKind kind, TextId name, std::uint64_t begin, std::uint64_t end);
  void end_cycle();

  const Setup setup_;
  ProfileSource* const source_;
  Recorder& recorder_;
  Trainer& trainer_;
  const std::uint64_t tail_;  // steps behind a cycle that belong to none
  const int host_lane_;
  const TextId loading_, issuing_;

  std::uint64_t next_ = 0;                     // step to be fed
  std::optional<std::uint64_t> first_, last_;  // of the cycle's recorded steps, fed so far
  bool closed_ = false;                        // the cycle has all its steps
  std::uint64_t behind_ = 0;                   // steps fed behind the cycle's last
  bool recording_ = false;
  std::uint64_t loading_since_ = 0, issuing_since_ = 0;
  std::optional<nvtx::Range> capture_;
  ProfileSummary summary_;
  std::vector<CycleFile> files_;
};

/// Milliseconds of a step, of nanoseconds of all recorded ones.
Json milliseconds_a_step(std::uint64_t nanoseconds, const ProfileSummary& s);

/// split_ms, whose parts add up to the step, and hidden_ms.
void add_split(Json& row, const ProfileSummary& s);
/// Both and sm_fill_pct null, with split_reason.
void add_no_split(Json& row, const char* reason);

}  // namespace tandem::program
