// SPDX-License-Identifier: Apache-2.0
// What travels beside the tensors of a batch. Plain data, the same bytes on host and device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem {

/// Room for one sample's augmentation parameters in a header (an AugmentDraw), in floats.
inline constexpr int kAugmentFloats = 20;

/// The batch header. Made on the host when the batch is made, copied into every slot the batch
/// passes through. Operations take every number that changes from step to step from here, never
/// from the host at launch: that is what lets one list of operations be issued serially,
/// overlapped, or replayed from a captured graph.
///
/// In memory it is followed by `capacity` 64-bit sample ids and then by
/// `capacity * kAugmentFloats` floats; see batch_header_bytes().
struct BatchHeader {
  std::uint64_t step = 0;             ///< optimizer step, counted from 0
  std::uint64_t epoch = 0;            ///< pass over the data, counted from 0
  std::int64_t valid_count = 0;       ///< labels in the batch that are not the ignore label
  std::int32_t samples = 0;           ///< real samples; the rest of the batch is padding
  std::int32_t capacity = 0;          ///< N of the tensors beside this header
  float learning_rate = 0;            ///< lr
  float inverse_count = 0;            ///< 1 / valid_count, or 0 if there are none
  float minus_rate_over_count = 0;    ///< -lr / valid_count, or 0 if there are none
  float momentum = 0;                 ///< factor of the old velocity
  float weight_decay = 0;             ///< factor of the weight added to its gradient
  float one = 1;                      ///< 1.0, for library calls that read scalars from memory
  float keep = 1;                     ///< 1 - lr * weight_decay, or 1 if there are no labels
  std::uint32_t reserved = 0;         ///< keeps what follows 64-byte aligned
};
static_assert(sizeof(BatchHeader) == 64, "the header is copied as bytes between slots");

/// Size of a header with room for `capacity` samples, in bytes.
constexpr std::size_t batch_header_bytes(std::int64_t capacity) {
  return sizeof(BatchHeader) +
         static_cast<std::size_t>(capacity) *
             (sizeof(std::int64_t) + kAugmentFloats * sizeof(float));
}

/// What a training step hands back to the host.
struct StepResult {
  std::uint64_t step = 0;        ///< copied from the header
  std::int64_t valid_count = 0;  ///< copied from the header
  double loss = 0;  ///< mean over the valid labels, with the layers' L2; 0 where valid_count is 0
};
static_assert(sizeof(StepResult) == 24, "the result is copied as bytes");

}  // namespace tandem
