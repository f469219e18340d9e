// SPDX-License-Identifier: Apache-2.0
// Recordings written by hand.
#pragma once

#include <memory>
#include <string>
#include <tandem/engine/recorder.hpp>
#include <vector>

namespace tandem::test {

/// Two stages, encode and train, each with a stream; times in nanoseconds.
class HandRecording {
 public:
  enum Lane { kEncode, kTrain, kHost };

  HandRecording()
      : recorder_(std::make_unique<Recorder>(std::vector<std::string>{"encode", "train"},
                                             std::size_t{100'000})) {
    for (const char* lane : {"encode", "train", "feeding thread"}) recorder_->lane(lane);
  }

  HandRecording& kernel(int lane, std::uint64_t step, std::uint64_t begin, std::uint64_t end,
                        std::uint64_t blocks = 0, const char* name = "work") {
    return add(RecordKind::kernel, lane, step, begin, end, name, blocks, 0);
  }
  HandRecording& copy(int lane, std::uint64_t step, std::uint64_t begin, std::uint64_t end,
                      std::uint64_t bytes = 0) {
    return add(RecordKind::copy, lane, step, begin, end, "copy", 0, bytes);
  }
  HandRecording& host(RecordKind kind, std::uint64_t begin, std::uint64_t end) {
    return add(kind, kHost, Record::kNoStep, begin, end, name_of(kind), 0, 0);
  }
  HandRecording& add(RecordKind kind, int lane, std::uint64_t step, std::uint64_t begin,
                     std::uint64_t end, const char* name, std::uint64_t blocks,
                     std::uint64_t bytes) {
    Record record;
    record.kind = kind;
    record.lane = lane;
    record.stage = is_device(kind) ? lane : -1;
    record.step = step;
    record.begin = begin;
    record.end = end;
    record.blocks = blocks;
    record.bytes = bytes;
    record.name = recorder_->text(name);
    record.path = recorder_->text(std::string("train/") + name);
    recorder_->add(record);
    return *this;
  }

  Recorder& recorder() noexcept { return *recorder_; }
  Recording take() { return recorder_->take(); }

 private:
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace tandem::test
