// SPDX-License-Identifier: Apache-2.0
// What a profiled run did, as plain records: the interface between those who see it (the host
// backend's threads, CUPTI, timed events) and those who make something of it (trace, summary).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class RecordKind : std::uint8_t {
  kernel,   ///< on a stream: an operation's work
  copy,     ///< on a stream: bytes from one memory to another, or within one
  memset,   ///< on a stream: bytes are filled
  runtime,  ///< on the host: a call that queues work
  loading,  ///< on the host: the feeding thread waits for a batch
  issuing,  ///< on the host: the feeding thread issues a step, or waits until it may
};
inline constexpr int kRecordKinds = static_cast<int>(RecordKind::issuing) + 1;
const char* name_of(RecordKind kind) noexcept;
/// Whether records of the kind lie on a stream.
constexpr bool is_device(RecordKind kind) noexcept { return kind <= RecordKind::memset; }

/// Index of a text or of a lane in a Recording.
using TextId = std::uint32_t;

struct Record {
  static constexpr std::uint64_t kNoStep = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t begin = 0, end = 0;  ///< nanoseconds of profile_clock(); begin <= end
  std::uint64_t step = kNoStep;      ///< of the batch's header, where it is known
  std::uint64_t bytes = 0;           ///< copy, memset: moved or filled
  std::uint64_t blocks = 0;          ///< kernel on a GPU: of its grid; 0: not known
  TextId name = 0;                   ///< "conv2x2_forward", a kernel's name
  TextId path = 0;                   ///< "train/decoder.3.forward"; 0: not known
  TextId shapes = 0;                 ///< 0: not asked for
  int lane = 0;                      ///< index into Recording::lanes
  int stage = -1;                    ///< index into Recording::stages, or -1
  RecordKind kind = RecordKind::kernel;
};

struct Recording {
  std::vector<std::string> texts{""};  ///< what a TextId names; 0 is empty
  std::vector<std::string> lanes;      ///< streams, and threads of the host
  std::vector<std::string> stages;     ///< of the plan
  std::vector<Record> records;         ///< by begin; of two with one begin the longer first
  std::uint64_t dropped = 0;           ///< records that were one too many
};

/// Nanoseconds of the monotonic clock that all records share.
inline std::uint64_t profile_clock() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

/// Collects records up to a number, counting the others. Thread-safe.
class Recorder {
 public:
  static constexpr std::size_t kMostRecords = 1'000'000;  // about 80 MB

  explicit Recorder(std::vector<std::string> stages, std::size_t most_records = kMostRecords);
  ~Recorder();

  TextId text(std::string_view text);
  int lane(std::string_view name);          ///< a new lane
  int stage(std::string_view name) const;   ///< -1 for a name that is none
  void add(const Record& record) noexcept;  ///< ends before it begins: as if it took no time
  void drop(std::uint64_t count) noexcept;  ///< records that a source lost

  /// What was added since the last call, in order. Lanes and texts stay known.
  Recording take();

  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
