// SPDX-License-Identifier: Apache-2.0
// What is made of CUPTI, with a CUPTI of the test's own: who may use it, what is switched on when,
// and how records find their operations. That the layout of records is CUPTI's own is checked where
// its header is: tests/gpu/cupti_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tandem/engine/cupti.hpp>
#include <tandem/tests/support/files.hpp>
#include <tandem/tests/support/gate.hpp>
#include <thread>
#include <vector>

namespace tandem {
namespace {

namespace layout = cupti_layout;
using testing::expect_error;

/// Remembers what was called; hands records over when it is flushed.
struct FakeCupti {
  static constexpr int kHeld = 39, kDenied = 35, kEnd = 12;
  static constexpr std::size_t kRecordBytes = 256;
  using Bytes = std::vector<std::uint8_t>;

  int subscribe_status = 0, enable_status = 0, subscribers = 0;
  CuptiFunctions::RequestBuffer request = nullptr;
  CuptiFunctions::BufferFull full = nullptr;
  CuptiFunctions::Clock clock = nullptr;
  std::multiset<int> enabled;
  std::vector<std::uint64_t> ids, open_ids;  // all that were pushed; those that are not popped
  std::vector<Bytes> records;
  std::size_t lost = 0, read = 0;
  testing::Counter unsubscribed;
  std::function<void()> reading;  // called when a buffer is about to be read, and has been
  std::function<void()> has_read;

  template <class T>
  static void set(Bytes& record, std::size_t at, T value) {
    std::memcpy(record.data() + at, &value, sizeof value);
  }
  Bytes& add(int kind) {
    Bytes& record = records.emplace_back(kRecordBytes);
    set(record, 0, kind);
    return record;
  }
  void external(std::uint32_t correlation, std::uint64_t id, int kind = layout::kOurIds) {
    Bytes& record = add(layout::kExternalId);
    set(record, layout::kExternalKind, kind);
    set(record, layout::kExternalValue, id);
    set(record, layout::kExternalCorrelation, correlation);
  }
  void work(int kind, const layout::Work& at, std::uint32_t correlation, std::uint64_t begin,
            std::uint64_t end, std::uint64_t bytes = 0) {
    Bytes& record = add(kind);
    set(record, at.bytes, bytes);
    set(record, 0, kind);  // a kernel has no bytes
    set(record, at.begin, begin);
    set(record, at.end, end);
    set(record, at.stream, std::uint32_t{7});
    set(record, at.correlation, correlation);
  }
  void kernel(std::uint32_t correlation, std::uint64_t begin, std::uint64_t end, const char* name,
              std::uint32_t x = 1, std::uint32_t y = 1, std::uint32_t z = 1) {
    work(layout::kKernel, layout::kKernelAt, correlation, begin, end);
    Bytes& record = records.back();
    set(record, layout::kKernelGrid, x);
    set(record, layout::kKernelGrid + 4, y);
    set(record, layout::kKernelGrid + 8, z);
    set(record, layout::kKernelName, name);
  }
  void call(int kind, std::uint32_t correlation, std::uint32_t id, std::uint64_t begin,
            std::uint64_t end) {
    Bytes& record = add(kind);
    set(record, layout::kCallId, id);
    set(record, layout::kCallBegin, begin);
    set(record, layout::kCallEnd, end);
    set(record, layout::kCallCorrelation, correlation);
  }
};

FakeCupti* fake = nullptr;

CuptiLibrary fake_library() {
  CuptiFunctions f;
  f.result_string = [](int, const char** text) { return *text = "refused", 0; };
  f.subscribe = [](void** subscriber, void*, void*) {
    if (fake->subscribe_status != 0) return fake->subscribe_status;
    ++fake->subscribers;
    *subscriber = fake;
    return 0;
  };
  f.unsubscribe = [](void*) {
    --fake->subscribers;
    fake->unsubscribed.add();
    return 0;
  };
  f.callbacks = [](CuptiFunctions::RequestBuffer request, CuptiFunctions::BufferFull full) {
    fake->request = request;
    fake->full = full;
    return 0;
  };
  f.clock = [](CuptiFunctions::Clock clock) { return fake->clock = clock, 0; };
  f.enable = [](int kind) {
    if (fake->enable_status == 0) fake->enabled.insert(kind);
    return fake->enable_status;
  };
  f.disable = [](int kind) { return fake->enabled.erase(kind), 0; };
  f.flush = [](std::uint32_t flags) {
    EXPECT_EQ(flags, 1u);
    std::uint8_t* buffer = nullptr;
    std::size_t size = 0, most = 0;
    fake->request(&buffer, &size, &most);
    const std::size_t bytes = fake->records.size() * FakeCupti::kRecordBytes;
    EXPECT_LE(bytes, size);
    for (std::size_t i = 0; i < fake->records.size(); ++i)
      std::memcpy(buffer + i * FakeCupti::kRecordBytes, fake->records[i].data(),
                  FakeCupti::kRecordBytes);
    fake->records.clear();
    fake->read = 0;
    fake->full(nullptr, 0, buffer, size, bytes);
    return 0;
  };
  f.next = [](std::uint8_t* buffer, std::size_t valid, void** record) {
    if (fake->reading) fake->reading();
    if (fake->read == valid) return FakeCupti::kEnd;
    *record = buffer + fake->read;
    fake->read += FakeCupti::kRecordBytes;
    return 0;
  };
  f.lost = [](void*, std::uint32_t, std::size_t* records) {
    if (fake->has_read) fake->has_read();
    *records = std::exchange(fake->lost, 0);
    return 0;
  };
  f.push = [](int kind, std::uint64_t id) {
    EXPECT_EQ(kind, layout::kOurIds);
    fake->ids.push_back(id);
    fake->open_ids.push_back(id);
    return 0;
  };
  f.pop = [](int, std::uint64_t*) { return fake->open_ids.pop_back(), 0; };
  f.call_name = [](int domain, std::uint32_t id, const char** name) {
    *name = domain == 2 && id == 211 ? "cudaLaunchKernel" : domain == 1 ? "cuLaunchKernel" : "?";
    return 0;
  };
  return {f, {}};
}

class Cupti : public ::testing::Test {
 protected:
  Cupti() {
    fake = &cupti;
    unsetenv("CUDA_INJECTION64_PATH");
  }
  ~Cupti() override { fake = nullptr; }

  /// Tells the source of an operation of stage `train`.
  void run(ProfileSource& source, int lane, const char* name, std::uint64_t step) {
    Operation operation;
    operation.name = name;
    BoundOperation bound;
    bound.operation = &operation;
    bound.stage = "train";
    bound.step = step;
    const ToldOperation told(&source, lane, bound);
  }

  FakeCupti cupti;
  Recorder recorder{{"encode", "train"}, 1000};
};

TEST_F(Cupti, RecordsFindTheirOperations) {
  const CuptiSource made = make_cupti_source(fake_library(), recorder, false);
  ASSERT_NE(made.source, nullptr) << made.reason;
  ProfileSource& source = *made.source;
  source.stream_created("encode", nullptr);
  const int train = source.stream_created("train", nullptr);
  run(source, train, "before", 4);
  EXPECT_TRUE(cupti.ids.empty());  // nothing is told while nothing is recorded
  source.start();
  run(source, train, "decoder.1.forward", 5);
  run(source, train, "decoder.2.forward", 6);
  ASSERT_EQ(cupti.ids.size(), 2u);
  EXPECT_TRUE(cupti.open_ids.empty());

  cupti.external(100, cupti.ids[1]);
  cupti.call(layout::kRuntimeCall, 100, 211, 10, 20);
  cupti.call(layout::kDriverCall, 100, 307, 12, 18);  // within it
  cupti.kernel(100, 30, 40, "_ZN6tandem4cuda3sgdEPf", 4, 3, 2);
  cupti.external(101, cupti.ids[0]);
  cupti.external(101, cupti.ids[1], layout::kOurIds + 1);  // somebody else's number
  cupti.call(layout::kDriverCall, 101, 307, 22, 28);
  cupti.work(layout::kMemcpy, layout::kMemcpyAt, 101, 41, 49, 4096);
  FakeCupti::set(cupti.records.back(), layout::kCopyDirection, std::uint8_t{1});
  cupti.work(layout::kMemset, layout::kMemsetAt, 102, 50, 51, 64);  // of no operation
  cupti.call(layout::kRuntimeCall, 103, 211, 60, 70);               // of no operation either
  source.stop();

  const Recording seen = recorder.take();
  const auto find = [&](const std::string& name) -> const Record& {
    for (const Record& record : seen.records)
      if (seen.texts[record.name] == name) return record;
    ADD_FAILURE() << name;
    static const Record none;
    return none;
  };
  EXPECT_EQ(seen.records.size(), 5u);
  const Record& kernel = find("sgd");
  EXPECT_EQ(kernel.kind, RecordKind::kernel);
  EXPECT_EQ(kernel.begin, 30u);
  EXPECT_EQ(kernel.end, 40u);
  EXPECT_EQ(kernel.blocks, 24u);
  EXPECT_EQ(kernel.step, 6u);
  EXPECT_EQ(kernel.stage, 1);
  EXPECT_EQ(kernel.lane, train);
  EXPECT_EQ(seen.texts[kernel.path], "train/decoder.2.forward");
  const Record& copy = find("copy to the device");
  EXPECT_EQ(copy.kind, RecordKind::copy);
  EXPECT_EQ(copy.bytes, 4096u);
  EXPECT_EQ(copy.step, 5u);
  const Record& memset = find("memset");
  EXPECT_EQ(memset.kind, RecordKind::memset);
  EXPECT_EQ(memset.stage, -1);
  EXPECT_EQ(memset.step, Record::kNoStep);
  EXPECT_EQ(seen.lanes[static_cast<std::size_t>(memset.lane)], "stream 7");
  const Record& launch = find("cudaLaunchKernel");
  EXPECT_EQ(launch.kind, RecordKind::runtime);
  EXPECT_EQ(launch.step, 6u);
  EXPECT_EQ(find("cuLaunchKernel").begin, 22u);  // the one without a runtime call around it
  EXPECT_NE(launch.lane, train);
}

TEST_F(Cupti, EachRecordingStartsAnew) {
  const CuptiSource made = make_cupti_source(fake_library(), recorder, false);
  ASSERT_NE(made.source, nullptr);
  const int lane = made.source->stream_created("train", nullptr);
  for (std::uint64_t step = 0; step < 3; ++step) {
    made.source->start();
    run(*made.source, lane, "op", step);
    EXPECT_EQ(cupti.ids.back(), 1u);  // nothing is kept of the last one
    cupti.external(9, cupti.ids.back());
    cupti.kernel(9, 10, 20, "k");
    made.source->stop();
    const Recording seen = recorder.take();
    ASSERT_EQ(seen.records.size(), 1u);
    EXPECT_EQ(seen.records.front().step, step);
  }
}

TEST_F(Cupti, IsOnOnlyWhileRecording) {
  {
    const CuptiSource made = make_cupti_source(fake_library(), recorder, false);
    ASSERT_NE(made.source, nullptr);
    EXPECT_EQ(cupti.subscribers, 1);
    EXPECT_EQ(cupti.clock, profile_clock);
    EXPECT_TRUE(cupti.enabled.empty());
    made.source->start();
    EXPECT_EQ(cupti.enabled,
              (std::multiset<int>{layout::kMemcpy, layout::kMemset, layout::kDriverCall,
                                  layout::kRuntimeCall, layout::kKernel, layout::kExternalId}));
    made.source->stop();
    EXPECT_TRUE(cupti.enabled.empty());
  }
  EXPECT_EQ(cupti.subscribers, 0);
}

TEST_F(Cupti, CountsWhatItLost) {
  const CuptiSource made = make_cupti_source(fake_library(), recorder, false);
  ASSERT_NE(made.source, nullptr);
  made.source->start();
  cupti.lost = 5;
  made.source->stop();
  EXPECT_EQ(recorder.take().dropped, 5u);
}

TEST_F(Cupti, IsLeftToAnotherTool) {
  cupti.subscribe_status = FakeCupti::kHeld;
  const CuptiSource held = make_cupti_source(fake_library(), recorder, false);
  EXPECT_EQ(held.source, nullptr);
  EXPECT_EQ(held.reason, "cuptiSubscribe: refused (39)");
  EXPECT_EQ(cupti.request, nullptr);  // nothing of the other's is touched
  EXPECT_TRUE(cupti.enabled.empty());

  cupti.subscribe_status = 0;
  setenv("CUDA_INJECTION64_PATH", "/somewhere", 1);
  const CuptiSource injected = make_cupti_source(fake_library(), recorder, false);
  unsetenv("CUDA_INJECTION64_PATH");
  EXPECT_EQ(injected.source, nullptr);
  EXPECT_NE(injected.reason.find("CUDA_INJECTION64_PATH"), std::string::npos);
  EXPECT_EQ(cupti.subscribers, 0);

  EXPECT_NE(make_cupti_source(fake_library(), recorder, false).source, nullptr);  // free again
}

// CUPTI hands a buffer over in a thread of its own, whenever it likes.
TEST_F(Cupti, ItsEndWaitsForABufferThatIsBeingRead) {
  CuptiSource made = make_cupti_source(fake_library(), recorder, false);
  ASSERT_NE(made.source, nullptr);
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, most = 0;
  cupti.request(&buffer, &size, &most);
  testing::Gate gate;
  std::atomic<int> events{0}, read_as{0}, ended_as{0};
  cupti.reading = [&] { gate.pass(); };
  cupti.has_read = [&] { read_as = ++events; };
  std::thread of_cupti([&] { cupti.full(nullptr, 0, buffer, size, 0); });
  gate.wait_arrived();
  std::thread ender([&] {
    made.source.reset();
    ended_as = ++events;
  });
  cupti.unsubscribed.wait_for(1);  // all that is left of the end is to wait
  gate.open();
  ender.join();
  of_cupti.join();
  EXPECT_EQ(read_as, 1);
  EXPECT_EQ(ended_as, 2) << "the source ended while a buffer of its own was read";

  cupti.reading = cupti.has_read = {};
  cupti.request(&buffer, &size, &most);
  cupti.full(nullptr, 0, buffer, size, 0);  // too late: nobody reads it, and it is freed
  EXPECT_EQ(events, 2);
}

TEST_F(Cupti, AnEndWithoutAStopLeavesNothingToTheNextSource) {
  CuptiSource first = make_cupti_source(fake_library(), recorder, false);
  ASSERT_NE(first.source, nullptr);
  first.source->start();
  cupti.kernel(9, 10, 20, "k");
  first.source.reset();
  EXPECT_TRUE(cupti.enabled.empty());
  EXPECT_TRUE(cupti.records.empty()) << "they were not asked for";
  const CuptiSource next = make_cupti_source(fake_library(), recorder, false);
  ASSERT_NE(next.source, nullptr);
  next.source->start();
  next.source->stop();
  EXPECT_TRUE(recorder.take().records.empty());
}

TEST_F(Cupti, OneAtATime) {
  CuptiSource first = make_cupti_source(fake_library(), recorder, false);
  ASSERT_NE(first.source, nullptr);
  EXPECT_EQ(make_cupti_source(fake_library(), recorder, false).source, nullptr);
  EXPECT_EQ(cupti.subscribers, 1);
  first.source.reset();
  EXPECT_NE(make_cupti_source(fake_library(), recorder, false).source, nullptr);
}

TEST_F(Cupti, WhatIsRefusedIsAReasonAndLaterAnError) {
  cupti.enable_status = FakeCupti::kDenied;
  const CuptiSource denied = make_cupti_source(fake_library(), recorder, false);
  EXPECT_EQ(denied.source, nullptr);
  EXPECT_EQ(denied.reason, "cuptiActivityEnable: refused (35)");
  EXPECT_EQ(cupti.subscribers, 0);
  cupti.enable_status = 0;
  const CuptiSource made = make_cupti_source(fake_library(), recorder, false);
  ASSERT_NE(made.source, nullptr);
  cupti.enable_status = FakeCupti::kDenied;
  expect_error(ErrorCode::run_failed, {"CUPTI", "cuptiActivityEnable"},
               [&] { made.source->start(); });
}

TEST(CuptiLibrary, AMissingFileIsAReason) {
  setenv("TANDEM_CUPTI", "/nowhere/libcupti.so", 1);
  const CuptiLibrary missing = load_cupti(13);
  EXPECT_FALSE(missing.functions.has_value());
  EXPECT_NE(missing.reason.find("/nowhere/libcupti.so"), std::string::npos);
  setenv("TANDEM_CUPTI", "libz.so.1", 1);
  const CuptiLibrary other = load_cupti(13);
  unsetenv("TANDEM_CUPTI");
  EXPECT_FALSE(other.functions.has_value());
  EXPECT_EQ(other.reason, "it has no function cuptiGetResultString");
  Recorder recorder({"train"}, 1);
  EXPECT_EQ(make_cupti_source(other, recorder, false).reason, other.reason);
}

TEST(KernelName, IsShort) {
  EXPECT_EQ(kernel_name("_ZN6tandem4cuda12_GLOBAL__N_110sgd_kernelIfEEvPT_"), "sgd_kernel<float>");
  EXPECT_EQ(kernel_name("sm90_xmma_gemm_f32f32"), "sm90_xmma_gemm_f32f32");
  EXPECT_EQ(kernel_name("_Z3fooi"), "foo");
}

}  // namespace
}  // namespace tandem
