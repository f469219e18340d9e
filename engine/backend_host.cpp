// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <fstream>
#include <mutex>
#include <new>
#include <set>
#include <system_error>
#include <tandem/engine/alignment.hpp>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/failure.hpp>
#include <tandem/engine/nvtx.hpp>
#include <tandem/engine/profile_source.hpp>
#include <tandem/engine/registry.hpp>
#include <thread>
#include <utility>

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_read_range(void* address, long bytes);
extern "C" void __tsan_write_range(void* address, long bytes);
#endif

namespace tandem {
namespace {

constexpr std::align_val_t kAlignment{kMemoryAlignment};

/// An event is not a latch: the ring records each event again every lap, and a wait must bind to
/// the record that was the latest when the wait was made. So records are numbered, a wait keeps the
/// number it saw, and the event knows which of its records have not completed yet.
///
///   record(e) #1 on q1   q1 = [.., complete 1]
///   wait(q2, e)          q2 = [.., until 1]
///   record(e) #2 on q3   q3 = [.., complete 2]     q2 still waits for 1, whichever ends first
class EventState {
 public:
  std::uint64_t record() {
    std::lock_guard lock(mutex_);
    pending_.insert(++recorded_);
    return recorded_;
  }
  std::uint64_t recorded() const {
    std::lock_guard lock(mutex_);
    return recorded_;
  }
  void complete(std::uint64_t number) {
    {
      std::lock_guard lock(mutex_);
      pending_.erase(number);
    }
    changed_.notify_all();
  }
  void wait_for(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return pending_.count(number) == 0; });
  }
  bool idle() const {
    std::lock_guard lock(mutex_);
    return pending_.count(recorded_) == 0;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t recorded_ = 0;
  std::set<std::uint64_t> pending_;
};

using EventPointer = std::shared_ptr<EventState>;  // queued tasks keep a destroyed event alive

/// Tells thread sanitizer what the operation touches. OpenBLAS is not instrumented, so without this
/// a slot that only a GEMM reads or writes could be raced for without a report.
void announce([[maybe_unused]] const BoundOperation& bound) {
#if defined(__SANITIZE_THREAD__)
  const auto& operands = bound.operation->operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto bytes = static_cast<long>(operands[i].desc.bytes());
    if (reads(operands[i].access)) __tsan_read_range(bound.pointers[i], bytes);
    if (writes(operands[i].access)) __tsan_write_range(bound.pointers[i], bytes);
  }
#endif
}

void run_body(const BoundOperation& bound) {
  const Operation& operation = *bound.operation;
  if (operation.kind == OpKind::callable) {
    operation.callable.function(operation.callable.user, bound.pointers, {bound.step, nullptr});
  } else {
    op_info(operation.kind).host(operation, bound.pointers);
  }
}

/// A worker thread with a queue.
class Worker {
 public:
  Worker(FailureState& failure, OperationListener* listener, std::string_view stream)
      : failure_(failure),
        listener_(listener),
        told_as_(listener == nullptr ? 0 : listener->stream_created(stream, nullptr)),
        thread_([this, name = fmt::format("tandem {}", stream)] {
          nvtx::name_thread(name);
          run();
        }) {}

  /// Runs what is queued, then joins.
  ~Worker() {
    push({Task::stop, {}, {}, 0});
    thread_.join();
  }

  void enqueue(const BoundOperation& bound) {
    push({Task::operation, bound, {}, failure_.generation()});
  }
  void record(const EventPointer& event) { push({Task::record, {}, event, event->record()}); }
  void wait(const EventPointer& event) { push({Task::wait, {}, event, event->recorded()}); }

 private:
  struct Task {
    enum Kind : std::uint8_t { operation, record, wait, stop } kind;
    BoundOperation bound;
    EventPointer event;
    std::uint64_t number;  // operation: generation; record, wait: which record
  };

  void push(Task task) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

  Task pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !queue_.empty(); });
    Task task = std::move(queue_.front());
    queue_.pop_front();
    return task;
  }

  void run() {
    for (;;) {
      const Task task = pop();
      switch (task.kind) {
        case Task::operation:
          execute(task.bound, task.number);
          break;
        case Task::record:
          task.event->complete(task.number);
          break;
        case Task::wait:
          task.event->wait_for(task.number);
          break;
        case Task::stop:
          return;
      }
    }
  }

  void execute(const BoundOperation& bound, std::uint64_t generation) {
    if (failure_.stops(generation)) return;
    try {
      const nvtx::Range range(nvtx::Category::operation, bound.operation->name, bound.step);
      // Before and after: a lock inside the body may order it with another stream by accident.
      announce(bound);
      {
        const ToldOperation told(listener_, told_as_, bound);
        run_body(bound);
      }
      announce(bound);
    } catch (const Error& error) {
      failure_.set(generation, bound, error);
    } catch (const std::exception& error) {
      failure_.set(generation, bound, Error(ErrorCode::run_failed, error.what()));
    } catch (...) {
      failure_.set(generation, bound, Error(ErrorCode::run_failed, "unknown exception"));
    }
  }

  FailureState& failure_;
  OperationListener* const listener_;
  const int told_as_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  std::thread thread_;  // last: starts when the rest is there
};

class HostBackend final : public Backend {
 public:
  explicit HostBackend(OperationListener* listener) : listener_(listener) {}

  const char* name() const noexcept override { return "host"; }

  void* allocate(std::size_t bytes, MemoryKind, std::string_view purpose) override {
    // Ask first: the kernel hands out more address space than there is memory.
    const std::size_t available = available_host_memory();
    void* memory = bytes > available ? nullptr : ::operator new(bytes, kAlignment, std::nothrow);
    if (memory == nullptr) {
      throw Error(ErrorCode::out_of_memory,
                  fmt::format("not enough host memory for {}: {} bytes needed, {} bytes available",
                              purpose, bytes, available),
                  "use a smaller batch or image");
    }
    std::memset(memory, 0, bytes);
    return memory;
  }
  void free(void* memory, MemoryKind) noexcept override { ::operator delete(memory, kAlignment); }

  StreamRef create_stream(std::string_view stream) override {
    try {
      return {this, new Worker(failure_, listener_, stream)};
    } catch (const std::system_error& error) {
      throw Error(ErrorCode::out_of_memory,
                  fmt::format("stream {}: its thread cannot be started: {}", stream, error.what()));
    }
  }
  void destroy_stream(StreamRef stream) noexcept override { delete worker(stream); }

  EventRef create_event(std::string_view) override {
    return {this, new EventPointer(std::make_shared<EventState>())};
  }
  void destroy_event(EventRef handle) noexcept override { delete &event(handle); }

  void enqueue(StreamRef stream, const BoundOperation& bound) override {
    worker(stream)->enqueue(bound);
  }
  void record(EventRef handle, StreamRef stream) override { worker(stream)->record(event(handle)); }
  void wait(StreamRef stream, EventRef handle) override { worker(stream)->wait(event(handle)); }

  bool query(EventRef handle) override { return event(handle)->idle(); }
  void block(EventRef handle) noexcept override {
    EventState& state = *event(handle);
    state.wait_for(state.recorded());
  }
  void synchronise(EventRef handle) override {
    block(handle);
    failure_.throw_pending();
  }
  void synchronise(StreamRef stream) override {
    const EventPointer end = std::make_shared<EventState>();
    worker(stream)->record(end);
    end->wait_for(1);
    failure_.throw_pending();
  }

  bool failed() const noexcept override { return failure_.pending(); }

 private:
  static Worker* worker(StreamRef stream) { return static_cast<Worker*>(stream.id); }
  static EventPointer& event(EventRef handle) { return *static_cast<EventPointer*>(handle.id); }

  FailureState failure_;
  OperationListener* const listener_;
};

}  // namespace

std::unique_ptr<Backend> make_host_backend(OperationListener* listener) {
  return std::make_unique<HostBackend>(listener);
}

std::size_t available_host_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string name, rest; file >> name;) {
    if (name == "MemAvailable:") {
      std::size_t kilobytes = 0;
      if (file >> kilobytes) return kilobytes * 1024;
      break;
    }
    std::getline(file, rest);
  }
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace tandem
