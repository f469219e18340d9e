// SPDX-License-Identifier: Apache-2.0
// Segmentation scores from a confusion matrix.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tandem {

/// Counts of (truth, prediction) over valid pixels; integers, so any order of adding is the same.
class Confusion {
 public:
  explicit Confusion(std::int64_t classes);

  /// Adds `pixels` labels; those equal to ignore_label are skipped. Throws Error{data} for a label
  /// or a prediction that is not a class.
  void add(const std::uint8_t* truth, const std::uint8_t* prediction, std::int64_t pixels,
           int ignore_label = 255);

  std::int64_t classes() const noexcept { return classes_; }
  std::int64_t count(std::int64_t truth, std::int64_t prediction) const;
  std::int64_t total() const noexcept;

  /// Share of pixels predicted right; 0 where there are none.
  double pixel_accuracy() const noexcept;
  /// Intersection over union of one class; nothing if it occurs in neither truth nor prediction.
  std::optional<double> iou(std::int64_t c) const;
  /// Mean of iou() over the classes >= `first` that occur in truth or prediction; 0 if none does.
  /// first = 1 leaves the background out.
  double mean_iou(std::int64_t first = 0) const;

  /// The matrix of predicting class 0 everywhere on the same pixels.
  Confusion all_background() const;

 private:
  std::int64_t classes_;
  std::vector<std::int64_t> counts_;  // [truth][prediction]
};

}  // namespace tandem
