// SPDX-License-Identifier: Apache-2.0
// `tandem find-batch`: which batch sizes fit, which is fastest, which one to take.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <tandem/engine/error.hpp>
#include <tandem/engine/score_spread.hpp>
#include <utility>

#include "common.hpp"
#include "held_out.hpp"
#include "profile_session.hpp"
#include "progress.hpp"
#include "training.hpp"
#include "workload.hpp"

namespace tandem::program {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

struct FindOptions {
  FinderOptions finder;
  WorkloadOptions work;
  std::int64_t memory_mib = 0, trial_ms = 500, repeats = 3, most_repeats = 0, refinements = 4;
  std::int64_t flat = 2;
  double budget = 0;   // seconds; 0: none
  double observe = 1;  // seconds
  std::string json, csv;
  bool no_overlap = false, split = false, quiet = false;
  // Of --with-accuracy: how many seeds, and how each training goes.
  std::int64_t seeds = 0, epochs = 1;
  double learning_rate = -1;  // that of the workload's training
  DataChoice data;
};

/// A training of one size with one seed, for its held-out score.
struct Training {
  TrainOptions options;
  TrainJob job;
  std::string data;  // by name
};
using MakeTraining = Training (*)(const FindOptions& options, std::int64_t batch,
                                  std::int64_t seed);

/// What is tried, and how it is trained for a score.
struct Choice {
  MakeWorkload make_workload = nullptr;
  MakeTraining make_training = nullptr;
};

/// The workload's options as `tandem train` would be given them.
template <class Kind>
Kind training_options(const FindOptions& options, std::int64_t batch, std::int64_t seed) {
  Kind kind;
  kind.batch = batch;
  kind.seed = seed;
  kind.epochs = options.epochs;
  if (options.learning_rate >= 0) kind.learning_rate = options.learning_rate;
  kind.momentum = options.work.momentum;
  kind.schedule = options.work.schedule;
  kind.precision = options.work.precision;
  kind.fuse = options.work.fuse;
  kind.side_lanes = options.work.side_lanes;
  kind.workers = options.work.workers;
  kind.slots = options.work.slots;
  kind.data = options.data;
  kind.quiet = true;
  return kind;
}

Training segment_training(const FindOptions& options, std::int64_t batch, std::int64_t seed) {
  auto kind = training_options<SegmentOptions>(options, batch, seed);
  kind.image = options.work.image;
  TrainJob job = segment_job(kind, false);
  return {kind, std::move(job), kind.data.data};
}

Training classify_training(const FindOptions& options, std::int64_t batch, std::int64_t seed) {
  auto kind = training_options<ClassifyOptions>(options, batch, seed);
  kind.image = options.work.image;
  kind.augment.where = options.work.augment;
  TrainJob job = classify_job(kind, false);
  return {kind, std::move(job), kind.data.data};
}

Training model_training(const FindOptions& options, std::int64_t batch, std::int64_t seed) {
  auto kind = training_options<ModelOptions>(options, batch, seed);
  kind.model = options.work.model;
  TrainJob job = model_job(kind, false);
  return {kind, std::move(job), kind.data.data};
}

// --- results

/// The value that 95 % of the others do not exceed.
double percentile_95(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[(values.size() * 95 + 99) / 100 - 1];
}

Json make_row(const BatchRow& found, const FinderOptions& finder) {
  Json row;
  row["batch_per_gpu"] = found.batch;
  row["global_batch"] = found.batch;
  row["gpus"] = 1;
  row["status"] = name_of(found.status);
  row["reason"] = found.reason.empty() ? Json(nullptr) : Json(found.reason);
  row["predicted_bytes"] = found.predicted_bytes;
  row["bytes_per_sample"] =
      static_cast<double>(found.predicted_bytes) / static_cast<double>(found.batch);
  row["steps_run"] = found.steps_run;
  if (found.status != BatchStatus::ok) return row;
  const std::vector<double>& rates = found.samples_per_second;
  const auto [low, high] = std::minmax_element(rates.begin(), rates.end());
  const double rate = found.median_samples_per_second();
  row["warmup_steps"] = finder.warmup * static_cast<std::int64_t>(rates.size());
  row["repeats"] = rates.size();
  row["throughput_mean"] =
      std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size());
  row["throughput_median"] = rate;
  const std::optional<double> ci95 = found.ci95_samples_per_second();
  row["throughput_ci95"] = ci95 ? Json(*ci95) : Json(nullptr);
  row["throughput_min"] = *low;
  row["throughput_max"] = *high;
  row["noise_pct"] = 100 * (*high - *low) / rate;
  row["step_ms_mean"] = 1e3 * static_cast<double>(found.batch) / rate;
  row["step_ms_median"] = 1e3 * median_of(found.step_seconds);
  row["step_ms_p95"] = 1e3 * percentile_95(found.step_seconds);
  row["mem_peak_bytes"] = found.bytes;
  row["mem_free_bytes"] = finder.memory_bytes - std::min(finder.memory_bytes, found.bytes);
  if (finder.samples > 0) {
    const std::int64_t rest = finder.samples % found.batch;
    row["steps_per_epoch"] = (finder.samples - 1) / found.batch + 1;
    row["last_batch"] = rest == 0 ? found.batch : rest;
    row["epoch_s_est"] = static_cast<double>(finder.samples) / rate;
  }
  return row;
}

// --- scores beside the speed

/// What a sample of held-out data is scored by.
const char* score_name(Labels labels) { return labels == Labels::pixels ? "miou" : "accuracy"; }

/// --with-accuracy: every size is trained on the same samples, with the same seeds.
class Accuracy {
 public:
  /// Opens the data once, so that what is wrong with them is said before anything runs.
  Accuracy(const FindOptions& options, const Device& device, MakeTraining make_training)
      : options_(options), device_(device), make_training_(make_training) {
    const Training one = make_training_(options_, 1, options_.work.seed);
    if (!one.job.held_out)
      throw Error(ErrorCode::usage,
                  fmt::format("--with-accuracy: {} has nothing held out to score", one.data));
    data_ = one.data;
    labels_ = one.job.labels;
    in_epochs_ = one.job.in_epochs;
    epoch_size_ = one.job.data->epoch_size();
    held_out_ = one.options.held_out;
    learning_rate_ = one.options.learning_rate;
  }

  /// Samples of the data, which no batch exceeds; 0 where they are made without end.
  std::int64_t records() const { return in_epochs_ ? epoch_size_ : 0; }

  /// Adds the scores of a size to its row.
  void add(std::int64_t batch, Json& row) {
    SizeScores size;
    size.batch = batch;
    row["train_steps"] = options_.epochs * static_cast<std::int64_t>(
                                               batches_of(epoch_size_, batch, LastBatch::partial));
    row["train_samples"] = options_.epochs * epoch_size_;
    row["scores"] = Json::array();
    for (std::int64_t i = 0; i < options_.seeds; ++i) {
      // They are 64 bits without a sign, and the last is followed by 0.
      const auto seed =
          static_cast<std::int64_t>(options_.work.seed_value() + static_cast<std::uint64_t>(i));
      const std::optional<Confusion> counts = train(batch, seed);
      row["scores"].push_back(counts ? Json(score(*counts)) : Json(nullptr));
      if (counts) {
        size.scores.push_back(score(*counts));
        held_out_ = scored_samples(labels_, *counts, held_out_);
      } else {
        ++size.diverged;
      }
    }
    const std::optional<Spread> spread = spread_of(size.scores);
    const auto value = [&](double number) { return spread ? Json(number) : Json(nullptr); };
    row["score_mean"] = value(spread ? spread->mean : 0);
    row["score_stddev"] = spread && spread->deviation ? Json(*spread->deviation) : Json(nullptr);
    row["score_min"] = value(spread ? spread->min : 0);
    row["score_max"] = value(spread ? spread->max : 0);
    row["diverged"] = size.diverged;
    sizes_.push_back(std::move(size));
  }

  ScoreComparison comparison() const { return compare_scores(sizes_, score_name(labels_)); }

  Json json() const {
    return {{"score", score_name(labels_)},
            {"seeds", options_.seeds},
            {"first_seed", options_.work.seed},
            {"data", data_},
            {"epochs", options_.epochs},
            {"train_samples", options_.epochs * epoch_size_},
            {"eval", held_out_},
            {"lr", learning_rate_},
            {"momentum", options_.work.momentum},
            {"comparison", comparison().sentence}};
  }

 private:
  double score(const Confusion& counts) const {
    return labels_ == Labels::pixels ? counts.mean_iou() : counts.pixel_accuracy();
  }

  /// Nothing where the training diverged.
  std::optional<Confusion> train(std::int64_t batch, std::int64_t seed) const {
    check_interrupt();
    if (!options_.quiet)
      say(fmt::format("find-batch: training of batch {}, seed {}\n", batch, seed));
    Training training = make_training_(options_, batch, seed);
    try {
      return train_and_score(training.options, device_, std::move(training.job));
    } catch (const Error& error) {
      check_interrupt();  // whose words are a search's: a training's speak of its weights
      if (error.code() != ErrorCode::non_finite) throw;
      return std::nullopt;
    }
  }

  const FindOptions& options_;
  const Device& device_;
  const MakeTraining make_training_;
  std::string data_;
  Labels labels_ = Labels::pictures;
  bool in_epochs_ = false;
  std::int64_t epoch_size_ = 0, held_out_ = 0;
  double learning_rate_ = 0;
  std::vector<SizeScores> sizes_;
};

/// These say how trainings go. Without any they are refused, and not stored: what is stored can be
/// given again.
constexpr const char* kOfTrainings[] = {"data",          "broken", "garments",
                                        "garment-scale", "epochs", "lr"};

void refuse_idle(const FindOptions& options, const Options& declared) {
  if (options.seeds > 0) return;
  for (const char* name : kOfTrainings) {
    const std::string option = fmt::format("--{}", name);
    if (declared.has(option) && declared.given(option))
      throw Error(ErrorCode::usage, fmt::format("{} does nothing without --with-accuracy", option));
  }
}

Json to_json(const BatchAnswer& answer) {
  return {{"batch", answer.batch}, {"reason", answer.reason}};
}

/// A value as a field of CSV, by RFC 4180. Lists become one field.
std::string csv_field(const Json& value) {
  if (value.is_null()) return {};
  std::string text;
  if (value.is_string()) {
    text = value.get<std::string>();
  } else if (value.is_array()) {
    for (const Json& item : value) text += (text.empty() ? "" : ";") + csv_field(item);
  } else {
    text = to_text(value);
  }
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// The rows as a table; an object's members are columns of their own ("stage_ms.copy"), and a row
/// that lacks one has an empty field.
std::string to_csv(const Json& rows) {
  std::vector<std::string> columns;
  std::vector<Json> flat;
  const auto add = [&](Json& row, const std::string& name, const Json& value) {
    if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
    row[name] = value;
  };
  for (const Json& row : rows) {
    Json& to = flat.emplace_back(Json::object());
    for (const auto& [name, value] : row.items()) {
      if (!value.is_object())
        add(to, name, value);
      else
        for (const auto& [member, inner] : value.items()) add(to, name + "." + member, inner);
    }
  }
  std::string text;
  const auto add_line = [&](const auto& field_of) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) text += ',';
      text += csv_field(field_of(columns[i]));
    }
    text += '\n';
  };
  add_line([](const std::string& column) { return Json(column); });
  for (const Json& row : flat)
    add_line([&](const std::string& column) { return row.value(column, Json(nullptr)); });
  return text;
}

/// Sizes whose epochs end with a single sample.
std::optional<std::string> last_batch_note(const Json& rows) {
  std::vector<std::string> sizes;
  for (const Json& row : rows)
    if (row.value("last_batch", 2) < 2 && row["global_batch"] > 1)
      sizes.push_back(row["global_batch"].dump());
  if (sizes.empty()) return std::nullopt;
  return fmt::format(
      "Batch {}: an epoch's last batch is a single sample, which moves the weights as far as a "
      "full "
      "one, and which batch normalisation cannot take; tandem train --last-batch drop leaves it "
      "out.",
      fmt::join(sizes, ", "));
}

std::string cell(const Json& row, const char* key, const char* format, double scale = 1) {
  if (!row.contains(key) || row[key].is_null()) return "-";
  return fmt::format(fmt::runtime(format), scale * row[key].get<double>());
}

void print_result(const Json& json) {
  const Json& accuracy = json["accuracy"];
  const bool scored = !accuracy.is_null();
  fmt::print("{:>6} {:<8}{:>12}{:>9}{:>11}{:>11}{:>10}{:>10}{:>7}{:>9}", "batch", "status",
             "samples/s", "noise %", "step ms", "MiB", "t_A ms", "t_B ms", "bound", "speedup");
  if (scored) fmt::print("{:>10}{:>9}", accuracy["score"].get<std::string>(), "+-");
  fmt::print("\n");
  for (const Json& row : json["rows"]) {
    const bool ok = row["status"] == "ok";
    fmt::print("{:>6} {:<8}{:>12}{:>9}{:>11}{:>11}{:>10}{:>10}{:>7}{:>9}",
               row["global_batch"].dump(), row["status"].get<std::string>(),
               cell(row, "throughput_median", "{:.1f}"), cell(row, "noise_pct", "{:.1f}"),
               cell(row, "step_ms_mean", "{:.3f}"),
               cell(row, ok ? "mem_peak_bytes" : "predicted_bytes", "{:.1f}", 1.0 / kMiB),
               cell(row, "t_a_ms", "{:.3f}"), cell(row, "t_b_ms", "{:.3f}"),
               cell(row, "predicted_speedup", "{:.2f}"), cell(row, "measured_speedup", "{:.2f}"));
    if (scored)
      fmt::print("{:>10}{:>9}", cell(row, "score_mean", "{:.4f}"),
                 cell(row, "score_stddev", "{:.4f}"));
    fmt::print("\n");
  }
  fmt::print(
      "noise: (highest - lowest) / median of the trials. MiB: held; predicted where nothing ran.\n"
      "t_A: the longest stage before the last, alone; t_B: the last. bound: all stages / the "
      "longest.\nspeedup: overlapped over serial.\n");
  if (scored)
    fmt::print("{0}: held out, mean of {1} after {2} samples each; +-: standard deviation.\n{3}\n",
               accuracy["score"].get<std::string>(),
               count_of(accuracy["seeds"].get<std::int64_t>(), "seed"),
               accuracy["train_samples"].dump(), accuracy["comparison"].get<std::string>());
  for (const Json& row : json["rows"])
    if (!row["reason"].is_null())
      fmt::print("batch {}: {}\n", row["global_batch"].dump(), row["reason"].get<std::string>());
  for (const Json& note : json["notes"]) fmt::print("{}\n", note.get<std::string>());
  for (const auto& [key, name] :
       {std::pair("largest_feasible", "largest feasible"),
        std::pair("best_throughput", "best throughput"), std::pair("recommended", "recommended")})
    fmt::print("{:<17} {:>6}  {}\n", name, json[key]["batch"].dump(),
               json[key]["reason"].get<std::string>());
  for (const Json& row : json["rows"])
    if (row["global_batch"] == json["recommended"]["batch"] && row.contains("overlap"))
      fmt::print("{}\n", row["overlap"].get<std::string>());
}

void run(FindOptions& options, const Options& declared, const Choice& choice) {
  const Device device = open_device(options.work.device, options.work.plan);
  check_json(options.json);
  if (!options.csv.empty() && options.csv != "-") check_replaceable("--csv", options.csv);
  if (options.csv == "-" && options.json == "-")
    throw Error(ErrorCode::usage, "--json - and --csv -: both would be written to standard output");
  if (options.most_repeats > 0 && options.most_repeats < options.repeats)
    throw Error(ErrorCode::usage, fmt::format("--max-repeats is {}; allowed: from --repeats on, {}",
                                              options.most_repeats, options.repeats));
  refuse_idle(options, declared);
  const Workload workload = complete_workload(options.work, device, choice.make_workload);
  const ProbeJob& job = workload.job;
  const EngineConfig& config = job.config;
  std::optional<Accuracy> accuracy;
  if (options.seeds > 0) accuracy.emplace(options, device, choice.make_training);

  FinderOptions& finder = options.finder;
  // A batch above the records would be trained as one of all of them.
  if (const std::int64_t records = accuracy ? accuracy->records() : 0; records > 0)
    finder.samples = finder.samples == 0 ? records : std::min(finder.samples, records);
  finder.measured_seconds = 1e-3 * static_cast<double>(options.trial_ms);
  if (finder.measured_seconds > finder.trial_seconds)
    throw Error(ErrorCode::usage,
                fmt::format("--trial-ms is {}; allowed: at most --trial-seconds, {} s",
                            options.trial_ms, finder.trial_seconds));
  // The trials of the other order take about as long again.
  finder.budget_seconds = options.no_overlap ? options.budget : options.budget / 2;
  finder.repeats = static_cast<int>(options.repeats);
  finder.most_repeats =
      static_cast<int>(options.most_repeats > 0 ? options.most_repeats : 4 * options.repeats);
  finder.refinements = static_cast<int>(options.refinements);
  finder.flat = static_cast<int>(options.flat);
  finder.may_be_narrower = device.is_cuda() && config.precision != Precision::bf16;
  finder.seed = options.work.seed_value();
  const std::size_t free_bytes = free_memory(device);
  finder.memory_bytes = free_bytes;
  if (options.memory_mib > 0)
    finder.memory_bytes = std::min(free_bytes, static_cast<std::size_t>(options.memory_mib) * kMiB);

  announce(device, stream_count(plan_training(config), config.scheduler), options.quiet);
  watch_interrupt();
  TrainingProbe probe(device, job, [&](std::int64_t batch) {
    if (!options.quiet) say(fmt::format("find-batch: trial of batch {}\n", batch));
  });
  finder.limit = probe.largest_batch();
  const double start = probe.now();
  const FinderResult result = find_batch(probe, finder);

  Json json = begin_result("find-batch", declared, workload, device);
  if (options.seeds == 0)
    for (const char* name : kOfTrainings) json["config"].erase(name);
  json["memory_bytes"] = finder.memory_bytes;
  json["free_bytes"] = free_bytes;
  json["rows"] = Json::array();
  std::int64_t without_overlap = 0;  // sizes that the budget left no time for that
  double longest = 0;
  for (const BatchRow& found : result.rows) {
    Json row = make_row(found, finder);
    const double before = probe.now();
    const bool in_time = options.budget == 0 || before - start + longest <= options.budget;
    if (found.status == BatchStatus::ok && !options.no_overlap) without_overlap += !in_time;
    if (found.status == BatchStatus::ok && !options.no_overlap && in_time) {
      const OverlapSeen seen = probe.see_overlap(
          found.batch, finder.warmup, finder.steps, finder.measured_seconds, options.repeats,
          static_cast<double>(found.batch) / found.median_samples_per_second());
      add_overlap(row, seen, judge_overlap(seen));
      longest = std::max(longest, probe.now() - before);
    }
    if (found.status == BatchStatus::ok) {
      const double step_seconds =
          static_cast<double>(found.batch) / found.median_samples_per_second();
      const bool has_time =
          options.budget == 0 || probe.now() - start + options.observe <= options.budget;
      add_observation(row, has_time ? probe.observe(found.batch, step_seconds, options.observe)
                                    : not_observed("no time was left of --budget-s"));
    }
    if (found.status == BatchStatus::ok && accuracy) accuracy->add(found.batch, row);
    json["rows"].push_back(std::move(row));
  }
  // Last, so that a recorder of the GPU has been beside no trial.
  for (Json& row : json["rows"])
    if (options.split && row["status"] == "ok") {
      if (options.budget == 0 || probe.now() - start <= options.budget) {
        probe.add_split_of(row["batch_per_gpu"], row);
      } else {
        add_no_split(row, "no time was left of --budget-s");
      }
    }
  json["accuracy"] = accuracy ? accuracy->json() : Json(nullptr);
  json["notes"] = result.notes;
  if (const std::optional<std::string> note = last_batch_note(json["rows"]))
    json["notes"].push_back(*note);
  if (without_overlap > 0)
    json["notes"].push_back(fmt::format(
        "{} no trials of the other order: no time was left of the "
        "{} s of --budget-s.",
        without_overlap == 1 ? "1 size has" : fmt::format("{} sizes have", without_overlap),
        options.budget));
  if (accuracy) {
    const std::vector<std::int64_t> below = accuracy->comparison().below;
    const std::int64_t size = result.recommended.batch;
    if (std::find(below.begin(), below.end(), size) != below.end())
      json["notes"].push_back(
          fmt::format("Batch {} is recommended for its speed, but it scores below the best by more "
                      "than seeds are apart.",
                      size));
  }
  json["largest_feasible"] = to_json(result.largest_feasible);
  json["best_throughput"] = to_json(result.best_throughput);
  json["recommended"] = to_json(result.recommended);
  write_json(options.json, json);
  if (!options.csv.empty()) write_text(options.csv, to_csv(json["rows"]));
  if (options.json != "-" && options.csv != "-") print_result(json);
}

void add_find_options(Options& options, FindOptions& o) {
  FinderOptions& f = o.finder;
  options.number("--min", f.min, 1, kMaxBatch, "smallest batch to try");
  options.number("--max", f.max, 1, kMaxBatch, "largest batch to try")->default_str("what fits");
  options.numbers("--batch", f.sizes, 1, kMaxBatch, "sizes to try beside the powers of two");
  options
      .number(
          "--samples", f.samples, 1, INT64_MAX,
          "samples in your data set, which no batch exceeds; with --with-accuracy at most those "
          "of --data, of which each training takes all")
      ->default_str("not known");
  options
      .number("--memory-limit", o.memory_mib, 1, INT64_MAX / static_cast<std::int64_t>(kMiB),
              "MiB that training may hold")
      ->default_str("what is free");
  options.real("--margin", f.margin, 0, 0.9,
               "part of the memory that the recommended size leaves free");
  options.real("--tolerance", f.tolerance, 0, 0.9,
               "a speed within this part of the best is as good");
  options.number("--warmup", f.warmup, 1, 1'000'000, "steps before the measured ones of a trial");
  options.number("--steps", f.steps, 1, 1'000'000, "measured steps of a trial at least");
  options.number("--trial-ms", o.trial_ms, 0, 1'000'000,
                 "milliseconds that the measured steps of a trial fill at least; 0: --steps alone "
                 "count");
  options.number("--repeats", o.repeats, 1, 1000, "trials of each size, in shuffled order");
  options
      .number("--max-repeats", o.most_repeats, 1, 4000,
              "trials of a size that may be the recommended one, where fewer leave that open")
      ->default_str("4 x --repeats");
  options.number("--refine", o.refinements, 0, 64,
                 "most trials between the powers of two at the edge of memory; 0: powers only");
  options.number(
      "--flat", o.flat, 0, 64,
      "sizes in a row without a gain after which larger powers are left out; 0: none are");
  options.real("--trial-seconds", f.trial_seconds, 0.001, 1e6,
               "a size whose trial would take longer is not tried");
  options
      .real("--budget-s", o.budget, 0.001, 1e9,
            "seconds for all trials; half of them are for the other order unless --no-overlap. "
            "Trainings of --with-accuracy come on top")
      ->default_str("as long as it takes");
  add_training_options(options, o.work, {"serial", "overlap", "graph"}, {"auto"});
  options
      .number("--with-accuracy", o.seeds, 1, 1000,
              "train each size that runs with so many seeds, and score it on held-out data")
      ->default_str("not done");
  options.number("--epochs", o.epochs, 1, 1'000'000,
                 "passes over --data of each such training, the same for every size");
  options.real("--lr", o.learning_rate, 0, 1e38, "learning rate of such trainings")
      ->default_str("that of train");
  options.flag("--no-overlap", o.no_overlap,
               "no times of the stages, and no trial of the other order");
  options.number("--seed", o.work.seed, 0, INT64_MAX, "of weights, data and the order of trials");
  options.real("--observe", o.observe, 0, 3600,
               "seconds of an extra run of each size for busy, NVML, clock and power of a GPU; 0: "
               "none");
  options.flag("--split", o.split,
               "record three steps of each size, and say where their time goes");
  options.text("--json", o.json, "FILE|-", "rows and answers with the environment, as JSON");
  options.text("--csv", o.csv, "FILE|-", "the rows as a table with a line of names");
  options.flag("--quiet", o.quiet, "no notes on standard error");
}

void add_workload(CLI::App& find, Command& selected, const char* name, const char* help,
                  const Choice& choice) {
  CLI::App* app = find.add_subcommand(name, help);
  auto values = std::make_shared<FindOptions>();
  auto options = std::make_shared<Options>(*app);
  FindOptions& o = *values;
  const bool classifies = std::strcmp(name, "classify") == 0;
  add_network_options(*options, o.work, classifies);
  o.data.data = classifies ? "fashion-mnist" : "fashion-scenes";
  if (classifies)
    add_picture_options(*options, o.data);
  else
    add_scene_options(*options, o.data);
  add_find_options(*options, o);
  app->callback([&selected, values, options, choice] {
    selected = [values, options, choice] { run(*values, *options, choice); };
  });
}

}  // namespace

void add_find_batch(CLI::App& root, Command& selected) {
  CLI::App* app = root.add_subcommand(
      "find-batch", "Tries batch sizes: which fit, which is fastest, which one to take");
  add_workload(*app, selected, "segment", "Partial training of the segmenter",
               {segment_workload, segment_training});
  add_workload(*app, selected, "classify", "Training of the classifier on augmented pictures",
               {classify_workload, classify_training});
  auto values = std::make_shared<FindOptions>();
  auto options = std::make_shared<Options>(*app);
  CLI::Option* model = options->text("--model", values->work.model, "FILE",
                                     "a network of your own, as JSON, in place of a name");
  add_all_data_options(*options, values->data);
  add_find_options(*options, *values);
  choose_model(*app, model, selected, [values, options] {
    run(*values, *options, {model_workload, model_training});
  });
}

}  // namespace tandem::program
