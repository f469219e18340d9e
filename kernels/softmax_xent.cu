// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/loss_result.cuh>
#include <tandem/kernels/softmax_xent.hpp>
#include <tandem/kernels/softmax_xent_math.hpp>

namespace tandem::cuda {

namespace {

/// Elements of a tile lie in shared memory in order, with a word left out after every 32. So whole
/// rows can be moved in packs, and threads that each walk along a row of their own meet different
/// banks whatever the row's length.
__host__ __device__ constexpr int skewed(int element) { return element + element / 32; }

/// Copies `count` elements from global memory to a tile.
template <int N>
__device__ inline void load_tile(const float* from, int count, float* tile) {
  for_each_pack<N>(threadIdx.x, kBlockThreads, count, [&](std::int64_t first, auto width) {
    constexpr int n = width.value;
    const Pack<float, n> pack = load_pack<n>(from + first);
    const int at = skewed(static_cast<int>(first));  // a pack does not cross a multiple of 32
    for (int j = 0; j < n; ++j) tile[at + j] = pack.element[j];
  });
}

/// Copies `count` elements from a tile to global memory.
template <int N, class T>
__device__ inline void store_tile(const float* tile, int count, T* to) {
  for_each_pack<N>(threadIdx.x, kBlockThreads, count, [&](std::int64_t first, auto width) {
    constexpr int n = width.value;
    const int at = skewed(static_cast<int>(first));
    Pack<T, n> pack;
    for (int j = 0; j < n; ++j) pack.element[j] = T(tile[at + j]);
    store_pack(to + first, pack);
  });
}

/// Largest value, or sum, over groups of L neighbouring lanes. All lanes of the warp must call.
template <int L>
__device__ inline float group_max(float value) {
  for (int distance = L / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, value, distance);
    value = value < other ? other : value;
  }
  return value;
}

template <int L>
__device__ inline float group_sum(float value) {
  for (int distance = L / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

/// L lanes a pixel; N elements an access.
template <int L, int N, class T>
__global__ void __launch_bounds__(kBlockThreads)
    softmax_cross_entropy_kernel(const float* logits, const std::uint8_t* labels, int ignore_label,
                                 std::int64_t pixels, int classes, T* dlogits, double* partial) {
  extern __shared__ float tile[];
  constexpr int kPixels = kBlockThreads / L;
  const float nan = __int_as_float(0x7fc00000);
  const int pixel = static_cast<int>(threadIdx.x) / L, lane = static_cast<int>(threadIdx.x) % L;
  const int row = pixel * classes;
  double loss = 0;

  for (std::int64_t first = std::int64_t{blockIdx.x} * kPixels; first < pixels;
       first += std::int64_t{gridDim.x} * kPixels) {
    const int count =
        static_cast<int>(pixels - first < kPixels ? pixels - first : kPixels) * classes;
    load_tile<N>(logits + first * classes, count, tile);
    __syncthreads();

    const int label = row < count ? labels[first + pixel] : ignore_label;
    const bool counted = label != ignore_label && label < classes;
    const int own_classes = counted ? classes : 0;
    const float label_logit = counted ? tile[skewed(row + label)] : 0;
    // A NaN is never the largest: it makes the sum a NaN.
    float largest = -INFINITY;
    for (int k = lane; k < own_classes; k += L) {
      const float logit = tile[skewed(row + k)];
      largest = largest < logit ? logit : largest;
    }
    largest = group_max<L>(largest);
    if (L > 1) __syncwarp();  // label_logit is read before another lane overwrites it
    float sum = 0;
    for (int k = lane; k < own_classes; k += L) {
      float& element = tile[skewed(row + k)];
      element = softmax_numerator(element, largest);
      sum += element;
    }
    sum = group_sum<L>(sum);
    if (counted) {
      for (int k = lane; k < classes; k += L) {
        float& element = tile[skewed(row + k)];
        element = softmax_gradient(element, sum, k == label);
      }
      if (lane == 0) loss += static_cast<double>(cross_entropy(label_logit, largest, sum));
    } else if (row < count) {
      const float value = label == ignore_label ? 0.0f : nan;
      for (int k = lane; k < classes; k += L) tile[skewed(row + k)] = value;
      if (lane == 0) loss += static_cast<double>(value);
    }
    __syncthreads();
    store_tile<N>(tile, count, dlogits + first * classes);
    __syncthreads();
  }
  loss = block_sum(loss);
  if (threadIdx.x == 0) partial[blockIdx.x] = loss;
}

__global__ void __launch_bounds__(kBlockThreads)
    softmax_cross_entropy_result_kernel(const BatchHeader* header, const double* partial,
                                        std::int64_t blocks, StepResult* result) {
  const double loss = sum_of_partials(partial, blocks);
  if (threadIdx.x == 0) write_mean_loss(*header, loss, 1, result);
}

/// A thread a pixel of the tile; the others only load.
template <int N>
__global__ void __launch_bounds__(kBlockThreads)
    argmax_kernel(const float* logits, std::int64_t pixels, int classes, int tile_pixels,
                  std::uint8_t* y) {
  extern __shared__ float tile[];
  const int pixel = static_cast<int>(threadIdx.x);
  const int row = pixel * classes;
  for (std::int64_t first = std::int64_t{blockIdx.x} * tile_pixels; first < pixels;
       first += std::int64_t{gridDim.x} * tile_pixels) {
    const int count =
        static_cast<int>(pixels - first < tile_pixels ? pixels - first : tile_pixels) * classes;
    load_tile<N>(logits + first * classes, count, tile);
    __syncthreads();
    if (row < count) {
      // As std::max_element: a NaN is only taken where it comes first.
      int best = 0;
      float largest = tile[skewed(row)];
      for (int k = 1; k < classes; ++k) {
        const float logit = tile[skewed(row + k)];
        if (largest < logit) {
          largest = logit;
          best = k;
        }
      }
      y[first + pixel] = static_cast<std::uint8_t>(best);
    }
    __syncthreads();
  }
}

/// Packs of 4 logits. A tile starts at a multiple of 32 elements, so it is aligned if the tensor
/// is.
constexpr int kLogits = kPackElements<float>;

/// Shared memory for the tile of a block; at most 34 KB.
LaunchShape tile_shape(std::int64_t pixels, std::int64_t classes) {
  const auto elements = static_cast<int>(softmax_tile_pixels(classes) * classes);
  return {static_cast<unsigned>(softmax_blocks(pixels, classes)), kBlockThreads,
          static_cast<unsigned>(static_cast<std::size_t>(skewed(elements)) * sizeof(float))};
}

template <int L, class T>
void launch_softmax(const float* logits, const std::uint8_t* labels, int ignore_label,
                    std::int64_t pixels, std::int64_t classes, T* dlogits, double* partial,
                    cudaStream_t stream) {
  with_width<kLogits>(is_aligned(logits, dlogits), [&](auto width) {
    TANDEM_CUDA_TRY(launch(softmax_cross_entropy_kernel<L, width.value, T>,
                           tile_shape(pixels, classes), stream, logits, labels, ignore_label,
                           pixels, classes, dlogits, partial));
  });
}

}  // namespace

template <class T>
void softmax_cross_entropy(const BatchHeader* header, const float* logits,
                           const std::uint8_t* labels, int ignore_label, std::int64_t pixels,
                           std::int64_t classes, T* dlogits, StepResult* result, void* workspace,
                           cudaStream_t stream) {
  double* partial = static_cast<double*>(workspace);
  if (pixels > 0) {
    if (softmax_tile_pixels(classes) == kBlockThreads) {
      launch_softmax<1>(logits, labels, ignore_label, pixels, classes, dlogits, partial, stream);
    } else {
      constexpr int kLanes = kBlockThreads / softmax_tile_pixels(kMaxClasses);
      launch_softmax<kLanes>(logits, labels, ignore_label, pixels, classes, dlogits, partial,
                             stream);
    }
  }
  TANDEM_CUDA_TRY(launch(softmax_cross_entropy_result_kernel, LaunchShape{1, kBlockThreads}, stream,
                         header, partial, softmax_blocks(pixels, classes), result));
}

template void softmax_cross_entropy(const BatchHeader*, const float*, const std::uint8_t*, int,
                                    std::int64_t, std::int64_t, float*, StepResult*, void*,
                                    cudaStream_t);
template void softmax_cross_entropy(const BatchHeader*, const float*, const std::uint8_t*, int,
                                    std::int64_t, std::int64_t, bf16*, StepResult*, void*,
                                    cudaStream_t);

void argmax(const float* logits, std::int64_t pixels, std::int64_t classes, std::uint8_t* y,
            cudaStream_t stream) {
  if (pixels == 0) return;
  with_width<kLogits>(is_aligned(logits), [&](auto width) {
    TANDEM_CUDA_TRY(launch(argmax_kernel<width.value>, tile_shape(pixels, classes), stream, logits,
                           pixels, classes, softmax_tile_pixels(classes), y));
  });
}

}  // namespace tandem::cuda
