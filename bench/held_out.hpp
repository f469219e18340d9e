// SPDX-License-Identifier: Apache-2.0
// Predictions of samples, and scores from them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tandem/engine/backend.hpp>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/engine/metrics.hpp>
#include <tandem/models/parameters.hpp>
#include <tandem/models/trainer.hpp>
#include <vector>

#include "data.hpp"
#include "options.hpp"

namespace tandem::program {

/// Samples 0 .. count - 1 of a data set, and what becomes of their pictures.
struct Samples {
  std::shared_ptr<const Dataset> data;
  std::int64_t count = 0;
  int workers = 1;
  std::optional<LoaderAugment> augment;  ///< as in training; the identity is drawn
};

/// Called in order with each sample: its labels, and what is predicted for them.
using OnSample = std::function<void(std::int64_t index, const std::uint8_t* truth,
                                    const std::uint8_t* prediction)>;

/// Predicts the samples as often as it is asked to. All memory is taken at construction. The
/// backend must outlive it.
class SamplePredictor {
 public:
  /// `config` as for training; its batch is cut to the number of samples.
  SamplePredictor(Backend& backend, EngineConfig config, Samples samples);

  void run(const Parameters& frozen, const Parameters& trained, const OnSample& on_sample);
  /// The same, counted. Not thread-safe.
  Confusion score(const Parameters& frozen, const Parameters& trained);

  SamplePredictor(const SamplePredictor&) = delete;
  SamplePredictor& operator=(const SamplePredictor&) = delete;

 private:
  void deliver(const std::uint8_t* classes);

  EngineConfig config_;
  Samples samples_;
  /// Labels of the batches in flight: their input slots may be filled again by now.
  std::deque<std::vector<std::uint8_t>> truths_;
  std::int64_t delivered_ = 0;  ///< samples of this run
  const OnSample* on_sample_ = nullptr;
  Predictor predictor_;
};

/// Everything that is said about a data set's predictions; each value is null where there are none.
/// Of pixels: pixel_accuracy, miou, garment_miou and garment_iou (all but class 0), and the first
/// three as background_... for predicting class 0 everywhere. Of pictures: accuracy,
/// mean_class_accuracy, class_accuracy (null for a class that does not occur), and confusion, a row
/// a true class.
Json scores(Labels labels, const std::optional<Confusion>& confusion);

/// Samples that the scores are of, of those that were `asked` for. Pictures that could not be read,
/// and are passed over, are no scores.
std::int64_t scored_samples(Labels labels, const Confusion& confusion, std::int64_t asked);

/// The two numbers to follow from epoch to epoch.
struct KeyScores {
  const char* first;  ///< key in scores()
  const char* second;
};
KeyScores key_scores(Labels labels);

/// A table of scores() on standard output. `counted` is what was scored, as in "12 scenes".
void print_scores(Labels labels, const Json& scores, const std::vector<std::string>& class_names,
                  const std::string& counted);

}  // namespace tandem::program
