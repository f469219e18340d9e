// SPDX-License-Identifier: Apache-2.0
// Augmentation of a batch: every sample has its own crop, flip, angle and blur. uint8 pictures in,
// normalised float tensors out. The parts, in this order; each can be switched off:
//
//   crop       crop_h x crop_w pixels at (crop_y, crop_x) of the picture, which may be padded by
//              `padding` pixels of `fill` on each side; exact, nothing is averaged
//   flip       left to right
//   resize     to out_h x out_w; bilinear, half-pixel centres, antialiased where it shrinks
//   rotate     about the centre, counter-clockwise as displayed; `fill` comes in from outside
//   blur       Gaussian, separable, its own sigma a sample
//   normalise  y = (v * scale - mean[c]) / deviation[c]
//
// The conventions are those of torchvision's functional transforms, one after the other, on float
// tensors with values 0 .. 255; docs/augmentation.md states each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tandem/kernels/permute_math.hpp>

struct CUstream_st;  // what a cudaStream_t points to

namespace tandem {

/// Where the blur takes pixels that lie outside the picture. A row a b c d continues to the left
/// with ...
enum class Border : std::uint8_t {
  reflect,    ///< d c b | a b c d : the edge is not repeated; needs more pixels than the radius
  constant,   ///< 0 0 0 | a b c d : zeros
  symmetric,  ///< c b a | a b c d : the edge is repeated
  replicate,  ///< a a a | a b c d
};

enum class Interpolation : std::uint8_t { nearest, bilinear };

/// Most taps of the blur.
inline constexpr int kMaxBlurTaps = 15;
/// Pictures have three channels.
inline constexpr int kAugmentChannels = 3;

/// What is the same for every sample of every batch. What each member allows is checked by
/// check_augment() in engine/augment_draw.hpp; the functions below expect it.
struct AugmentSpec {
  std::int64_t in_h = 0, in_w = 0;      ///< of the pictures
  std::int64_t crop_h = 0, crop_w = 0;  ///< at most the padded picture
  std::int64_t out_h = 0, out_w = 0;    ///< of the result; equal to the crop: no resize
  std::int64_t padding = 0;             ///< pixels of `fill` round the picture, before the crop
  bool antialias = true;                ///< widens the resize filter where it shrinks
  bool rotate = false;                  ///< off: the draws' angles are not looked at
  Interpolation rotation = Interpolation::nearest;
  int blur_taps = 0;  ///< odd, 3 .. kMaxBlurTaps; 0: no blur
  Border border = Border::reflect;
  float fill = 0;  ///< value 0 .. 255 of what lies outside the picture
  float scale = 1 / 255.0f;
  float mean[kAugmentChannels] = {0, 0, 0};
  float deviation[kAugmentChannels] = {1, 1, 1};
};

/// A rotation as the kernels carry it out. Turns of the whole picture by multiples of 90 degrees
/// (of 90 and 270 on squares only) are permutations of its pixels; coordinates would round.
enum class Turn : std::int32_t { none, quarter, half, three_quarters, general };

/// What is drawn for one sample, as it lies behind the batch header (kAugmentFloats floats).
struct AugmentDraw {
  std::int32_t crop_y = 0, crop_x = 0;  ///< of the crop's first pixel, in the padded picture
  std::int32_t flip = 0;                ///< 0 or 1
  Turn turn = Turn::none;
  float degrees = 0;  ///< for people: the kernels use `turn` and `matrix`
  float sigma = 0;    ///< for people: the kernels use `blur`
  /// Inverse rotation, rows scaled to the result's half sizes as torchvision does: for pixel
  /// centres (x, y) relative to the picture's centre, source = (g + 1) * size / 2 - 0.5 with
  /// g = x * m[0] + y * m[1] + m[2], and the second row for y.
  float matrix[6] = {0, 0, 0, 0, 0, 0};
  /// Weights of the blur from the middle tap outwards; they add up to 1 with both sides counted.
  float blur[kMaxBlurTaps / 2 + 1] = {1, 0, 0, 0, 0, 0, 0, 0};
};
static_assert(sizeof(AugmentDraw) == 80, "the draws are copied as bytes, and read by kernels");

/// Index and weight tables of the resize, a function of the spec alone: made once on the host, and
/// read by twins and kernels. The layout is private to augment_math.hpp.
std::size_t augment_table_bytes(const AugmentSpec& spec);
void fill_augment_tables(const AugmentSpec& spec, void* tables);

/// True if one kernel does the whole chain: rotation by nearest, border reflect or constant, no
/// padding. The others take the plain path.
bool augment_is_fused(const AugmentSpec& spec);

/// Bytes of scratch memory of the plain path for n pictures: two float images.
std::size_t augment_plain_bytes(const AugmentSpec& spec, std::int64_t n);

namespace host {

/// x [n, in_h, in_w, 3] u8 raster, draws [n], y [n, out_h, out_w, 3] in `order` (zorder: a square
/// with a power of two as side). T is float, bf16 or double: with double the arithmetic is double
/// too, but for the coordinates of the rotation, which are torchvision's in float. Same arithmetic
/// as the kernels. Thread-safe.
template <class T>
void augment(const AugmentSpec& spec, const void* tables, std::int64_t n, const std::uint8_t* x,
             const AugmentDraw* draws, ImageOrder order, T* y);

}  // namespace host

namespace cuda {

/// One kernel: the crop is read once, the result is written once, nothing lies in device memory in
/// between. Only where augment_is_fused(spec). T is float or bf16. Pointers are device memory;
/// queued on the stream; CudaError if it cannot be launched.
template <class T>
void augment_fused(const AugmentSpec& spec, const void* tables, std::int64_t n,
                   const std::uint8_t* x, const AugmentDraw* draws, ImageOrder order, T* y,
                   CUstream_st* stream);

/// One kernel a part, for every spec, through augment_plain_bytes(spec, n) bytes of scratch
/// memory. The bits of augment_fused() where both can.
template <class T>
void augment_plain(const AugmentSpec& spec, const void* tables, std::int64_t n,
                   const std::uint8_t* x, const AugmentDraw* draws, ImageOrder order, T* y,
                   void* scratch, CUstream_st* stream);

}  // namespace cuda

}  // namespace tandem
