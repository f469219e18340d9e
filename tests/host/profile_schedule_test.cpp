// SPDX-License-Identifier: Apache-2.0
// The schedule of PyTorch's profiler, against tables written by hand from its documentation: after
// skip_first steps cycles of wait, warmup and active; the last active one saves; 0 repeats: for
// ever.
#include <gtest/gtest.h>

#include <string>
#include <tandem/engine/profile_schedule.hpp>

namespace tandem {
namespace {

/// One letter a step: . none, w warmup, r record, s record_and_save.
std::string table(const ProfileSchedule& schedule, std::uint64_t steps) {
  std::string letters;
  for (std::uint64_t step = 0; step < steps; ++step) {
    switch (schedule.action_at(step)) {
      case ProfileAction::none:
        letters += '.';
        break;
      case ProfileAction::warmup:
        letters += 'w';
        break;
      case ProfileAction::record:
        letters += 'r';
        break;
      case ProfileAction::record_and_save:
        letters += 's';
        break;
    }
  }
  return letters;
}

struct Row {
  const char* name;
  ProfileSchedule schedule;  // skip_first, wait, warmup, active, repeat
  std::string actions;
};

const Row kRows[] = {
    {"the usual one", {0, 1, 1, 3, 2}, ".wrrs.wrrs...."},
    {"skipping", {3, 1, 1, 2, 1}, "....wrs......"},
    {"for ever", {0, 1, 1, 1, 0}, ".ws.ws.ws.ws.ws"},
    {"skipping, for ever", {2, 0, 1, 2, 0}, "..wrswrswrs"},
    {"no wait", {0, 0, 2, 1, 2}, "wwswws..."},
    {"no warm-up", {0, 2, 0, 2, 2}, "..rs..rs.."},
    {"only active", {0, 0, 0, 1, 0}, "ssssss"},
    {"only active, three a cycle", {0, 0, 0, 3, 2}, "rrsrrs..."},
};

TEST(ProfileSchedule, ActsAsTheTablesSay) {
  for (const Row& row : kRows)
    EXPECT_EQ(table(row.schedule, row.actions.size()), row.actions) << row.name;
}

TEST(ProfileSchedule, CountsRecordedStepsAsTheTablesDo) {
  for (const Row& row : kRows) {
    std::uint64_t recorded = 0;
    for (std::size_t steps = 0; steps <= row.actions.size(); ++steps) {
      EXPECT_EQ(row.schedule.recorded(steps), recorded) << row.name << ", " << steps << " steps";
      if (steps < row.actions.size())
        recorded += row.actions[steps] == 'r' || row.actions[steps] == 's' ? 1u : 0u;
    }
  }
}

TEST(ProfileSchedule, EndsWithItsLastCycle) {
  EXPECT_EQ((ProfileSchedule{3, 1, 1, 3, 2}).steps(), 13u);
  EXPECT_EQ((ProfileSchedule{3, 1, 1, 3, 0}).steps(), 0u);
}

TEST(ProfileSchedule, FarStepsAreAsNearOnes) {
  const ProfileSchedule schedule{0, 1, 1, 3, 0};
  EXPECT_EQ(schedule.action_at(5'000'000'004), ProfileAction::record_and_save);
  EXPECT_EQ(schedule.cycle_at(5'000'000'004), 1'000'000'000u);
}

}  // namespace
}  // namespace tandem
