// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: the contract suite, and what only a device can show.
#include <cuda_runtime_api.h>

#include <array>
#include <functional>
#include <map>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/engine/registry.hpp>
#include <tandem/models/parameters.hpp>
#include <tandem/tests/contract/backend_contract.hpp>
#include <tandem/tests/support/gpu_gate.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/op_cases.hpp>
#include <tandem/tests/support/small_segmenter.hpp>

namespace tandem::testing {
namespace {

using test::GpuGate;
using test::Launch;
using test::Pinned;

// --- the contract suite ---

class CudaGate final : public HeldGate {
 public:
  void wait_arrived() override { gate_.wait_arrived(); }
  void open() override { gate_.open(); }
  void hold(cudaStream_t stream) { gate_.hold(stream); }

 private:
  GpuGate gate_;
};

/// Kernels run on the device: each appends its number to a list in pinned memory.
class CudaRig final : public Rig {
 public:
  CudaRig() {
    test::preload_test_kernels();
    backend_ = make_cuda_backend();
  }

  Backend& backend() override { return *backend_; }
  std::unique_ptr<HeldGate> make_gate() override { return std::make_unique<CudaGate>(); }
  const BoundOperation& hold(HeldGate& gate) override {
    return work_
        .emplace_back("hold",
                      [&gate](cudaStream_t stream) { dynamic_cast<CudaGate&>(gate).hold(stream); })
        .bound();
  }
  const BoundOperation& kernel(std::string name, std::vector<Work::Touch>) override {
    std::lock_guard lock(mutex_);
    names_.push_back(name);
    const auto number = static_cast<unsigned>(names_.size());  // 0 means: not written yet
    return work_
        .emplace_back(std::move(name),
                      [this, number](cudaStream_t stream) {
                        test::launch_log(&log_->count, log_->entries.data(), number, stream);
                      })
        .bound();
  }
  const BoundOperation& uncapturable() override {
    return work_
        .emplace_back("synchronise",
                      [](cudaStream_t stream) { TANDEM_CUDA_TRY(cudaStreamSynchronize(stream)); })
        .bound();
  }
  std::vector<std::string> order() const override {
    std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    const unsigned count = std::atomic_ref<unsigned>(log_->count).load();
    for (unsigned i = 0; i < count; ++i) {
      const unsigned number = std::atomic_ref<unsigned>(log_->entries.at(i)).load();
      if (number > 0) names.push_back(names_.at(number - 1));
    }
    return names;
  }

 private:
  struct Log {
    unsigned count = 0;
    std::array<unsigned, 4096> entries{};
  };
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
  Pinned<Log> log_;
  std::deque<Launch> work_;  // before the backend: outlives its streams
  std::unique_ptr<Backend> backend_;
};

const BackendCase kCuda{"cuda",
                        []() -> std::unique_ptr<Rig> { return std::make_unique<CudaRig>(); },
                        &test::skip_without_gpu};

INSTANTIATE_TEST_SUITE_P(Backends, Contract, ::testing::Values(kCuda), case_name);
INSTANTIATE_TEST_SUITE_P(Backends, ExecutingContract, ::testing::Values(kCuda), case_name);
INSTANTIATE_TEST_SUITE_P(Backends, FailureContract, ::testing::Values(kCuda), case_name);
INSTANTIATE_TEST_SUITE_P(Backends, GraphContract, ::testing::Values(kCuda), case_name);

// --- the caller's device and error ---

class CudaBackendTest : public test::GpuTest {};

/// Every call of the interface, each of which must succeed, with its name.
class EveryCall {
 public:
  using Check = std::function<void(const char* call)>;

  explicit EveryCall(Check check) : check_(std::move(check)) {}

  void run() {
    std::unique_ptr<Backend> backend;
    call("make_cuda_backend", [&] { backend = make_cuda_backend(); });
    void *device = nullptr, *pinned = nullptr;
    call("allocate device",
         [&] { device = backend->allocate(1024, MemoryKind::device, "a test"); });
    call("allocate pinned",
         [&] { pinned = backend->allocate(1024, MemoryKind::pinned, "a test"); });
    StreamRef stream, other;
    EventRef event, held_event;
    call("create_stream", [&] { stream = backend->create_stream("q"); });
    call("create_stream", [&] { other = backend->create_stream("r"); });
    call("create_event", [&] { event = backend->create_event("e"); });
    call("create_event", [&] { held_event = backend->create_event("held"); });
    call("query of an event never recorded", [&] { EXPECT_TRUE(backend->query(event)); });

    // The segmenter's plan in each precision has every kind of operation that training needs.
    for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
      EngineConfig config = test::small_config();
      config.precision = precision;
      call("prepare", [&] { backend->prepare(plan_training(config)); });
    }
    std::vector<Memory> operands(kMaxOperands);
    for (int kind = 0; kind < kOpKindCount; ++kind) {
      for (const test::OpCase& op_case : test::op_cases(static_cast<OpKind>(kind))) {
        if (op_case.type == DType::f64 || op_case.sizes.name != std::string("odd")) continue;
        Operation operation = op_case.operation;
        if (const std::size_t bytes = op_info_workspace(operation); bytes > 0)
          operation.operands.push_back({-1, byte_desc(bytes), Access::write, "workspace", true});
        BoundOperation bound;
        bound.operation = &operation;
        bound.stage = "test";
        for (std::size_t i = 0; i < operation.operands.size(); ++i) {
          operands[i] = Memory(*backend, operation.operands[i].desc.bytes(), MemoryKind::device,
                               "an operand");
          bound.pointers[i] = operands[i].data();
        }
        call(op_case.name.c_str(), [&] { backend->enqueue(stream, bound); });
        backend->synchronise(stream);
      }
    }
    operands.clear();

    GpuGate gate;
    Launch hold("hold", [&](cudaStream_t s) { gate.hold(s); });
    call("enqueue a callable", [&] { backend->enqueue(stream, hold.bound()); });
    call("record", [&] { backend->record(held_event, stream); });
    call("wait", [&] { backend->wait(other, held_event); });
    call("query of work that is held", [&] { EXPECT_FALSE(backend->query(held_event)); });
    gate.open();
    call("synchronise an event", [&] { backend->synchronise(held_event); });
    call("query of work that is done", [&] { EXPECT_TRUE(backend->query(held_event)); });
    call("block", [&] { backend->block(held_event); });
    call("synchronise a stream", [&] { backend->synchronise(other); });

    call("failed", [&] { EXPECT_FALSE(backend->failed()); });
    call("has_graphs", [&] { EXPECT_TRUE(backend->has_graphs()); });
    EventRef fork, join;
    GraphRef graph;
    call("create_event", [&] { fork = backend->create_event("fork"); });
    call("create_event", [&] { join = backend->create_event("join"); });
    Launch delay("delay", [](cudaStream_t s) { test::launch_delay(0, s); });
    call("begin_capture", [&] { backend->begin_capture(stream); });
    call("record while capturing", [&] { backend->record(fork, stream); });
    call("wait while capturing", [&] { backend->wait(other, fork); });
    call("enqueue while capturing", [&] { backend->enqueue(other, delay.bound()); });
    call("record while capturing", [&] { backend->record(join, other); });
    call("wait while capturing", [&] { backend->wait(stream, join); });
    call("end_capture", [&] { graph = backend->end_capture(stream); });
    call("launch", [&] { backend->launch(graph, stream); });
    call("synchronise a stream", [&] { backend->synchronise(stream); });
    call("destroy_graph", [&] { backend->destroy_graph(graph); });
    call("destroy_event", [&] { backend->destroy_event(fork); });
    call("destroy_event", [&] { backend->destroy_event(join); });

    call("destroy_event", [&] { backend->destroy_event(event); });
    call("destroy_event", [&] { backend->destroy_event(held_event); });
    call("destroy_stream", [&] { backend->destroy_stream(stream); });
    call("destroy_stream", [&] { backend->destroy_stream(other); });
    call("free device", [&] { backend->free(device, MemoryKind::device); });
    call("free pinned", [&] { backend->free(pinned, MemoryKind::pinned); });
    call("the destructor", [&] { backend.reset(); });
  }

 private:
  static std::size_t op_info_workspace(const Operation& operation) {
    return op_info(operation.kind).workspace(operation);
  }
  template <class Body>
  void call(const char* name, Body body) {
    ASSERT_NO_THROW(body()) << name;
    check_(name);
  }
  Check check_;
};

TEST_F(CudaBackendTest, NoCallLeavesAnErrorPending) {
  cudaGetLastError();
  EveryCall([](const char* call) {
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "left pending by: " << call;
  }).run();
}

TEST_F(CudaBackendTest, AnErrorThatTheCallerLeftPendingStaysPending) {
  const auto leave_error = [] { ASSERT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice); };
  cudaGetLastError();
  leave_error();
  EveryCall([&](const char* call) {
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice) << "changed by: " << call;
    leave_error();
  }).run();
  cudaGetLastError();
}

TEST_F(CudaBackendTest, TheCallersCurrentDeviceStays) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  const int current = count > 1 ? 1 : 0;  // another than the backend's, where there is one
  ASSERT_EQ(cudaSetDevice(current), cudaSuccess);
  EveryCall([&](const char* call) {
    int now = -1;
    EXPECT_EQ(cudaGetDevice(&now), cudaSuccess);
    EXPECT_EQ(now, current) << "changed by: " << call;
    if (now != current) cudaSetDevice(current);
  }).run();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(CudaBackendTest, ADeviceThatDoesNotExistIsNamed) {
  for (const int device : {-1, 4096}) {
    CudaOptions options;
    options.device = device;
    try {
      make_cuda_backend(options);
      ADD_FAILURE() << "there is a device " << device;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::no_device);
      EXPECT_NE(std::string(error.what()).find("cuda:" + std::to_string(device)), std::string::npos)
          << error.what();
    }
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// --- several backends ---

/// Trains the small segmenter on a backend of its own.
Parameters trained_alone(Precision precision, Schedule schedule, std::uint64_t seed) {
  const auto backend = make_cuda_backend();
  EngineConfig config = test::small_config(schedule);
  config.precision = precision;
  test::SmallSegmenter segmenter(*backend, config, seed);
  segmenter.train(0, 30);
  return segmenter.trainer().trained();
}

TEST_F(CudaBackendTest, TwoBackendsInOneProcessAtOnce) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    const Parameters expected[2] = {trained_alone(precision, Schedule::overlap, 0),
                                    trained_alone(precision, Schedule::overlap, 1)};
    EXPECT_FALSE(test::same_bits(expected[0], expected[1]));
    Parameters actual[2];
    std::string failure[2];
    std::vector<std::thread> threads;
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      threads.emplace_back([&, seed] {
        try {
          actual[seed] = trained_alone(precision, Schedule::overlap, seed);
        } catch (const std::exception& error) {
          failure[seed] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int seed = 0; seed < 2; ++seed) {
      EXPECT_EQ(failure[seed], "") << name_of(precision);
      EXPECT_TRUE(test::same_bits(actual[seed], expected[seed]))
          << name_of(precision) << ", seed " << seed << ": other bits beside another backend";
    }
  }
}

// --- the allocator hooks ---

/// Counts what passes through; hands out memory full of NaN.
class CountingAllocator {
 public:
  AllocatorHooks hooks() {
    AllocatorHooks hooks;
    hooks.allocate = [](std::size_t bytes, MemoryKind kind, void* self) {
      return static_cast<CountingAllocator*>(self)->allocate(bytes, kind);
    };
    hooks.release = [](void* memory, MemoryKind kind, void* self) {
      static_cast<CountingAllocator*>(self)->release(memory, kind);
    };
    hooks.user = this;
    return hooks;
  }

  std::size_t live(MemoryKind kind) const {
    std::lock_guard lock(mutex_);
    std::size_t bytes = 0;
    for (const auto& [memory, block] : blocks_)
      if (block.kind == kind) bytes += block.bytes;
    return bytes;
  }
  int allocations() const { return allocations_; }
  int releases() const { return releases_; }
  int strangers() const { return strangers_; }
  std::size_t limit = ~std::size_t{0};  ///< of one allocation
  std::size_t shift = 0;                ///< what it returns lies so far behind what CUDA gave

 private:
  struct Block {
    std::size_t bytes = 0;
    MemoryKind kind = MemoryKind::device;
    void* whole = nullptr;
  };
  void* allocate(std::size_t wanted, MemoryKind kind) {
    if (wanted > limit) return nullptr;
    const std::size_t bytes = wanted + shift;
    void* memory = nullptr;
    if (kind == MemoryKind::device) {
      TANDEM_CUDA_TRY(cudaMalloc(&memory, bytes));
      TANDEM_CUDA_TRY(cudaMemset(memory, 0xFF, bytes));
      TANDEM_CUDA_TRY(cudaDeviceSynchronize());
    } else {
      TANDEM_CUDA_TRY(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
      std::memset(memory, 0xFF, bytes);
    }
    std::lock_guard lock(mutex_);
    ++allocations_;
    void* const shifted = static_cast<std::byte*>(memory) + shift;
    blocks_[shifted] = {wanted, kind, memory};
    return shifted;
  }
  void release(void* memory, MemoryKind kind) {
    std::lock_guard lock(mutex_);
    ++releases_;
    const auto block = blocks_.find(memory);
    if (block == blocks_.end() || block->second.kind != kind) {
      ++strangers_;
      return;
    }
    void* const whole = block->second.whole;
    blocks_.erase(block);
    if (kind == MemoryKind::device)
      cudaFree(whole);
    else
      cudaFreeHost(whole);
  }

  mutable std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::atomic<int> allocations_{0}, releases_{0}, strangers_{0};
};

constexpr std::size_t kWorkspace = std::size_t{64} << 20;  // of each stream

TEST_F(CudaBackendTest, TheAllocatorHooksSeeEveryByte) {
  for (const Schedule schedule : {Schedule::serial, Schedule::overlap}) {
    CountingAllocator allocator;
    CudaOptions options;
    options.hooks = allocator.hooks();
    const std::size_t streams = schedule == Schedule::overlap ? 3 : 1;
    {
      const auto backend = make_cuda_backend(options);
      EngineConfig config = test::small_config(schedule);
      config.precision = Precision::bf16;
      {
        test::SmallSegmenter segmenter(*backend, config);
        const MemoryPlan& plan = segmenter.trainer().scheduler().memory();
        const auto expect_planned = [&](const char* when) {
          EXPECT_EQ(allocator.live(MemoryKind::device), plan.device_bytes + streams * kWorkspace)
              << name_of(schedule) << ' ' << when;
          EXPECT_EQ(allocator.live(MemoryKind::pinned), plan.pinned_bytes)
              << name_of(schedule) << ' ' << when;
        };
        expect_planned("after the set-up");
        const int allocations = allocator.allocations();
        segmenter.train(0, 20);
        EXPECT_EQ(allocator.allocations(), allocations) << "a step allocates";
        expect_planned("after 20 steps");
        EXPECT_GT(segmenter.losses().size(), 0u);
      }
      EXPECT_EQ(allocator.live(MemoryKind::device), 0u) << "after the trainer's end";
      EXPECT_EQ(allocator.live(MemoryKind::pinned), 0u) << "after the trainer's end";
    }
    EXPECT_GT(allocator.allocations(), 0);
    EXPECT_EQ(allocator.allocations(), allocator.releases());
    EXPECT_EQ(allocator.strangers(), 0) << "released what was not allocated, or as another kind";
  }
}

TEST_F(CudaBackendTest, MemoryFromTheHooksThatBeginsAnywhereIsRefusedAndReleased) {
  CountingAllocator allocator;
  CudaOptions options;
  options.hooks = allocator.hooks();
  const auto backend = make_cuda_backend(options);
  for (const std::size_t shift : {16u, 128u}) {
    allocator.shift = shift;
    const auto expect_refused = [&](const char* purpose, const std::function<void()>& body) {
      try {
        body();
        ADD_FAILURE() << purpose << ", shifted by " << shift << ", was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
        for (const std::string& part : {std::string(purpose), std::string("allocator's hook"),
                                        std::to_string(shift) + " bytes behind"})
          EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    };
    for (const MemoryKind kind : {MemoryKind::device, MemoryKind::pinned})
      expect_refused("a block", [&] { Memory(*backend, 1000, kind, "a block"); });
    expect_refused("a stream's workspace", [&] { static_cast<void>(make_stream(*backend, "q")); });
    EXPECT_EQ(allocator.live(MemoryKind::device), 0u);
    EXPECT_EQ(allocator.live(MemoryKind::pinned), 0u);
  }
  allocator.shift = 512;
  EXPECT_NO_THROW(Memory(*backend, 1000, MemoryKind::device, "a block"));
  EXPECT_EQ(allocator.strangers(), 0);
}

TEST_F(CudaBackendTest, MemoryFromTheHooksIsZeroFilled) {
  CountingAllocator allocator;
  CudaOptions options;
  options.hooks = allocator.hooks();
  const auto backend = make_cuda_backend(options);
  const Stream stream = make_stream(*backend, "q");
  constexpr std::size_t kBytes = 100001;
  const Memory device(*backend, kBytes, MemoryKind::device, "a block");
  const Memory pinned(*backend, kBytes, MemoryKind::pinned, "a block");
  const std::vector<unsigned char> zeros(kBytes, 0);
  std::vector<unsigned char> bytes(kBytes, 1);
  download(stream.get(), bytes.data(), device.data(), kBytes);
  EXPECT_EQ(bytes, zeros);
  EXPECT_EQ(std::memcmp(pinned.data(), zeros.data(), kBytes), 0);
}

TEST_F(CudaBackendTest, AnAllocatorThatRefusesIsAnErrorThatNamesBytesAndEverythingIsReleased) {
  CountingAllocator allocator;
  allocator.limit = kWorkspace;  // the workspaces fit, the arena does not
  CudaOptions options;
  options.hooks = allocator.hooks();
  const auto backend = make_cuda_backend(options);
  EngineConfig config = test::small_config();
  config.batch = 1024;
  const std::size_t arena = plan_memory(plan_training(config)).device_bytes;
  ASSERT_GT(arena, allocator.limit);
  try {
    Trainer trainer(*backend, config);
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    for (const std::string& part : {std::to_string(arena), std::string("free")})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
  EXPECT_EQ(allocator.live(MemoryKind::device), 0u);
  EXPECT_EQ(allocator.live(MemoryKind::pinned), 0u);
  EXPECT_EQ(allocator.allocations(), allocator.releases());
}

// --- private streams ---

/// Trains while `holder` is held, which must not hold up any of it.
void train_beside_a_held_stream(cudaStream_t holder, const char* what) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    SCOPED_TRACE(std::string(what) + ", " + name_of(precision));
    const auto backend = make_cuda_backend();
    EngineConfig config = test::small_config();
    config.precision = precision;
    test::SmallSegmenter segmenter(*backend, config);
    segmenter.train(0, 6);  // loads every kernel
    const std::size_t before = segmenter.losses().size();

    GpuGate gate;
    gate.hold(holder);
    gate.wait_arrived();
    segmenter.train(6, 6);
    EXPECT_EQ(segmenter.losses().size(), before + 6);
    EXPECT_EQ(cudaStreamQuery(holder), cudaErrorNotReady) << "the caller's work is over";
    cudaGetLastError();
    EXPECT_FALSE(gate.timed_out());
    gate.open();
    EXPECT_EQ(cudaStreamSynchronize(holder), cudaSuccess);
  }
}

TEST_F(CudaBackendTest, AStepDoesNotWaitForTheCallersBlockingStream) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  train_beside_a_held_stream(stream, "a blocking stream");
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(CudaBackendTest, AStepDoesNotWaitForTheLegacyDefaultStream) {
  train_beside_a_held_stream(cudaStreamLegacy, "the legacy default stream");
}

// The two tests above see a dependency where there is one.
TEST_F(CudaBackendTest, ACallOnTheLegacyStreamWouldWaitForTheCallersBlockingStream) {
  cudaStream_t blocking = nullptr, non_blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&non_blocking, cudaStreamNonBlocking), cudaSuccess);
  {
    GpuGate gate;
    gate.hold(blocking);
    gate.wait_arrived();
    test::launch_delay(0, cudaStreamLegacy);
    test::launch_delay(0, non_blocking);
    EXPECT_EQ(cudaStreamSynchronize(non_blocking), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
    cudaGetLastError();
    gate.open();
    EXPECT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(non_blocking), cudaSuccess);
}

}  // namespace
}  // namespace tandem::testing
