// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tandem/engine/error.hpp>
#include <tandem/engine/finder.hpp>
#include <utility>

namespace tandem {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Square of the standard error of the mean, of at least two values.
double squared_error(const std::vector<double>& values) {
  const double middle = mean(values), n = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  return sum / (n - 1) / n;
}

/// Student's t that 2.5 % exceed, for some degrees of freedom above 0.
double student_t(std::size_t freedom) {
  constexpr std::array kTable{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                              2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                              2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064};
  if (freedom <= kTable.size()) return kTable[freedom - 1];
  return 1.960 + 2.5 / static_cast<double>(freedom);  // within 0.005 from 25 on
}

void check(bool allowed, const char* name, double value, const char* range) {
  if (!allowed)
    throw Error(ErrorCode::usage, fmt::format("finder: {} is {}; allowed: {}", name, value, range));
}

void check_options(const FinderOptions& o) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  check(o.min >= 1, "min", number(o.min), "at least 1");
  check(o.max >= 0, "max", number(o.max), "at least 0");
  check(o.samples >= 0, "samples", number(o.samples), "at least 0");
  check(o.margin >= 0 && o.margin < 1, "margin", o.margin, "0 to below 1");
  check(o.tolerance >= 0 && o.tolerance < 1, "tolerance", o.tolerance, "0 to below 1");
  check(o.warmup >= 0, "warmup", number(o.warmup), "at least 0");
  check(o.steps >= 1, "steps", number(o.steps), "at least 1");
  check(o.measured_seconds >= 0 && o.measured_seconds <= o.trial_seconds, "measured_seconds",
        o.measured_seconds, "0 to trial_seconds");
  check(o.repeats >= 1, "repeats", o.repeats, "at least 1");
  check(o.most_repeats >= 0, "most_repeats", o.most_repeats, "at least 0");
  check(o.refinements >= 0, "refinements", o.refinements, "at least 0");
  check(o.flat >= 0, "flat", o.flat, "at least 0");
  check(o.budget_seconds >= 0, "budget_seconds", o.budget_seconds, "at least 0");
  check(o.trial_seconds > 0, "trial_seconds", o.trial_seconds, "above 0");
}

/// The largest size that may be tried, and what says so.
struct Cap {
  std::int64_t batch = 0;
  std::string what;
};

Cap cap_of(const FinderOptions& options) {
  Cap cap{options.limit, "the largest batch of the engine"};
  if (options.max > 0 && options.max < cap.batch) cap = {options.max, "the largest one asked for"};
  if (options.samples > 0 && options.samples < cap.batch)
    cap = {options.samples, "the number of samples in the data set"};
  if (cap.batch < options.min)
    throw Error(ErrorCode::usage,
                fmt::format("no batch size to try: the smallest one asked for is {}, but {} is {}",
                            options.min, cap.what, cap.batch));
  for (const std::int64_t size : options.sizes)
    if (size < options.min || size > cap.batch)
      throw Error(ErrorCode::usage,
                  fmt::format("batch {} is to be tried; allowed: {} to {}, which is {}", size,
                              options.min, cap.batch, cap.what));
  return cap;
}

bool is_round(std::int64_t batch) { return batch % 8 == 0 || (batch & (batch - 1)) == 0; }

class Search {
 public:
  Search(BatchProbe& probe, const FinderOptions& options)
      : probe_(probe), options_(options), cap_(cap_of(options)) {}

  FinderResult run() {
    sweep();
    if (options_.refinements > 0) {
      refine_edge();
      refine_best();
    }
    for (int round = 0; round < options_.repeats; ++round) try_all(ok_sizes());
    leave_out_uncounted();
    if (ok_sizes().empty()) throw_nothing_fits();
    settle();
    return answers();
  }

 private:
  // --- trials

  /// Samples a second of a trial.
  double trial(BatchRow& row, bool counts) {
    BatchTrial trial;
    const double start = probe_.now();
    try {
      trial = probe_.run(row.batch, options_.warmup, options_.steps, options_.measured_seconds);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::out_of_memory) throw;
      throw Error(error.code(), fmt::format("batch {}: {}", row.batch, error.what()), error.hint());
    }
    const auto steps_run = static_cast<std::int64_t>(trial.step_seconds.size());
    const double seconds =
        std::accumulate(trial.step_seconds.begin(), trial.step_seconds.end(), 0.0);
    // A sum of many steps may lie below the time by its rounding.
    if (steps_run < options_.steps || !(seconds > 0) ||
        !(seconds >= (1 - 1e-6) * options_.measured_seconds))
      throw Error(
          ErrorCode::run_failed,
          fmt::format("batch {}: a trial ran {} steps in {} s, which says nothing about the "
                      "size; asked for: at least {} steps and {} s",
                      row.batch, steps_run, seconds, options_.steps, options_.measured_seconds));
    const double rate = static_cast<double>(row.batch * steps_run) / seconds;
    row.bytes = std::max(row.bytes, trial.bytes);
    costs_[row.batch] = probe_.now() - start;
    if (counts) {
      row.samples_per_second.push_back(rate);
      row.step_seconds.insert(row.step_seconds.end(), trial.step_seconds.begin(),
                              trial.step_seconds.end());
      row.steps_run += steps_run;
    }
    return rate;
  }

  /// As trial(), 0 where the size turned out not to fit.
  double trial_that_may_not_fit(BatchRow& row, bool counts) {
    try {
      const double rate = trial(row, counts);
      row.status = BatchStatus::ok;
      return rate;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory) throw;
      BatchRow failed;
      failed.batch = row.batch;
      failed.status = BatchStatus::out_of_memory;
      failed.reason = error.what();
      failed.predicted_bytes = row.predicted_bytes;
      row = std::move(failed);
      return 0;
    }
  }

  std::size_t predicted(std::int64_t batch) {
    const auto found = predicted_.find(batch);
    if (found != predicted_.end()) return found->second;
    return predicted_[batch] = probe_.predict_bytes(batch);
  }

  /// Seconds that a trial would take at the rate of the largest size that came through.
  double expected_seconds(std::int64_t batch) const {
    const auto last = rates_.rbegin();
    if (last == rates_.rend()) return 0;
    const double step = static_cast<double>(batch) / last->second;
    return static_cast<double>(options_.warmup) * step +
           std::max(static_cast<double>(options_.steps) * step, options_.measured_seconds);
  }

  /// Seconds, of which 0.001 may be all that is allowed.
  static std::string shown(double seconds) {
    return seconds < 10 ? fmt::format("{:.3g}", seconds) : fmt::format("{:.1f}", seconds);
  }

  /// Why the size is not worth a trial; empty if it is.
  std::string reason_to_skip(std::int64_t batch) {
    if (predicted(batch) > options_.memory_bytes)
      return fmt::format("needs {} bytes, {} are to be had", predicted(batch),
                         options_.memory_bytes);
    if (const double seconds = expected_seconds(batch); seconds > options_.trial_seconds)
      return fmt::format("a trial would take about {} s, allowed are {} s", shown(seconds),
                         shown(options_.trial_seconds));
    return {};
  }

  bool has_budget() const { return options_.budget_seconds > 0; }
  double seconds_left() const { return start_ + options_.budget_seconds - probe_.now(); }
  double cost_of(std::int64_t batch) const {
    const auto found = costs_.find(batch);
    return found == costs_.end() ? 0 : found->second;
  }

  /// Whether the budget has room for a new size: its trial, and then one that counts of every size.
  bool has_time_for(std::int64_t batch) const {
    if (!has_budget() || rates_.empty()) return true;
    // With what a trial takes beside its steps, as the largest one showed it.
    double seconds = 2 * std::max(expected_seconds(batch), cost_of(rates_.rbegin()->first));
    for (const auto& [size, rate] : rates_) seconds += cost_of(size);
    return seconds <= seconds_left();
  }

  /// Looks at a size once. Returns its samples a second, 0 where it was not tried or does not fit.
  double look_at(std::int64_t batch) {
    if (rows_.count(batch) > 0) return rate_of(batch);
    BatchRow& row = rows_[batch];
    row.batch = batch;
    row.predicted_bytes = predicted(batch);
    row.reason = reason_to_skip(batch);
    if (row.reason.empty() && !has_time_for(batch)) {
      budget_ended_ = true;
      row.reason = fmt::format("no time is left for it of the {} s that the search may take",
                               options_.budget_seconds);
    }
    if (!row.reason.empty()) return 0;
    const double rate = trial_that_may_not_fit(row, false);
    if (rate > 0) rates_[batch] = rate;
    return rate;
  }

  double rate_of(std::int64_t batch) const {
    const auto found = rates_.find(batch);
    return found == rates_.end() ? 0 : found->second;
  }

  // --- the search

  void sweep() {
    std::set<std::int64_t> sizes{options_.min, cap_.batch};
    for (std::int64_t size = 1; size <= cap_.batch; size *= 2)
      if (size >= options_.min) sizes.insert(size);

    double last_gain = 0;
    int flat = 0;
    for (const std::int64_t size : sizes) {
      if (options_.flat > 0 && flat == options_.flat) {
        flat_behind_ = size;
        break;
      }
      const double rate = look_at(size);
      if (!(rate > 0)) continue;
      if (rate > last_gain * (1 + options_.tolerance)) {
        last_gain = rate;
        flat = 0;
      } else {
        ++flat;
      }
    }
    for (const std::int64_t size : options_.sizes) look_at(size);
  }

  /// From 16 on multiples of 8.
  static std::int64_t on_grid(std::int64_t size) { return size < 16 ? size : size / 8 * 8; }

  void refine_edge() {
    if (rates_.empty()) return;
    std::int64_t good = rates_.rbegin()->first;
    // The largest size by what is known before anything runs ...
    std::int64_t low = good, bad = cap_.batch + 1;
    while (bad - low > 1) {
      const std::int64_t middle = low + (bad - low) / 2;
      (reason_to_skip(middle).empty() ? low : bad) = middle;
    }
    // ... and by trials, from there downwards.
    std::int64_t size = low == cap_.batch ? low : on_grid(low);
    for (int i = 0; i < options_.refinements && size > good && size < bad; ++i) {
      (look_at(size) > 0 ? good : bad) = size;
      size = on_grid(good + (bad - good) / 2);
    }
  }

  void refine_best() {
    if (rates_.empty()) return;
    const auto best =
        std::max_element(rates_.begin(), rates_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto smallest = std::find_if(rates_.begin(), rates_.end(), [&](const auto& other) {
      return other.second >= (1 - options_.tolerance) * best->second;
    });
    std::set<std::int64_t> between;
    for (const auto& at : {best, smallest}) {
      const std::int64_t size = at->first;
      if (at != rates_.begin()) between.insert(on_grid((std::prev(at)->first + size) / 2));
      if (std::next(at) != rates_.end()) between.insert(on_grid((size + std::next(at)->first) / 2));
    }
    for (const std::int64_t other : between)
      if (other >= options_.min) look_at(other);
  }

  /// One counted trial of each, as long as there is time; of one size at least.
  void try_all(std::vector<std::int64_t> order) {
    // By hand, since std::shuffle() differs between libraries.
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_() % i]);
    for (const std::int64_t size : order) {
      if (has_budget() && counted_ > 0 && cost_of(size) > seconds_left()) {
        budget_ended_ = true;
        continue;  // a smaller one may have time
      }
      if (trial_that_may_not_fit(rows_[size], true) > 0) ++counted_;
    }
  }

  /// Sizes that the budget left no counted trial for say nothing.
  void leave_out_uncounted() {
    for (auto& [size, row] : rows_) {
      if (row.status != BatchStatus::ok || !row.samples_per_second.empty()) continue;
      row.status = BatchStatus::skipped;
      row.reason = fmt::format(
          "tried once, but no time was left for a trial that counts of the {} s "
          "that the search may take",
          options_.budget_seconds);
      row.bytes = 0;
    }
  }

  /// Tries on what is open, as long as it may.
  void settle() {
    for (int round = options_.repeats; round < options_.most_repeats; ++round) {
      std::vector<std::int64_t> order = open_sizes();
      if (order.empty()) return;
      order.push_back(fastest(roomy_sizes()));
      double seconds = 0;
      for (const std::int64_t size : order) seconds += cost_of(size);
      if (has_budget() && seconds > seconds_left()) return;
      try_all(order);
    }
  }

  std::vector<std::int64_t> ok_sizes() const {
    std::vector<std::int64_t> sizes;
    for (const auto& [size, row] : rows_)
      if (row.status == BatchStatus::ok) sizes.push_back(size);
    return sizes;
  }

  [[noreturn]] void throw_nothing_fits() const {
    const BatchRow& smallest = rows_.begin()->second;
    throw Error(ErrorCode::out_of_memory,
                fmt::format("no batch size fits: batch {}: {}", smallest.batch, smallest.reason),
                options_.may_be_narrower ? "use smaller pictures, a smaller network or bf16"
                                         : "use smaller pictures or a smaller network");
  }

  // --- the answers

  double median_rate(std::int64_t size) const { return rows_.at(size).median_samples_per_second(); }

  /// Fastest of some sizes, the smaller of equals.
  std::int64_t fastest(const std::vector<std::int64_t>& sizes) const {
    return *std::max_element(sizes.begin(), sizes.end(), [this](std::int64_t a, std::int64_t b) {
      return median_rate(a) < median_rate(b);
    });
  }

  std::string why_no_larger(std::int64_t largest) {
    if (largest == cap_.batch) return fmt::format("it is {}", cap_.what);
    const auto tried = rows_.upper_bound(largest);
    if (tried != rows_.end() && tried->second.status == BatchStatus::out_of_memory)
      return fmt::format("batch {} ran out of memory", tried->first);
    const std::int64_t next =
        std::min(cap_.batch, largest < 16 ? largest + 1 : largest / 8 * 8 + 8);
    if (const std::string reason = reason_to_skip(next); !reason.empty())
      return fmt::format("batch {}: {}", next, reason);
    if (tried != rows_.end())
      return fmt::format("batch {}: {}", tried->first, tried->second.reason);
    return fmt::format("sizes from {} on were not tried, as {} in a row had brought no gain",
                       flat_behind_, options_.flat);
  }

  BatchAnswer largest_feasible(const std::vector<std::int64_t>& ok) {
    const std::int64_t size = ok.back();
    return {size, fmt::format("The largest size that ran, with {} of {} bytes; {}.",
                              rows_.at(size).bytes, options_.memory_bytes, why_no_larger(size))};
  }

  BatchAnswer best_throughput(const std::vector<std::int64_t>& ok) const {
    const std::int64_t size = fastest(ok);
    const std::size_t trials = rows_.at(size).samples_per_second.size();
    return {size, fmt::format("The highest median of {}, {:.1f} samples/s, among {} sizes.",
                              trials == 1 ? "1 trial" : fmt::format("{} trials", trials),
                              median_rate(size), ok.size())};
  }

  /// Those that leave the margin free.
  std::vector<std::int64_t> roomy_sizes() const {
    const double allowed = (1 - options_.margin) * static_cast<double>(options_.memory_bytes);
    std::vector<std::int64_t> roomy;
    for (const std::int64_t size : ok_sizes()) {
      const BatchRow& row = rows_.at(size);
      if (static_cast<double>(std::max(row.bytes, row.predicted_bytes)) <= allowed)
        roomy.push_back(size);
    }
    return roomy;
  }

  /// Sizes that the recommended one depends on, and whose distance from the line is within its 95 %
  /// interval: as likely as not another search would see them on its other side.
  std::vector<std::int64_t> open_sizes() const {
    std::vector<std::int64_t> open;
    const std::vector<std::int64_t> roomy = roomy_sizes();
    if (roomy.empty()) return open;
    const std::int64_t best = fastest(roomy);
    const double part = 1 - options_.tolerance;
    const std::vector<double>& most = rows_.at(best).samples_per_second;
    for (const std::int64_t size : roomy) {
      if (size == best) break;  // no larger one is better
      const std::vector<double>& rates = rows_.at(size).samples_per_second;
      if (rates.size() < 2 || most.size() < 2) continue;  // one trial has no interval
      const double distance = median_rate(size) - part * median_rate(best);
      const double interval = student_t(rates.size() + most.size() - 2) *
                              std::sqrt(squared_error(rates) + part * part * squared_error(most));
      if (std::abs(distance) <= interval)
        open.push_back(size);
      else if (distance > 0 && is_round(size))
        break;  // it is taken before any larger one
    }
    return open;
  }

  BatchAnswer recommended(const std::vector<std::int64_t>& ok) const {
    const std::vector<std::int64_t> roomy = roomy_sizes();
    if (roomy.empty())
      return {ok.front(),
              fmt::format("The smallest size that ran; none leaves {:.0f} % of {} bytes free.",
                          100 * options_.margin, options_.memory_bytes)};
    const std::int64_t best = fastest(roomy);
    const double enough = (1 - options_.tolerance) * median_rate(best);
    std::vector<std::int64_t> good;
    for (const std::int64_t size : roomy)
      if (median_rate(size) >= enough) good.push_back(size);
    const auto round = std::find_if(good.begin(), good.end(), is_round);
    const std::int64_t size = round == good.end() ? good.front() : *round;
    const std::string why = size == best
                                ? "The fastest"
                                : fmt::format("{:.1f} samples/s; batch {} has {:.1f}, the most",
                                              median_rate(size), best, median_rate(best));
    return {size,
            fmt::format("{} of the sizes that leave {:.0f} % of the memory free; {}.", why,
                        100 * options_.margin,
                        size == good.front()
                            ? fmt::format("no smaller one comes within {:.0f} % of that",
                                          100 * options_.tolerance)
                            : fmt::format("{} is as good, but no power of two or multiple of 8",
                                          good.front()))};
  }

  FinderResult answers() {
    const std::vector<std::int64_t> ok = ok_sizes();
    FinderResult result;
    result.largest_feasible = largest_feasible(ok);
    result.best_throughput = best_throughput(ok);
    result.recommended = recommended(ok);
    for (const auto& [size, row] : rows_) {
      const bool fits = row.status == BatchStatus::ok ||
                        (row.status == BatchStatus::skipped &&
                         row.predicted_bytes <= options_.memory_bytes);  // skipped for its time
      if (!fits && size < ok.back())
        result.notes.push_back(
            fmt::format("Batch {} does not fit, though the larger {} does: what fits is not an "
                        "interval.",
                        size, *std::upper_bound(ok.begin(), ok.end(), size)));
      result.rows.push_back(row);
    }
    if (budget_ended_)
      result.notes.push_back(fmt::format(
          "The search ended with the {} s that it may take: sizes were left out, or have "
          "fewer trials than {}.",
          options_.budget_seconds, options_.repeats));
    if (const std::vector<std::int64_t> open = open_sizes(); !open.empty())
      result.notes.push_back(fmt::format(
          "Batch {}: too close to {:.0f} % below the fastest for {} trials to say on which side; "
          "another search may recommend another size.",
          fmt::join(open, ", "), 100 * options_.tolerance,
          rows_.at(open.back()).samples_per_second.size()));
    return result;
  }

  BatchProbe& probe_;
  const FinderOptions& options_;
  const Cap cap_;
  std::mt19937_64 random_{options_.seed};
  std::map<std::int64_t, BatchRow> rows_;
  std::map<std::int64_t, double> rates_;  // of the first trials, for where to look
  std::map<std::int64_t, std::size_t> predicted_;
  std::map<std::int64_t, double> costs_;  // seconds of the latest trial, with all that it takes
  const double start_ = probe_.now();
  std::int64_t counted_ = 0;      // trials
  bool budget_ended_ = false;     // something before its end
  std::int64_t flat_behind_ = 0;  // first size that a flat sweep left out
};

}  // namespace

const char* name_of(BatchStatus status) noexcept {
  switch (status) {
    case BatchStatus::ok:
      return "ok";
    case BatchStatus::out_of_memory:
      return "oom";
    case BatchStatus::skipped:
      break;
  }
  return "skipped";
}

double BatchProbe::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double BatchRow::median_samples_per_second() const { return median(samples_per_second); }

std::optional<double> BatchRow::ci95_samples_per_second() const {
  if (samples_per_second.size() < 2) return std::nullopt;
  return student_t(samples_per_second.size() - 1) * std::sqrt(squared_error(samples_per_second));
}

FinderResult find_batch(BatchProbe& probe, const FinderOptions& options) {
  check_options(options);
  return Search(probe, options).run();
}

}  // namespace tandem
