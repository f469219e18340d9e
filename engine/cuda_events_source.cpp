// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <tandem/engine/cuda_events_source.hpp>
#include <tandem/engine/cuda_handles.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/cuda_context.hpp>
#include <utility>
#include <vector>

namespace tandem {
namespace {

CudaEventHandle timed_event() {
  cudaEvent_t event = nullptr;
  TANDEM_CUDA_TRY(cudaEventCreate(&event));
  return CudaEventHandle::adopt(event);
}

/// What an events source has of the runtime's, also one that could not get all of it.
struct Own {
  explicit Own(int device_of_all) : device(device_of_all) {}
  ~Own() {
    destroy_in_device_thread(device, [this] {
      events.clear();
      start.reset();
      clock_stream.reset();
    });
  }
  Own(const Own&) = delete;
  Own& operator=(const Own&) = delete;

  const int device;
  CudaStreamHandle clock_stream;
  CudaEventHandle start;
  std::deque<CudaEventHandle> events;
};

class EventsSource final : public ProfileSource {
 public:
  EventsSource(int device, Recorder& recorder, bool shapes)
      : recorder_(recorder), shapes_(shapes), own_(device) {
    on_device([&] {
      cudaStream_t stream = nullptr;
      TANDEM_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      own_.clock_stream = CudaStreamHandle::adopt(stream);
      own_.start = timed_event();
    });
  }

  const char* name() const noexcept override { return "events"; }

  void start() override {
    on_device([&] {
      TANDEM_CUDA_TRY(cudaEventRecord(own_.start.get(), own_.clock_stream.get()));
      TANDEM_CUDA_TRY(cudaEventSynchronize(own_.start.get()));
      started_ = profile_clock();
    });
    recording_.store(true, std::memory_order_relaxed);
  }

  /// What cannot be read is left out of what is recorded next, too.
  void stop() override {
    recording_.store(false, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    const std::vector<Timed> timed = std::exchange(timed_, {});
    used_ = 0;
    recorder_.drop(std::exchange(lost_, 0));
    on_device([&] {
      for (const Timed& t : timed) {
        if (!t.ended) continue;
        Record record = t.record;
        record.begin = time_of(own_.events[t.event]);
        record.end = time_of(own_.events[t.event + 1]);
        recorder_.add(record);
      }
    });
  }

  /// A launch of a graph would record the events of its capture again, which then have no time.
  const char* no_capture_reason() const noexcept override {
    return "operations are timed with events";
  }

  int stream_created(std::string_view name, void* native) override {
    const std::lock_guard lock(mutex_);
    const int lane = recorder_.lane(name);
    streams_.resize(static_cast<std::size_t>(lane) + 1);
    streams_.back() = static_cast<cudaStream_t>(native);
    return lane;
  }

  /// 1 + index of the operation's first event.
  std::uint64_t begin(int stream, const BoundOperation& bound) noexcept override {
    if (!recording_.load(std::memory_order_relaxed)) return 0;
    const std::lock_guard lock(mutex_);
    try {
      if (used_ == 2 * Recorder::kMostRecords) return lose();
      while (own_.events.size() < used_ + 2) own_.events.push_back(timed_event());
      Timed timed{describe(bound, shapes_, recorder_), used_, false};
      timed.record.lane = stream;
      TANDEM_CUDA_TRY(cudaEventRecord(own_.events[used_].get(), native(stream)));
      timed_.push_back(timed);
      used_ += 2;
      return timed.event + 1;
    } catch (const std::exception&) {
      return lose();
    }
  }

  void end(int stream, const BoundOperation&, std::uint64_t begun) noexcept override {
    if (begun == 0) return;
    const std::lock_guard lock(mutex_);
    if (begun > used_) return;  // begun before a stop()
    try {
      TANDEM_CUDA_TRY(cudaEventRecord(own_.events[begun].get(), native(stream)));
      timed_[begun / 2].ended = true;
    } catch (const CudaError&) {
      lose();
    }
  }

 private:
  struct Timed {
    Record record;
    std::size_t event = 0;  // and the next
    bool ended = false;     // both were recorded
  };

  std::uint64_t lose() noexcept {
    ++lost_;
    return 0;
  }

  cudaStream_t native(int stream) const { return streams_[static_cast<std::size_t>(stream)]; }

  std::uint64_t time_of(const CudaEventHandle& event) const {
    float ms = 0;
    TANDEM_CUDA_TRY(cudaEventElapsedTime(&ms, own_.start.get(), event.get()));
    return started_ + static_cast<std::uint64_t>(1e6 * static_cast<double>(ms));
  }

  /// CudaError becomes Error.
  void on_device(const std::function<void()>& body) {
    try {
      in_device_thread(own_.device, body);
    } catch (const CudaError& error) {
      throw Error(ErrorCode::run_failed, fmt::format("timing operations: {}", error.what()));
    }
  }

  Recorder& recorder_;
  const bool shapes_;
  Own own_;
  std::uint64_t started_ = 0;  // when own_.start had happened
  std::atomic<bool> recording_{false};

  std::mutex mutex_;
  std::vector<cudaStream_t> streams_;  // by lane
  std::size_t used_ = 0;
  std::vector<Timed> timed_;
  std::uint64_t lost_ = 0;
};

}  // namespace

std::unique_ptr<ProfileSource> make_cuda_events_source(int device, Recorder& recorder,
                                                       bool shapes) {
  return std::make_unique<EventsSource>(device, recorder, shapes);
}

}  // namespace tandem
