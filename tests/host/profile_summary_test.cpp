// SPDX-License-Identifier: Apache-2.0
// What is made of records: windows, the split that adds up, shares, and the rules of the findings,
// each with records that it holds for and records that it does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <tandem/engine/profile_summary.hpp>
#include <tandem/tests/support/files.hpp>
#include <tandem/tests/support/recordings.hpp>

namespace tandem {
namespace {

using test::HandRecording;
using testing::expect_error;
constexpr int kEncode = HandRecording::kEncode, kTrain = HandRecording::kTrain;

ProfileWindow window(std::uint64_t begin, std::uint64_t end) {
  ProfileWindow w;
  w.first_step = w.last_step = 1;
  w.begin = begin;
  w.end = end;
  w.warm = true;
  return w;
}

ProfileSummary summary_of(HandRecording& hand, const ProfileWindow& w, int multiprocessors = 0) {
  ProfileSummary summary;
  summary.add(hand.take(), w, multiprocessors);
  return summary;
}

std::uint64_t under_way(const ProfileSummary& s, RecordKind kind) {
  return s.under_way[static_cast<std::size_t>(kind)];
}

// --- recorder

TEST(Recorder, HandsOverInOrderAndStartsAnew) {
  HandRecording hand;
  hand.kernel(kTrain, 0, 50, 60).kernel(kEncode, 1, 10, 20).kernel(kEncode, 1, 10, 40);
  const Recording first = hand.take();
  ASSERT_EQ(first.records.size(), 3u);
  EXPECT_EQ(first.records[0].end, 40u);  // begins with the next, and is longer
  EXPECT_EQ(first.records[1].end, 20u);
  EXPECT_EQ(first.records[2].begin, 50u);
  EXPECT_EQ(first.lanes, (std::vector<std::string>{"encode", "train", "feeding thread"}));
  EXPECT_TRUE(hand.take().records.empty());
}

TEST(Recorder, CountsWhatIsTooMuch) {
  Recorder recorder({"train"}, 3);
  for (std::uint64_t i = 0; i < 10; ++i) {
    Record record;
    record.begin = record.end = i;
    recorder.add(record);
  }
  const Recording recording = recorder.take();
  EXPECT_EQ(recording.records.size(), 3u);
  EXPECT_EQ(recording.dropped, 7u);
  EXPECT_EQ(recorder.take().dropped, 0u);
}

TEST(Recorder, ARecordNeverEndsBeforeItBegins) {
  Recorder recorder({"train"});
  Record record;
  record.begin = 10;
  record.end = 9;
  recorder.add(record);
  EXPECT_EQ(recorder.take().records.front().end, 10u);
}

TEST(Recorder, KnowsTextsAndStagesByName) {
  Recorder recorder({"copy", "train"});
  const TextId a = recorder.text("a"), b = recorder.text("b");
  EXPECT_NE(a, b);
  EXPECT_EQ(recorder.text("a"), a);
  EXPECT_EQ(recorder.text(""), 0u);
  EXPECT_EQ(recorder.take().texts[b], "b");
  EXPECT_EQ(recorder.stage("train"), 1);
  EXPECT_EQ(recorder.stage("set-up"), -1);
}

// --- window

TEST(ProfileWindow, LiesBetweenTheEndsOfTheLastStage) {
  HandRecording hand;
  hand.kernel(kEncode, 5, 0, 90).kernel(kTrain, 4, 10, 100);  // the step before
  hand.kernel(kEncode, 6, 90, 180).kernel(kTrain, 5, 100, 200);
  hand.kernel(kEncode, 7, 180, 400).kernel(kTrain, 6, 200, 300);  // a later step's work goes on
  const ProfileWindow w = window_of(hand.take(), 5, 6);
  EXPECT_EQ(w.begin, 100u);
  EXPECT_EQ(w.end, 300u);
  EXPECT_EQ(w.steps(), 2u);
  EXPECT_TRUE(w.warm);
}

TEST(ProfileWindow, BeginsWithItsOwnWorkWhereTheStepBeforeWasNotSeen) {
  HandRecording hand;
  hand.host(RecordKind::issuing, 0, 5).kernel(kEncode, 0, 30, 40).kernel(kTrain, 0, 40, 60);
  const ProfileWindow w = window_of(hand.take(), 0, 0);
  EXPECT_EQ(w.begin, 30u);
  EXPECT_EQ(w.end, 60u);
  EXPECT_FALSE(w.warm);
}

TEST(ProfileWindow, AnEarlierStageOfTheStepBeforeIsNotItsEnd) {
  HandRecording hand;
  hand.kernel(kEncode, 4, 0, 20).kernel(kEncode, 5, 30, 50).kernel(kTrain, 5, 50, 60);
  const ProfileWindow w = window_of(hand.take(), 5, 5);
  EXPECT_EQ(w.begin, 30u);
  EXPECT_FALSE(w.warm);
}

TEST(ProfileWindow, EndsWithTheLastWholeStepWhereRecordsWereDropped) {
  HandRecording hand;
  hand.kernel(kTrain, 4, 0, 100).kernel(kTrain, 5, 100, 200).kernel(kTrain, 6, 200, 300);
  hand.kernel(kEncode, 8, 300, 310).kernel(kTrain, 7, 300, 350);  // and more that is missing
  Recording recording = hand.take();
  EXPECT_EQ(window_of(recording, 5, 9).end, 350u);
  recording.dropped = 3;
  const ProfileWindow w = window_of(recording, 5, 9);
  EXPECT_EQ(w.last_step, 6u);
  EXPECT_EQ(w.end, 300u);
  EXPECT_EQ(window_of(recording, 5, 5).end, 200u);
  expect_error(ErrorCode::run_failed, {"step 7", "3 were too many"},
               [&] { window_of(recording, 7, 9); });
}

TEST(ProfileWindow, NothingSeenIsAnError) {
  HandRecording hand;
  hand.kernel(kTrain, 3, 0, 10).host(RecordKind::issuing, 0, 5);
  const Recording recording = hand.take();
  expect_error(ErrorCode::run_failed, {"steps 4 to 6", "no work"},
               [&] { window_of(recording, 4, 6); });
}

// --- split and shares

TEST(ProfileSummary, EachMomentCountsForTheFirstKind) {
  //          0   10   20   30   40   50   60   70   80   90   100
  // kernel   |----|                  (0-10, 60-70)
  // copy          |---------|        (5-25)
  // memset                |----|     (20-30)
  // runtime                   |----| (28-40)
  // loading                     |----------|   (35-55)
  // issuing  |-----------------------------------------|  (0-80)
  HandRecording hand;
  hand.kernel(kTrain, 1, 0, 10).kernel(kEncode, 1, 60, 70).copy(kEncode, 1, 5, 25);
  hand.add(RecordKind::memset, kEncode, 1, 20, 30, "memset", 0, 0);
  hand.host(RecordKind::runtime, 28, 40).host(RecordKind::loading, 35, 55);
  hand.host(RecordKind::issuing, 0, 80);
  const ProfileSummary s = summary_of(hand, window(0, 100));
  EXPECT_EQ(s.of(RecordKind::kernel), 20u);
  EXPECT_EQ(s.of(RecordKind::copy), 15u);
  EXPECT_EQ(s.of(RecordKind::memset), 5u);
  EXPECT_EQ(s.of(RecordKind::runtime), 10u);
  EXPECT_EQ(s.of(RecordKind::loading), 15u);
  EXPECT_EQ(s.of(RecordKind::issuing), 15u);  // 55-60 and 70-80
  EXPECT_EQ(s.rest, 20u);
  EXPECT_EQ(s.wall, 100u);
  EXPECT_EQ(under_way(s, RecordKind::copy), 20u);
  EXPECT_EQ(under_way(s, RecordKind::issuing), 80u);
}

TEST(ProfileSummary, TheSplitAddsUpWhateverTheRecords) {
  std::mt19937 random(7);
  const auto below = [&](unsigned n) { return static_cast<std::uint64_t>(random() % n); };
  for (int repeat = 0; repeat < 50; ++repeat) {
    HandRecording hand;
    std::vector<int> running(1000);  // the oracle: nanosecond by nanosecond
    std::vector<int> best(1000, kRecordKinds);
    for (int i = 0; i < 40; ++i) {
      const auto kind = static_cast<RecordKind>(below(kRecordKinds));
      const std::uint64_t begin = below(1200), end = begin + below(100);
      hand.add(kind, static_cast<int>(below(3)) % (is_device(kind) ? 2 : 3), 1, begin, end, "x", 0,
               0);
      for (std::uint64_t t = std::max<std::uint64_t>(begin, 100); t < std::min(end, 1100ul); ++t)
        best[t - 100] = std::min(best[t - 100], static_cast<int>(kind));
    }
    const ProfileSummary s = summary_of(hand, window(100, 1100));
    std::uint64_t sum = s.rest;
    for (int kind = 0; kind < kRecordKinds; ++kind) {
      const auto k = static_cast<std::size_t>(kind);
      EXPECT_EQ(s.split[k], static_cast<std::uint64_t>(std::count(best.begin(), best.end(), kind)));
      EXPECT_LE(s.split[k], s.under_way[k]);
      sum += s.split[k];
    }
    EXPECT_EQ(sum, s.wall);
  }
}

TEST(ProfileSummary, BusyIsTheUnionOverStreams) {
  HandRecording hand;
  hand.kernel(kEncode, 1, 0, 40).kernel(kTrain, 1, 20, 60).kernel(kTrain, 1, 80, 90);
  const ProfileSummary s = summary_of(hand, window(0, 100));
  EXPECT_DOUBLE_EQ(s.kernel_busy_percent(), 70);  // not 40 + 40 + 10
  EXPECT_DOUBLE_EQ(s.overlap_percent(), 20);
  EXPECT_EQ(s.stage, (std::vector<std::uint64_t>{40, 50}));
}

TEST(ProfileSummary, OverlapCountsLanesAndNotRecords) {
  HandRecording hand;
  hand.kernel(kTrain, 1, 0, 50).kernel(kTrain, 1, 10, 40);  // on one stream
  hand.copy(kEncode, 1, 45, 70);                            // a copy is work too
  const ProfileSummary s = summary_of(hand, window(0, 100));
  EXPECT_DOUBLE_EQ(s.overlap_percent(), 5);
}

TEST(ProfileSummary, WorkIsCutAtTheEdgesOfTheWindow) {
  HandRecording hand;
  hand.kernel(kTrain, 0, 0, 120).kernel(kTrain, 1, 180, 400).kernel(kTrain, 2, 400, 500);
  const ProfileSummary s = summary_of(hand, window(100, 200));
  EXPECT_EQ(s.of(RecordKind::kernel), 40u);
  EXPECT_EQ(s.kernels.at("work").count, 2u);
  EXPECT_EQ(s.kernels.at("work").nanoseconds, 40u);
}

TEST(ProfileSummary, FillWeighsBlocksByTime) {
  HandRecording hand;
  hand.kernel(kTrain, 1, 0, 50, 25).kernel(kEncode, 1, 25, 75, 200);
  // 25 ns with 25 of 100, then 50 ns with 225 or 200, which is all.
  const ProfileSummary s = summary_of(hand, window(0, 100), 100);
  EXPECT_TRUE(s.fill_known);
  EXPECT_DOUBLE_EQ(s.sm_fill_percent(), 25 * 0.25 + 50);
  EXPECT_LE(s.sm_fill_percent(), s.kernel_busy_percent());
}

TEST(ProfileSummary, FillIsNotKnownWithoutBlocksOrWithoutAGpu) {
  HandRecording without_blocks;
  without_blocks.kernel(kTrain, 1, 0, 50, 25).kernel(kTrain, 1, 50, 60);
  EXPECT_FALSE(summary_of(without_blocks, window(0, 100), 100).fill_known);
  HandRecording on_the_host;
  on_the_host.kernel(kTrain, 1, 0, 50, 25);
  EXPECT_FALSE(summary_of(on_the_host, window(0, 100), 0).fill_known);
}

TEST(ProfileSummary, CyclesAddUp) {
  ProfileSummary s;
  for (int cycle = 0; cycle < 3; ++cycle) {
    HandRecording hand;
    hand.kernel(kTrain, 1, 0, 50);
    s.add(hand.take(), window(0, 100), 0);
  }
  EXPECT_EQ(s.cycles, 3u);
  EXPECT_EQ(s.steps, 3u);
  EXPECT_EQ(s.wall, 300u);
  EXPECT_DOUBLE_EQ(s.kernel_busy_percent(), 50);
  EXPECT_EQ(s.kernels.at("work").count, 3u);
}

TEST(ProfileSummary, TopKernelsAreTheLongest) {
  HandRecording hand;
  hand.kernel(kTrain, 1, 0, 10, 0, "b").kernel(kTrain, 1, 10, 20, 0, "a");
  hand.kernel(kTrain, 1, 20, 50, 0, "c").kernel(kTrain, 1, 50, 55, 0, "d");
  const ProfileSummary s = summary_of(hand, window(0, 100));
  const auto top = top_kernels(s, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].first, "c");
  EXPECT_EQ(top[1].first, "a");
  EXPECT_EQ(top[2].first, "b");
  EXPECT_EQ(top_kernels(s, 100).size(), 4u);
}

// --- findings

std::vector<std::string> rules_of(const ProfileSummary& s, const ProfileFacts& facts = {}) {
  std::vector<std::string> rules;
  for (const Finding& finding : findings_of(s, facts)) {
    EXPECT_FALSE(finding.text.empty());
    rules.push_back(finding.rule);
  }
  return rules;
}
using Rules = std::vector<std::string>;

TEST(Findings, NoneForARunThatIsFine) {
  HandRecording hand;
  hand.kernel(kTrain, 1, 0, 80);
  EXPECT_EQ(rules_of(summary_of(hand, window(0, 100))), Rules{});
}

TEST(Findings, LoaderBoundAboveFivePercent) {
  for (const auto& [end, rules] : {std::pair(85u, Rules{}), {86u, Rules{"loader_bound"}}}) {
    HandRecording hand;
    hand.kernel(kTrain, 1, 0, 80).host(RecordKind::loading, 70, end);
    EXPECT_EQ(rules_of(summary_of(hand, window(0, 100))), rules) << end;
  }
}

TEST(Findings, CopyBoundAboveTenPercent) {
  for (const auto& [end, rules] : {std::pair(90u, Rules{}), {91u, Rules{"copy_bound"}}}) {
    HandRecording hand;
    hand.kernel(kTrain, 1, 0, 80).copy(kEncode, 1, 20, end);
    EXPECT_EQ(rules_of(summary_of(hand, window(0, 100))), rules) << end;
  }
}

TEST(Findings, LaunchBoundWhereShortKernelsLeaveGapsOnAGpu) {
  const auto rules = [](std::uint64_t length, bool gpu) {
    HandRecording hand;
    for (std::uint64_t i = 0; i < 10; ++i)
      hand.kernel(kTrain, 1, 3 * i * length, (3 * i + 1) * length);
    ProfileFacts facts;
    facts.gpu = gpu;
    return rules_of(summary_of(hand, window(0, 30 * length)), facts);
  };
  EXPECT_EQ(rules(9'999, true), Rules{"launch_bound"});
  EXPECT_EQ(rules(10'000, true), Rules{"low_busy"});  // long ones leave gaps for another reason
  EXPECT_EQ(rules(9'999, false), Rules{"low_busy"});
}

TEST(Findings, LowBusyBelowHalfUnlessExplained) {
  for (const auto& [end, rules] : {std::pair(50u, Rules{}), {49u, Rules{"low_busy"}}}) {
    HandRecording hand;
    hand.kernel(kTrain, 1, 0, end);
    EXPECT_EQ(rules_of(summary_of(hand, window(0, 100))), rules) << end;
  }
  HandRecording waits;
  waits.kernel(kTrain, 1, 0, 40).host(RecordKind::loading, 40, 100);
  EXPECT_EQ(rules_of(summary_of(waits, window(0, 100))), Rules{"loader_bound"});
}

TEST(Findings, FullOrFewBlocks) {
  const auto rules = [](std::uint64_t busy, std::uint64_t blocks) {
    HandRecording hand;
    hand.kernel(kTrain, 1, 0, busy, blocks);
    return rules_of(summary_of(hand, window(0, 100), 100));
  };
  EXPECT_EQ(rules(95, 100), Rules{"gpu_full"});
  EXPECT_EQ(rules(89, 100), Rules{});
  EXPECT_EQ(rules(95, 80), Rules{});  // 76 %
  EXPECT_EQ(rules(95, 49), Rules{"low_fill"});
  EXPECT_EQ(rules(95, 50), Rules{});
  EXPECT_EQ(rules(40, 10), Rules{"low_busy"});
}

TEST(Findings, OverlapThatDoesNothing) {
  ProfileFacts overlap;
  overlap.overlap = true;
  const auto recorded = [](std::uint64_t encode_end) {
    HandRecording hand;
    hand.kernel(kTrain, 1, 40, 90).kernel(kEncode, 1, 5, encode_end);
    return summary_of(hand, window(0, 100));
  };
  EXPECT_EQ(rules_of(recorded(44), overlap), Rules{"no_overlap"});
  EXPECT_EQ(rules_of(recorded(45), overlap), Rules{});
  EXPECT_EQ(rules_of(recorded(44)), Rules{});  // serial has nothing to say about it
}

TEST(Findings, StagesOfUnequalLength) {
  ProfileFacts overlap;
  overlap.overlap = true;
  const auto recorded = [](std::uint64_t encode_end) {
    HandRecording hand;
    hand.kernel(kTrain, 1, 0, 80).kernel(kEncode, 1, 0, encode_end);
    return summary_of(hand, window(0, 100));
  };
  EXPECT_EQ(rules_of(recorded(39), overlap), Rules{"stages_unequal"});
  EXPECT_EQ(rules_of(recorded(40), overlap), Rules{});
}

TEST(Findings, FromFacts) {
  const auto rules = [](const ProfileFacts& facts) {
    HandRecording hand;
    hand.kernel(kTrain, 1, 0, 80);
    return rules_of(summary_of(hand, window(0, 100)), facts);
  };
  ProfileFacts memory;
  memory.memory_needed = 91;
  memory.memory_there = 100;
  EXPECT_EQ(rules(memory), Rules{"memory_full"});
  for (const bool gpu : {false, true}) {  // the host has no bf16
    memory.gpu = gpu;
    HandRecording hand;
    hand.kernel(kTrain, 1, 0, 80);
    const std::string text = findings_of(summary_of(hand, window(0, 100)), memory).front().text;
    EXPECT_EQ(text.find("bf16") != std::string::npos, gpu) << text;
  }
  memory.gpu = false;
  memory.memory_needed = 90;
  EXPECT_EQ(rules(memory), Rules{});
  ProfileFacts precision;
  precision.strict_products = true;
  EXPECT_EQ(rules(precision), Rules{});  // the host has nothing else
  precision.gpu = true;
  EXPECT_EQ(rules(precision), Rules{"full_precision"});
}

TEST(Findings, WhatIsMissing) {
  HandRecording hand;
  hand.kernel(kTrain, 1, 0, 80);
  hand.recorder().drop(3);
  ProfileWindow cold = window(0, 100);
  cold.warm = false;
  EXPECT_EQ(rules_of(summary_of(hand, cold)), (Rules{"not_warm", "dropped"}));
}

}  // namespace
}  // namespace tandem
