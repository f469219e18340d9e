// SPDX-License-Identifier: Apache-2.0
// Which batch size: a search over trials of training. Host code that knows neither device nor
// network; what it asks about them lies behind an interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// What one trial of a batch size saw.
struct BatchTrial {
  /// Seconds of each measured optimizer step that was seen to complete, one entry a step.
  std::vector<double> step_seconds;
  std::size_t bytes = 0;  ///< memory that training held
};

/// What the search asks.
class BatchProbe {
 public:
  virtual ~BatchProbe() = default;

  /// Bytes that training at this batch size will hold. Runs nothing, allocates none of them.
  virtual std::size_t predict_bytes(std::int64_t batch) = 0;

  /// Trains `warmup` steps and then measured ones, at least `steps` and as many more as it takes to
  /// fill `seconds`, from the same state in every trial, and gives all memory back, also when it
  /// throws. Error{out_of_memory} means that the size does not fit; any other exception says
  /// nothing about the size and ends the search.
  virtual BatchTrial run(std::int64_t batch, std::int64_t warmup, std::int64_t steps,
                         double seconds) = 0;

  /// Seconds of a clock that never goes back, from any start: what the time budget is held to.
  virtual double now();

 protected:
  BatchProbe() = default;
  BatchProbe(const BatchProbe&) = delete;
  BatchProbe& operator=(const BatchProbe&) = delete;
};

struct FinderOptions {
  std::int64_t min = 1;
  std::int64_t max = 0;                 ///< the user's cap; 0: none
  std::int64_t limit = 65535;           ///< largest batch that the engine takes
  std::int64_t samples = 0;             ///< in the data set; 0: endless
  std::vector<std::int64_t> sizes;      ///< to be tried beside the powers of two
  std::size_t memory_bytes = 0;         ///< that training may hold
  double margin = 0.1;                  ///< part of the memory that a recommended size leaves free
  double tolerance = 0.05;              ///< a rate within it is as good as the best
  std::int64_t warmup = 3, steps = 10;  ///< of a trial: not measured, and measured at least
  double measured_seconds = 0.5;        ///< that the measured steps of a trial fill at least
  int repeats = 3;                      ///< counted trials a size, in an order drawn from `seed`
  int most_repeats = 12;  ///< and at most, where a choice is open after those; `repeats` if less
  int refinements = 4;    ///< most trials at the edge of memory; 0: powers of two only
  int flat = 2;           ///< sizes in a row without a gain that end the sweep; 0: never
  double trial_seconds = 30;     ///< a size whose trial would take longer is not tried
  double budget_seconds = 0;     ///< that the whole search may take; 0: as long as it takes
  bool may_be_narrower = false;  ///< a precision of fewer bytes is to be had, for hints
  std::uint64_t seed = 0;
};

enum class BatchStatus : std::uint8_t { ok, out_of_memory, skipped };
/// "ok", "oom", "skipped"
const char* name_of(BatchStatus status) noexcept;

/// A size that was looked at.
struct BatchRow {
  std::int64_t batch = 0;
  BatchStatus status = BatchStatus::skipped;
  std::string reason;  ///< one line why it is not ok; empty if it is
  std::size_t predicted_bytes = 0;
  std::size_t bytes = 0;                     ///< that the trials held; 0 where none came through
  std::vector<double> samples_per_second;    ///< one a counted trial
  std::vector<double> step_seconds;          ///< of all counted trials
  std::int64_t steps_run = 0;                ///< steps counted: above 0 if ok
  double median_samples_per_second() const;  ///< 0 without a counted trial
  /// Half the width of the 95 % interval of the trials' mean, by Student's t; none below two
  /// trials.
  std::optional<double> ci95_samples_per_second() const;
};

struct BatchAnswer {
  std::int64_t batch = 0;
  std::string reason;  ///< a sentence
};

struct FinderResult {
  std::vector<BatchRow> rows;                                  ///< ascending; each size once
  BatchAnswer largest_feasible, best_throughput, recommended;  ///< sizes whose rows are ok
  std::vector<std::string> notes;  ///< sentences on what a reader would not expect
};

/// Searches the sizes from `min` to the smallest of `max`, `limit` and `samples`.
///
///   1. Sweep: powers of two and both ends, upwards, then the named sizes. A size that is predicted
///      to exceed the memory is skipped, a trial that runs out of memory is noted, and in both
///      cases larger sizes still have their turn: what fits need not be an interval. The sweep ends
///      after `flat` sizes in a row whose rate is not above the last gain by more than the
///      tolerance.
///   2. Edge: the largest size that is predicted to fit and larger than all that did, and if it
///      runs out of memory, halfway back, `refinements` times.
///   3. Best: halfway to the neighbours of the fastest size, and of the smallest that is within the
///      tolerance of it: which of equally fast sizes comes out first is chance.
///   4. Every size that came through is tried `repeats` times more, in rounds of shuffled order.
///      Only these trials count. One that runs out of memory now is out of the answers.
///   5. Choice: sizes that may be the recommended one, but lie within a 95 % interval of the line,
///      are tried on, with the fastest, up to `most_repeats` times.
///
/// With a time budget a size is tried only while there is time for its trial and then for one
/// counted trial of each size, and is skipped with that reason otherwise; the smallest size is
/// tried whatever that takes. Counted trials go on while there is time for the next. A note says
/// what the budget ended.
///
/// Refined sizes are multiples of 8 from 16 on. `recommended` is the smallest size whose median
/// rate is within the tolerance of the best among those that leave the margin free; a power of two
/// or a multiple of 8 goes before other sizes. A note names sizes that are still open.
///
/// The same answers of the probe give the same result. Throws Error{usage} for options outside
/// their range, a data set or cap below `min`, or a named size outside; Error{out_of_memory} with
/// the numbers if no size fits; Error{run_failed} if a trial counts fewer steps or a shorter time
/// than it was asked for; and what the probe threw, an Error with the batch size in front.
FinderResult find_batch(BatchProbe& probe, const FinderOptions& options);

}  // namespace tandem
