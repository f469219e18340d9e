// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <mutex>
#include <tandem/engine/recorder.hpp>
#include <unordered_map>
#include <utility>

namespace tandem {

const char* name_of(RecordKind kind) noexcept {
  switch (kind) {
    case RecordKind::kernel:
      return "kernel";
    case RecordKind::copy:
      return "copy";
    case RecordKind::memset:
      return "memset";
    case RecordKind::runtime:
      return "runtime";
    case RecordKind::loading:
      return "loading";
    case RecordKind::issuing:
      break;
  }
  return "issuing";
}

struct Recorder::Impl {
  mutable std::mutex mutex;
  std::size_t most_records = 0;
  std::unordered_map<std::string, TextId> ids;
  Recording recording;
};

Recorder::Recorder(std::vector<std::string> stages, std::size_t most_records)
    : impl_(std::make_unique<Impl>()) {
  impl_->most_records = most_records;
  impl_->recording.stages = std::move(stages);
  impl_->ids.emplace("", 0);
  // No record is lost for want of memory while a run goes on.
  impl_->recording.records.reserve(most_records);
}

Recorder::~Recorder() = default;

TextId Recorder::text(std::string_view text) {
  const std::lock_guard lock(impl_->mutex);
  auto& texts = impl_->recording.texts;
  const auto [entry, added] =
      impl_->ids.try_emplace(std::string(text), static_cast<TextId>(texts.size()));
  if (added) texts.emplace_back(text);
  return entry->second;
}

int Recorder::lane(std::string_view name) {
  const std::lock_guard lock(impl_->mutex);
  impl_->recording.lanes.emplace_back(name);
  return static_cast<int>(impl_->recording.lanes.size()) - 1;
}

int Recorder::stage(std::string_view name) const {
  const auto& stages = impl_->recording.stages;
  const auto found = std::find(stages.begin(), stages.end(), name);
  return found == stages.end() ? -1 : static_cast<int>(found - stages.begin());
}

void Recorder::add(const Record& record) noexcept {
  const std::lock_guard lock(impl_->mutex);
  auto& records = impl_->recording.records;
  if (records.size() == impl_->most_records) {
    ++impl_->recording.dropped;
    return;
  }
  records.push_back(record);
  records.back().end = std::max(record.begin, record.end);
}

void Recorder::drop(std::uint64_t count) noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->recording.dropped += count;
}

Recording Recorder::take() {
  const std::lock_guard lock(impl_->mutex);
  Recording& mine = impl_->recording;
  Recording taken{mine.texts, mine.lanes, mine.stages, mine.records, mine.dropped};
  mine.records.clear();
  mine.dropped = 0;
  std::stable_sort(taken.records.begin(), taken.records.end(),
                   [](const Record& a, const Record& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
                   });
  return taken;
}

}  // namespace tandem
