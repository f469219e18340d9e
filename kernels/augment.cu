// SPDX-License-Identifier: Apache-2.0
// The whole augmentation as one kernel. A block makes 64 x 32 pixels of one result, which in
// Z-order lie side by side in memory. It gathers the rotated pixels of its tile and of a border as
// wide as the blur's radius into shared memory, each straight from the crop; blurs the rows there,
// in place; then every thread blurs and normalises 2 x 4 pixels, and the tile is stored from
// shared memory in the order of y.
#include <cuda_bf16.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <tandem/kernels/augment_math.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/device.cuh>
#include <tandem/kernels/kernel_attributes.hpp>

namespace tandem::cuda {

namespace {

constexpr int kChannels = kAugmentChannels;
constexpr int kTileW = 64, kTileH = 32;
constexpr int kThreads = kTileW * kTileH / 8, kWarps = kThreads / 32;
/// Pixels of the result that a thread makes: a warp makes kRows rows of the tile.
constexpr int kColumns = kTileW / 32, kRows = kTileH / kWarps;
static_assert(kColumns == 2 && kRows == 4, "two quads of the Z-order");

/// Where the pixels of the resized picture come from.
enum class Source {
  crop,    ///< no resize: a pixel of the crop
  staged,  ///< two taps, from a copy of the tile's part of the crop in shared memory
  direct,  ///< any number of taps, from global memory
};

/// The samples in shared memory, for a blur of radius R: [channel][row][pitch], and lines behind
/// them that make up whole turns of blur_rows(). With this pitch its 16-byte accesses meet no bank
/// twice.
template <int R>
struct SampleLayout {
  static constexpr int columns = kTileW + 2 * R, rows = kTileH + 2 * R;
  static constexpr int pitch = ceil_div(columns, 4) * 4 + 4;
  static constexpr int lines = ceil_div(kChannels * rows, 4) * 4;
  static constexpr int count = lines * pitch;
  static_assert(pitch % 8 == 4, "two rows of a quarter of a warp would meet");
  static_assert(count >= kTileW * kTileH * kChannels, "the result takes the samples' place");
};

/// What is added up to the coordinates of a source: one for each column, one for each row.
struct alignas(8) Along {
  float x, y;
};

/// A pixel of the crop in shared memory: blue as float, red and green as the upper halves of their
/// floats, which hold a byte exactly.
struct alignas(8) StagedPixel {
  std::uint32_t red_green;
  float blue;
};

/// Taps of one pixel along one axis: the first is `bytes` behind the first staged pixel, the second
/// has `weight`, and the first what is left of 1.
struct alignas(8) StagedTaps {
  std::int32_t bytes;
  float weight;
};

/// Room in shared memory for the part of the crop that any tile can need.
struct StagedRoom {
  int taps_x, taps_y;  ///< columns and rows of the resized picture
  int w, h;            ///< pixels of the crop

  std::size_t bytes() const {
    return static_cast<std::size_t>(taps_x + taps_y) * sizeof(StagedTaps) +
           static_cast<std::size_t>(w) * h * sizeof(StagedPixel);
  }
};

struct Parameters {
  const std::uint8_t* x;
  const AugmentDraw* draws;
  ResizeAxis along_x, along_y;
  Normalisation<float> normalisation[kChannels];
  ImageShape result;
  std::int64_t image_bytes;  ///< of one picture of x
  int in_w, crop_w;
  int w, h;  ///< of the result
  StagedRoom room;
  int radius;
  float fill;
  bool rotate;
  bool constant_border;
  bool packs;  ///< y can be stored 16 bytes at a time
  ImageOrder order;
};

/// The tile of a block, and what its threads share of the sample's draw.
struct Tile {
  std::int64_t image;
  int x, y;  ///< of its first pixel
  int w, h;  ///< its pixels within the result
  Turn turn;
  const std::uint8_t* pixels;          ///< column 0 of row 0 of the crop, after the flip
  std::int32_t column_step, row_step;  ///< bytes to the next column and row of the crop
};

/// How the threads share a raster of at most kThreads columns: thread t stays in column
/// t % columns, and goes down from row t / columns in steps of `step` rows. Some may have none.
struct Strip {
  int x, y, step;

  __device__ explicit Strip(int columns) {
    // Exact: the quotients of halves are further from a whole number than they are rounded.
    const float inverse = __fdividef(1.0f, static_cast<float>(columns));
    const int thread = static_cast<int>(threadIdx.x);
    const int row = static_cast<int>((static_cast<float>(thread) + 0.5f) * inverse);
    step = static_cast<int>((kThreads + 0.5f) * inverse);
    x = thread - row * columns;
    y = row < step ? row : INT_MAX / 2;
  }
};

__device__ inline int warp_of_block() { return static_cast<int>(threadIdx.x / 32); }
__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x % 32); }

__device__ inline bool swaps_axes(Turn turn) {
  return turn == Turn::quarter || turn == Turn::three_quarters;
}

__device__ Along along_column(const Parameters& p, const AugmentDraw& draw, Turn turn, int x) {
  if (turn == Turn::general) {
    const float dx = from_middle(x, p.w);
    return {mul_rn(dx, draw.matrix[0]), mul_rn(dx, draw.matrix[3])};
  }
  const PixelIndex source = turned(turn, x, 0, p.w, p.h);
  if (swaps_axes(turn)) return {0, static_cast<float>(source.y)};
  return {static_cast<float>(source.x), 0};
}

__device__ Along along_row(const Parameters& p, const AugmentDraw& draw, Turn turn, int y) {
  if (turn == Turn::general) {
    const float dy = from_middle(y, p.h);
    return {mul_rn(dy, draw.matrix[1]), mul_rn(dy, draw.matrix[4])};
  }
  const PixelIndex source = turned(turn, 0, y, p.w, p.h);
  if (swaps_axes(turn)) return {static_cast<float>(source.x), 0};
  return {0, static_cast<float>(source.y)};
}

/// From (column, row) of the tile to the pixel of the resized picture.
struct Rotation {
  bool general;
  float shift_x, shift_y, half_w, half_h;

  __device__ Rotation(const Parameters& p, const AugmentDraw& draw, Turn turn)
      : general(turn == Turn::general),
        shift_x(draw.matrix[2]),
        shift_y(draw.matrix[5]),
        half_w(0.5f * static_cast<float>(p.w)),
        half_h(0.5f * static_cast<float>(p.h)) {}

  __device__ PixelIndex operator()(const Along& column, const Along& row) const {
    if (general) {
      return {nearest_pixel(source_coordinate(column.x, row.x, shift_x, half_w)),
              nearest_pixel(source_coordinate(column.y, row.y, shift_y, half_h))};
    }
    return {nearest_pixel(add_rn(column.x, row.x)), nearest_pixel(add_rn(column.y, row.y))};
  }
};

/// What the threads of a block share of the draw.
template <int R>
struct Tables {
  /// Of the samples, R more on each side than the tile has. Where a border of zeros is, NaN: no
  /// pixel of the picture is there.
  Along columns[SampleLayout<R>::columns], rows[SampleLayout<R>::rows];
  float blur[R + 1];
  std::int64_t first;  ///< offset of the tile's first value in y
};

template <int R>
__device__ void fill_tables(const Parameters& p, const AugmentDraw& draw, const Tile& tile,
                            Tables<R>* tables) {
  constexpr int kFirstOfBlur = 96, kFirstOfRows = 128;
  using Layout = SampleLayout<R>;
  static_assert(Layout::columns <= kFirstOfBlur && kFirstOfRows + Layout::rows <= kThreads - 32,
                "the last warp is free for find_footprint()");
  const Along nowhere = {__int_as_float(0x7fffffff), __int_as_float(0x7fffffff)};
  const Border border = p.constant_border ? Border::constant : Border::reflect;
  const auto source = [&](int i,
                          int n) {  // further out than the radius: any pixel, its weight is 0
    return border_index(border, min(max(i, -p.radius), n - 1 + p.radius), n);
  };
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < Layout::columns) {
    const int x = source(tile.x - R + thread, p.w);
    tables->columns[thread] = x < 0 ? nowhere : along_column(p, draw, tile.turn, x);
  } else if (thread >= kFirstOfRows && thread < kFirstOfRows + Layout::rows) {
    const int y = source(tile.y - R + thread - kFirstOfRows, p.h);
    tables->rows[thread - kFirstOfRows] = y < 0 ? nowhere : along_row(p, draw, tile.turn, y);
  } else if (thread >= kFirstOfBlur && thread <= kFirstOfBlur + R) {
    const int d = thread - kFirstOfBlur;
    tables->blur[d] = d <= p.radius ? draw.blur[d] : 0.0f;
  } else if (thread == kFirstOfRows - 1) {
    tables->first = pixel_offset(p.order, p.result, tile.image, tile.y, tile.x);
  }
}

/// The part of the resized picture that a tile takes pixels from, and of the crop behind it.
struct Footprint {
  int x, y, w, h;                      ///< of the resized picture; w or h <= 0: none
  int crop_x, crop_y, crop_w, crop_h;  ///< of the crop
};

/// For one warp. Every operation of the coordinates is monotonic, and so is the rounding: the
/// corners of the tile and its border bound what lies between them.
template <int R>
__device__ void find_footprint(const Parameters& p, const AugmentDraw& draw, const Tile& tile,
                               const Rotation& rotation, Footprint* footprint) {
  const int lane = lane_of_warp();
  const int x = lane & 1 ? min(tile.x + tile.w + R, p.w) - 1 : max(tile.x - R, 0);
  const int y = lane & 2 ? min(tile.y + tile.h + R, p.h) - 1 : max(tile.y - R, 0);
  const PixelIndex corner =
      rotation(along_column(p, draw, tile.turn, x), along_row(p, draw, tile.turn, y));
  int left = corner.x, right = corner.x, top = corner.y, bottom = corner.y;
  for (int distance = 1; distance <= 2; ++distance) {
    left = min(left, __shfl_xor_sync(0xffffffffu, left, distance));
    right = max(right, __shfl_xor_sync(0xffffffffu, right, distance));
    top = min(top, __shfl_xor_sync(0xffffffffu, top, distance));
    bottom = max(bottom, __shfl_xor_sync(0xffffffffu, bottom, distance));
  }
  if (lane != 0) return;
  left = max(left, 0);
  top = max(top, 0);
  right = min(right, p.w - 1);
  bottom = min(bottom, p.h - 1);
  Footprint f = {left, top, right - left + 1, bottom - top + 1, 0, 0, 0, 0};
  if (f.w > 0 && f.h > 0) {
    f.crop_x = p.along_x.span[left].first;
    f.crop_y = p.along_y.span[top].first;
    f.crop_w = p.along_x.span[right].first + 2 - f.crop_x;
    f.crop_h = p.along_y.span[bottom].first + 2 - f.crop_y;
  }
  *footprint = f;
}

__device__ inline const std::uint8_t* crop_pixel(const Tile& tile, int x, int y) {
  return tile.pixels + (y * tile.row_step + x * tile.column_step);
}

/// Copies a footprint and its taps.
__device__ void stage(const Parameters& p, const Tile& tile, const Footprint& f, StagedTaps* taps_x,
                      StagedTaps* taps_y, StagedPixel* pixels) {
  if (f.w <= 0 || f.h <= 0) return;
  const int row_bytes = f.crop_w * static_cast<int>(sizeof(StagedPixel));
  const int thread = static_cast<int>(threadIdx.x), half = kThreads / 2;
  if (thread < f.w) {
    const int at = f.x + thread, first = p.along_x.span[at].first - f.crop_x;
    taps_x[thread] = {first * static_cast<int>(sizeof(StagedPixel)), p.along_x.weights[at * 2 + 1]};
  }
  if (thread >= half && thread - half < f.h) {
    const int at = f.y + thread - half, first = p.along_y.span[at].first - f.crop_y;
    taps_y[thread - half] = {first * row_bytes, p.along_y.weights[at * 2 + 1]};
  }
  // Four pixels of a thread are on their way at a time, without a condition between them: behind
  // one the compiler would move the loads, and wait for each.
  const Strip strip(f.crop_w);
  const auto copy = [&](int first, auto count) {
    std::uint32_t value[count.value][kChannels];
#pragma unroll
    for (int i = 0; i < count.value; ++i) {
      const std::uint8_t* from =
          crop_pixel(tile, f.crop_x + strip.x, f.crop_y + first + i * strip.step);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) value[i][c] = __ldg(from + c);
    }
#pragma unroll
    for (int i = 0; i < count.value; ++i) {
      const std::uint32_t red = __float_as_uint(static_cast<float>(value[i][0]));
      const std::uint32_t green = __float_as_uint(static_cast<float>(value[i][1]));
      pixels[(first + i * strip.step) * f.crop_w + strip.x] = {__byte_perm(red, green, 0x7632),
                                                               static_cast<float>(value[i][2])};
    }
  };
  int y = strip.y;
  for (; y + 3 * strip.step < f.crop_h; y += 4 * strip.step) copy(y, Width<4>{});
  if (y + strip.step < f.crop_h) {
    copy(y, Width<2>{});
    y += 2 * strip.step;
  }
  if (y < f.crop_h) copy(y, Width<1>{});
}

struct Values {
  float channel[kChannels];
};

__device__ inline Values unpack(const StagedPixel& pixel) {
  return {__uint_as_float(pixel.red_green << 16), __uint_as_float(pixel.red_green & 0xffff0000u),
          pixel.blue};
}

/// A pixel of the resized picture from the staged part of the crop.
__device__ inline Values resized_staged(const char* pixels, int row_pixels, const StagedTaps& x,
                                        const StagedTaps& y) {
  const char* at = pixels + x.bytes + y.bytes;
  const auto row = [&](const char* from) {
    const auto* pair = reinterpret_cast<const StagedPixel*>(from);
    const Values a = unpack(pair[0]), b = unpack(pair[1]);
    const float left = add_rn(1.0f, -x.weight);
    Values sum;
    for (int c = 0; c < kChannels; ++c) {
      sum.channel[c] = weighted_sum(a.channel[c], left, b.channel[c], x.weight);
    }
    return sum;
  };
  const Values upper = row(at),
               lower = row(at + row_pixels * static_cast<int>(sizeof(StagedPixel)));
  const float top = add_rn(1.0f, -y.weight);
  Values result;
  for (int c = 0; c < kChannels; ++c) {
    result.channel[c] = weighted_sum(upper.channel[c], top, lower.channel[c], y.weight);
  }
  return result;
}

/// The same from global memory, with any number of taps.
__device__ Values resized_direct(const Parameters& p, const Tile& tile, const PixelIndex& at) {
  const ResizeSpan span_x = p.along_x.span[at.x], span_y = p.along_y.span[at.y];
  const float* weights_x = p.along_x.weights + std::int64_t{at.x} * p.along_x.taps;
  const float* weights_y = p.along_y.weights + std::int64_t{at.y} * p.along_y.taps;
  Values result = {};
  for (int j = 0; j < span_y.count; ++j) {
    Values row = {};
    for (int i = 0; i < span_x.count; ++i) {
      const std::uint8_t* from = crop_pixel(tile, span_x.first + i, span_y.first + j);
      for (int c = 0; c < kChannels; ++c) {
        row.channel[c] = add_rn(row.channel[c], mul_rn(static_cast<float>(from[c]), weights_x[i]));
      }
    }
    for (int c = 0; c < kChannels; ++c) {
      result.channel[c] = add_rn(result.channel[c], mul_rn(row.channel[c], weights_y[j]));
    }
  }
  return result;
}

/// Blurs the rows of the samples in place: sample x of a row becomes pixel x of the tile, which
/// lay at x + R. A warp takes four rows, a lane eight pixels of one; all lanes have read before any
/// writes.
template <int R>
__device__ void blur_rows(const float (&weights)[R + 1], float* samples) {
  using Layout = SampleLayout<R>;
  constexpr int kRun = 8, kRead = ceil_div(kRun + 2 * R, 4) * 4;
  static_assert(kTileW - kRun + kRead <= Layout::pitch, "reads within the row");
  const int warp = warp_of_block(), lane = lane_of_warp();
  // A quarter of a warp takes half of two rows, which lie 4 banks (modulo 8) apart.
  const int run = (lane & 3) + ((lane >> 1) & 4), line = ((lane >> 2) & 1) + ((lane >> 3) & 2);
  float* at = samples + (4 * warp + line) * Layout::pitch + run * kRun;
#pragma unroll 1
  for (int first = 4 * warp; first < Layout::lines; first += 4 * kWarps) {
    float value[kRead];
#pragma unroll
    for (int i = 0; i < kRead; i += 4) {
      const Pack<float, 4> pack = load_pack<4>(at + i);
#pragma unroll
      for (int j = 0; j < 4; ++j) value[i + j] = pack.element[j];
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kRun; i += 4) {
      Pack<float, 4> pack;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        pack.element[j] = blur_sum<float>(weights, R, [&](int d) { return value[i + j + R + d]; });
      }
      store_pack(at + i, pack);
    }
    at += 4 * kWarps * Layout::pitch;
  }
}

/// The pixels of a thread, channels last.
using ThreadPixels = float[kRows][kColumns * kChannels];

/// Blurs down the columns and normalises.
template <int R>
__device__ void blur_columns(const Parameters& p, const float (&weights)[R + 1],
                             const float* samples, ThreadPixels& result) {
  using Layout = SampleLayout<R>;
  const int warp = warp_of_block(), lane = lane_of_warp();
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    const float* from =
        samples + (c * Layout::rows + warp * kRows) * Layout::pitch + lane * kColumns;
    Pack<float, kColumns> value[kRows + 2 * R];
#pragma unroll
    for (int r = 0; r < kRows + 2 * R; ++r)
      value[r] = load_pack<kColumns>(from + r * Layout::pitch);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        float sum = value[r].element[i];
        if constexpr (R > 0) {
          sum = blur_sum<float>(weights, R, [&](int d) { return value[r + R + d].element[i]; });
        }
        result[r][i * kChannels + c] = normalise(p.normalisation[c], sum);
      }
    }
  }
}

/// Two values as T. No NaN comes here, so the instruction rounds as bf16(float) does.
__device__ inline Pack<float, 2> convert_pair(float a, float b, const float*) { return {a, b}; }
__device__ inline Pack<bf16, 2> convert_pair(float a, float b, const bf16*) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  Pack<bf16, 2> result;
  std::memcpy(&result, &pair, sizeof result);
  return result;
}

/// Stores `count` values in accesses of N.
template <int N, class T>
__device__ inline void store_values(const float* values, int count, T* to) {
#pragma unroll
  for (int i = 0; i < count; i += N) {
    Pack<T, N> pack;
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      const Pack<T, 2> pair = convert_pair(values[i + j], values[i + j + 1], to);
      pack.element[j] = pair.element[0];
      pack.element[j + 1] = pair.element[1];
    }
    store_pack(to + i, pack);
  }
}

/// Puts the pixels of a thread where they belong in the tile, whose order is that of y, or raster
/// with channels last where y has planes.
template <class T>
__device__ void store_in_tile(ImageOrder order, const ThreadPixels& pixels, T* tile) {
  constexpr int kRowValues = kColumns * kChannels;
  const int warp = warp_of_block(), lane = lane_of_warp();
  if (order == ImageOrder::zorder) {
    // Two quads, one below the other: the second is the next but one.
    T* to = tile + morton_encode(static_cast<std::uint32_t>(lane),
                                 static_cast<std::uint32_t>(warp * kRows / 2)) *
                       (2 * kRowValues);
#pragma unroll
    for (int r = 0; r < kRows; r += 2) {
      float values[2 * kRowValues];
#pragma unroll
      for (int i = 0; i < kRowValues; ++i) {
        values[i] = pixels[r][i];
        values[kRowValues + i] = pixels[r + 1][i];
      }
      store_values<4>(values, 2 * kRowValues, to + r * 2 * kRowValues);
    }
  } else {
    T* to = tile + (warp * kRows * kTileW + lane * kColumns) * kChannels;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      store_values<2>(pixels[r], kRowValues, to + r * kTileW * kChannels);
    }
  }
}

/// Copies the finished tile to y, where `first` is its first value.
template <class T>
__device__ void store_tile(const Parameters& p, const Tile& tile, const T* from, T* first) {
  constexpr int kPack = kPackElements<T>;
  constexpr int kRowValues = kTileW * kChannels, kRowPacks = kRowValues / kPack;
  constexpr int kTurns = kTileH * kRowPacks / kThreads;  // packs a thread moves
  static_assert(kTurns * kThreads == kTileH * kRowPacks, "no rest");
  const int thread = static_cast<int>(threadIdx.x);
  if (p.order == ImageOrder::zorder && p.packs) {
    // A small picture is the beginning of its only tile.
    const int count = tile.w * tile.h * kChannels;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int at = (turn * kThreads + thread) * kPack;
      if (at < count) store_pack(first + at, load_pack<kPack>(from + at));
    }
  } else if (p.order == ImageOrder::nhwc && p.packs) {
    const int row_step = p.w * kChannels;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int pack = turn * kThreads + thread;
      const int row = pack / kRowPacks, at = pack % kRowPacks * kPack;
      if (row < tile.h && at < tile.w * kChannels) {
        store_pack(first + (row * row_step + at), load_pack<kPack>(from + pack * kPack));
      }
    }
  } else {
    // In Z-order a tile is contiguous here as well.
    const bool planes = p.order == ImageOrder::nchw, z = p.order == ImageOrder::zorder;
    const int column_step = planes ? 1 : kChannels, row_step = p.w * column_step;
    const int channel_step = planes ? p.w * p.h : 1;
    for (int i = thread; i < kTileH * kRowValues; i += kThreads) {
      const int pixel = i / kChannels, c = i % kChannels;
      const int x = pixel % kTileW, row = pixel / kTileW;
      const bool inside = z ? pixel < tile.w * tile.h : x < tile.w && row < tile.h;
      if (inside) first[z ? i : row * row_step + x * column_step + c * channel_step] = from[i];
    }
  }
}

__device__ Tile tile_of_block(const Parameters& p) {
  Tile tile;
  tile.image = blockIdx.x;
  tile.x = static_cast<int>(blockIdx.y) * kTileW;
  tile.y = static_cast<int>(blockIdx.z) * kTileH;
  tile.w = min(kTileW, p.w - tile.x);
  tile.h = min(kTileH, p.h - tile.y);
  const AugmentDraw& draw = p.draws[tile.image];
  tile.turn = p.rotate ? draw.turn : Turn::none;
  tile.row_step = p.in_w * kChannels;
  tile.column_step = draw.flip ? -kChannels : kChannels;
  tile.pixels = p.x + tile.image * p.image_bytes + std::int64_t{draw.crop_y} * tile.row_step +
                (draw.crop_x + flipped(draw.flip, 0, p.crop_w)) * kChannels;
  return tile;
}

/// Blocks a multiprocessor holds: what its registers and its shared memory allow.
template <int R>
constexpr int kBlocks = (R <= 3 ? 1024 : 768) / kThreads;

template <class T, int R, Source S>
__global__ void __launch_bounds__(kThreads, kBlocks<R>)
    augment_fused_kernel(const __grid_constant__ Parameters p, T* __restrict__ y) {
  using Layout = SampleLayout<R>;
  extern __shared__ float4 shared[];
  __shared__ Tables<R> tables;
  __shared__ Footprint footprint;
  auto* samples = reinterpret_cast<float*>(shared);
  auto* taps_x = reinterpret_cast<StagedTaps*>(samples + Layout::count);
  auto* staged = reinterpret_cast<char*>(taps_x);

  const Tile tile = tile_of_block(p);
  const AugmentDraw& draw = p.draws[tile.image];
  const Rotation rotation(p, draw, tile.turn);

  fill_tables<R>(p, draw, tile, &tables);
  if constexpr (S == Source::staged) {
    if (threadIdx.x >= kThreads - 32) find_footprint<R>(p, draw, tile, rotation, &footprint);
    __syncthreads();
    StagedTaps* taps_y = taps_x + p.room.taps_x;
    staged = reinterpret_cast<char*>(taps_y + p.room.taps_y);
    stage(p, tile, footprint, taps_x, taps_y, reinterpret_cast<StagedPixel*>(staged));
  }
  __syncthreads();

  const Strip strip(tile.w + 2 * R);
  const Along column = tables.columns[strip.x];
  for (int y_sample = strip.y; y_sample < tile.h + 2 * R; y_sample += strip.step) {
    const PixelIndex source = rotation(column, tables.rows[y_sample]);
    Values values;
    if (is_inside(source, p.w, p.h)) {
      if constexpr (S == Source::staged) {
        values = resized_staged(staged, footprint.crop_w, taps_x[source.x - footprint.x],
                                taps_x[p.room.taps_x + source.y - footprint.y]);
      } else if constexpr (S == Source::direct) {
        values = resized_direct(p, tile, source);
      } else {
        const std::uint8_t* from = crop_pixel(tile, source.x, source.y);
        for (int c = 0; c < kChannels; ++c) values.channel[c] = static_cast<float>(from[c]);
      }
    } else {
      const PixelIndex at = {tile.x - R + strip.x, tile.y - R + y_sample};
      const float outside = p.constant_border && !is_inside(at, p.w, p.h) ? 0.0f : p.fill;
      for (float& value : values.channel) value = outside;
    }
    for (int c = 0; c < kChannels; ++c) {
      samples[(c * Layout::rows + y_sample) * Layout::pitch + strip.x] = values.channel[c];
    }
  }
  __syncthreads();

  float weights[R + 1];
  for (int d = 0; d <= R; ++d) weights[d] = tables.blur[d];
  if constexpr (R > 0) {
    blur_rows<R>(weights, samples);
    __syncthreads();
  }
  ThreadPixels pixels;
  blur_columns<R>(p, weights, samples, pixels);
  __syncthreads();  // all samples are read: the tile takes their place
  auto* result = reinterpret_cast<T*>(samples);
  store_in_tile(p.order, pixels, result);
  __syncthreads();
  store_tile(p, tile, result, y + tables.first);
}

/// Room for the part of the crop behind any tile and its border of R pixels. A rotated tile reaches
/// as far as its diagonal; rounding to pixels adds one at either end.
StagedRoom staged_room(const AugmentSpec& spec, int radius) {
  const double w = static_cast<double>(std::min<std::int64_t>(kTileW + 2 * radius, spec.out_w)) - 1;
  const double h = static_cast<double>(std::min<std::int64_t>(kTileH + 2 * radius, spec.out_h)) - 1;
  const double diagonal = std::sqrt(w * w + h * h);
  const auto reach = [&](double side, std::int64_t out) {  // at most kThreads / 2
    const double longest = spec.rotate ? diagonal : side;
    return std::min(static_cast<std::int64_t>(longest + 0.5) + 2, out);
  };
  const auto pixels = [](std::int64_t taps, std::int64_t in, std::int64_t out) {
    return std::min(ceil_div((taps - 1) * in, out) + 3, in);
  };
  const std::int64_t taps_x = reach(w, spec.out_w), taps_y = reach(h, spec.out_h);
  return {static_cast<int>(taps_x), static_cast<int>(taps_y),
          static_cast<int>(pixels(taps_x, spec.crop_w, spec.out_w)),
          static_cast<int>(pixels(taps_y, spec.crop_h, spec.out_h))};
}

template <class T, int R, Source S>
void launch_kernel(const Parameters& p, std::size_t staged_bytes, T* y, cudaStream_t stream) {
  const auto kernel = augment_fused_kernel<T, R, S>;
  const std::size_t bytes = SampleLayout<R>::count * sizeof(float) + staged_bytes;
  allow_shared_memory(reinterpret_cast<const void*>(kernel), bytes);
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>(p.result.n), static_cast<unsigned>(ceil_div(p.w, kTileW)),
           static_cast<unsigned>(ceil_div(p.h, kTileH)));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  TANDEM_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, p, y));
}

/// For a blur of radius R or less: the weights of further pixels are 0.
template <class T, int R>
void launch_radius(const AugmentSpec& spec, Parameters p, T* y, cudaStream_t stream) {
  // What every GPU from compute capability 8.0 on grants a block, less some for the tables.
  constexpr std::size_t kMostShared = 96 * 1024;
  p.room = staged_room(spec, R);
  const std::size_t staged = p.room.bytes();
  if (!resizes(spec)) {
    launch_kernel<T, R, Source::crop>(p, 0, y, stream);
  } else if (p.along_x.taps == 2 && p.along_y.taps == 2 && p.room.w <= kThreads &&
             SampleLayout<R>::count * sizeof(float) + staged <= kMostShared) {
    launch_kernel<T, R, Source::staged>(p, staged, y, stream);
  } else {
    launch_kernel<T, R, Source::direct>(p, 0, y, stream);
  }
}

}  // namespace

template <class T>
void augment_fused(const AugmentSpec& spec, const void* tables, std::int64_t n,
                   const std::uint8_t* x, const AugmentDraw* draws, ImageOrder order, T* y,
                   cudaStream_t stream) {
  if (n == 0) return;
  Parameters p = {};
  p.x = x;
  p.draws = draws;
  p.along_x = resize_axis_x(spec, tables);
  p.along_y = resize_axis_y(spec, tables);
  for (int c = 0; c < kChannels; ++c) p.normalisation[c] = normalisation<float>(spec, c);
  p.result = {n, spec.out_h, spec.out_w, kChannels};
  p.image_bytes = spec.in_h * spec.in_w * kChannels;
  p.in_w = static_cast<int>(spec.in_w);
  p.crop_w = static_cast<int>(spec.crop_w);
  p.w = static_cast<int>(spec.out_w);
  p.h = static_cast<int>(spec.out_h);
  p.radius = spec.blur_taps / 2;
  p.fill = spec.fill;
  p.rotate = spec.rotate;
  p.constant_border = spec.border == Border::constant;
  p.order = order;
  // Every tile starts at a whole pack if the picture (the row, in raster order) is made of them.
  const std::int64_t unit = order == ImageOrder::zorder ? spec.out_h * spec.out_w : spec.out_w;
  p.packs = is_aligned(y) && unit * kChannels % kPackElements<T> == 0;

  if (p.radius == 0) {
    launch_radius<T, 0>(spec, p, y, stream);
  } else if (p.radius <= 3) {
    launch_radius<T, 3>(spec, p, y, stream);
  } else {
    launch_radius<T, kMaxBlurTaps / 2>(spec, p, y, stream);
  }
}

template void augment_fused(const AugmentSpec&, const void*, std::int64_t, const std::uint8_t*,
                            const AugmentDraw*, ImageOrder, float*, cudaStream_t);
template void augment_fused(const AugmentSpec&, const void*, std::int64_t, const std::uint8_t*,
                            const AugmentDraw*, ImageOrder, bf16*, cudaStream_t);

}  // namespace tandem::cuda
