// SPDX-License-Identifier: Apache-2.0
// The segmenter's head in two passes: convolution 3x3 (stride 1, padding 1) from 16 channels to the
// classes with its bias, softmax, cross-entropy and gradient of the logits; then the gradients of
// its input, through the ReLU that made the input, and of its weights. Images are square, their
// pixels in Z-order but for the labels, channels last. The logits are never stored.
//
// With conv3x3_forward, bias_forward, softmax_cross_entropy, bias_backward, conv3x3_backward_data,
// conv3x3_backward_weights and relu_backward the same results, within the bounds of their sums.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/conv3x3_loss_math.hpp>

struct CUstream_st;  // what a cudaStream_t points to

namespace tandem {

/// Channels of the input x and of the stored gradient of the logits.
inline constexpr int kHeadChannels = 16;

struct Conv3x3LossShape {
  std::int64_t n;        ///< images, N
  std::int64_t side;     ///< S, height and width of an image
  std::int64_t classes;  ///< K
};

/// Whether host and device take the shape: S a power of two from 32 to 16384, so that an element of
/// an image is counted in 32 bits, 2 <= K <= 16, and less than 2^31 pixels.
constexpr bool conv3x3_loss_takes(const Conv3x3LossShape& s) {
  return s.n >= 0 && s.side >= 32 && s.side <= 16384 && (s.side & (s.side - 1)) == 0 &&
         s.classes >= 2 && s.classes <= kHeadChannels &&
         s.n < (std::int64_t{1} << 31) / (s.side * s.side);
}

namespace host {

/// x [N,S,S,16] zorder, w [K,3,3,16], b [K], labels [N,S,S] in raster order ->
/// dlogits [N,S,S,16] zorder: softmax - onehot, not divided by the count; 0 for an ignored pixel
/// and in channels K .. 15. db [K]: sums of dlogits as stored. result as softmax_cross_entropy's,
/// its rules for NaN and for labels that are no class included. Sums over pixels in double. T is
/// float, bf16 or double.
template <class T>
void conv3x3_loss(const Conv3x3LossShape& shape, const BatchHeader& header, const T* x, const T* w,
                  const Accumulator<T>* b, const std::uint8_t* labels, int ignore_label, T* dlogits,
                  Accumulator<T>* db, StepResult* result);

/// dlogits, x, w as above -> dx [N,S,S,16] zorder: the gradient before the ReLU whose output is x,
/// so 0 where x <= 0. dw [K,3,3,16]: sum over the batch, not divided; added in double and rounded
/// once. T is float, bf16 or double.
template <class T>
void conv3x3_loss_backward(const Conv3x3LossShape& shape, const T* dlogits, const T* x, const T* w,
                           T* dx, Accumulator<T>* dw);

}  // namespace host

namespace cuda {

// As the twins, for T bf16, or float whose factors are rounded to TF32 (to nearest, ties away from
// zero). Products and softmax are summed in float, sums over the tiles of a block in double (the
// loss, db) or float (dw), those over blocks in double; every order is a function of the shape, so
// the bits repeat. Pointers are device memory, the header too, tensors at multiples of 16 bytes.
// The shape is one that conv3x3_loss_takes(). Queued on the stream; CudaError if a launch fails.
// `workspace` is written before it is read.

constexpr std::int64_t conv3x3_loss_tiles(const Conv3x3LossShape& s) {
  return s.n * s.side * s.side / conv3x3_tile::kPixels;
}

/// Blocks of the two kernels: block i takes tiles i, i + blocks and so on. Four and three a
/// multiprocessor of an H200.
constexpr std::int64_t conv3x3_loss_blocks(const Conv3x3LossShape& s) {
  return std::min(conv3x3_loss_tiles(s), std::int64_t{528});
}
constexpr std::int64_t conv3x3_loss_backward_blocks(const Conv3x3LossShape& s) {
  return std::min(conv3x3_loss_tiles(s), std::int64_t{396});
}

/// Bytes of the blocks' sums; at most 72 KB and 3.7 MB.
constexpr std::size_t conv3x3_loss_workspace_bytes(const Conv3x3LossShape& s) {
  return static_cast<std::size_t>(conv3x3_loss_blocks(s) * (s.classes + 1)) * sizeof(double);
}
constexpr std::size_t conv3x3_loss_backward_workspace_bytes(const Conv3x3LossShape& s) {
  return static_cast<std::size_t>(conv3x3_loss_backward_blocks(s) * s.classes * 9 * kHeadChannels) *
         sizeof(float);
}

/// See host::conv3x3_loss.
template <class T>
void conv3x3_loss(const Conv3x3LossShape& shape, const BatchHeader* header, const T* x, const T* w,
                  const float* b, const std::uint8_t* labels, int ignore_label, T* dlogits,
                  float* db, StepResult* result, void* workspace, CUstream_st* stream);

/// See host::conv3x3_loss_backward.
template <class T>
void conv3x3_loss_backward(const Conv3x3LossShape& shape, const T* dlogits, const T* x, const T* w,
                           T* dx, float* dw, void* workspace, CUstream_st* stream);

}  // namespace cuda

}  // namespace tandem
