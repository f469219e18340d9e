// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <numeric>
#include <tandem/engine/error.hpp>
#include <tandem/engine/metrics.hpp>

namespace tandem {

Confusion::Confusion(std::int64_t classes) : classes_(classes) {
  if (classes < 1 || classes > 255) {
    throw Error(
        ErrorCode::usage,
        fmt::format("confusion matrix of {} classes; the allowed range is 1 to 255", classes));
  }
  counts_.assign(static_cast<std::size_t>(classes * classes), 0);
}

void Confusion::add(const std::uint8_t* truth, const std::uint8_t* prediction, std::int64_t pixels,
                    int ignore_label) {
  // Checked first, so that a bad pixel leaves the matrix as it was.
  for (std::int64_t i = 0; i < pixels; ++i) {
    if (truth[i] == ignore_label) continue;
    if (truth[i] >= classes_ || prediction[i] >= classes_) {
      throw Error(ErrorCode::data,
                  fmt::format("{} {} of pixel {} is not a class; the allowed range "
                              "is 0 to {}",
                              truth[i] >= classes_ ? "label" : "prediction",
                              truth[i] >= classes_ ? truth[i] : prediction[i], i, classes_ - 1));
    }
  }
  for (std::int64_t i = 0; i < pixels; ++i) {
    if (truth[i] != ignore_label) ++counts_[truth[i] * classes_ + prediction[i]];
  }
}

std::int64_t Confusion::count(std::int64_t truth, std::int64_t prediction) const {
  if (truth < 0 || truth >= classes_ || prediction < 0 || prediction >= classes_) {
    throw Error(ErrorCode::usage,
                fmt::format("count of classes ({}, {}); the allowed range is 0 to {}", truth,
                            prediction, classes_ - 1));
  }
  return counts_[static_cast<std::size_t>(truth * classes_ + prediction)];
}

std::int64_t Confusion::total() const noexcept {
  return std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
}

double Confusion::pixel_accuracy() const noexcept {
  std::int64_t right = 0;
  for (std::int64_t c = 0; c < classes_; ++c) right += counts_[c * classes_ + c];
  const std::int64_t all = total();
  return all == 0 ? 0.0 : static_cast<double>(right) / static_cast<double>(all);
}

std::optional<double> Confusion::iou(std::int64_t c) const {
  const std::int64_t intersection = count(c, c);
  std::int64_t in_truth = 0, in_prediction = 0;
  for (std::int64_t other = 0; other < classes_; ++other) {
    in_truth += count(c, other);
    in_prediction += count(other, c);
  }
  const std::int64_t either = in_truth + in_prediction - intersection;
  if (either == 0) return std::nullopt;
  return static_cast<double>(intersection) / static_cast<double>(either);
}

double Confusion::mean_iou(std::int64_t first) const {
  double sum = 0;
  int present = 0;
  for (std::int64_t c = first; c < classes_; ++c) {
    if (const auto value = iou(c)) sum += *value, ++present;
  }
  return present == 0 ? 0.0 : sum / present;
}

Confusion Confusion::all_background() const {
  Confusion result(classes_);
  for (std::int64_t t = 0; t < classes_; ++t) {
    for (std::int64_t p = 0; p < classes_; ++p) {
      result.counts_[t * classes_] += counts_[t * classes_ + p];
    }
  }
  return result;
}

}  // namespace tandem
