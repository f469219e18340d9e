// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <tandem/engine/algorithm_cache.hpp>
#include <tandem/engine/alignment.hpp>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/engine/cuda_handles.hpp>
#include <tandem/engine/cuda_info.hpp>
#include <tandem/engine/cuda_lane.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/failure.hpp>
#include <tandem/engine/library_check.hpp>
#include <tandem/engine/nvtx.hpp>
#include <tandem/engine/plan.hpp>
#include <tandem/engine/profile_source.hpp>
#include <tandem/engine/stream.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/cuda_context.hpp>

namespace tandem {
namespace {

/// A device and the context that the runtime has there.
struct Device {
  int index = 0;
  CUctx_st* context = nullptr;
};

/// Makes a device current, and the caller's current again at the end. By the driver's stack of
/// contexts: cudaSetDevice() with the caller's device would make a context there, some hundred MB
/// of a GPU that the caller may never use.
class [[nodiscard]] DeviceGuard {
 public:
  explicit DeviceGuard(const Device& device) {
    TANDEM_CUDA_TRY(cudaGetDevice(&previous_));
    if (previous_ == device.index) return;
    push_context(device.context);
    pushed_ = true;
  }
  ~DeviceGuard() {
    if (!pushed_) return;
    try {
      pop_context();
    } catch (const CudaError&) {  // at the end of the process the driver may be gone
    }
    // That the caller's device is as it was is promised; that it has no context is not.
    int now = previous_;
    if (cudaGetDevice(&now) == cudaSuccess && now != previous_) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool pushed_ = false;
};

/// Runs body() with the device current; CudaError becomes Error.
template <class Body>
auto on_device(const Device& device, const char* doing, Body body) {
  try {
    const DeviceGuard guard(device);
    return body();
  } catch (const CudaError& error) {
    throw Error(cuda_error_code(error.status()), fmt::format("{}: {}", doing, error.what()));
  }
}

/// A stream with what its operations need. Two streams share no handle and no workspace.
struct CudaStream {
  CudaStreamHandle stream;
  CublasLtHandle cublaslt;
  CudnnHandle cudnn;
  void* workspace = nullptr;
  int told_as = 0;  // by the listener
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options)
      : device_(opened(options.device)),
        hooks_(options.hooks),
        listener_(options.listener),
        algorithms_(options.algorithms) {
    on_device(device_, "opening the device", [&] { set_up_ = new_stream(); });
  }

  /// Even to destroy a stream the runtime makes a context on whatever device is current.
  ~CudaBackend() override {
    quietly([&] { set_up_.reset(); });
  }

  const char* name() const noexcept override { return "cuda"; }
  AlgorithmTable chosen() const { return algorithms_.chosen(); }

  // --- memory
  // -------------------------------------------------------------------------------------

  void* allocate(std::size_t bytes, MemoryKind kind, std::string_view purpose) override {
    return on_device(device_, "allocating memory", [&] {
      void* memory = take(bytes, kind, purpose);
      if (kind == MemoryKind::pinned) {
        std::memset(memory, 0, bytes);
        return memory;
      }
      TANDEM_CUDA_TRY(cudaMemsetAsync(memory, 0, bytes, set_up_.get()));
      TANDEM_CUDA_TRY(cudaStreamSynchronize(set_up_.get()));
      return memory;
    });
  }

  void free(void* memory, MemoryKind kind) noexcept override {
    quietly([&] { give_back(memory, kind); });
  }

  // --- streams and events
  // ---------------------------------------------------------------------------

  StreamRef create_stream(std::string_view name) override {
    return on_device(device_, "creating a stream", [&]() -> StreamRef {
      auto stream = std::make_unique<CudaStream>();
      stream->stream = new_stream();
      nvtx::name_stream(stream->stream.get(), fmt::format("tandem {}", name));
      cublasLtHandle_t cublaslt = nullptr;
      TANDEM_CUBLAS_TRY(cublasLtCreate(&cublaslt));
      stream->cublaslt = CublasLtHandle::adopt(cublaslt);
      cudnnHandle_t cudnn = nullptr;
      TANDEM_CUDNN_TRY(cudnnCreate(&cudnn));
      stream->cudnn = CudnnHandle::adopt(cudnn);
      TANDEM_CUDNN_TRY(cudnnSetStream(cudnn, stream->stream.get()));
      stream->workspace = take(kLaneWorkspace, MemoryKind::device, "a stream's workspace");
      if (listener_ != nullptr)
        stream->told_as = listener_->stream_created(name, stream->stream.get());
      return {this, stream.release()};
    });
  }

  void destroy_stream(StreamRef ref) noexcept override {
    quietly([&] {
      const std::unique_ptr<CudaStream> stream(of(ref));
      cudaStreamSynchronize(stream->stream.get());
      give_back(stream->workspace, MemoryKind::device);
    });
  }

  EventRef create_event(std::string_view) override {
    return on_device(device_, "creating an event", [&]() -> EventRef {
      cudaEvent_t event = nullptr;
      // Untimed, because timing would cost every record; blocking, so that a loader thread that
      // waits for a copy leaves its core to others.
      TANDEM_CUDA_TRY(
          cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
      return {this, event};
    });
  }

  void destroy_event(EventRef event) noexcept override {
    quietly([&] { cudaEventDestroy(of(event)); });
  }

  // --- work
  // -----------------------------------------------------------------------------------------

  void prepare(const Plan& plan) override {
    const Stream stream = make_stream(*this, "choosing algorithms");
    on_device(device_, "choosing algorithms", [&] {
      const CudaLane lane = lane_of(stream.get());
      for (const Stage& stage : plan.stages) {
        for (const Operation& operation : stage.operations) choose_algorithms(operation, lane);
      }
    });
  }

  void enqueue(StreamRef ref, const BoundOperation& bound) override {
    const std::uint64_t generation = failure_.generation();
    if (failure_.stops(generation)) return;
    try {
      const DeviceGuard guard(device_);
      const CudaLane lane = lane_of(ref);
      const Operation& operation = *bound.operation;
      const nvtx::Range range(nvtx::Category::operation, operation.name, bound.step);
      const ToldOperation told(listener_, of(ref)->told_as, bound);
      if (operation.kind == OpKind::callable) {
        operation.callable.function(operation.callable.user, bound.pointers,
                                    {bound.step, lane.stream});
      } else {
        run_on_cuda(operation, bound.pointers, lane);
      }
    } catch (const Error& error) {
      failure_.set(generation, bound, error);
    } catch (const CudaError& error) {
      failure_.set(generation, bound, Error(cuda_error_code(error.status()), error.what()));
    } catch (const std::exception& error) {
      failure_.set(generation, bound, Error(ErrorCode::run_failed, error.what()));
    } catch (...) {
      failure_.set(generation, bound, Error(ErrorCode::run_failed, "unknown exception"));
    }
  }

  void record(EventRef event, StreamRef stream) override {
    on_device(device_, "recording an event",
              [&] { TANDEM_CUDA_TRY(cudaEventRecord(of(event), of(stream)->stream.get())); });
  }

  void wait(StreamRef stream, EventRef event) override {
    on_device(device_, "waiting for an event",
              [&] { TANDEM_CUDA_TRY(cudaStreamWaitEvent(of(stream)->stream.get(), of(event))); });
  }

  bool query(EventRef event) override {
    return on_device(device_, "asking for an event", [&] {
      const cudaError_t before = cudaPeekAtLastError();
      const cudaError_t status = cudaEventQuery(of(event));
      if (status == cudaErrorNotReady) {
        if (before == cudaSuccess) cudaGetLastError();  // the runtime may note it as an error
        return false;
      }
      TANDEM_CUDA_TRY(status);
      return true;
    });
  }

  void block(EventRef event) noexcept override {
    quietly([&] { cudaEventSynchronize(of(event)); });
  }

  void synchronise(EventRef event) override {
    on_device(device_, "waiting for the device",
              [&] { TANDEM_CUDA_TRY(cudaEventSynchronize(of(event))); });
    failure_.throw_pending();
  }

  void synchronise(StreamRef stream) override {
    on_device(device_, "waiting for the device",
              [&] { TANDEM_CUDA_TRY(cudaStreamSynchronize(of(stream)->stream.get())); });
    failure_.throw_pending();
  }

  // --- graphs
  // ---------------------------------------------------------------------------------------

  bool failed() const noexcept override { return failure_.pending(); }
  bool has_graphs() const noexcept override { return true; }

  /// Thread-local: loader threads go on waiting for events meanwhile.
  void begin_capture(StreamRef origin) override {
    if (const char* reason = listener_ == nullptr ? nullptr : listener_->no_capture_reason())
      throw Error(ErrorCode::run_failed, reason);
    on_device(device_, "beginning a capture", [&] {
      TANDEM_CUDA_TRY(
          cudaStreamBeginCapture(of(origin)->stream.get(), cudaStreamCaptureModeThreadLocal));
    });
  }

  GraphRef end_capture(StreamRef origin) override {
    return on_device(device_, "capturing a graph", [&]() -> GraphRef {
      cudaGraph_t graph = nullptr;
      try {
        TANDEM_CUDA_TRY(cudaStreamEndCapture(of(origin)->stream.get(), &graph));
      } catch (const CudaError&) {
        failure_.throw_pending();  // the operation that could not be captured says more
        throw;
      }
      const CudaGraphHandle captured = CudaGraphHandle::adopt(graph);
      failure_.throw_pending();
      cudaGraphExec_t executable = nullptr;
      TANDEM_CUDA_TRY(cudaGraphInstantiate(&executable, captured.get(), 0));
      return {this, executable};
    });
  }

  void launch(GraphRef graph, StreamRef stream) override {
    if (failure_.pending()) return;
    on_device(device_, "launching a graph",
              [&] { TANDEM_CUDA_TRY(cudaGraphLaunch(of(graph), of(stream)->stream.get())); });
  }

  void destroy_graph(GraphRef graph) noexcept override {
    quietly([&] { destroy_handle(of(graph)); });
  }

 private:
  static CudaStream* of(StreamRef stream) { return static_cast<CudaStream*>(stream.id); }
  static cudaEvent_t of(EventRef event) { return static_cast<cudaEvent_t>(event.id); }
  static cudaGraphExec_t of(GraphRef graph) { return static_cast<cudaGraphExec_t>(graph.id); }

  static Device opened(int index) {
    try {
      return {index, primary_context(index)};
    } catch (const CudaError& error) {
      throw Error(cuda_error_code(error.status()),
                  fmt::format("opening the device: {}", error.what()));
    }
  }

  CudaLane lane_of(StreamRef ref) {
    const CudaStream& stream = *of(ref);
    return {stream.stream.get(), stream.cublaslt.get(), stream.cudnn.get(), stream.workspace,
            &algorithms_};
  }

  static CudaStreamHandle new_stream() {
    cudaStream_t stream = nullptr;
    TANDEM_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return CudaStreamHandle::adopt(stream);
  }

  void* take(std::size_t bytes, MemoryKind kind, std::string_view purpose) {
    void* memory = nullptr;
    if (hooks_.allocate != nullptr) {
      memory = hooks_.allocate(bytes, kind, hooks_.user);
      try {
        check_alignment(memory, fmt::format("{}, from the allocator's hook,", purpose));
      } catch (const Error&) {
        give_back(memory, kind);
        throw;
      }
    } else {
      const cudaError_t status = kind == MemoryKind::device
                                     ? cudaMalloc(&memory, bytes)
                                     : cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
      if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();  // ours, and reported below
        memory = nullptr;
      } else {
        TANDEM_CUDA_TRY(status);
      }
    }
    if (memory != nullptr || bytes == 0) return memory;
    std::size_t free = 0, total = 0;
    TANDEM_CUDA_TRY(cudaMemGetInfo(&free, &total));
    throw Error(
        ErrorCode::out_of_memory,
        fmt::format("not enough {} memory for {}: {} bytes needed, {} of {} bytes of the "
                    "device are free",
                    kind == MemoryKind::device ? "device" : "pinned", purpose, bytes, free, total),
        "use a smaller batch or image");
  }

  void give_back(void* memory, MemoryKind kind) {
    if (hooks_.release != nullptr) {
      hooks_.release(memory, kind, hooks_.user);
    } else if (kind == MemoryKind::device) {
      cudaFree(memory);
    } else {
      cudaFreeHost(memory);
    }
  }

  /// For destructors and block(): a status is of no use there, and at the end of the process the
  /// driver may be gone. What the calls leave as the last error is taken back.
  template <class Body>
  void quietly(Body body) noexcept {
    try {
      const cudaError_t before = cudaPeekAtLastError();
      const DeviceGuard guard(device_);
      body();
      if (before == cudaSuccess) cudaGetLastError();
    } catch (const std::exception&) {
    }
  }

  const Device device_;
  const AllocatorHooks hooks_;
  OperationListener* const listener_;
  AlgorithmCache algorithms_;
  FailureState failure_;
  CudaStreamHandle set_up_;
};

}  // namespace

AlgorithmTable cuda_algorithms(const Backend& backend) {
  const auto* cuda = dynamic_cast<const CudaBackend*>(&backend);
  if (cuda == nullptr)
    throw Error(ErrorCode::usage,
                fmt::format("the {} backend has no algorithms to choose", backend.name()));
  return cuda->chosen();
}

std::string cuda_environment(int device) {
  const CudaInfo info = query_cuda();
  if (device < 0 || static_cast<std::size_t>(device) >= info.devices.size())
    throw Error(ErrorCode::no_device,
                fmt::format("cuda:{}: {}", device,
                            info.reason.empty() ? "there is no such device" : info.reason));
  const CudaDevice& d = info.devices[static_cast<std::size_t>(device)];
  return fmt::format("{}, {} SMs, driver for CUDA {}, cuBLASLt {}, cuDNN {}", d.name,
                     d.multiprocessors, info.driver, info.cublaslt, info.cudnn);
}

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  const CudaInfo info = query_cuda();
  const int count = static_cast<int>(info.devices.size());
  if (count == 0)
    throw Error(ErrorCode::no_device, fmt::format("cuda:{}: {}", options.device, info.reason));
  if (options.device < 0 || options.device >= count)
    throw Error(ErrorCode::no_device,
                fmt::format("cuda:{} does not exist; allowed: 0 .. {}", options.device, count - 1));
  return std::make_unique<CudaBackend>(options);
}

}  // namespace tandem
