// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tandem/engine/chrome_trace.hpp>
#include <utility>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

enum Group : int { kSteps = 1, kDevice, kHost, kCounters };
constexpr const char* kStreamsRunning = "streams at work";

/// An event before it is text. Length 0 and a value: a counter's sample.
struct Event {
  std::uint64_t begin = 0, end = 0;
  Group group = kDevice;
  int lane = 0;
  const Record* record = nullptr;         // of device and host
  const CounterSample* sample = nullptr;  // of counters
  std::uint64_t step = 0;                 // of steps and stages
};

std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string microseconds(std::uint64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

std::string name_event(const char* what, Group group, int lane, std::string_view name) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what,
                     static_cast<int>(group), lane, json_string(name));
}
std::string order_event(const char* what, Group group, int lane, int order) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
                     what, static_cast<int>(group), lane, order);
}

class TraceWriter {
 public:
  TraceWriter(const Recording& recording, const ProfileWindow& window,
              const std::vector<CounterSample>& counters, const TraceOptions& options)
      : recording_(recording), window_(window), options_(options) {
    add_records();
    add_stages_and_steps();
    add_streams_running();
    for (const CounterSample& sample : counters)
      if (sample.time >= first_ && sample.time <= last_)
        events_.push_back({sample.time, sample.time, kCounters, 0, nullptr, &sample, 0});
    std::stable_sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
  }

  TraceText text() && {
    const std::uint64_t origin = events_.empty() ? 0 : events_.front().begin;
    std::string& json = text_.json;
    json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    add_names();
    for (const Event& event : events_) {
      const std::string line = line_of(event, origin);
      if (text_.dropped > 0 || json.size() + line.size() + kRoomForTheEnd > options_.most_bytes) {
        ++text_.dropped;
        continue;
      }
      json += ",\n";
      json += line;
      ++text_.events;
    }
    json += fmt::format(
        "\n],\"otherData\":{{\"first_step\":{},\"last_step\":{},\"window_begin_us\":{},"
        "\"window_end_us\":{},\"dropped_events\":{},\"dropped_records\":{}}}}}\n",
        window_.first_step, window_.last_step,
        microseconds(window_.begin - std::min(origin, window_.begin)),
        microseconds(window_.end - std::min(origin, window_.end)), text_.dropped,
        recording_.dropped);
    return std::move(text_);
  }

 private:
  static constexpr std::size_t kRoomForTheEnd = 512;

  void add_records() {
    lane_group_.assign(recording_.lanes.size(), 0);
    for (const Record& record : recording_.records) {
      if (record.end < window_.begin || record.begin > window_.end) continue;
      const Group group = is_device(record.kind) ? kDevice : kHost;
      lane_group_[static_cast<std::size_t>(record.lane)] = group;
      events_.push_back({record.begin, record.end, group, record.lane, &record, nullptr, 0});
      first_ = std::min(first_, record.begin);
      last_ = std::max(last_, record.end);
    }
  }

  /// Lane 0: the steps, each from the end of the one before; lane 1 + s: stage s.
  void add_stages_and_steps() {
    std::map<std::pair<int, std::uint64_t>, std::pair<std::uint64_t, std::uint64_t>> spans;
    const int stages = static_cast<int>(recording_.stages.size());
    for (const Event& event : events_) {
      if (event.group != kDevice || event.record->stage < 0 ||
          event.record->step == Record::kNoStep)
        continue;
      const auto [span, first] =
          spans.try_emplace({event.record->stage, event.record->step}, event.begin, event.end);
      if (first) continue;
      span->second.first = std::min(span->second.first, event.begin);
      span->second.second = std::max(span->second.second, event.end);
    }
    std::vector<std::uint64_t> covered(static_cast<std::size_t>(stages));  // slices do not cross
    std::uint64_t step_begin = window_.begin;
    for (const auto& [key, span] : spans) {
      const auto [stage, step] = key;
      std::uint64_t& until = covered[static_cast<std::size_t>(stage)];
      const std::uint64_t begin = std::min(std::max(span.first, until), span.second);
      until = span.second;
      events_.push_back({begin, span.second, kSteps, 1 + stage, nullptr, nullptr, step});
      if (stage + 1 < stages || step < window_.first_step || step > window_.last_step ||
          span.second < step_begin)
        continue;
      events_.push_back({step_begin, span.second, kSteps, 0, nullptr, nullptr, step});
      step_begin = span.second;
    }
  }

  /// How many streams work, whenever that changes.
  void add_streams_running() {
    std::vector<std::pair<std::uint64_t, int>> changes;
    for (const Event& event : events_) {
      if (event.group != kDevice || event.begin == event.end) continue;
      changes.emplace_back(event.begin, event.lane);
      changes.emplace_back(event.end, -1 - event.lane);
    }
    std::sort(changes.begin(), changes.end());  // at one moment ends come first
    std::vector<int> on_lane(recording_.lanes.size());
    int lanes = 0;
    for (std::size_t i = 0; i < changes.size(); ++i) {
      const auto [time, change] = changes[i];
      const auto lane = static_cast<std::size_t>(change >= 0 ? change : -1 - change);
      lanes -= on_lane[lane] > 0 ? 1 : 0;
      on_lane[lane] += change >= 0 ? 1 : -1;
      lanes += on_lane[lane] > 0 ? 1 : 0;
      const bool last = i + 1 == changes.size() || changes[i + 1].first != time;
      if (last && (own_samples_.empty() || own_samples_.back().value != lanes))
        own_samples_.push_back({time, kStreamsRunning, static_cast<double>(lanes)});
    }
    for (const CounterSample& sample : own_samples_)
      events_.push_back({sample.time, sample.time, kCounters, 0, nullptr, &sample, 0});
  }

  void add_names() {
    std::vector<std::string> names;
    for (const auto& [group, name] : {std::pair<Group, std::string>{kSteps, "steps and stages"},
                                      {kDevice, "streams of " + options_.device},
                                      {kHost, "threads"},
                                      {kCounters, "counters"}}) {
      names.push_back(name_event("process_name", group, 0, name));
      names.push_back(order_event("process_sort_index", group, 0, group));
    }
    const auto add_lane = [&](Group group, int lane, std::string_view name) {
      names.push_back(name_event("thread_name", group, lane, name));
      names.push_back(order_event("thread_sort_index", group, lane, lane));
    };
    add_lane(kSteps, 0, "steps");
    for (std::size_t s = 0; s < recording_.stages.size(); ++s)
      add_lane(kSteps, 1 + static_cast<int>(s), recording_.stages[s]);
    for (std::size_t lane = 0; lane < lane_group_.size(); ++lane)
      if (lane_group_[lane] != 0)
        add_lane(static_cast<Group>(lane_group_[lane]), static_cast<int>(lane),
                 recording_.lanes[lane]);
    text_.json += fmt::format("{}", fmt::join(names, ",\n"));
  }

  std::string line_of(const Event& event, std::uint64_t origin) const {
    const std::string ts = microseconds(event.begin - origin);
    if (event.sample != nullptr)
      return fmt::format(R"({{"ph":"C","name":{},"pid":{},"tid":0,"ts":{},"args":{{"value":{}}}}})",
                         json_string(event.sample->name), static_cast<int>(kCounters), ts,
                         event.sample->value);
    std::string name, category, args;
    if (event.record == nullptr) {
      category = event.lane == 0 ? "step" : "stage";
      name = fmt::format(
          "{} {}",
          event.lane == 0 ? "step" : recording_.stages[static_cast<std::size_t>(event.lane) - 1],
          event.step);
      args = fmt::format(R"("step":{})", event.step);
    } else {
      name = recording_.texts[event.record->name];
      category = name_of(event.record->kind);
      args = arguments_of(*event.record);
    }
    return fmt::format(
        R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
        json_string(name), category, static_cast<int>(event.group), event.lane, ts,
        microseconds(event.end - event.begin), args);
  }

  std::string arguments_of(const Record& record) const {
    std::vector<std::string> args;
    const auto add = [&](const char* key, const std::string& value) {
      args.push_back(fmt::format(R"("{}":{})", key, value));
    };
    if (record.step != Record::kNoStep) add("step", fmt::to_string(record.step));
    if (record.stage >= 0)
      add("stage", json_string(recording_.stages[static_cast<std::size_t>(record.stage)]));
    if (record.bytes > 0) add("bytes", fmt::to_string(record.bytes));
    if (record.blocks > 0) add("blocks", fmt::to_string(record.blocks));
    if (options_.paths && record.path != 0) add("path", json_string(recording_.texts[record.path]));
    if (record.shapes != 0) add("shapes", json_string(recording_.texts[record.shapes]));
    return fmt::format("{}", fmt::join(args, ","));
  }

  const Recording& recording_;
  const ProfileWindow& window_;
  const TraceOptions& options_;
  std::vector<Event> events_;
  std::uint64_t first_ = Record::kNoStep, last_ = 0;  // time of the records that are in
  std::vector<CounterSample> own_samples_;
  std::vector<int> lane_group_;  // 0: nothing is on it
  TraceText text_;
};

}  // namespace

TraceText chrome_trace(const Recording& recording, const ProfileWindow& window,
                       const std::vector<CounterSample>& counters, const TraceOptions& options) {
  return TraceWriter(recording, window, counters, options).text();
}

}  // namespace tandem
