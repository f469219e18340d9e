// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <system_error>
#include <tandem/engine/error.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/engine/nvtx.hpp>
#include <thread>
#include <utility>

namespace tandem {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::usage, "loader: " + what);
}

/// What is being thrown, as an Error that names the sample.
Error named_after(std::int64_t sample) {
  const std::string who = fmt::format("sample {}: ", sample);
  try {
    throw;
  } catch (const Error& error) {
    return Error(error.code(), who + error.what(), error.hint());
  } catch (const std::exception& error) {
    return Error(ErrorCode::data, who + error.what());
  } catch (...) {
    return Error(ErrorCode::data, who + "unknown exception");
  }
}

/// Batches that so many samples make, which may be none.
std::int64_t count_batches(std::int64_t samples, std::int64_t batch, LastBatch last) {
  const bool one_more = last != LastBatch::drop && samples % batch != 0;
  return samples / batch + (one_more ? 1 : 0);
}

}  // namespace

std::uint64_t batches_of(std::int64_t samples, std::int64_t batch, LastBatch last) {
  if (batch < 1) refuse(fmt::format("batch {}; at least 1 is needed", batch));
  const std::int64_t batches = samples < 1 ? 0 : count_batches(samples, batch, last);
  if (batches == 0) {
    const bool drop = last == LastBatch::drop;
    throw Error(ErrorCode::usage,
                fmt::format("loader: no step is left: {} samples make no batch of {}{}", samples,
                            batch, drop ? ", and a partial one is dropped" : ""),
                drop ? "take a smaller batch, or pad the last one or leave it partial" : "");
  }
  return static_cast<std::uint64_t>(batches);
}

void finish_header(BatchHeader& header) noexcept {
  const bool any = header.valid_count > 0;
  const auto count = static_cast<float>(header.valid_count);
  header.inverse_count = any ? 1.0f / count : 0.0f;
  header.minus_rate_over_count = any ? -header.learning_rate / count : 0.0f;
  header.keep = any ? 1.0f - header.learning_rate * header.weight_decay : 1.0f;
}

std::int64_t* sample_ids(BatchHeader* header) noexcept {
  return reinterpret_cast<std::int64_t*>(header + 1);
}

AugmentDraw* augment_draws(BatchHeader* header) noexcept {
  return reinterpret_cast<AugmentDraw*>(sample_ids(header) + header->capacity);
}

struct Loader::Impl {
  /// filling: some rows are left to take; finishing: all are taken, some are not written yet.
  enum class State { free, opening, filling, finishing, full, delivered, submitted };
  using Picture = std::vector<std::uint8_t>;  ///< a worker's own, where it augments itself
  struct Slot {
    InputSlot memory;
    State state = State::free;
    std::int64_t rows_done = 0;    ///< of its batch
    std::int64_t valid_count = 0;  ///< labels of those rows that count
    nvtx::Span load;               ///< from opening to full, or to the end of the loader
  };

  Impl(std::shared_ptr<const Dataset> source, const LoaderOptions& settings,
       const std::vector<InputSlot>& memory, std::function<void(int)> wait)
      : data(std::move(source)), options(settings), wait_until_copied(std::move(wait)) {
    check(memory);
    for (const InputSlot& slot : memory) slots.emplace_back().memory = slot;
    if (on_cpu()) {
      tables.resize(augment_table_bytes(options.augment->spec));
      fill_augment_tables(options.augment->spec, tables.data());
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    workers_wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void check(const std::vector<InputSlot>& memory);
  void check_slot(const InputSlot& slot) const;
  void check_augmentation() const;
  void start();
  void work();
  template <class Body>
  bool unlocked(std::unique_lock<std::mutex>& lock, std::int64_t sample, Body body);
  void open(std::unique_lock<std::mutex>& lock, Slot& slot);
  void begin_batch(const InputSlot& memory, std::uint64_t number) const;
  void fill_next(std::unique_lock<std::mutex>& lock, Slot& slot, Picture& scratch);
  std::int64_t fill_row(const InputSlot& memory, std::uint64_t number, std::int64_t row,
                        Picture& scratch) const;
  std::int64_t count_valid(const std::uint8_t* labels) const;
  AugmentDraw draw_for(std::int64_t sample) const;

  Slot& slot_of(std::uint64_t number) { return slots[number % slots.size()]; }
  /// Batch `number` holds samples first_of(number) .. + real(number) - 1.
  std::int64_t first_of(std::uint64_t number) const {
    return options.first_sample + static_cast<std::int64_t>(number) * options.batch;
  }
  std::int64_t real(std::uint64_t number) const {
    return std::min(options.batch, options.first_sample + options.samples - first_of(number));
  }
  bool on_cpu() const { return options.augment && options.augment->on_cpu; }

  // Constant while the workers run.
  std::shared_ptr<const Dataset> data;
  LoaderOptions options;
  std::function<void(int)> wait_until_copied;
  std::vector<std::byte> tables;  ///< of the augmentation on the CPU
  std::vector<std::thread> workers;

  // Under the mutex. The memory of a slot is not: whoever set its state to opening, or took one of
  // its samples, or was delivered it, has it (or that sample) to itself.
  std::mutex mutex;
  std::condition_variable workers_wake, consumer_wakes;
  std::vector<Slot> slots;
  std::uint64_t filling_batch = 0;  ///< the oldest batch with samples that nobody has taken
  std::int64_t next_row = 0;        ///< the first of those
  std::uint64_t next_batch = 0;     ///< the next to deliver
  int busy = 0;                     ///< workers at work outside the mutex
  bool stopping = false;            ///< take no more samples
  std::optional<Error> error;       ///< of the lowest sample that failed, until next() throws it
  std::int64_t error_sample = std::numeric_limits<std::int64_t>::max();
};

void Loader::Impl::check(const std::vector<InputSlot>& memory) {
  if (!data) refuse("no data set");
  if (data->epoch_size() < 1) {
    refuse(fmt::format("epoch of {} samples; at least 1 is needed", data->epoch_size()));
  }
  if (options.workers < 1 || options.workers > 256) {
    refuse(fmt::format("{} workers; the allowed range is 1 to 256", options.workers));
  }
  if (options.batch < 1 || options.batch > std::numeric_limits<std::int32_t>::max()) {
    refuse(fmt::format("batch {}; the allowed range is 1 to 2^31 - 1", options.batch));
  }
  if (options.classes < 1 || options.classes > 255) {
    refuse(fmt::format("{} classes; the allowed range is 1 to 255", options.classes));
  }
  if (options.ignore_label < 0 || options.ignore_label > 255) {
    refuse(fmt::format("ignore label {}; the allowed range is 0 to 255", options.ignore_label));
  }
  if (memory.empty()) refuse("no slots; at least 1 is needed");
  if (options.augment) check_augmentation();
  for (const InputSlot& slot : memory) check_slot(slot);
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  if (options.first_sample < 0 || options.first_sample > kMost) {
    refuse(fmt::format("first sample {}; the allowed range is 0 to 2^62", options.first_sample));
  }
  if (options.steps > static_cast<std::uint64_t>(kMost / options.batch)) {
    refuse(fmt::format("{} steps of {} samples; at most 2^62 samples are allowed", options.steps,
                       options.batch));
  }
  const auto most = static_cast<std::int64_t>(options.steps) * options.batch;
  if (options.samples == -1) options.samples = most;
  if (options.samples < 0 || count_batches(options.samples, options.batch, options.last_batch) !=
                                 static_cast<std::int64_t>(options.steps)) {
    refuse(fmt::format("{} samples do not make {} batches of {}", options.samples, options.steps,
                       options.batch));
  }
}

void Loader::Impl::check_slot(const InputSlot& slot) const {
  const bool pictures = on_cpu() ? slot.floats != nullptr : slot.images != nullptr;
  if (!pictures || !slot.labels || !slot.header) refuse("a slot has no memory");
  if (slot.batch != options.batch) {
    refuse(fmt::format("batch {}; the input slots hold batches of {}", options.batch, slot.batch));
  }
  if (slot.image != data->image()) {
    refuse(fmt::format("pictures of {} pixels a side; the input slots hold pictures of {}",
                       data->image(), slot.image));
  }
  if (slot.features != data->features()) {
    refuse(fmt::format("rows of {} numbers; the input slots hold {} (0: pictures)",
                       data->features(), slot.features));
  }
  if (slot.label_count != data->label_count()) {
    refuse(fmt::format("data of {} labels a sample; the input slots hold {} a sample",
                       data->label_count(), slot.label_count));
  }
}

void Loader::Impl::check_augmentation() const {
  const AugmentSpec& spec = options.augment->spec;
  check_augment(spec);
  check_ranges(options.augment->ranges);
  if (data->features() > 0) refuse("augmentation of rows of numbers, which are no pictures");
  if (spec.in_h != data->image() || spec.in_w != data->image()) {
    refuse(fmt::format("pictures of {} pixels a side; the augmentation takes {} x {}",
                       data->image(), spec.in_h, spec.in_w));
  }
}

void Loader::Impl::start() {
  try {
    for (int i = 0; i < options.workers; ++i) {
      workers.emplace_back([this, name = fmt::format("tandem loader {}", i)] {
        nvtx::name_thread(name);
        work();
      });
    }
  } catch (const std::system_error& error_of_system) {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("loader: cannot start worker thread {} of {}: {}", workers.size() + 1,
                            options.workers, error_of_system.what()));
  }
}

void Loader::Impl::work() {
  Picture scratch;
  std::unique_lock lock(mutex);
  const auto finished = [this] { return stopping || filling_batch == options.steps; };
  for (;;) {
    workers_wake.wait(lock, [&] {
      if (finished()) return true;
      const State state = slot_of(filling_batch).state;
      return state == State::free || state == State::submitted || state == State::filling;
    });
    if (finished()) return;
    Slot& slot = slot_of(filling_batch);
    if (slot.state == State::filling) {
      fill_next(lock, slot, scratch);
    } else {
      open(lock, slot);
    }
  }
}

/// Runs the body without the mutex. False if it threw: then the workers stop, and the consumer gets
/// the error once all are at rest, so that it is always that of the lowest sample that fails.
template <class Body>
bool Loader::Impl::unlocked(std::unique_lock<std::mutex>& lock, std::int64_t sample, Body body) {
  std::optional<Error> thrown;
  ++busy;
  lock.unlock();
  try {
    body();
  } catch (...) {
    thrown = named_after(sample);
  }
  lock.lock();
  --busy;
  if (thrown) {
    if (sample < error_sample) {
      error = std::move(thrown);
      error_sample = sample;
    }
    stopping = true;
    workers_wake.notify_all();
  }
  if (stopping) consumer_wakes.notify_all();
  return !thrown;
}

/// Makes a slot ready for the samples of `filling_batch`. The wait for the last copy out of it may
/// take a while, and also covers a copy issued for a loader before this one.
void Loader::Impl::open(std::unique_lock<std::mutex>& lock, Slot& slot) {
  const std::uint64_t number = filling_batch;
  slot.state = State::opening;
  const bool good = unlocked(lock, first_of(number), [&] {
    if (wait_until_copied) wait_until_copied(static_cast<int>(number % slots.size()));
    slot.load = nvtx::Span(nvtx::Category::stage, "load", options.first_step + number);
    begin_batch(slot.memory, number);
  });
  if (!good) return;
  slot.state = State::filling;
  slot.rows_done = slot.valid_count = 0;
  workers_wake.notify_all();
}

/// Writes the header, and zeros behind it.
void Loader::Impl::begin_batch(const InputSlot& memory, std::uint64_t number) const {
  std::memset(static_cast<void*>(memory.header), 0, batch_header_bytes(options.batch));
  BatchHeader header;
  header.step = options.first_step + number;
  header.epoch = static_cast<std::uint64_t>(first_of(number) / data->epoch_size());
  header.samples = static_cast<std::int32_t>(real(number));
  header.capacity = static_cast<std::int32_t>(options.batch);
  header.learning_rate = options.learning_rate;
  header.momentum = options.momentum;
  header.weight_decay = options.weight_decay;
  *memory.header = header;
}

/// Fills the next row of `filling_batch`; whoever finishes the last row completes the batch.
void Loader::Impl::fill_next(std::unique_lock<std::mutex>& lock, Slot& slot, Picture& scratch) {
  const std::uint64_t number = filling_batch;
  const std::int64_t row = next_row;
  if (++next_row == options.batch) {
    slot.state = State::finishing;
    next_row = 0;
    ++filling_batch;
    workers_wake.notify_all();  // the next batch's slot may be free, or there may be no more
  }
  const std::int64_t sample = first_of(number) + row % real(number);
  std::int64_t valid = 0;
  const bool good =
      unlocked(lock, sample, [&] { valid = fill_row(slot.memory, number, row, scratch); });
  if (!good) return;
  slot.valid_count += valid;
  if (++slot.rows_done == options.batch) {
    slot.memory.header->valid_count = slot.valid_count;
    finish_header(*slot.memory.header);
    slot.load = {};
    slot.state = State::full;
    consumer_wakes.notify_all();
  }
}

/// Writes one row, with what of the header is its own, and returns how many of its labels count. A
/// row behind the batch's samples repeats one of them, or is a black picture that nothing was done
/// to; its labels do not count.
std::int64_t Loader::Impl::fill_row(const InputSlot& memory, std::uint64_t number, std::int64_t row,
                                    Picture& scratch) const {
  const std::int64_t rows = real(number);
  const bool behind = row >= rows, black = behind && options.last_batch != LastBatch::pad;
  const std::int64_t sample = first_of(number) + row % rows;
  const std::int64_t label_count = data->label_count();
  if (on_cpu()) scratch.resize(static_cast<std::size_t>(data->sample_bytes()));
  std::uint8_t* picture = on_cpu() ? scratch.data() : memory.images + row * data->sample_bytes();
  std::uint8_t* labels = memory.labels + row * label_count;

  sample_ids(memory.header)[row] = black ? -1 : data->record(sample);
  if (black) {
    std::memset(picture, 0, static_cast<std::size_t>(data->sample_bytes()));
  } else {
    data->sample(sample, picture, labels);
  }
  if (behind) std::memset(labels, options.ignore_label, static_cast<std::size_t>(label_count));
  const std::int64_t valid = count_valid(labels);

  if (options.augment) {
    const AugmentSpec& spec = options.augment->spec;
    AugmentDraw& draw = augment_draws(memory.header)[row];
    draw = black ? identity_augment(spec) : draw_for(sample);
    if (on_cpu()) {
      float* result = memory.floats + row * spec.out_h * spec.out_w * kAugmentChannels;
      host::augment(spec, tables.data(), 1, picture, &draw, ImageOrder::nhwc, result);
    }
  }
  return valid;
}

/// How many of a sample's labels are not to be ignored. Throws for one out of range.
std::int64_t Loader::Impl::count_valid(const std::uint8_t* labels) const {
  const std::int64_t count = data->label_count(), side = data->image();
  std::int64_t valid = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (labels[i] == options.ignore_label) continue;
    if (labels[i] >= options.classes) {
      const std::string place =
          count == 1 ? "" : fmt::format(" of pixel (x {}, y {})", i % side, i / side);
      throw Error(ErrorCode::data,
                  fmt::format("label {}{}; allowed are 0 to {}, and {} for ignore", labels[i],
                              place, options.classes - 1, options.ignore_label));
    }
    ++valid;
  }
  return valid;
}

AugmentDraw Loader::Impl::draw_for(std::int64_t sample) const {
  const LoaderAugment& augment = *options.augment;
  if (augment.identity) return identity_augment(augment.spec);
  return draw_augment(augment.spec, augment.ranges, augment.seed,
                      static_cast<std::uint64_t>(sample / data->epoch_size()),
                      data->record(sample));
}

Loader::Loader(std::shared_ptr<const Dataset> data, const LoaderOptions& options,
               std::vector<InputSlot> slots, std::function<void(int)> wait_until_copied)
    : impl_(std::make_unique<Impl>(std::move(data), options, slots, std::move(wait_until_copied))) {
  impl_->start();
}

Loader::~Loader() = default;

int Loader::next() {
  Impl& impl = *impl_;
  std::unique_lock lock(impl.mutex);
  if (impl.next_batch == impl.options.steps) return -1;
  Impl::Slot& slot = impl.slot_of(impl.next_batch);
  if (slot.state == Impl::State::delivered) {
    refuse(fmt::format("next() with all {} slots delivered and none submitted", impl.slots.size()));
  }
  impl.consumer_wakes.wait(
      lock, [&] { return slot.state == Impl::State::full || (impl.stopping && impl.busy == 0); });
  if (slot.state == Impl::State::full) {
    slot.state = Impl::State::delivered;
    return static_cast<int>(impl.next_batch++ % impl.slots.size());
  }
  if (impl.error) {
    const Error error = *std::exchange(impl.error, std::nullopt);
    throw error;
  }
  return -1;
}

void Loader::submitted(int slot) {
  const std::lock_guard lock(impl_->mutex);
  if (slot < 0 || static_cast<std::size_t>(slot) >= impl_->slots.size() ||
      impl_->slots[static_cast<std::size_t>(slot)].state != Impl::State::delivered) {
    refuse(fmt::format("submitted({}) for a slot that was not delivered", slot));
  }
  impl_->slots[static_cast<std::size_t>(slot)].state = Impl::State::submitted;
  impl_->workers_wake.notify_all();
}

}  // namespace tandem
