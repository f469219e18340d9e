// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <deque>
#include <functional>
#include <tandem/engine/cuda_handles.hpp>
#include <tandem/engine/cuda_timing.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/cuda_context.hpp>

namespace tandem {
namespace {

/// An event with a time, recorded by an operation of its own: so it needs nothing of the backend
/// but a callable.
class TimedEvent {
 public:
  TimedEvent() {
    cudaEvent_t event = nullptr;
    TANDEM_CUDA_TRY(cudaEventCreate(&event));
    event_ = CudaEventHandle::adopt(event);
    record_.name = "record";
    record_.callable.user = event;
    record_.callable.function = [](void* user, void* const*, const CallContext& context) {
      TANDEM_CUDA_TRY(cudaEventRecord(static_cast<cudaEvent_t>(user),
                                      static_cast<cudaStream_t>(context.native_stream)));
    };
  }

  void record(StreamRef stream) const {
    BoundOperation bound;
    bound.operation = &record_;
    bound.stage = "timing";
    stream.backend->enqueue(stream, bound);
  }

  double seconds_since(const TimedEvent& start) const {
    float ms = 0;
    TANDEM_CUDA_TRY(cudaEventElapsedTime(&ms, start.event_.get(), event_.get()));
    return 1e-3 * static_cast<double>(ms);
  }

 private:
  CudaEventHandle event_;
  Operation record_;
};

/// Runs body() with the device current; CudaError becomes Error.
void on_device(int device, const std::function<void()>& body) {
  try {
    in_device_thread(device, body);
  } catch (const CudaError& error) {
    throw Error(ErrorCode::run_failed, fmt::format("timing stages: {}", error.what()));
  }
}

}  // namespace

struct CudaStageTimer::Impl {
  struct Stage {
    std::deque<TimedEvent> begins, ends;
    int begun = 0, ended = 0;  // executions so far
  };

  /// The event of this execution, or null if it is not one of those that are timed.
  const TimedEvent* next(const std::deque<TimedEvent>& events, int& executions) const {
    const int index = executions++ - skip;
    const bool timed = index >= 0 && index < count;
    return timed ? &events[static_cast<std::size_t>(index)] : nullptr;
  }

  /// Also of one whose events could not all be made.
  ~Impl() {
    destroy_in_device_thread(device, [this] { stages.clear(); });
  }

  int device = 0, skip = 0, count = 0;
  std::vector<Stage> stages;
};

CudaStageTimer::CudaStageTimer(int device, int stages, int skip, int count)
    : impl_(std::make_unique<Impl>()) {
  impl_->device = device;
  impl_->skip = skip;
  impl_->count = count;
  impl_->stages = std::vector<Impl::Stage>(static_cast<std::size_t>(stages));
  on_device(device, [&] {
    for (Impl::Stage& stage : impl_->stages) {
      for (int i = 0; i < count; ++i) stage.begins.emplace_back(), stage.ends.emplace_back();
    }
  });
}
CudaStageTimer::~CudaStageTimer() = default;

void CudaStageTimer::begin(int stage, StreamRef stream) {
  Impl::Stage& s = impl_->stages[static_cast<std::size_t>(stage)];
  if (const TimedEvent* event = impl_->next(s.begins, s.begun)) event->record(stream);
}

void CudaStageTimer::end(int stage, StreamRef stream) {
  Impl::Stage& s = impl_->stages[static_cast<std::size_t>(stage)];
  if (const TimedEvent* event = impl_->next(s.ends, s.ended)) event->record(stream);
}

std::vector<StageSpan> CudaStageTimer::spans() const {
  std::vector<StageSpan> spans;
  if (impl_->stages.empty()) return spans;
  on_device(impl_->device, [&] {
    const std::deque<TimedEvent>& first = impl_->stages.front().begins;
    for (std::size_t k = 0; k < impl_->stages.size(); ++k) {
      const Impl::Stage& stage = impl_->stages[k];
      for (int i = 0; i < impl_->count && impl_->skip + i < stage.ended; ++i) {
        const auto e = static_cast<std::size_t>(i);
        spans.push_back({static_cast<int>(k), stage.begins[e].seconds_since(first.front()),
                         stage.ends[e].seconds_since(first.front())});
      }
    }
  });
  return spans;
}

}  // namespace tandem
