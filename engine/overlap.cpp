// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <tandem/engine/overlap.hpp>

namespace tandem {
namespace {

constexpr double kLeastBound = 1.05;  // below it there is nothing to gain
constexpr double kLeastShare = 0.1;   // of the gain that the bound allows
// Stages that slow each other down take as long as one after the other, or a little longer. A step
// of more than so many times that is held up by what lies between them.
constexpr double kMostContention = 1.5;

}  // namespace

OverlapAnswer judge_overlap(const OverlapSeen& seen) {
  OverlapAnswer answer;
  double sum = 0, longest = 0;
  for (std::size_t i = 0; i < seen.stages.size(); ++i) {
    const double seconds = seen.stages[i].second;
    sum += seconds;
    longest = std::max(longest, seconds);
    if (i + 1 < seen.stages.size()) answer.a = std::max(answer.a, seconds);
  }
  if (!seen.stages.empty()) answer.b = seen.stages.back().second;
  if (longest > 0) answer.bound = sum / longest;
  if (seen.serial > 0 && seen.overlapped > 0) answer.speedup = seen.serial / seen.overlapped;
  if (sum > longest) answer.efficiency = (seen.serial - seen.overlapped) / (sum - longest);

  if (!(answer.bound >= kLeastBound)) {
    answer.sentence = fmt::format(
        "Overlap has little to gain: {:.2f} times as fast as serial, at most {:.2f}; the stages "
        "are "
        "unequal, {:.3f} ms beside {:.3f} ms.",
        answer.speedup, answer.bound, 1e3 * answer.a, 1e3 * answer.b);
    return answer;
  }
  const std::string measured =
      fmt::format("{:.2f} times as fast as serial, at most {:.2f}", answer.speedup, answer.bound);
  if (answer.speedup > kMostOfBound * answer.bound) {
    answer.verdict = OverlapVerdict::unclear;
    answer.sentence = fmt::format(
        "What overlap does here is unclear: {}; something else slowed the serial trials, so "
        "measure "
        "again, with more steps or on a quiet machine.",
        measured);
    return answer;
  }
  if (answer.speedup >= 1 + kLeastShare * (answer.bound - 1)) {
    answer.verdict = OverlapVerdict::pays;
    answer.sentence = fmt::format("Overlap pays: {}.", measured);
    return answer;
  }
  const bool loses = answer.speedup < 1;
  if (loses) answer.verdict = OverlapVerdict::hurts;
  const std::string reason =
      seen.overlapped > kMostContention * sum
          ? fmt::format(
                "handing over costs more than is hidden, as with small batches: a step takes "
                "{:.3f} ms, "
                "its stages alone {:.3f} ms in all",
                1e3 * seen.overlapped, 1e3 * sum)
          : std::string("the stages slow each other down, as where each fills the device alone");
  answer.sentence =
      fmt::format("Overlap {}: {}; {}.", loses ? "loses" : "does nothing", measured, reason);
  return answer;
}

}  // namespace tandem
