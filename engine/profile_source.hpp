// SPDX-License-Identifier: Apache-2.0
// Those who see what a backend does, and record it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tandem/engine/operation.hpp>
#include <tandem/engine/recorder.hpp>

namespace tandem {

/// Told by a backend about its streams and operations. What lies between begin() and end() is the
/// operation itself on the host backend, in the stream's thread; on the cuda backend it is the
/// calls that queue it, in the thread that issues. Operations that are skipped after a failure are
/// not told. Must outlive the backend.
class OperationListener {
 public:
  virtual ~OperationListener() = default;

  /// Returns what begin() and end() are to call the stream. `native` is a cudaStream_t, or null.
  virtual int stream_created(std::string_view name, void* native) = 0;
  /// Returns what end() is to be given.
  virtual std::uint64_t begin(int stream, const BoundOperation& operation) noexcept = 0;
  virtual void end(int stream, const BoundOperation& operation, std::uint64_t begun) noexcept = 0;

  /// Why operations that it is told of cannot be captured into a graph, or null if they can: then
  /// begin_capture() throws that, and a scheduler goes on without graphs.
  virtual const char* no_capture_reason() const noexcept { return nullptr; }

 protected:
  OperationListener() = default;
  OperationListener(const OperationListener&) = delete;
  OperationListener& operator=(const OperationListener&) = delete;
};

/// Tells a listener of an operation from here to the end of the scope, if there is a listener.
class [[nodiscard]] ToldOperation {
 public:
  ToldOperation(OperationListener* listener, int stream, const BoundOperation& operation)
      : listener_(listener),
        stream_(stream),
        operation_(operation),
        begun_(listener == nullptr ? 0 : listener->begin(stream, operation)) {}
  ~ToldOperation() {
    if (listener_ != nullptr) listener_->end(stream_, operation_, begun_);
  }
  ToldOperation(const ToldOperation&) = delete;
  ToldOperation& operator=(const ToldOperation&) = delete;

 private:
  OperationListener* const listener_;
  const int stream_;
  const BoundOperation& operation_;
  const std::uint64_t begun_;
};

/// A listener that turns what it sees into records.
class ProfileSource : public OperationListener {
 public:
  virtual const char* name() const noexcept = 0;  ///< "host", "cupti", "events"
  /// From here on everything that is issued is recorded. Throws Error{run_failed}.
  virtual void start() = 0;
  /// Only while nothing is in flight: all that was recorded is in the recorder afterwards.
  virtual void stop() = 0;
};

/// "train/decoder.3.forward"
std::string path_of(const char* stage, const Operation& operation);

/// Name, path, stage, step, bytes, kind and, if asked for, shapes of an operation's record.
Record describe(const BoundOperation& operation, bool shapes, Recorder& recorder);

/// Records when the host backend's threads ran each operation. The recorder must outlive it.
std::unique_ptr<ProfileSource> make_host_profile_source(Recorder& recorder, bool shapes);

}  // namespace tandem
