// SPDX-License-Identifier: Apache-2.0
// Scores of trainings that differ in batch size and seed: how far apart seeds are, and whether
// sizes are further apart than that. Plain arithmetic and words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// The scores of one batch size.
struct SizeScores {
  std::int64_t batch = 0;
  std::vector<double> scores;  ///< one a seed whose training stayed finite
  int diverged = 0;            ///< seeds whose training did not
};

struct Spread {
  double mean = 0, min = 0, max = 0;
  std::optional<double> deviation;  ///< of one score (n - 1 in the divisor); none of a single one
};

/// Nothing of no scores.
std::optional<Spread> spread_of(const std::vector<double>& scores);

struct ScoreComparison {
  std::vector<std::int64_t> below;  ///< sizes further below the best mean than seeds are apart
  std::string sentence;
};

/// The best mean, and which sizes are below it by more than twice the standard error of the
/// difference, sqrt(s1^2 / n1 + s2^2 / n2). A size of which a training diverged is named. `score`
/// is what the scores are, as in "accuracy". Sizes in any order. Thread-safe.
ScoreComparison compare_scores(const std::vector<SizeScores>& sizes, const std::string& score);

}  // namespace tandem
