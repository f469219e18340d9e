// SPDX-License-Identifier: Apache-2.0
// The host backend seen by a source: real training, recorded and not, and what memory it uses.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/profile_memory.hpp>
#include <tandem/engine/profile_source.hpp>
#include <tandem/engine/profile_summary.hpp>
#include <tandem/tests/support/small_segmenter.hpp>

namespace tandem {
namespace {

struct Seen {
  Plan plan;
  MemoryPlan memory;
  Recording recording;
  Parameters trained;
  std::vector<double> losses;
};

/// 5 steps on the host; with `record`, steps 2 and 3 are recorded.
Seen train(Schedule schedule, bool record, bool shapes = false) {
  const EngineConfig config = test::small_config(schedule);
  Recorder recorder({"copy", "encode", "train"});
  const auto source = make_host_profile_source(recorder, shapes);
  const auto backend = make_host_backend(source.get());
  test::SmallSegmenter segmenter(*backend, config);
  segmenter.train(0, 2);
  if (record) source->start();
  segmenter.train(2, 2);
  source->stop();
  segmenter.train(4, 1);
  return {segmenter.trainer().scheduler().plan(), segmenter.trainer().scheduler().memory(),
          recorder.take(), segmenter.trainer().trained(), segmenter.losses()};
}

TEST(HostProfileSource, RecordsEveryOperationOfTheRecordedStepsOnce) {
  for (const Schedule schedule : {Schedule::serial, Schedule::overlap}) {
    const Seen seen = train(schedule, true);
    std::map<std::string, int> expected, found;
    for (const Stage& stage : seen.plan.stages)
      for (const Operation& operation : stage.operations)
        for (int step = 2; step <= 3; ++step)
          ++expected[stage.name + "/" + operation.name + " " + std::to_string(step)];
    for (const Record& record : seen.recording.records) {
      const std::string path = seen.recording.texts[record.path];
      ++found[path + " " + std::to_string(record.step)];
      const std::string& stage = seen.recording.stages.at(static_cast<std::size_t>(record.stage));
      EXPECT_EQ(path.substr(0, path.find('/')), stage);
      EXPECT_EQ(seen.recording.lanes.at(static_cast<std::size_t>(record.lane)),
                schedule == Schedule::serial ? "serial" : stage);
      EXPECT_LE(record.begin, record.end);
      EXPECT_EQ(record.kind == RecordKind::copy, record.bytes > 0);
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(HostProfileSource, OperationsOfAStreamFollowEachOther) {
  const Seen seen = train(Schedule::overlap, true);
  std::map<int, std::uint64_t> end;
  for (const Record& record : seen.recording.records) {
    EXPECT_GE(record.begin, end[record.lane]);
    end[record.lane] = record.end;
  }
}

TEST(HostProfileSource, ChangesNothingOfTheTraining) {
  const Seen with = train(Schedule::overlap, true), without = train(Schedule::overlap, false);
  EXPECT_TRUE(without.recording.records.empty());
  EXPECT_EQ(with.losses, without.losses);
  EXPECT_TRUE(test::same_bits(with.trained, without.trained));
}

TEST(HostProfileSource, TellsShapesIfAskedTo) {
  const Seen with = train(Schedule::serial, true, true), without = train(Schedule::serial, true);
  std::set<std::string> shapes;
  for (const Record& record : with.recording.records)
    shapes.insert(with.recording.texts[record.shapes]);
  EXPECT_EQ(shapes.count(""), 0u);
  EXPECT_EQ(shapes.count("input.images r u8 nhwc 4x32x32x3, images w u8 nhwc 4x32x32x3"), 1u);
  for (const Record& record : without.recording.records) EXPECT_EQ(record.shapes, 0u);
}

TEST(HostProfileSource, ItsWindowIsTheTimeOfItsSteps) {
  const Seen seen = train(Schedule::overlap, true);
  const ProfileWindow window = window_of(seen.recording, 3, 3);
  EXPECT_TRUE(window.warm);
  ProfileSummary summary;
  summary.add(seen.recording, window, 0);
  EXPECT_EQ(std::accumulate(summary.split.begin(), summary.split.end(), summary.rest),
            window.end - window.begin);
  EXPECT_GT(summary.kernel_busy_percent(), 0);
  EXPECT_GT(summary.kernels.at("sgd_momentum").count, 0u);
}

TEST(MemoryParts, AddUpToTheArenas) {
  const Seen seen = train(Schedule::overlap, false);
  std::map<std::string, std::size_t> bytes;
  std::size_t device = 0, pinned = 0;
  for (const MemoryPart& part : memory_parts(seen.plan, seen.memory)) {
    EXPECT_TRUE(bytes.emplace(part.purpose, part.bytes).second) << part.purpose;
    (part.pinned ? pinned : device) += part.bytes;
  }
  EXPECT_EQ(device, seen.memory.device_bytes);
  EXPECT_EQ(pinned, seen.memory.pinned_bytes);
  for (const char* purpose : {"weight", "bias", "gradient", "velocity", "hand-over of copy",
                              "hand-over of encode", "scratch of train", "input", "result"})
    EXPECT_GT(bytes[purpose], 0u) << purpose;
  EXPECT_EQ(bytes["gradient"], bytes["velocity"]);
}

/// Two scratch buffers of 1000 and 3000 bytes, alive in operations 0 to 1 and 1 to 2.
Plan small_plan() {
  PlanBuilder plan;
  plan.begin_stage("only");
  const auto desc = [](std::size_t bytes) { return byte_desc(bytes); };
  const BufferId a = plan.add_buffer("a", desc(1000), Scope::scratch, 0);
  const BufferId b = plan.add_buffer("b", desc(3000), Scope::scratch, 0);
  const auto add = [&](const char* name, std::vector<Operand> operands) {
    Operation operation;
    operation.name = name;
    operation.callable.function = [](void*, void* const*, const CallContext&) {};
    operation.operands = std::move(operands);
    plan.add(std::move(operation));
  };
  add("first", {plan.write(a, desc(1000))});
  add("second", {plan.read(a, desc(1000)), plan.write(b, desc(3000))});
  add("third", {plan.read(b, desc(3000))});
  return std::move(plan).build();
}

TEST(LiveMemory, IsWhatHoldsSomething) {
  EXPECT_EQ(live_scratch(small_plan(), 0), (std::vector<std::size_t>{1000, 4000, 3000}));
}

TEST(LiveMemory, IsACurveOverTheRecords) {
  Recorder recorder({"only"});
  const Plan plan = small_plan();
  const int lane = recorder.lane("only");
  std::uint64_t time = 100;
  for (const char* name : {"first", "second", "second", "third", "not in the plan"}) {
    Record record;
    record.lane = lane;
    record.stage = 0;
    record.path = recorder.text(std::string("only/") + name);
    record.begin = time++;
    record.end = time++;
    recorder.add(record);
  }
  const auto samples = live_memory(recorder.take(), plan);
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].time, 100u);
  EXPECT_EQ(samples[1].time, 102u);
  EXPECT_EQ(samples[2].time, 106u);
  EXPECT_EQ(samples[1].value * (1 << 20), 4000);
  EXPECT_EQ(samples[1].name, "scratch of only in use, MiB");
}

}  // namespace
}  // namespace tandem
