// SPDX-License-Identifier: Apache-2.0
// Hooks around the stages of a scheduler that runs on the CUDA backend: to hold a stage, to let it
// fail, to time it, and to count what the scheduler creates.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tandem/engine/plan.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/tests/support/forwarding_backend.hpp>
#include <utility>

namespace tandem::test {

/// Calls its hooks on the pushing thread when the first operation of a stage is about to be
/// enqueued (its waits are queued already), and when the last one has been. What a hook launches on
/// the stream runs before and after the stage; what it throws is a failure of an operation "hook".
/// For one plan: that of the last prepare().
class HookedBackend final : public tandem::testing::ForwardingBackend {
 public:
  using Hook =
      std::function<void(const std::string& stage, std::uint64_t step, cudaStream_t stream)>;
  using ForwardingBackend::ForwardingBackend;

  Hook before_stage, after_stage;
  int streams = 0, events = 0;  ///< created so far

  void prepare(const Plan& plan) override {
    plan_ = &plan;
    ForwardingBackend::prepare(plan);
  }
  StreamRef create_stream(std::string_view name) override {
    ++streams;
    return ForwardingBackend::create_stream(name);
  }
  EventRef create_event(std::string_view name) override {
    ++events;
    return ForwardingBackend::create_event(name);
  }
  void enqueue(StreamRef stream, const BoundOperation& bound) override {
    const Stage* stage = stage_of(bound);
    if (stage != nullptr && before_stage && bound.operation == &stage->operations.front())
      call(stream, bound, before_stage);
    ForwardingBackend::enqueue(stream, bound);
    if (stage != nullptr && after_stage && bound.operation == &stage->operations.back())
      call(stream, bound, after_stage);
  }

 private:
  struct Call {
    const Hook* hook = nullptr;
    std::string stage;
  };

  const Stage* stage_of(const BoundOperation& bound) const {
    if (plan_ == nullptr) return nullptr;
    for (const Stage& stage : plan_->stages) {
      const Operation* first = stage.operations.data();
      if (bound.operation >= first && bound.operation < first + stage.operations.size())
        return &stage;
    }
    return nullptr;
  }

  /// The CUDA backend calls a callable while it is enqueued, so all of this may live here.
  void call(StreamRef stream, const BoundOperation& bound, const Hook& hook) {
    Call call{&hook, bound.stage};
    Operation operation;
    operation.name = "hook";
    operation.callable = {[](void* user, void* const*, const CallContext& context) {
                            const Call& c = *static_cast<Call*>(user);
                            (*c.hook)(c.stage, context.step,
                                      static_cast<cudaStream_t>(context.native_stream));
                          },
                          &call};
    BoundOperation hooked;
    hooked.operation = &operation;
    hooked.stage = bound.stage;
    hooked.step = bound.step;
    inner_.enqueue(to_inner(stream), hooked);
  }

  const Plan* plan_ = nullptr;
};

/// CUDA events, one a (stage, step), timed.
class StageEvents {
 public:
  StageEvents() = default;
  ~StageEvents() {
    for (const auto& [key, event] : events_) cudaEventDestroy(event);
  }
  StageEvents(const StageEvents&) = delete;
  StageEvents& operator=(const StageEvents&) = delete;

  /// Makes the event; not while a gate is closed.
  void make(const std::string& stage, std::uint64_t step) {
    TANDEM_CUDA_TRY(cudaEventCreateWithFlags(&events_[{stage, step}], cudaEventDefault));
  }
  /// Records the event if there is one.
  void record(const std::string& stage, std::uint64_t step, cudaStream_t stream) const {
    const auto found = events_.find({stage, step});
    if (found != events_.end()) TANDEM_CUDA_TRY(cudaEventRecord(found->second, stream));
  }
  cudaEvent_t at(const std::string& stage, std::uint64_t step) const {
    return events_.at({stage, step});
  }

 private:
  std::map<std::pair<std::string, std::uint64_t>, cudaEvent_t> events_;
};

/// Whether an event has completed; leaves no error pending.
inline bool completed(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  TANDEM_CUDA_TRY(status);
  return true;
}

}  // namespace tandem::test
