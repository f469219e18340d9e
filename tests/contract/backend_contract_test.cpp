// SPDX-License-Identifier: Apache-2.0
// The contract suite on the backends that need no device.
#include <tandem/engine/backend_host.hpp>
#include <tandem/tests/contract/backend_contract.hpp>
#include <tandem/tests/support/capturing_backend.hpp>

// Absurd allocations must come back as a null pointer, as they do without a sanitizer.
#if defined(TANDEM_ADDRESS_SANITIZER)
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
#elif defined(TANDEM_THREAD_SANITIZER)
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}
#endif

namespace tandem::testing {
namespace {

class HostGate final : public HeldGate {
 public:
  void wait_arrived() override { gate_.wait_arrived(); }
  void open() override { gate_.open(); }
  void pass() { gate_.pass(); }

 private:
  Gate gate_;
};

/// Kernels are functions, run by the streams' workers or listed.
class HostRig final : public Rig {
 public:
  explicit HostRig(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  Backend& backend() override { return *backend_; }
  std::unique_ptr<HeldGate> make_gate() override { return std::make_unique<HostGate>(); }
  const BoundOperation& hold(HeldGate& gate) override {
    return work_.emplace_back("hold", [&gate] { dynamic_cast<HostGate&>(gate).pass(); }).bound();
  }
  const BoundOperation& kernel(std::string name, std::vector<Work::Touch> touches) override {
    auto logged = [this, name] {
      std::lock_guard lock(mutex_);
      log_.push_back(name);
    };
    return work_.emplace_back(name, logged, std::move(touches)).bound();
  }
  std::vector<std::string> order() const override {
    std::vector<std::string> names;
    if (const TraceBackend* trace = as_trace()) {
      for (const TraceEntry& entry : trace->trace().entries)
        if (entry.kind == TraceEntry::operation) names.push_back(entry.name);
      return names;
    }
    std::lock_guard lock(mutex_);
    return log_;
  }
  const TraceBackend* as_trace() const override {
    return dynamic_cast<const TraceBackend*>(backend_.get());
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> log_;
  std::deque<Work> work_;  // before the backend: outlives its streams
  std::unique_ptr<Backend> backend_;
};

/// Has graphs, by a backend around the host's.
class CapturingRig final : public Rig {
 public:
  CapturingRig() : CapturingRig(std::make_unique<HostRig>(make_host_backend())) {}

  Backend& backend() override { return capturing_; }
  std::unique_ptr<HeldGate> make_gate() override { return host_->make_gate(); }
  const BoundOperation& hold(HeldGate& gate) override { return host_->hold(gate); }
  const BoundOperation& kernel(std::string name, std::vector<Work::Touch> touches) override {
    return host_->kernel(std::move(name), std::move(touches));
  }
  const BoundOperation& uncapturable() override {
    capturing_.refuse = "no ink";
    return host_->kernel("uncapturable", {});
  }
  std::vector<std::string> order() const override { return host_->order(); }

 private:
  explicit CapturingRig(std::unique_ptr<HostRig> host)
      : host_(std::move(host)), capturing_(host_->backend()) {}

  const std::unique_ptr<HostRig> host_;
  CapturingBackend capturing_;
};

const BackendCase kHost{"host", []() -> std::unique_ptr<Rig> {
                          return std::make_unique<HostRig>(make_host_backend());
                        }};
const BackendCase kTrace{"trace", []() -> std::unique_ptr<Rig> {
                           return std::make_unique<HostRig>(std::make_unique<TraceBackend>());
                         }};

const BackendCase kCapturing{
    "capturing", []() -> std::unique_ptr<Rig> { return std::make_unique<CapturingRig>(); }};

INSTANTIATE_TEST_SUITE_P(Backends, Contract, ::testing::Values(kHost, kTrace, kCapturing),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Backends, ExecutingContract, ::testing::Values(kHost, kCapturing),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Backends, FailureContract, ::testing::Values(kHost, kCapturing),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Backends, GraphContract, ::testing::Values(kCapturing), case_name);

}  // namespace
}  // namespace tandem::testing
