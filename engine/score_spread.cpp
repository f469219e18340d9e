// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tandem/engine/score_spread.hpp>

namespace tandem {
namespace {

/// Square of the standard error of a mean.
double error_square(const SizeScores& size) {
  const double deviation = *spread_of(size.scores)->deviation;
  return deviation * deviation / static_cast<double>(size.scores.size());
}

}  // namespace

std::optional<Spread> spread_of(const std::vector<double>& scores) {
  if (scores.empty()) return std::nullopt;
  const auto count = static_cast<double>(scores.size());
  const auto [least, most] = std::minmax_element(scores.begin(), scores.end());
  Spread spread;
  spread.mean = std::accumulate(scores.begin(), scores.end(), 0.0) / count;
  spread.min = *least;
  spread.max = *most;
  if (scores.size() < 2) return spread;
  double squares = 0;
  for (const double score : scores) squares += (score - spread.mean) * (score - spread.mean);
  spread.deviation = std::sqrt(squares / (count - 1));
  return spread;
}

ScoreComparison compare_scores(const std::vector<SizeScores>& sizes, const std::string& score) {
  std::vector<std::string> diverged;
  const SizeScores* best = nullptr;
  double best_mean = 0;
  for (const SizeScores& size : sizes) {
    if (size.diverged > 0) diverged.push_back(fmt::format("{}", size.batch));
    const std::optional<Spread> spread = spread_of(size.scores);
    if (!spread || (best != nullptr && !(spread->mean > best_mean))) continue;
    best = &size;
    best_mean = spread->mean;
  }
  const std::string diverging =
      diverged.empty() ? ""
                       : fmt::format(" Training diverged at batch {}.", fmt::join(diverged, ", "));
  if (best == nullptr) return {{}, fmt::format("No size has a score.{}", diverging)};

  if (sizes.size() == 1)
    return {
        {},
        fmt::format("Batch {} has a mean {} of {:.4f}, and there is no other size to compare.{}",
                    best->batch, score, best_mean, diverging)};

  ScoreComparison result;
  std::size_t compared = 0;
  for (const SizeScores& size : sizes) {
    if (&size == best || size.scores.size() < 2 || best->scores.size() < 2) continue;
    ++compared;
    const double gap = best_mean - spread_of(size.scores)->mean;
    if (gap > 2 * std::sqrt(error_square(size) + error_square(*best)))
      result.below.push_back(size.batch);
  }
  std::string apart = "no other size is below it by more than its seeds are apart";
  if (!result.below.empty())
    apart = fmt::format("below it by more than their seeds are apart: batch {}",
                        fmt::join(result.below, ", "));
  else if (sizes.size() > 1 && compared == 0)
    apart = "of one seed a size the spread is not known, so that says little";
  result.sentence = fmt::format("Batch {} has the best mean {}, {:.4f}; {}.{}", best->batch, score,
                                best_mean, apart, diverging);
  return result;
}

}  // namespace tandem
