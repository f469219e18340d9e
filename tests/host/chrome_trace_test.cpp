// SPDX-License-Identifier: Apache-2.0
// Traces are read back and held to what viewers want: JSON, names, order, no negative duration.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tandem/engine/chrome_trace.hpp>
#include <tandem/tests/support/recordings.hpp>

namespace tandem {
namespace {

using Json = nlohmann::json;
using test::HandRecording;
constexpr int kEncode = HandRecording::kEncode, kTrain = HandRecording::kTrain;

HandRecording two_steps() {
  HandRecording hand;
  hand.kernel(kTrain, 4, 500, 1'000).kernel(kEncode, 5, 400, 900);
  hand.copy(kEncode, 6, 950, 960, 4096).kernel(kEncode, 6, 1'000, 1'600);
  hand.kernel(kTrain, 5, 1'000, 1'500, 132, "conv").kernel(kTrain, 5, 1'500, 2'001, 64, "sgd");
  hand.kernel(kTrain, 6, 2'100, 3'000).kernel(kEncode, 7, 1'700, 2'900);
  hand.host(RecordKind::issuing, 100, 300).host(RecordKind::issuing, 950, 1'200);
  hand.host(RecordKind::loading, 1'200, 1'900);
  return hand;
}

struct Parsed {
  Json json;
  std::vector<Json> events;  // but names
  std::map<std::pair<int, int>, std::string> threads;
  std::map<int, std::string> processes;
};

Parsed parse(const TraceText& trace) {
  Parsed parsed;
  parsed.json = Json::parse(trace.json);  // throws if it is none
  for (const Json& event : parsed.json.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase != "M") {
      parsed.events.push_back(event);
    } else if (event.at("name") == "thread_name") {
      parsed.threads[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
    } else if (event.at("name") == "process_name") {
      parsed.processes[event.at("pid")] = event.at("args").at("name");
    }
  }
  return parsed;
}

Parsed parse(HandRecording& hand, const TraceOptions& options = {},
             const std::vector<CounterSample>& counters = {}) {
  const Recording recording = hand.take();
  return parse(chrome_trace(recording, window_of(recording, 5, 6), counters, options));
}

const Json* find(const Parsed& parsed, const std::string& name) {
  for (const Json& event : parsed.events)
    if (event.at("name") == name) return &event;
  return nullptr;
}

TEST(ChromeTrace, IsSortedNamedAndHasNoNegativeTime) {
  HandRecording hand = two_steps();
  const Parsed parsed = parse(hand);
  double last = 0;
  std::set<std::pair<int, int>> used;
  for (const Json& event : parsed.events) {
    EXPECT_GE(event.at("ts").get<double>(), last);
    last = event.at("ts");
    if (event.at("ph") == "C") continue;
    EXPECT_EQ(event.at("ph"), "X");
    EXPECT_GE(event.at("dur").get<double>(), 0);
    used.emplace(event.at("pid").get<int>(), event.at("tid").get<int>());
  }
  EXPECT_EQ(used.size(), 6u);  // steps, encode and train; two streams; a thread
  for (const auto& thread : used) EXPECT_EQ(parsed.threads.count(thread), 1u);
  for (const Json& event : parsed.events) EXPECT_EQ(parsed.processes.count(event.at("pid")), 1u);
}

TEST(ChromeTrace, SlicesOfALaneNestOrFollowEachOther) {
  HandRecording hand = two_steps();
  std::map<std::pair<int, int>, std::vector<double>> open;  // ends, outermost first
  for (const Json& event : parse(hand).events) {
    if (event.at("ph") != "X") continue;
    std::vector<double>& ends = open[{event.at("pid"), event.at("tid")}];
    const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
    constexpr double kHalfANanosecond = 0.0005;  // of decimals as doubles
    while (!ends.empty() && ends.back() <= begin + kHalfANanosecond) ends.pop_back();
    if (!ends.empty()) {
      EXPECT_LE(end, ends.back() + kHalfANanosecond) << event;
    }
    ends.push_back(end);
  }
}

TEST(ChromeTrace, TimesAreMicrosecondsFromTheFirstEvent) {
  HandRecording hand = two_steps();
  const Parsed parsed = parse(hand);
  // The first is what meets the window, 1'000 to 3'000: train of step 4 at 500.
  const Json* sgd = find(parsed, "sgd");
  ASSERT_NE(sgd, nullptr);
  EXPECT_DOUBLE_EQ(sgd->at("ts"), 1.0);
  EXPECT_DOUBLE_EQ(sgd->at("dur"), 0.501);
  EXPECT_EQ(parsed.json.at("otherData").at("window_begin_us"), 0.5);
  EXPECT_EQ(parsed.json.at("otherData").at("window_end_us"), 2.5);
}

TEST(ChromeTrace, LeavesOutWhatDoesNotMeetTheWindow) {
  HandRecording hand = two_steps();
  const Parsed parsed = parse(hand);
  EXPECT_EQ(find(parsed, "encode 5"), nullptr);  // ended at 900
  EXPECT_EQ(find(parsed, "copy"), nullptr);
  EXPECT_NE(find(parsed, "encode 7"), nullptr);  // under way in it
}

TEST(ChromeTrace, StepsLieBetweenTheEndsOfTheLastStage) {
  HandRecording hand = two_steps();
  const Parsed parsed = parse(hand);
  const Json *five = find(parsed, "step 5"), *six = find(parsed, "step 6");
  ASSERT_NE(five, nullptr);
  ASSERT_NE(six, nullptr);
  EXPECT_DOUBLE_EQ(five->at("ts"), 0.5);
  EXPECT_DOUBLE_EQ(five->at("dur"), 1.001);
  EXPECT_DOUBLE_EQ(six->at("ts"), 1.501);
  EXPECT_DOUBLE_EQ(six->at("dur"), 0.999);
  EXPECT_EQ(find(parsed, "step 4"), nullptr);
}

TEST(ChromeTrace, ArgumentsSayWhatIsKnown) {
  HandRecording hand = two_steps();
  const Json args = find(parse(hand), "conv")->at("args");
  EXPECT_EQ(args, (Json{{"step", 5}, {"stage", "train"}, {"blocks", 132}}));
  HandRecording again = two_steps();
  TraceOptions options;
  options.paths = true;
  EXPECT_EQ(find(parse(again, options), "conv")->at("args").at("path"), "train/conv");
}

TEST(ChromeTrace, CountersAreThere) {
  HandRecording hand = two_steps();
  const Parsed parsed = parse(hand, {},
                              {{100, "scratch of train in use, MiB", 9},  // before all the others
                               {1'200, "scratch of train in use, MiB", 2.5}});
  const Json* given = find(parsed, "scratch of train in use, MiB");
  ASSERT_NE(given, nullptr);
  EXPECT_EQ(given->at("args").at("value"), 2.5);
  std::vector<double> streams;
  for (const Json& event : parsed.events)
    if (event.at("name") == "streams at work") streams.push_back(event.at("args").at("value"));
  // From 500: train 4; from 1'000 both; 1'600 encode ends; 1'700 both; 2'001 train ends; 2'100
  // both; 2'900 encode ends; 3'000 none.
  EXPECT_EQ(streams, (std::vector<double>{1, 2, 1, 2, 1, 2, 1, 0}));
}

TEST(ChromeTrace, NamesMayBeAnything) {
  HandRecording hand;
  const std::string name = "k<\"a\\b\">\n\xff\xc3\xa4";
  hand.kernel(kTrain, 5, 0, 10, 0, name.c_str()).kernel(kTrain, 6, 10, 20);
  const Parsed parsed = parse(hand);
  EXPECT_NE(find(parsed, "k<\"a\\b\">\n\xef\xbf\xbd\xc3\xa4"), nullptr);  // not UTF-8: replaced
}

TEST(ChromeTrace, IsNotLongerThanAllowedAndCountsTheRest) {
  HandRecording hand;
  for (std::uint64_t i = 0; i < 20'000; ++i)
    hand.kernel(kTrain, 5 + i / 10'000, 10 * i, 10 * i + 9, 1, "a kernel with quite a long name");
  const Recording recording = hand.take();
  TraceOptions options;
  options.most_bytes = 1 << 20;
  const TraceText trace = chrome_trace(recording, window_of(recording, 5, 6), {}, options);
  EXPECT_LE(trace.json.size(), options.most_bytes);
  EXPECT_GE(trace.json.size(), options.most_bytes - 1024);
  EXPECT_GT(trace.dropped, 0u);
  const Parsed parsed = parse(trace);
  EXPECT_EQ(parsed.events.size(), trace.events);
  EXPECT_EQ(parsed.json.at("otherData").at("dropped_events"), trace.dropped);

  options.most_bytes = std::size_t{100} << 20;
  const TraceText all = chrome_trace(recording, window_of(recording, 5, 6), {}, options);
  EXPECT_EQ(all.dropped, 0u);
  EXPECT_EQ(all.events, trace.events + trace.dropped);
}

// A long run with the defaults gives a file that viewers open, and what is left out is counted.
TEST(ChromeTrace, TenThousandStepsFitIntoAFile) {
  constexpr std::uint64_t kSteps = 10'000, kKernels = 20, kLength = 100;
  const std::string name(600, 'k');  // as templates have them
  HandRecording hand;
  for (std::uint64_t step = 0; step < kSteps; ++step)
    for (std::uint64_t i = 0; i < kKernels; ++i) {
      const std::uint64_t begin = (step * kKernels + i) * kLength;
      hand.kernel(kTrain, step, begin, begin + kLength - 1, 132, name.c_str());
    }
  const Recording recording = hand.take();
  const ProfileWindow window = window_of(recording, 0, kSteps - 1);
  const TraceText trace = chrome_trace(recording, window, {}, {});
  EXPECT_LE(trace.json.size(), std::size_t{64} << 20);
  EXPECT_GT(trace.dropped, 0u);
  EXPECT_GT(trace.events, 100'000u);
  TraceOptions unlimited;
  unlimited.most_bytes = std::size_t{1} << 30;
  const TraceText all = chrome_trace(recording, window, {}, unlimited);
  EXPECT_EQ(all.dropped, 0u);
  EXPECT_EQ(trace.events + trace.dropped, all.events);
  EXPECT_GE(all.events, kSteps * (kKernels + 2));  // and a step and a stage for each
  // Parsing all of it takes the memory of ten such files: its ends, and the events one by one.
  EXPECT_EQ(trace.json.rfind("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", 0), 0u);
  const std::size_t end = trace.json.rfind("\n],\"otherData\":");
  ASSERT_NE(end, std::string::npos);
  const Json tail = Json::parse(std::string("{").append(trace.json, end + 3));
  EXPECT_EQ(tail.at("otherData").at("dropped_events"), trace.dropped);
  std::uint64_t events = 0;
  double last = 0;
  for (std::size_t begin = trace.json.find('\n') + 1; begin < end;) {
    const std::size_t next = trace.json.find('\n', begin);
    const bool comma = trace.json[next - 1] == ',';
    const std::string line = trace.json.substr(begin, next - begin - (comma ? 1 : 0));
    begin = next + 1;
    if (line.find("\"ph\":\"M\"") != std::string::npos) continue;
    ++events;
    if (events % 1000 == 0) {  // of each thousand one is read
      const Json event = Json::parse(line);
      EXPECT_GE(event.at("ts").get<double>(), last);
      last = event.at("ts");
      if (event.at("ph") == "X") {
        EXPECT_GE(event.at("dur").get<double>(), 0);
      }
    }
  }
  EXPECT_EQ(events, trace.events);
}

TEST(ChromeTrace, SaysWhatTheRecorderDropped) {
  HandRecording hand = two_steps();
  hand.recorder().drop(17);
  EXPECT_EQ(parse(hand).json.at("otherData").at("dropped_records"), 17);
}

}  // namespace
}  // namespace tandem
