// SPDX-License-Identifier: Apache-2.0
// Worker threads that fill a ring of input slots, batch after batch, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tandem/engine/augment_draw.hpp>
#include <tandem/engine/dataset.hpp>
#include <tandem/kernels/batch_header.hpp>
#include <vector>

namespace tandem {

/// Memory of one input slot, owned by someone else (the scheduler's pinned arena).
struct InputSlot {
  std::uint8_t* images = nullptr;  ///< [N, S, S, 3] raster, or the bytes of floats [N, features];
                                   ///< null if `floats` is used
  float* floats = nullptr;         ///< [N, out, out, 3] raster, what augmentation on the CPU makes
  std::uint8_t* labels = nullptr;  ///< [N, label_count]
  BatchHeader* header = nullptr;   ///< followed by ids and augmentation parameters
  std::int64_t batch = 0;          ///< N
  std::int64_t image = 0;          ///< S of the data set's pictures
  std::int64_t features = 0;       ///< numbers a sample in place of a picture; 0: pictures
  std::int64_t label_count = 0;    ///< labels a sample: S * S, or 1
};

/// What becomes of the samples that do not fill the last batch.
enum class LastBatch : std::uint8_t {
  partial,  ///< a batch of its own: its other rows are black pictures, or zeros, whose labels are
            ///< ignored
  pad,      ///< as partial, but the other rows repeat the batch's records, with ignored labels
  drop,     ///< left out
};

/// Batches that `samples` make. Throws Error{usage} that names both numbers where that is none.
std::uint64_t batches_of(std::int64_t samples, std::int64_t batch, LastBatch last);

/// Draws a sample's augmentation into the header; with `on_cpu` the workers also carry it out.
struct LoaderAugment {
  AugmentSpec spec;
  AugmentRanges ranges;
  std::uint64_t seed = 0;
  bool on_cpu = false;
  bool identity = false;  ///< for evaluation: identity_augment() for every sample
};

struct LoaderOptions {
  int workers = 1;         ///< 1 .. 256 threads
  std::int64_t batch = 8;  ///< N
  std::uint64_t first_step = 0;
  std::uint64_t steps = 0;        ///< batches to deliver in all
  std::int64_t first_sample = 0;  ///< index of the first sample of step 0
  /// Samples to deliver in all, or -1 for steps * batch; they must make `steps` batches, neither
  /// more nor fewer. The last batch may hold fewer than N: `last_batch` says what the rest of its
  /// slot is, always with ignored labels, and header.samples says how many are real.
  std::int64_t samples = -1;
  LastBatch last_batch = LastBatch::partial;
  std::optional<LoaderAugment> augment;
  std::int64_t classes = 0;  ///< labels must be below this or equal to ignore_label
  int ignore_label = 255;
  float learning_rate = 0, momentum = 0, weight_decay = 0;  ///< for the header
};

/// States of a slot: free -> filling -> full -> submitted -> free.
///
///   worker    takes the next sample of the oldest unfinished batch; before a batch's first sample
///             it waits for the slot's last copy (`wait_until_copied`), which never blocks forever
///             because submitted() is only said after the copy's event was recorded
///   consumer  next() blocks for the next batch in order, then pushes it, then says submitted()
///
/// Several workers fill one batch together. What is in a batch does not depend on their number.
class Loader {
 public:
  /// `wait_until_copied(slot)` is called by workers; see Scheduler::wait_input_free().
  Loader(std::shared_ptr<const Dataset> data, const LoaderOptions& options,
         std::vector<InputSlot> slots, std::function<void(int)> wait_until_copied);
  /// Stops and joins the workers, also when batches are left.
  ~Loader();

  /// Slot of the next batch in order, or -1 after the last. Blocks until it is full. Throws once
  /// what a worker threw, as Error with the sample's index in front of the text (its code kept;
  /// code data for other exceptions); after that -1. A label out of range is such an error. The
  /// batches before the failing one are delivered first, and of several failing samples the lowest
  /// is named. Throws Error{usage} if every slot is delivered and none submitted: it would block
  /// for ever.
  int next();

  /// Says that the copy out of the slot has been issued and its event recorded.
  void submitted(int slot);

  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Fills a header's fixed part: 1 / count, -lr / count and 1 - lr * weight_decay from the rest.
void finish_header(BatchHeader& header) noexcept;

/// The sample ids that follow a header: records of the data set, -1 where a row has none.
std::int64_t* sample_ids(BatchHeader* header) noexcept;
/// The augmentation's draws that follow the ids.
AugmentDraw* augment_draws(BatchHeader* header) noexcept;

}  // namespace tandem
