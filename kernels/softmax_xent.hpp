// SPDX-License-Identifier: Apache-2.0
// Softmax, cross-entropy and its gradient in one pass, and the class a pixel is given.
#pragma once

#include <cstdint>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/bf16.hpp>

namespace tandem {

/// Labels are bytes, so there are at most this many classes.
inline constexpr std::int64_t kMaxClasses = 256;

namespace host {

/// logits [pixels, classes], labels [pixels], dlogits [pixels, classes].
/// dlogits = softmax(logits) - onehot(label), not divided by the count; 0 where the label is
/// `ignore_label`. result.loss = sum of -log softmax(logits)[label] / header.valid_count, or 0
/// where that count is 0; each pixel's loss in Accumulator<T>, their sum in double in the order of
/// the pixels. A label that is neither a class nor ignored makes the loss and its row of dlogits a
/// NaN. T is float, bf16 or double; 1 <= classes <= kMaxClasses.
template <class T>
void softmax_cross_entropy(const BatchHeader& header, const Accumulator<T>* logits,
                           const std::uint8_t* labels, int ignore_label, std::int64_t pixels,
                           std::int64_t classes, T* dlogits, StepResult* result);

/// y [pixels] = the first index of the largest of logits [pixels, classes]. T is float or double.
template <class T>
void argmax(const T* logits, std::int64_t pixels, std::int64_t classes, std::uint8_t* y);

}  // namespace host
}  // namespace tandem
