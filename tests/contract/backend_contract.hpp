// SPDX-License-Identifier: Apache-2.0
// What every backend promises (engine/backend.hpp), one source for all of them: included once by a
// program for each half of the library, which instantiates it. Work is ordered by gates, never by
// time. Comments give the queues after each line: q1 = [k1, e1] means that kernel k1 and a record
// of event e1 are queued on stream 1.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <ostream>
#include <stdexcept>
#include <string>
#include <tandem/engine/backend_trace.hpp>
#include <tandem/engine/buffer.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/hazards.hpp>
#include <tandem/engine/stream.hpp>
#include <tandem/tests/support/forwarding_backend.hpp>
#include <tandem/tests/support/gate.hpp>
#include <thread>
#include <utility>
#include <vector>

namespace tandem::testing {

/// A gate that holds work, wherever that backend's work runs.
class HeldGate {
 public:
  virtual ~HeldGate() = default;
  virtual void wait_arrived() = 0;  ///< blocks until held work has reached the gate
  virtual void open() = 0;          ///< for good
};

/// A backend with what the suite needs to observe it. The operations it hands out live as long as
/// it does.
class Rig {
 public:
  virtual ~Rig() = default;
  virtual Backend& backend() = 0;
  virtual std::unique_ptr<HeldGate> make_gate() = 0;
  /// An operation that runs for as long as the gate is closed.
  virtual const BoundOperation& hold(HeldGate& gate) = 0;
  /// An operation that writes its name to the log when it runs.
  virtual const BoundOperation& kernel(std::string name, std::vector<Work::Touch> touches) = 0;
  /// Names in the order in which the kernels ran, or were listed where nothing runs.
  virtual std::vector<std::string> order() const = 0;
  /// An operation that cannot be captured. To be asked for once, in the capture that it spoils.
  virtual const BoundOperation& uncapturable() { throw std::logic_error("no graphs"); }
  /// The trace backend, where it is one.
  virtual const TraceBackend* as_trace() const { return nullptr; }
};

struct BackendCase {
  const char* name;
  std::unique_ptr<Rig> (*make)();
  void (*skip_if_missing)() = nullptr;  ///< skips or fails the test where there is no such device
};
inline void PrintTo(const BackendCase& backend, std::ostream* out) { *out << backend.name; }

inline std::string numbered(std::string name, int i) { return name.append(std::to_string(i)); }
inline std::string case_name(const ::testing::TestParamInfo<BackendCase>& info) {
  return info.param.name;
}

class ContractBase : public ::testing::TestWithParam<BackendCase> {
 protected:
  void SetUp() override {
    if (GetParam().skip_if_missing != nullptr) GetParam().skip_if_missing();
    if (IsSkipped() || HasFatalFailure()) return;
    rig_ = GetParam().make();
    backend_ = &rig_->backend();
  }

  const BoundOperation& kernel(std::string name, std::vector<Work::Touch> touches = {}) {
    return rig_->kernel(std::move(name), std::move(touches));
  }
  const BoundOperation& hold(HeldGate& gate) { return rig_->hold(gate); }
  /// A callable whose host function fails.
  const BoundOperation& failing(std::string name, std::function<void()> body, std::string stage,
                                std::uint64_t step) {
    return failing_
        .emplace_back(std::move(name), std::move(body), std::vector<Work::Touch>{},
                      std::move(stage), step)
        .bound();
  }
  std::vector<std::string> order() const { return rig_->order(); }
  bool has_run(const std::string& name) const {
    const std::vector<std::string> names = order();
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  const TraceBackend* as_trace() const { return rig_->as_trace(); }

  std::deque<Work> failing_;  // before the rig: outlives its streams
  std::unique_ptr<Rig> rig_;
  Backend* backend_ = nullptr;
};

// -------------------------------------------------------------------------------------------------
// Every backend: order within a stream, what a wait binds to, owners.
class Contract : public ContractBase {};

TEST_P(Contract, TwoThousandOperationsRunInTheOrderTheyWereQueued) {
  std::uint64_t cell = 0;
  std::vector<std::string> expected;
  Stream stream = make_stream(*backend_, "q");
  for (int i = 0; i < 2000; ++i) {
    expected.push_back(numbered("k", i));
    backend_->enqueue(stream.get(),
                      kernel(expected.back(), {{&cell, sizeof(cell), Access::write, "cell"}}));
  }
  backend_->synchronise(stream.get());
  EXPECT_EQ(order(), expected);
  if (as_trace()) {
    EXPECT_TRUE(find_hazards(as_trace()->trace()).empty());
  }
}

TEST_P(Contract, AWaitForAnEventNeverRecordedDoesNotWait) {
  Stream q = make_stream(*backend_, "q");
  Event never = make_event(*backend_, "never");
  backend_->wait(q.get(), never.get());      // q = [waits for nothing]
  backend_->enqueue(q.get(), kernel("k1"));  // q = [waits for nothing, k1]
  EXPECT_TRUE(backend_->query(never.get()));
  backend_->synchronise(never.get());
  backend_->synchronise(q.get());  // q = []
  EXPECT_EQ(order(), std::vector<std::string>{"k1"});
  if (as_trace()) {
    for (const TraceEntry& entry : as_trace()->trace().entries) EXPECT_EQ(entry.binds_to, -1);
  }
}

TEST_P(Contract, AWaitBindsToTheLatestRecordBeforeIt) {
  std::uint64_t x = 0, y = 0;
  const std::unique_ptr<HeldGate> gate = rig_->make_gate();
  Stream q1 = make_stream(*backend_, "q1"), q2 = make_stream(*backend_, "q2"),
         q3 = make_stream(*backend_, "q3"), q4 = make_stream(*backend_, "q4");
  Event e = make_event(*backend_, "e");
  const OpenOnExit open_on_exit(*gate);
  backend_->enqueue(q1.get(), kernel("k1", {{&x, sizeof(x), Access::write, "x"}}));
  backend_->record(e.get(), q1.get());       // q1 = [k1, e]
  backend_->wait(q2.get(), e.get());         // q2 = [waits e of q1]
  backend_->enqueue(q3.get(), hold(*gate));  // q3 = [held]
  backend_->enqueue(q3.get(), kernel("k3", {{&y, sizeof(y), Access::write, "y"}}));
  backend_->record(e.get(), q3.get());  // q3 = [held, k3, e]: elsewhere, and later
  backend_->enqueue(q2.get(), kernel("k2", {{&x, sizeof(x), Access::read, "x"},
                                            {&y, sizeof(y), Access::read, "y"}}));
  backend_->wait(q4.get(), e.get());  // q4 = [waits e of q3]
  backend_->enqueue(q4.get(), kernel("k4", {{&y, sizeof(y), Access::read, "y"}}));

  backend_->synchronise(q2.get());  // q2 = []: the later record did not hold it up
  if (as_trace()) {
    // k2 is ordered after k1 and not after k3; k4 is ordered after k3.
    const std::vector<Hazard> hazards = find_hazards(as_trace()->trace());
    EXPECT_EQ(distinct_pairs(as_trace()->trace(), hazards),
              std::vector<std::string>{"test.k2 read y | test.k3 write y"});
    return;
  }
  EXPECT_EQ(order(), (std::vector<std::string>{"k1", "k2"}));
  EXPECT_FALSE(backend_->query(e.get()));  // its latest record is held
  gate->open();                            // q3 = [k3, e]; q4 = [waits e of q3, k4]
  backend_->synchronise(q4.get());
  EXPECT_TRUE(backend_->query(e.get()));
  EXPECT_EQ(order(), (std::vector<std::string>{"k1", "k2", "k3", "k4"}));
}

/// Counts what is created and destroyed.
class CountingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  int streams_created = 0, streams_destroyed = 0, events_created = 0, events_destroyed = 0;
  int graphs_created = 0, graphs_destroyed = 0, allocated = 0, freed = 0;

  void* allocate(std::size_t bytes, MemoryKind kind, std::string_view purpose) override {
    ++allocated;
    return ForwardingBackend::allocate(bytes, kind, purpose);
  }
  void free(void* memory, MemoryKind kind) noexcept override {
    ++freed;
    ForwardingBackend::free(memory, kind);
  }
  StreamRef create_stream(std::string_view stream) override {
    ++streams_created;
    return ForwardingBackend::create_stream(stream);
  }
  void destroy_stream(StreamRef stream) noexcept override {
    ++streams_destroyed;
    ForwardingBackend::destroy_stream(stream);
  }
  EventRef create_event(std::string_view event) override {
    ++events_created;
    return ForwardingBackend::create_event(event);
  }
  void destroy_event(EventRef event) noexcept override {
    ++events_destroyed;
    ForwardingBackend::destroy_event(event);
  }
  GraphRef end_capture(StreamRef origin) override {
    const GraphRef graph = ForwardingBackend::end_capture(origin);
    ++graphs_created;
    return graph;
  }
  void destroy_graph(GraphRef graph) noexcept override {
    ++graphs_destroyed;
    ForwardingBackend::destroy_graph(graph);
  }
};

/// Moves owners about; afterwards everything `make` created is destroyed exactly once.
template <class Owner, class Make>
void move_about(Make make, const int& destroyed) {
  Owner a = make(), b = make();
  const auto first = a.get(), second = b.get();
  Owner c(std::move(a));
  EXPECT_FALSE(static_cast<bool>(a));  // NOLINT(bugprone-use-after-move): moved-from is empty
  EXPECT_TRUE(c.get() == first);
  EXPECT_EQ(destroyed, 0);
  c = std::move(b);  // what c held ends now
  EXPECT_EQ(destroyed, 1);
  EXPECT_FALSE(static_cast<bool>(b));  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(c.get() == second);
  Owner& same = c;
  c = std::move(same);  // self-move is harmless
  EXPECT_TRUE(c.get() == second);
  EXPECT_EQ(destroyed, 1);
  const auto raw = c.release();
  EXPECT_FALSE(static_cast<bool>(c));
  EXPECT_EQ(destroyed, 1);
  Owner d = Owner::adopt(raw);
  d.reset();
  EXPECT_EQ(destroyed, 2);
  d.reset();
  EXPECT_EQ(destroyed, 2);
}

TEST_P(Contract, OwnersDestroyExactlyOnce) {
  CountingBackend counting(*backend_);
  move_about<Stream>([&] { return make_stream(counting, "q"); }, counting.streams_destroyed);
  EXPECT_EQ(counting.streams_created, 2);
  EXPECT_EQ(counting.streams_destroyed, 2);
  move_about<Event>([&] { return make_event(counting, "e"); }, counting.events_destroyed);
  EXPECT_EQ(counting.events_created, 2);
  EXPECT_EQ(counting.events_destroyed, 2);
  {
    Memory a(counting, 100, MemoryKind::device, "a"), b(counting, 50, MemoryKind::pinned, "b");
    void* data = b.data();
    a = std::move(b);
    EXPECT_EQ(counting.freed, 1);
    EXPECT_EQ(a.data(), data);
    EXPECT_EQ(a.bytes(), 50u);
  }
  EXPECT_EQ(counting.allocated, 2);
  EXPECT_EQ(counting.freed, 2);
}

TEST_P(Contract, WithoutGraphsTheFunctionsSayWhichBackendHasNone) {
  if (backend_->has_graphs()) return;
  Stream q = make_stream(*backend_, "q");
  const auto expect_refused = [&](const char* call, const std::function<void()>& body) {
    try {
      body();
      ADD_FAILURE() << call << " did something";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::run_failed) << call;
      EXPECT_NE(std::string(error.what()).find(backend_->name()), std::string::npos)
          << call << ": " << error.what();
    }
  };
  expect_refused("begin_capture", [&] { backend_->begin_capture(q.get()); });
  expect_refused("end_capture", [&] { backend_->end_capture(q.get()); });
  expect_refused("launch", [&] { backend_->launch({}, q.get()); });
}

TEST_P(Contract, MemoryIsAlignedAndDistinct) {
  struct Block {
    std::uintptr_t begin, end;
  };
  std::vector<Memory> owners;
  std::vector<Block> blocks;
  for (MemoryKind kind : {MemoryKind::device, MemoryKind::pinned})
    for (std::size_t bytes : {1, 255, 256, 257, 100000}) {
      owners.emplace_back(*backend_, bytes, kind, "a block");
      const auto begin = reinterpret_cast<std::uintptr_t>(owners.back().data());
      EXPECT_NE(begin, 0u);
      EXPECT_EQ(begin % 256, 0u) << bytes << " bytes";
      for (const Block& other : blocks)
        EXPECT_TRUE(begin + bytes <= other.begin || other.end <= begin) << bytes << " bytes";
      blocks.push_back({begin, begin + bytes});
    }
}

// -------------------------------------------------------------------------------------------------
// Backends that run what they are given.
class ExecutingContract : public ContractBase {};

TEST_P(ExecutingContract, MemoryIsZeroFilled) {
  Stream q = make_stream(*backend_, "q");
  const std::vector<unsigned char> dirt(100000, 0xa5), zeros(dirt.size(), 0);
  for (MemoryKind kind : {MemoryKind::device, MemoryKind::pinned}) {
    // The second block is likely to be the first one again.
    for (int round = 0; round < 2; ++round) {
      Memory memory(*backend_, dirt.size(), kind, "a block");
      std::vector<unsigned char> found(dirt.size(), 0xff);
      download(q.get(), found.data(), memory.data(), found.size());
      EXPECT_EQ(found, zeros) << "round " << round;
      upload(q.get(), memory.data(), dirt.data(), dirt.size());
    }
  }
}

TEST_P(ExecutingContract, WhatWaitsForHeldWorkIsHeldToo) {
  const std::unique_ptr<HeldGate> gate = rig_->make_gate();
  Stream q1 = make_stream(*backend_, "q1"), q2 = make_stream(*backend_, "q2");
  Event e1 = make_event(*backend_, "e1"), e2 = make_event(*backend_, "e2");
  const OpenOnExit open_on_exit(*gate);
  backend_->enqueue(q1.get(), hold(*gate));   // q1 = [held]
  backend_->enqueue(q1.get(), kernel("k1"));  // q1 = [held, k1]
  backend_->record(e1.get(), q1.get());       // q1 = [held, k1, e1]
  backend_->wait(q2.get(), e1.get());         // q2 = [waits e1]
  backend_->enqueue(q2.get(), kernel("k2"));  // q2 = [waits e1, k2]
  backend_->record(e2.get(), q2.get());       // q2 = [waits e1, k2, e2]
  gate->wait_arrived();
  EXPECT_FALSE(backend_->query(e1.get()));
  EXPECT_FALSE(backend_->query(e2.get()));
  EXPECT_FALSE(has_run("k2"));
  gate->open();
  backend_->synchronise(e2.get());  // q1 = [], q2 = []
  EXPECT_TRUE(backend_->query(e1.get()));
  EXPECT_EQ(order(), (std::vector<std::string>{"k1", "k2"}));
}

TEST_P(ExecutingContract, StreamsWithoutAnEdgeOverlap) {
  const std::unique_ptr<HeldGate> gate = rig_->make_gate();
  Stream q1 = make_stream(*backend_, "q1"), q2 = make_stream(*backend_, "q2");
  const OpenOnExit open_on_exit(*gate);
  backend_->enqueue(q1.get(), hold(*gate));   // q1 = [held]
  backend_->enqueue(q1.get(), kernel("k1"));  // q1 = [held, k1]
  gate->wait_arrived();
  backend_->enqueue(q2.get(), kernel("k2"));  // q2 = [k2]
  backend_->synchronise(q2.get());            // q2 = [] while q1 is held
  EXPECT_EQ(order(), std::vector<std::string>{"k2"});
  gate->open();
  backend_->synchronise(q1.get());
  EXPECT_EQ(order(), (std::vector<std::string>{"k2", "k1"}));
}

TEST_P(ExecutingContract, AnEventCompletesBeforeLaterWorkOfItsStream) {
  const std::unique_ptr<HeldGate> gate = rig_->make_gate();
  Stream q = make_stream(*backend_, "q");
  Event e1 = make_event(*backend_, "e1"), e2 = make_event(*backend_, "e2");
  const OpenOnExit open_on_exit(*gate);
  backend_->enqueue(q.get(), kernel("k1"));  // q = [k1]
  backend_->record(e1.get(), q.get());       // q = [k1, e1]
  backend_->enqueue(q.get(), hold(*gate));   // q = [k1, e1, held]
  backend_->record(e2.get(), q.get());       // q = [k1, e1, held, e2]
  backend_->synchronise(e1.get());           // returns although q is not empty
  EXPECT_TRUE(has_run("k1"));
  EXPECT_TRUE(backend_->query(e1.get()));
  EXPECT_FALSE(backend_->query(e2.get()));
  gate->open();
  backend_->synchronise(q.get());
  EXPECT_TRUE(backend_->query(e2.get()));
}

TEST_P(ExecutingContract, DestroyingAStreamRunsWhatIsQueued) {
  const std::unique_ptr<HeldGate> gate = rig_->make_gate();
  std::atomic<bool> destroyed{false};
  Stream q = make_stream(*backend_, "q");
  backend_->enqueue(q.get(), hold(*gate));
  for (int i = 0; i < 100; ++i) backend_->enqueue(q.get(), kernel("k"));  // q = [held, 100 k]
  gate->wait_arrived();
  std::thread destroyer([&] {
    q.reset();
    destroyed = true;
  });
  EXPECT_FALSE(destroyed);
  gate->open();
  destroyer.join();
  EXPECT_EQ(order().size(), 100u);
}

TEST_P(ExecutingContract, AnEventMayBeDestroyedWhileItsWorkIsQueued) {
  const std::unique_ptr<HeldGate> gate = rig_->make_gate();
  Stream q1 = make_stream(*backend_, "q1"), q2 = make_stream(*backend_, "q2");
  const OpenOnExit open_on_exit(*gate);
  backend_->enqueue(q1.get(), hold(*gate));
  for (int i = 0; i < 50; ++i) {
    Event e = make_event(*backend_, "e");
    backend_->enqueue(q1.get(), kernel(numbered("a", i)));
    backend_->record(e.get(), q1.get());
    backend_->wait(q2.get(), e.get());
    backend_->enqueue(q2.get(), kernel(numbered("b", i)));
  }  // q1 = [held, a0, e, a1, e, ...], q2 = [waits e, b0, waits e, b1, ...], every e destroyed
  gate->open();
  backend_->synchronise(q1.get());
  backend_->synchronise(q2.get());
  const std::vector<std::string> names = order();
  ASSERT_EQ(names.size(), 100u);
  for (int i = 0; i < 50; ++i) {
    const auto a = std::find(names.begin(), names.end(), numbered("a", i));
    EXPECT_LT(a, std::find(names.begin(), names.end(), numbered("b", i))) << i;
  }
}

TEST_P(ExecutingContract, ALaterRecordThatCompletesFirstReleasesNobody) {
  const std::unique_ptr<HeldGate> gate = rig_->make_gate();
  Stream q1 = make_stream(*backend_, "q1"), q2 = make_stream(*backend_, "q2"),
         q3 = make_stream(*backend_, "q3");
  Event e = make_event(*backend_, "e"), e2 = make_event(*backend_, "e2");
  const OpenOnExit open_on_exit(*gate);
  backend_->enqueue(q1.get(), hold(*gate));
  backend_->enqueue(q1.get(), kernel("k1"));
  backend_->record(e.get(), q1.get());  // q1 = [held, k1, e]
  backend_->wait(q2.get(), e.get());    // q2 = [waits e of q1]
  gate->wait_arrived();
  backend_->record(e.get(), q3.get());  // q3 = [e]
  backend_->synchronise(e.get());       // q3 = []: the latest record has completed
  EXPECT_TRUE(backend_->query(e.get()));
  backend_->enqueue(q2.get(), kernel("k2"));
  backend_->record(e2.get(), q2.get());  // q2 = [waits e of q1, k2, e2]
  EXPECT_FALSE(backend_->query(e2.get()));
  gate->open();
  backend_->synchronise(e2.get());
  EXPECT_EQ(order(), (std::vector<std::string>{"k1", "k2"}));
}

TEST_P(ExecutingContract, SynchroniseAndQueryFromOtherThreads) {
  const std::unique_ptr<HeldGate> gate = rig_->make_gate();
  Stream q = make_stream(*backend_, "q");
  Event e = make_event(*backend_, "e");
  const OpenOnExit open_on_exit(*gate);
  backend_->enqueue(q.get(), hold(*gate));
  backend_->enqueue(q.get(), kernel("k"));
  backend_->record(e.get(), q.get());  // q = [held, k, e]
  Counter started, returned;
  std::atomic<int> early{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i)
    waiters.emplace_back([&, i] {
      if (backend_->query(e.get())) ++early;
      started.add();
      if (i % 2 == 0)
        backend_->synchronise(q.get());
      else
        backend_->synchronise(e.get());
      if (!has_run("k")) ++early;
      returned.add();
    });
  started.wait_for(4);
  EXPECT_EQ(returned.value(), 0u);
  for (int i = 0; i < 100; ++i) backend_->enqueue(q.get(), kernel("more"));  // meanwhile
  gate->open();
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(early, 0);
  backend_->synchronise(q.get());
  EXPECT_EQ(order().size(), 101u);
}

TEST_P(ExecutingContract, TooMuchMemoryIsAnErrorThatNamesBytesAndPurpose) {
  for (MemoryKind kind : {MemoryKind::device, MemoryKind::pinned}) {
    try {
      Memory memory(*backend_, std::size_t{1} << 60, kind, "the arena");
      FAIL() << "allocated 2^60 bytes";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      const std::string text = error.what();
      EXPECT_NE(text.find("1152921504606846976"), std::string::npos) << text;
      EXPECT_NE(text.find("the arena"), std::string::npos) << text;
    }
  }
}

TEST_P(ExecutingContract, UploadAndDownloadKeepEveryByte) {
  Stream q = make_stream(*backend_, "q");
  // The last is copied in parts, whose bytes differ: 2^22 of them add to the bits from 22 on alone.
  for (std::size_t bytes : {1, 4097, 1 << 20, (9 << 20) + 3}) {
    Memory memory(*backend_, bytes, MemoryKind::device, "a block");
    std::vector<unsigned char> in(bytes), out(bytes, 0);
    for (std::size_t i = 0; i < bytes; ++i)
      in[i] = static_cast<unsigned char>((i * 2654435761u) >> 24);
    upload(q.get(), memory.data(), in.data(), bytes);
    download(q.get(), out.data(), memory.data(), bytes);
    EXPECT_EQ(in, out) << bytes << " bytes";
  }
}

// -------------------------------------------------------------------------------------------------
// Failures. What fails is the host function of a callable, since a kernel on a device cannot throw;
// host backends call it from the stream's worker, the cuda backend when it is enqueued.
class FailureContract : public ContractBase {
 protected:
  /// The error that `call` throws; fails the test if it throws none.
  template <class Call>
  static Error error_of(Call call) {
    try {
      call();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no error was thrown";
    return Error(ErrorCode::usage, "none");
  }
  static void expect_names(const Error& error, std::vector<std::string> parts) {
    const std::string text = error.what();
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is missing in: " << text;
  }
};

TEST_P(FailureContract, TheFirstFailureStopsLaterBodiesAndIsReportedOnce) {
  const std::unique_ptr<HeldGate> gate = rig_->make_gate();
  Stream q1 = make_stream(*backend_, "q1"), q2 = make_stream(*backend_, "q2");
  Event e1 = make_event(*backend_, "e1"), e2 = make_event(*backend_, "e2");
  const OpenOnExit open_on_exit(*gate);
  backend_->enqueue(q1.get(), kernel("k1"));
  backend_->enqueue(q1.get(), hold(*gate));  // q1 = [k1, held]
  backend_->enqueue(
      q1.get(), failing(
                    "decoder.3.forward", [] { throw std::runtime_error("the disk is on fire"); },
                    "train", 1234567));
  backend_->enqueue(q1.get(), kernel("k2"));
  backend_->enqueue(q1.get(), failing(
                                  "second", [] { throw std::runtime_error("also"); }, "x", 8));
  backend_->record(e1.get(), q1.get());  // q1 = [k1, held, fails, k2, fails too, e1]
  backend_->wait(q2.get(), e1.get());
  backend_->enqueue(q2.get(), kernel("k3"));
  backend_->record(e2.get(), q2.get());  // q2 = [waits e1, k3, e2]
  gate->open();

  const Error error = error_of([&] { backend_->synchronise(q2.get()); });
  EXPECT_EQ(error.code(), ErrorCode::run_failed);
  expect_names(error, {"decoder.3.forward", "train", "1234567", "the disk is on fire"});
  EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  EXPECT_NO_THROW(backend_->synchronise(q1.get()));  // once
  EXPECT_NO_THROW(backend_->synchronise(q2.get()));
  EXPECT_TRUE(backend_->query(e1.get()));  // records and waits still happened
  EXPECT_TRUE(backend_->query(e2.get()));
  EXPECT_EQ(order(), std::vector<std::string>{"k1"});  // bodies did not, on any stream

  backend_->enqueue(q2.get(), kernel("k4"));  // and the backend works again
  backend_->synchronise(q2.get());
  EXPECT_EQ(order(), (std::vector<std::string>{"k1", "k4"}));
}

TEST_P(FailureContract, OfTwoFailuresAtOnceTheFirstIsReported) {
  Gate gate;
  Stream q1 = make_stream(*backend_, "q1"), q2 = make_stream(*backend_, "q2");
  Event e1 = make_event(*backend_, "e1");
  const OpenOnExit open_on_exit(gate);
  const auto late = [&] {
    gate.pass();
    throw std::runtime_error("late");
  };
  // q2 = [held, then fails]. A thread of its own: enqueue() may be what calls the function.
  const BoundOperation& second = failing("second", late, "s", 2);
  std::thread other([&] { backend_->enqueue(q2.get(), second); });
  gate.wait_arrived();
  backend_->enqueue(q1.get(), failing(
                                  "first", [] { throw std::runtime_error("early"); }, "s", 1));
  backend_->record(e1.get(), q1.get());  // q1 = [fails, e1]
  backend_->block(e1.get());             // q1 = []: the first failure has happened
  gate.open();                           // q2 = [fails]: the second was at work already
  other.join();
  expect_names(error_of([&] { backend_->synchronise(q2.get()); }), {"first", "early"});
  EXPECT_NO_THROW(backend_->synchronise(q1.get()));
  EXPECT_NO_THROW(backend_->synchronise(q2.get()));
}

TEST_P(FailureContract, AnEventReportsAFailureTooAndAQueryOrABlockDoesNot) {
  Stream q = make_stream(*backend_, "q");
  Event e = make_event(*backend_, "e");
  for (std::uint64_t round = 0; round < 3; ++round) {
    backend_->enqueue(q.get(), failing(
                                   "boom", [] { throw std::runtime_error("no"); }, "s", round));
    backend_->record(e.get(), q.get());
    backend_->block(e.get());
    EXPECT_TRUE(backend_->query(e.get()));
    expect_names(error_of([&] { backend_->synchronise(e.get()); }),
                 {"boom", std::to_string(round)});
    EXPECT_NO_THROW(backend_->synchronise(q.get()));
  }
}

TEST_P(FailureContract, AnErrorKeepsItsCodeAndHint) {
  Stream q = make_stream(*backend_, "q");
  backend_->enqueue(
      q.get(), failing(
                   "loss", [] { throw Error(ErrorCode::non_finite, "loss is nan", "lower lr"); },
                   "train", 77));
  const Error error = error_of([&] { backend_->synchronise(q.get()); });
  EXPECT_EQ(error.code(), ErrorCode::non_finite);
  EXPECT_EQ(error.hint(), "lower lr");
  expect_names(error, {"loss", "train", "77", "loss is nan"});
}

TEST_P(FailureContract, WhateverIsThrownIsAFailure) {
  Stream q = make_stream(*backend_, "q");
  backend_->enqueue(q.get(), failing(
                                 "odd", [] { throw 42; }, "train", 5));
  const Error error = error_of([&] { backend_->synchronise(q.get()); });
  EXPECT_EQ(error.code(), ErrorCode::run_failed);
  expect_names(error, {"odd", "train", "5"});
}

TEST_P(FailureContract, AStreamCanBeDestroyedInTheFailedState) {
  {
    Stream q = make_stream(*backend_, "q");
    backend_->enqueue(q.get(), failing(
                                   "boom", [] { throw std::runtime_error("no"); }, "s", 1));
    backend_->enqueue(q.get(), kernel("skipped"));
  }
  EXPECT_FALSE(has_run("skipped"));
  Stream q = make_stream(*backend_, "q");
  expect_names(error_of([&] { backend_->synchronise(q.get()); }), {"boom"});  // still reported
  backend_->enqueue(q.get(), kernel("k"));
  backend_->synchronise(q.get());
  EXPECT_TRUE(has_run("k"));
}

// -------------------------------------------------------------------------------------------------
// Graphs. What a callable does may happen while it is captured (cuda: its kernels are what the
// graph holds) or with each launch: these tests allow both.
class GraphContract : public FailureContract {
 protected:
  void SetUp() override {
    FailureContract::SetUp();
    if (backend_ == nullptr) return;
    ASSERT_TRUE(backend_->has_graphs());
    q1_ = make_stream(*backend_, "q1");
    q2_ = make_stream(*backend_, "q2");
    fork_ = make_event(*backend_, "fork");
    join_ = make_event(*backend_, "join");
  }
  // The streams end before the operations that are queued on them.
  void TearDown() override {
    q1_.reset();
    q2_.reset();
  }

  /// Captures what `queue` queues, with q1 as the origin.
  template <class Queue>
  Graph captured(Queue queue) {
    backend_->begin_capture(q1_.get());
    queue();
    return Graph::adopt(backend_->end_capture(q1_.get()));
  }

  /// q1 = [a, fork, waits join, c], q2 = [waits fork, b, join].
  void queue_fork_and_join(const BoundOperation& a, const BoundOperation& b,
                           const BoundOperation& c) {
    backend_->enqueue(q1_.get(), a);
    backend_->record(fork_.get(), q1_.get());
    backend_->wait(q2_.get(), fork_.get());
    backend_->enqueue(q2_.get(), b);
    backend_->record(join_.get(), q2_.get());
    backend_->wait(q1_.get(), join_.get());
    backend_->enqueue(q1_.get(), c);
  }

  Stream q1_, q2_;
  Event fork_, join_;
};

TEST_P(GraphContract, ALaunchRunsWhatACallQueuedAndACaptureNothing) {
  const BoundOperation &a = kernel("a"), &b = kernel("b"), &c = kernel("c");
  queue_fork_and_join(a, b, c);
  backend_->synchronise(q1_.get());
  std::vector<std::string> expected{"a", "b", "c"};
  EXPECT_EQ(order(), expected) << "directly";

  const Graph graph = captured([&] { queue_fork_and_join(a, b, c); });
  backend_->synchronise(q1_.get());
  backend_->synchronise(q2_.get());
  EXPECT_EQ(order(), expected) << "a capture ran something";

  for (int launch = 1; launch <= 3; ++launch) {
    backend_->launch(graph.get(), q1_.get());
    backend_->enqueue(q1_.get(), kernel(numbered("behind ", launch)));
    for (const char* name : {"a", "b", "c"}) expected.emplace_back(name);
    expected.push_back(numbered("behind ", launch));
  }
  backend_->synchronise(q1_.get());
  EXPECT_EQ(order(), expected);
  EXPECT_FALSE(backend_->failed());
}

TEST_P(GraphContract, ALaunchWaitsForWhatIsQueuedBeforeIt) {
  const BoundOperation &a = kernel("a"), &b = kernel("b"), &c = kernel("c");
  const std::unique_ptr<HeldGate> gate = rig_->make_gate();
  Event end = make_event(*backend_, "end");
  const Graph graph = captured([&] { queue_fork_and_join(a, b, c); });
  backend_->launch(graph.get(), q1_.get());  // whatever is loaded at first use now is
  backend_->synchronise(q1_.get());
  const OpenOnExit open_on_exit(*gate);
  backend_->enqueue(q1_.get(), hold(*gate));
  backend_->launch(graph.get(), q1_.get());
  backend_->record(end.get(), q1_.get());  // q1 = [held, graph, end]
  gate->wait_arrived();
  EXPECT_FALSE(backend_->query(end.get()));
  EXPECT_EQ(order(), (std::vector<std::string>{"a", "b", "c"})) << "the launch did not wait";
  gate->open();
  backend_->synchronise(end.get());
  EXPECT_EQ(order(), (std::vector<std::string>{"a", "b", "c", "a", "b", "c"}));
}

TEST_P(GraphContract, ALaunchReadsAndWritesTheAddressesOfTheCapture) {
  constexpr std::size_t kBytes = 1000;
  const Memory from(*backend_, kBytes, MemoryKind::device, "from"),
      between(*backend_, kBytes, MemoryKind::device, "between"),
      to(*backend_, kBytes, MemoryKind::device, "to");
  const auto copy = [&](Operation& operation, const Memory& source, const Memory& target) {
    operation.kind = OpKind::copy;
    operation.name = "copy";
    operation.operands = {{0, byte_desc(kBytes), Access::read, "src"},
                          {1, byte_desc(kBytes), Access::write, "dst"}};
    BoundOperation bound;
    bound.operation = &operation;
    bound.pointers[0] = source.data();
    bound.pointers[1] = target.data();
    bound.stage = "test";
    return bound;
  };
  Operation first, second;
  BoundOperation bound_first = copy(first, from, between), bound_second = copy(second, between, to);
  Graph graph = captured([&] {
    backend_->enqueue(q1_.get(), bound_first);
    backend_->enqueue(q1_.get(), bound_second);
  });
  bound_first.pointers[0] = bound_second.pointers[0] = nullptr;  // these are in the graph
  for (const int value : {3, 200}) {
    const std::vector<unsigned char> in(kBytes, static_cast<unsigned char>(value));
    std::vector<unsigned char> out(kBytes, 0);
    upload(q1_.get(), from.data(), in.data(), kBytes);
    backend_->launch(graph.get(), q1_.get());
    download(q1_.get(), out.data(), to.data(), kBytes);
    EXPECT_EQ(out, in);
  }
}

TEST_P(GraphContract, AFailureInACaptureSurfacesByNameAndTheBackendWorksAgain) {
  const BoundOperation& fails = failing(
      "decoder.3.forward", [] { throw std::runtime_error("the disk is on fire"); }, "train", 71);
  Graph graph;
  const Error error = error_of([&] {
    graph = captured([&] { queue_fork_and_join(kernel("a"), fails, kernel("c")); });
    backend_->launch(graph.get(), q1_.get());
    backend_->synchronise(q1_.get());
  });
  EXPECT_EQ(error.code(), ErrorCode::run_failed);
  expect_names(error, {"decoder.3.forward", "train", "71", "the disk is on fire"});
  EXPECT_FALSE(has_run("c")) << "what was behind the failure ran";
  EXPECT_FALSE(backend_->failed()) << "it was reported";
  EXPECT_NO_THROW(backend_->synchronise(q1_.get()));
  EXPECT_NO_THROW(backend_->synchronise(q2_.get()));

  graph = captured([&] { backend_->enqueue(q1_.get(), kernel("k")); });
  backend_->launch(graph.get(), q1_.get());
  backend_->synchronise(q1_.get());
  EXPECT_TRUE(has_run("k"));
}

TEST_P(GraphContract, AFailureOfBeforeStopsALaunchAndIsReportedOnce) {
  const Graph graph = captured([&] { backend_->enqueue(q1_.get(), kernel("a")); });
  Event end = make_event(*backend_, "end");
  EXPECT_FALSE(backend_->failed());
  backend_->enqueue(q1_.get(), failing(
                                   "boom", [] { throw std::runtime_error("no"); }, "s", 5));
  backend_->record(end.get(), q1_.get());
  backend_->block(end.get());
  EXPECT_TRUE(backend_->failed());
  backend_->launch(graph.get(), q1_.get());
  expect_names(error_of([&] { backend_->synchronise(q1_.get()); }), {"boom", "5", "no"});
  EXPECT_EQ(order(), std::vector<std::string>{}) << "a launch behind a failure ran";
  EXPECT_FALSE(backend_->failed());
  backend_->launch(graph.get(), q1_.get());
  backend_->synchronise(q1_.get());
  EXPECT_EQ(order(), std::vector<std::string>{"a"});
}

TEST_P(GraphContract, WhatCannotBeCapturedIsAnErrorAndNothingOfItRuns) {
  error_of([&] {
    static_cast<void>(captured([&] {
      backend_->enqueue(q1_.get(), kernel("a"));
      backend_->enqueue(q1_.get(), rig_->uncapturable());
    }));
  });
  EXPECT_FALSE(backend_->failed()) << "it was reported";
  backend_->enqueue(q1_.get(), kernel("k"));  // directly: no stream is capturing any more
  backend_->synchronise(q1_.get());
  EXPECT_EQ(order(), std::vector<std::string>{"k"});
}

TEST_P(GraphContract, OwnersDestroyGraphsExactlyOnce) {
  CountingBackend counting(*backend_);
  const Stream q = make_stream(counting, "q");
  const BoundOperation& k = kernel("k");
  const auto make = [&] {
    counting.begin_capture(q.get());
    counting.enqueue(q.get(), k);
    return Graph::adopt(counting.end_capture(q.get()));
  };
  move_about<Graph>(make, counting.graphs_destroyed);
  EXPECT_EQ(counting.graphs_created, 2);
  EXPECT_EQ(counting.graphs_destroyed, 2);
}

TEST_P(GraphContract, AGraphMayBeDestroyedWhileALaunchOfItIsQueued) {
  const BoundOperation& a = kernel("a");
  const std::unique_ptr<HeldGate> gate = rig_->make_gate();
  Graph graph = captured([&] { backend_->enqueue(q1_.get(), a); });
  backend_->launch(graph.get(), q1_.get());
  backend_->synchronise(q1_.get());
  {
    const OpenOnExit open_on_exit(*gate);
    backend_->enqueue(q1_.get(), hold(*gate));
    backend_->launch(graph.get(), q1_.get());  // q1 = [held, graph]
    gate->wait_arrived();
    graph.reset();
  }
  backend_->synchronise(q1_.get());
  EXPECT_EQ(order(), (std::vector<std::string>{"a", "a"}));
}

}  // namespace tandem::testing
