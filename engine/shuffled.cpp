// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>
#include <mutex>
#include <numeric>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/kernels/philox.hpp>
#include <utility>

namespace tandem {
namespace {

// Upper half of the counter's upper number, so that other users of the seed draw other words.
constexpr std::uint64_t kShuffleDraws = 0x73687566ull << 32;

using Permutation = std::vector<std::uint32_t>;

/// Fisher and Yates: place i gets one of the entries 0 .. i.
Permutation draw_permutation(std::uint64_t seed, std::uint64_t epoch, std::uint32_t count) {
  Permutation order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (std::uint32_t i = count - 1; i > 0; --i) {
    const PhiloxWords words =
        philox4x32_10(philox_counter(epoch, kShuffleDraws | i), philox_key(seed));
    // floor(u * (i + 1)) for the 64-bit fraction u of words 0 and 1.
    const std::uint64_t low = std::uint64_t{words.word[1]} * (std::uint64_t{i} + 1);
    const std::uint64_t high = std::uint64_t{words.word[0]} * (std::uint64_t{i} + 1);
    std::swap(order[i], order[(high + (low >> 32)) >> 32]);
  }
  return order;
}

class Shuffled final : public Dataset {
 public:
  Shuffled(std::shared_ptr<const Dataset> data, std::uint64_t seed)
      : data_(std::move(data)), seed_(seed) {}

  std::int64_t image() const noexcept override { return data_->image(); }
  std::int64_t features() const noexcept override { return data_->features(); }
  std::int64_t epoch_size() const noexcept override { return data_->epoch_size(); }
  const std::vector<std::string>& class_names() const noexcept override {
    return data_->class_names();
  }
  std::int64_t label_count() const noexcept override { return data_->label_count(); }
  std::int64_t record(std::int64_t index) const override { return data_->record(place(index)); }
  void sample(std::int64_t index, std::uint8_t* picture, std::uint8_t* labels) const override {
    data_->sample(place(index), picture, labels);
  }

 private:
  /// Index in the data set below; of the same epoch.
  std::int64_t place(std::int64_t index) const {
    if (index < 0) {
      throw Error(ErrorCode::usage, fmt::format("sample index {}; at least 0 is allowed", index));
    }
    const std::int64_t epoch = index / epoch_size(), first = epoch * epoch_size();
    const auto order = order_of(static_cast<std::uint64_t>(epoch));
    return first + (*order)[static_cast<std::size_t>(index - first)];
  }

  std::shared_ptr<const Permutation> order_of(std::uint64_t epoch) const {
    // Workers ask for one epoch, or for the end of one and the begin of the next.
    const std::lock_guard lock(mutex_);
    Kept& kept = kept_[epoch % 2];
    if (!kept.order || kept.epoch != epoch) {
      kept.order = std::make_shared<const Permutation>(
          draw_permutation(seed_, epoch, static_cast<std::uint32_t>(epoch_size())));
      kept.epoch = epoch;
    }
    return kept.order;
  }

  struct Kept {
    std::uint64_t epoch = 0;
    std::shared_ptr<const Permutation> order;
  };
  std::shared_ptr<const Dataset> data_;
  std::uint64_t seed_;
  mutable std::mutex mutex_;
  mutable Kept kept_[2];
};

}  // namespace

std::unique_ptr<Dataset> shuffled(std::shared_ptr<const Dataset> data, std::uint64_t seed) {
  if (!data) throw Error(ErrorCode::usage, "shuffled: no data set");
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (data->epoch_size() < 1 || data->epoch_size() > kMost) {
    throw Error(ErrorCode::usage,
                fmt::format("shuffled: epoch of {} samples; the allowed range is 1 to {}",
                            data->epoch_size(), kMost));
  }
  return std::make_unique<Shuffled>(std::move(data), seed);
}

}  // namespace tandem
