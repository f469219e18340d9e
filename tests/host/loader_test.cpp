// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <limits>
#include <mutex>
#include <random>
#include <tandem/engine/loader.hpp>
#include <tandem/tests/support/files.hpp>
#include <thread>

namespace tandem {
namespace {

using namespace testing;

constexpr std::int64_t kSide = 4;
constexpr std::int64_t kPixels = kSide * kSide;
constexpr std::int64_t kClasses = 5;

std::uint8_t picture_byte(std::int64_t sample, std::int64_t i) {
  return static_cast<std::uint8_t>(sample * 131 + sample / 7 + i * 3);
}
/// Every sixth label is to be ignored.
std::uint8_t label_byte(std::int64_t sample, std::int64_t p) {
  const std::int64_t x = (sample * 5 + p) % (kClasses + 1);
  return static_cast<std::uint8_t>(x == kClasses ? 255 : x);
}

/// Samples by formula; `before` may throw, block or count.
class FormulaData final : public Dataset {
 public:
  explicit FormulaData(std::function<void(std::int64_t)> before = {})
      : before_(std::move(before)) {}
  std::int64_t image() const noexcept override { return kSide; }
  std::int64_t epoch_size() const noexcept override { return 10; }
  const std::vector<std::string>& class_names() const noexcept override { return names_; }
  void sample(std::int64_t index, std::uint8_t* picture, std::uint8_t* labels) const override {
    if (before_) before_(index);
    for (std::int64_t i = 0; i < 3 * kPixels; ++i) picture[i] = picture_byte(index, i);
    for (std::int64_t p = 0; p < kPixels; ++p) labels[p] = label_byte(index, p);
  }

 private:
  std::function<void(std::int64_t)> before_;
  std::vector<std::string> names_{"a", "b", "c", "d", "e"};
};

/// Memory of some slots, full of rubbish.
class Slots {
 public:
  Slots(int count, std::int64_t batch)
      : batch_(batch),
        images_(count, Bytes(batch * 3 * kPixels, 0xee)),
        labels_(count, Bytes(batch * kPixels, 0xee)),
        headers_(count, std::vector<std::int64_t>(batch_header_bytes(batch) / 8, -7)) {}
  std::vector<InputSlot> slots() {
    std::vector<InputSlot> result;
    for (std::size_t s = 0; s < images_.size(); ++s) {
      InputSlot slot;
      slot.images = images_[s].data();
      slot.labels = labels_[s].data();
      slot.header = header(static_cast<int>(s));
      slot.batch = batch_;
      slot.image = kSide;
      slot.label_count = kPixels;
      result.push_back(slot);
    }
    return result;
  }
  BatchHeader* header(int slot) { return reinterpret_cast<BatchHeader*>(headers_[slot].data()); }
  const Bytes& images(int slot) const { return images_[slot]; }
  const Bytes& labels(int slot) const { return labels_[slot]; }
  void spoil(int slot) {
    std::fill(images_[slot].begin(), images_[slot].end(), std::uint8_t{0xee});
    std::fill(labels_[slot].begin(), labels_[slot].end(), std::uint8_t{0xee});
    std::fill(headers_[slot].begin(), headers_[slot].end(), -7);
  }

 private:
  std::int64_t batch_;
  std::vector<Bytes> images_, labels_;
  std::vector<std::vector<std::int64_t>> headers_;
};

LoaderOptions options_for(int workers, std::int64_t batch, std::uint64_t steps) {
  LoaderOptions o;
  o.workers = workers;
  o.batch = batch;
  o.steps = steps;
  o.classes = kClasses;
  return o;
}

/// Compares a delivered slot with what the formulas say of batch `number` (counted from 0).
void expect_batch(Slots& memory, int slot, const LoaderOptions& o, std::uint64_t number) {
  const BatchHeader& header = *memory.header(slot);
  const std::int64_t first = o.first_sample + static_cast<std::int64_t>(number) * o.batch;
  const std::int64_t end =
      o.samples < 0 ? first + o.batch : std::min(first + o.batch, o.first_sample + o.samples);
  std::int64_t valid = 0, wrong = 0;
  for (std::int64_t row = 0; row < o.batch; ++row) {
    const bool real = first + row < end;
    for (std::int64_t i = 0; i < 3 * kPixels; ++i) {
      const std::uint8_t expected = real ? picture_byte(first + row, i) : 0;
      wrong += memory.images(slot)[row * 3 * kPixels + i] != expected;
    }
    for (std::int64_t p = 0; p < kPixels; ++p) {
      const std::uint8_t expected = real ? label_byte(first + row, p) : 255;
      wrong += memory.labels(slot)[row * kPixels + p] != expected;
      valid += expected != 255;
    }
    EXPECT_EQ(sample_ids(memory.header(slot))[row], real ? first + row : -1);
  }
  EXPECT_EQ(wrong, 0) << "batch " << number;
  EXPECT_EQ(header.step, o.first_step + number);
  EXPECT_EQ(header.epoch, static_cast<std::uint64_t>(first / 10));
  EXPECT_EQ(header.samples, end - first);
  EXPECT_EQ(header.capacity, o.batch);
  EXPECT_EQ(header.valid_count, valid);
  EXPECT_EQ(header.learning_rate, o.learning_rate);
  EXPECT_EQ(header.momentum, o.momentum);
  EXPECT_EQ(header.weight_decay, o.weight_decay);
  EXPECT_EQ(header.inverse_count, 1.0f / static_cast<float>(valid));
  EXPECT_EQ(header.minus_rate_over_count, -o.learning_rate / static_cast<float>(valid));
  EXPECT_EQ(header.one, 1.0f);
  const auto* augment = reinterpret_cast<const float*>(sample_ids(memory.header(slot)) + o.batch);
  for (std::int64_t i = 0; i < o.batch * kAugmentFloats; ++i) ASSERT_EQ(augment[i], 0.0f);
}

TEST(Loader, BatchesDoNotDependOnWorkersOrSlots) {
  for (const int workers : {1, 2, 8}) {
    for (const int slots : {1, 2, 3, 4, 5}) {
      std::vector<std::atomic<int>> seen(43);
      auto data = std::make_shared<FormulaData>([&](std::int64_t i) { ++seen.at(i); });
      LoaderOptions o = options_for(workers, 4, 10);
      o.first_sample = 3;
      o.first_step = 100;
      o.learning_rate = 0.3f, o.momentum = 0.9f, o.weight_decay = 0.01f;
      Slots memory(slots, o.batch);
      Loader loader(data, o, memory.slots(), [](int) {});
      for (std::uint64_t b = 0; b < o.steps; ++b) {
        const int slot = loader.next();
        ASSERT_EQ(slot, static_cast<int>(b % slots));
        expect_batch(memory, slot, o, b);
        memory.spoil(slot);  // nothing of an old batch may be needed
        loader.submitted(slot);
      }
      EXPECT_EQ(loader.next(), -1);
      EXPECT_EQ(loader.next(), -1);
      for (int i = 0; i < 43; ++i) EXPECT_EQ(seen[i], i >= 3) << "sample " << i;
    }
  }
}

TEST(Loader, TheLastBatchMayBePartial) {
  for (const std::int64_t samples : {1, 3, 4, 5, 9}) {
    LoaderOptions o = options_for(3, 4, (samples + 3) / 4);
    o.samples = samples;
    Slots memory(2, o.batch);
    Loader loader(std::make_shared<FormulaData>(), o, memory.slots(), [](int) {});
    for (std::uint64_t b = 0; b < o.steps; ++b) {
      const int slot = loader.next();
      ASSERT_GE(slot, 0);
      expect_batch(memory, slot, o, b);
      loader.submitted(slot);
    }
    EXPECT_EQ(loader.next(), -1);
  }
}

TEST(Loader, NoBatchesAtAll) {
  Slots memory(1, 4);
  Loader loader(std::make_shared<FormulaData>(), options_for(2, 4, 0), memory.slots(), [](int) {});
  EXPECT_EQ(loader.next(), -1);
}

TEST(Loader, FinishHeader) {
  BatchHeader header;
  header.learning_rate = 0.1f;
  header.valid_count = 3;
  finish_header(header);
  EXPECT_EQ(header.inverse_count, 1.0f / 3.0f);
  EXPECT_EQ(header.minus_rate_over_count, -0.1f / 3.0f);
  header.valid_count = 0;
  finish_header(header);
  EXPECT_EQ(header.inverse_count, 0.0f);
  EXPECT_EQ(header.minus_rate_over_count, 0.0f);
}

/// Black pictures none of whose labels count.
class IgnoredData final : public Dataset {
 public:
  std::int64_t image() const noexcept override { return kSide; }
  std::int64_t epoch_size() const noexcept override { return 4; }
  const std::vector<std::string>& class_names() const noexcept override { return names_; }
  void sample(std::int64_t, std::uint8_t* picture, std::uint8_t* labels) const override {
    std::fill_n(picture, 3 * kPixels, std::uint8_t{0});
    std::fill_n(labels, kPixels, std::uint8_t{255});
  }

 private:
  std::vector<std::string> names_ = std::vector<std::string>(kClasses, "a class");
};

// Weight decay neither: keep is 1.
TEST(Loader, ABatchOfIgnoredLabelsChangesNothing) {
  Slots memory(1, 4);
  LoaderOptions o = options_for(2, 4, 1);
  o.learning_rate = 0.5f;
  o.weight_decay = 0.25f;
  Loader loader(std::make_shared<IgnoredData>(), o, memory.slots(), [](int) {});
  ASSERT_EQ(loader.next(), 0);
  const BatchHeader& header = *memory.header(0);
  EXPECT_EQ(header.samples, 4);
  EXPECT_EQ(header.valid_count, 0);
  EXPECT_EQ(header.inverse_count, 0.0f);
  EXPECT_EQ(header.minus_rate_over_count, 0.0f);
  EXPECT_EQ(header.keep, 1.0f);
}

// Sample 0 is not finished before sample 1 has begun: possible only with two workers on one batch.
TEST(Loader, WorkersShareABatch) {
  std::promise<void> second_began;
  std::shared_future<void> began = second_began.get_future().share();
  auto data = std::make_shared<FormulaData>([&](std::int64_t i) {
    if (i == 0) began.wait();
    if (i == 1) second_began.set_value();
  });
  const LoaderOptions o = options_for(2, 2, 1);
  Slots memory(1, o.batch);
  Loader loader(data, o, memory.slots(), [](int) {});
  EXPECT_EQ(loader.next(), 0);
  expect_batch(memory, 0, o, 0);
}

// The last row of a batch is slow while everything after it could be made: its slot must not be
// taken for the batch that comes next in it.
TEST(Loader, ASlowRowKeepsItsSlot) {
  for (const int slots : {1, 2}) {
    std::promise<void> release;
    std::shared_future<void> released = release.get_future().share();
    std::atomic<int> begun{0};
    auto data = std::make_shared<FormulaData>([&](std::int64_t i) {
      ++begun;
      if (i == 0) released.wait();
    });
    const LoaderOptions o = options_for(4, 2, 8);
    Slots memory(slots, o.batch);
    Loader loader(data, o, memory.slots(), [](int) {});
    // The other workers fill what they may: batch 0 but for its first row, and the other slot.
    while (begun < 2 * slots) std::this_thread::yield();
    release.set_value();
    for (std::uint64_t b = 0; b < o.steps; ++b) {
      const int slot = loader.next();
      ASSERT_GE(slot, 0);
      expect_batch(memory, slot, o, b);
      memory.spoil(slot);
      loader.submitted(slot);
    }
  }
}

/// A copy engine of the simplest kind: copies on its own thread, some time after it was asked to.
class Copier {
 public:
  explicit Copier(int slots) : done_(slots) {
    for (auto& promise : done_) promise = finished();
  }
  ~Copier() {
    for (auto& thread : threads_) thread.join();
  }
  /// Returns at once; wait(slot) returns when the copy was made.
  void copy(const Bytes& from, Bytes& to, int slot, unsigned delay) {
    auto promise = std::make_shared<std::promise<void>>();
    {
      const std::lock_guard lock(mutex_);
      done_[slot] = promise->get_future().share();
    }
    threads_.emplace_back([&from, &to, promise, delay] {
      for (unsigned i = 0; i < delay; ++i) std::this_thread::yield();
      to = from;
      promise->set_value();
    });
  }
  void wait(int slot) {
    std::shared_future<void> future;
    {
      const std::lock_guard lock(mutex_);
      future = done_[slot];
    }
    future.wait();
  }

 private:
  static std::shared_future<void> finished() {
    std::promise<void> promise;
    promise.set_value();
    return promise.get_future().share();
  }
  std::mutex mutex_;
  std::vector<std::shared_future<void>> done_;
  std::vector<std::thread> threads_;
};

TEST(Loader, ASlotIsNotFilledBeforeItsCopyIsDone) {
  std::mt19937 random(1);
  const LoaderOptions o = options_for(3, 2, 300);
  Slots memory(2, o.batch);
  std::vector<Bytes> copies(o.steps);
  {
    Copier copier(2);
    Loader loader(std::make_shared<FormulaData>(), o, memory.slots(),
                  [&](int s) { copier.wait(s); });
    for (std::uint64_t b = 0; b < o.steps; ++b) {
      const int slot = loader.next();
      ASSERT_GE(slot, 0);
      copier.copy(memory.images(slot), copies[b], slot, static_cast<unsigned>(random() % 50));
      loader.submitted(slot);
    }
  }
  int wrong = 0;
  for (std::uint64_t b = 0; b < o.steps; ++b) {
    for (std::size_t i = 0; i < copies[b].size(); ++i) {
      const auto sample = static_cast<std::int64_t>(b * 2 + i / (3 * kPixels));
      wrong += copies[b][i] != picture_byte(sample, static_cast<std::int64_t>(i % (3 * kPixels)));
    }
  }
  EXPECT_EQ(wrong, 0);
}

// The test before this one can fail: a loader that does not wait overwrites the slot.
TEST(Loader, WithoutTheWaitALateCopyReadsTheNextBatch) {
  const LoaderOptions o = options_for(1, 1, 2);
  Slots memory(1, o.batch);
  Loader loader(std::make_shared<FormulaData>(), o, memory.slots(), [](int) {});
  ASSERT_EQ(loader.next(), 0);
  loader.submitted(0);
  ASSERT_EQ(loader.next(), 0);
  EXPECT_EQ(memory.images(0)[0], picture_byte(1, 0));
  EXPECT_NE(memory.images(0)[0], picture_byte(0, 0));
}

// A worker that waits for a copy must keep neither the other workers' batches nor the consumer.
TEST(Loader, TheWaitForACopyHoldsNoLock) {
  std::promise<void> waiting, release;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<int> calls{0};
  const LoaderOptions o = options_for(2, 2, 4);
  Slots memory(2, o.batch);
  Loader loader(std::make_shared<FormulaData>(), o, memory.slots(), [&](int) {
    if (++calls != 3) return;  // the first lap calls it once a slot
    waiting.set_value();
    released.wait();
  });
  ASSERT_EQ(loader.next(), 0);
  loader.submitted(0);
  waiting.get_future().wait();  // a worker is in the wait for slot 0
  ASSERT_EQ(loader.next(), 1);  // and yet these two return
  loader.submitted(1);
  release.set_value();
  ASSERT_EQ(loader.next(), 0);
  expect_batch(memory, 0, o, 2);
}

// The last copies of one loader may still run when the next one begins to use the slots.
TEST(Loader, WaitsInTheFirstLapToo) {
  std::vector<std::atomic<int>> calls(3);
  const LoaderOptions o = options_for(2, 1, 3);
  Slots memory(3, o.batch);
  Loader loader(std::make_shared<FormulaData>(), o, memory.slots(), [&](int s) { ++calls[s]; });
  for (int b = 0; b < 3; ++b) {
    const int slot = loader.next();
    ASSERT_EQ(slot, b);
    EXPECT_EQ(calls[slot], 1);
    loader.submitted(slot);
  }
}

TEST(Loader, AnErrorComesOnceAfterTheGoodBatches) {
  for (const int workers : {1, 2, 8}) {
    auto data = std::make_shared<FormulaData>([](std::int64_t i) {
      if (i >= 13) throw std::runtime_error("disk on fire");  // the lowest is reported
    });
    const LoaderOptions o = options_for(workers, 4, 100);
    Slots memory(5, o.batch);
    Loader loader(data, o, memory.slots(), [](int) {});
    for (std::uint64_t b = 0; b < 3; ++b) {
      const int slot = loader.next();
      ASSERT_EQ(slot, static_cast<int>(b));
      expect_batch(memory, slot, o, b);
      loader.submitted(slot);
    }
    const Error error = error_of([&] { loader.next(); });
    EXPECT_STREQ(error.what(), "sample 13: disk on fire");
    EXPECT_EQ(error.code(), ErrorCode::data);
    EXPECT_EQ(loader.next(), -1);
    EXPECT_EQ(loader.next(), -1);
  }
}

// Two samples of a batch fail, each first in half of the rounds: always the lower is reported.
TEST(Loader, TheLowestFailingSampleIsReported) {
  for (int round = 0; round < 100; ++round) {
    std::atomic<bool> began[2] = {false, false};
    auto data = std::make_shared<FormulaData>([&](std::int64_t i) {
      began[i] = true;
      while (!began[1 - i]) std::this_thread::yield();
      for (int k = i == round % 2 ? 20 : 0; k > 0; --k) std::this_thread::yield();
      throw std::runtime_error("bad");
    });
    const LoaderOptions o = options_for(2, 2, 3);
    Slots memory(2, o.batch);
    Loader loader(data, o, memory.slots(), [](int) {});
    ASSERT_STREQ(error_of([&] { loader.next(); }).what(), "sample 0: bad");
  }
}

TEST(Loader, AnErrorKeepsItsCodeAndHint) {
  auto data = std::make_shared<FormulaData>([](std::int64_t i) {
    if (i == 2) throw Error(ErrorCode::out_of_memory, "no room", "buy some");
    if (i == 3) throw 3;
  });
  Slots memory(1, 1);
  LoaderOptions o = options_for(1, 1, 10);
  o.first_sample = 2;
  {
    Loader loader(data, o, memory.slots(), [](int) {});
    const Error error = error_of([&] { loader.next(); });
    EXPECT_STREQ(error.what(), "sample 2: no room");
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_EQ(error.hint(), "buy some");
  }
  o.first_sample = 3;
  Loader loader(data, o, memory.slots(), [](int) {});
  expect_error(ErrorCode::data, {"sample 3: unknown exception"}, [&] { loader.next(); });
}

TEST(Loader, AFailedWaitIsAnError) {
  const LoaderOptions o = options_for(4, 2, 10);
  Slots memory(2, o.batch);
  Loader loader(std::make_shared<FormulaData>(), o, memory.slots(), [](int slot) {
    if (slot == 1) throw Error(ErrorCode::run_failed, "device lost");
  });
  ASSERT_EQ(loader.next(), 0);
  expect_error(ErrorCode::run_failed, {"sample 2: device lost"}, [&] { loader.next(); });
  EXPECT_EQ(loader.next(), -1);
}

TEST(Loader, LabelsOutOfRangeAreRefused) {
  Slots memory(2, 2);
  LoaderOptions o = options_for(2, 2, 5);
  o.classes = 4;  // the data have labels up to 4; sample 0 has them at pixels 4, 10
  Loader loader(std::make_shared<FormulaData>(), o, memory.slots(), [](int) {});
  expect_error(ErrorCode::data, {"sample 0: label 4", "x 0, y 1", "0 to 3", "255"},
               [&] { loader.next(); });

  o.classes = kClasses;
  o.ignore_label = 254;  // now 255 is a label like any other, and too large
  Loader strict(std::make_shared<FormulaData>(), o, memory.slots(), [](int) {});
  expect_error(ErrorCode::data, {"sample 0: label 255", "0 to 4", "254"}, [&] { strict.next(); });
}

// Every order of events that a consumer may cause: slow, quick, stopping anywhere, failing data.
TEST(Loader, RandomConsumersNeitherHangNorSeeWrongBatches) {
  std::mt19937 random(42);
  int completed = 0, stopped = 0, failed = 0;
  for (int round = 0; round < 400; ++round) {
    const auto below = [&](std::int64_t n) { return static_cast<int>(random() % n); };
    LoaderOptions o = options_for(1 + below(8), 1 + below(4), below(20));
    o.samples = static_cast<std::int64_t>(o.steps) * o.batch - (o.steps ? below(o.batch) : 0);
    const int slots = 1 + below(5);
    const std::int64_t bad = below(3) ? -1 : below(40);
    const int stop_after = below(2) ? 1000 : below(20);
    auto data = std::make_shared<FormulaData>([bad](std::int64_t i) {
      if (i == bad) throw std::runtime_error("bad");
      for (std::int64_t k = i * 7 % 5; k > 0; --k) std::this_thread::yield();
    });
    Slots memory(slots, o.batch);
    Loader loader(data, o, memory.slots(), [](int) { std::this_thread::yield(); });
    std::uint64_t batch = 0;
    try {
      for (;;) {
        if (static_cast<int>(batch) == stop_after) {
          ++stopped;
          break;  // destroys it with batches left, or with a slot delivered
        }
        const int slot = loader.next();
        if (slot < 0) {
          EXPECT_EQ(batch, o.steps);
          ++completed;
          break;
        }
        expect_batch(memory, slot, o, batch++);
        memory.spoil(slot);
        for (int k = below(6); k > 0; --k) std::this_thread::yield();
        if (static_cast<int>(batch) == stop_after && below(2)) continue;  // never says submitted
        loader.submitted(slot);
      }
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), "sample " + std::to_string(bad) + ": bad");
      EXPECT_EQ(static_cast<std::int64_t>(batch), bad / o.batch);
      ++failed;
    }
  }
  EXPECT_GT(completed, 50);
  EXPECT_GT(stopped, 50);
  EXPECT_GT(failed, 20);
}

TEST(Loader, RefusesTheWrongOrderOfCalls) {
  Slots memory(2, 1);
  Loader loader(std::make_shared<FormulaData>(), options_for(1, 1, 10), memory.slots(), [](int) {});
  expect_error(ErrorCode::usage, {"submitted(0)"}, [&] { loader.submitted(0); });
  ASSERT_EQ(loader.next(), 0);
  expect_error(ErrorCode::usage, {"submitted(1)"}, [&] { loader.submitted(1); });
  expect_error(ErrorCode::usage, {"submitted(-1)"}, [&] { loader.submitted(-1); });
  expect_error(ErrorCode::usage, {"submitted(2)"}, [&] { loader.submitted(2); });
  ASSERT_EQ(loader.next(), 1);
  // Would wait for ever.
  expect_error(ErrorCode::usage, {"2 slots", "none submitted"}, [&] { loader.next(); });
  loader.submitted(0);
  EXPECT_EQ(loader.next(), 0);
}

TEST(Loader, RefusesOptionsOutOfRange) {
  Slots memory(1, 4);
  const auto refused = [&](const std::function<void(LoaderOptions&)>& change,
                           std::initializer_list<std::string> parts) {
    LoaderOptions o = options_for(1, 4, 2);
    change(o);
    expect_error(ErrorCode::usage, parts,
                 [&] { Loader(std::make_shared<FormulaData>(), o, memory.slots(), [](int) {}); });
  };
  refused([](auto& o) { o.workers = 0; }, {"0 workers", "1 to 256"});
  refused([](auto& o) { o.workers = 257; }, {"257 workers"});
  refused([](auto& o) { o.batch = 0; }, {"batch 0", "1 to"});
  refused([](auto& o) { o.classes = 0; }, {"0 classes", "1 to 255"});
  refused([](auto& o) { o.classes = 256; }, {"256 classes"});
  refused([](auto& o) { o.ignore_label = 256; }, {"ignore label 256", "0 to 255"});
  refused([](auto& o) { o.first_sample = -1; }, {"first sample -1"});
  refused([](auto& o) { o.samples = 9; }, {"9 samples", "2 batches of 4"});
  refused([](auto& o) { o.samples = 4; }, {"4 samples", "2 batches of 4"});
  refused([](auto& o) { o.samples = -2; }, {"-2 samples"});
  refused([](auto& o) { o.steps = std::numeric_limits<std::uint64_t>::max(); }, {"steps", "2^62"});
  const LoaderOptions good = options_for(1, 4, 2);
  expect_error(ErrorCode::usage, {"no slots"},
               [&] { Loader(std::make_shared<FormulaData>(), good, {}, [](int) {}); });
  expect_error(ErrorCode::usage, {"no memory"},
               [&] { Loader(std::make_shared<FormulaData>(), good, {InputSlot{}}, [](int) {}); });
  expect_error(ErrorCode::usage, {"batch 4", "batches of 8"}, [&] {
    Slots larger(1, 8);
    Loader(std::make_shared<FormulaData>(), good, larger.slots(), [](int) {});
  });
  expect_error(ErrorCode::usage, {"pictures of 4", "pictures of 8"}, [&] {
    std::vector<InputSlot> slots = memory.slots();
    slots.front().image = 8;
    Loader(std::make_shared<FormulaData>(), good, slots, [](int) {});
  });
  expect_error(ErrorCode::usage, {"no data set"},
               [&] { Loader(nullptr, good, memory.slots(), [](int) {}); });
}

}  // namespace
}  // namespace tandem
