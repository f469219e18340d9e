// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/permute_device.cuh>
#include <tandem/kernels/pointwise.hpp>
#include <tandem/kernels/pointwise_math.hpp>

namespace tandem::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    u8_to_float_kernel(ImageShape shape, const std::uint8_t* __restrict__ x, float scale,
                       ImageOrder order, T* __restrict__ y) {
  for_each_moved(shape, ImageOrder::nhwc, order, static_cast<int>(shape.c),
                 [&](std::int64_t target, std::int64_t source) {
                   y[target] = T(scale_pixel<Accumulator<T>>(x[source], scale));
                 });
}

/// y = f(x), element by element; y may be x.
template <int N, class T, class F>
__device__ inline void map_elements(const T* x, T* y, std::int64_t count, F f) {
  for_each_pack<N>(count, [&](std::int64_t first, auto width) {
    constexpr int n = width.value;
    Pack<T, n> pack = load_pack<n>(x + first);
    for (int j = 0; j < n; ++j) pack.element[j] = T(f(load(pack.element[j])));
    store_pack(y + first, pack);
  });
}

/// dy = f(y, dy), element by element.
template <int N, class T, class F>
__device__ inline void map_gradients(const T* __restrict__ y, T* __restrict__ dy,
                                     std::int64_t count, F f) {
  for_each_pack<N>(count, [&](std::int64_t first, auto width) {
    constexpr int n = width.value;
    const Pack<T, n> output = load_pack<n>(y + first);
    Pack<T, n> pack = load_pack<n>(dy + first);
    for (int j = 0; j < n; ++j) {
      T& gradient = pack.element[j];
      gradient = T(f(load(output.element[j]), load(gradient)));
    }
    store_pack(dy + first, pack);
  });
}

template <int N, class T>
__global__ void relu_forward_kernel(T* y, std::int64_t count) {
  map_elements<N>(y, y, count, [](auto value) { return relu(value); });
}

template <int N, class T>
__global__ void relu_backward_kernel(const T* __restrict__ y, T* __restrict__ dy,
                                     std::int64_t count) {
  map_gradients<N>(y, dy, count,
                   [](auto output, auto gradient) { return relu_gradient(output, gradient); });
}

template <int N, class T>
__global__ void sigmoid_forward_kernel(const T* __restrict__ x, T* __restrict__ y,
                                       std::int64_t count) {
  map_elements<N>(x, y, count, [](auto value) { return sigmoid(value); });
}

template <int N, class T>
__global__ void sigmoid_backward_kernel(const T* __restrict__ y, T* __restrict__ dy,
                                        std::int64_t count) {
  map_gradients<N>(y, dy, count,
                   [](auto output, auto gradient) { return sigmoid_gradient(output, gradient); });
}

/// Where a thread works in a ColumnTiling: rows first, first + rows_at_once, .. below end. A thread
/// without a column has no rows.
struct ThreadColumn {
  std::int64_t column, first, end;
};

__device__ inline ThreadColumn thread_column(const ColumnTiling& t) {
  const std::int64_t tile = blockIdx.x % t.column_tiles, chunk = blockIdx.x / t.column_tiles;
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / t.columns_a_block;
  const std::int64_t column = tile * t.columns_a_block + thread % t.columns_a_block;
  const std::int64_t first = chunk * t.rows_a_chunk;
  if (row >= t.rows_at_once || column >= t.columns) return {column, 0, 0};
  const std::int64_t end = first + t.rows_a_chunk;
  return {column, first + row, end < t.rows ? end : t.rows};
}

template <class T>
__device__ inline T with_bias(T y, Accumulator<T> bias) {
  return T(load(y) + bias);
}
/// The sum is rounded before ReLU sees it, as where they are two kernels.
template <class T>
__device__ inline T with_bias_and_relu(T y, Accumulator<T> bias) {
  return T(relu(load(with_bias(y, bias))));
}

/// y += b, and y = relu(y) with kRelu.
template <int N, bool kRelu, class T>
__global__ void bias_forward_kernel(ColumnTiling tiling, const T* b, T* y, std::int64_t pixels,
                                    std::int64_t channels) {
  const auto out = [](T value, Accumulator<T> bias) {
    return kRelu ? with_bias_and_relu(value, bias) : with_bias(value, bias);
  };
  const ThreadColumn at = thread_column(tiling);
  if (at.first >= at.end) return;
  Accumulator<T> bias[N];
  std::uint32_t channel =
      static_cast<std::uint32_t>(at.column * N) % static_cast<std::uint32_t>(channels);
  if (tiling.pixels_a_row == 1) {  // the pack ends before the channels do
    const Pack<T, N> pack = load_pack<N>(b + channel);
    for (int j = 0; j < N; ++j) bias[j] = load(pack.element[j]);
  } else {
    for (int j = 0; j < N; ++j) {
      bias[j] = load(b[channel]);
      if (++channel == channels) channel = 0;
    }
  }
  std::int64_t row = at.first;
  for (; row < at.end && row < tiling.full_rows; row += tiling.rows_at_once) {
    T* target = y + (row * tiling.columns + at.column) * N;
    Pack<T, N> pack = load_pack<N>(target);
    for (int j = 0; j < N; ++j) pack.element[j] = out(pack.element[j], bias[j]);
    store_pack(target, pack);
  }
  if (row < at.end) {  // the incomplete row
    const std::int64_t first = (row * tiling.columns + at.column) * N;
    for (int j = 0; j < N; ++j) {
      if (first + j < pixels * channels) y[first + j] = out(y[first + j], bias[j]);
    }
  }
}

/// First stage: the sums of a chunk of rows, partial [row chunks, elements a row]. With kRelu, y is
/// the output of ReLU, and dy becomes the gradient before it on the way. Four blocks a
/// multiprocessor are enough: told so, the compiler keeps the loads in flight instead of saving
/// registers.
template <int N, bool kRelu, class T>
__global__ void __launch_bounds__(kBlockThreads, 4)
    bias_backward_kernel(ColumnTiling tiling, const T* y, T* dy, std::int64_t pixels,
                         std::int64_t channels, double* partial) {
  __shared__ double sums[N][kBlockThreads + 1];  // one more: other banks
  const ThreadColumn at = thread_column(tiling);
  double sum[N] = {};
  const auto add = [&](const Pack<T, N>& pack) {
    for (int j = 0; j < N; ++j) sum[j] += static_cast<double>(load(pack.element[j]));
  };
  const auto before_relu = [](T output, T gradient) {
    return T(relu_gradient(load(output), load(gradient)));
  };
  const auto add_before_relu = [&](const Pack<T, N>& output, Pack<T, N> pack, std::int64_t first) {
    for (int j = 0; j < N; ++j) pack.element[j] = before_relu(output.element[j], pack.element[j]);
    store_pack(dy + first, pack);
    add(pack);
  };
  const std::int64_t full_end = at.end < tiling.full_rows ? at.end : tiling.full_rows;
  const std::int64_t left = full_end > at.first ? full_end - at.first : 0;
  const int steps = static_cast<int>(ceil_div<std::int64_t>(left, tiling.rows_at_once));
  const std::int64_t stride = tiling.columns * tiling.rows_at_once * N;
  const std::int64_t begin = (at.first * tiling.columns + at.column) * N;
  constexpr int kAhead = kRelu ? 2 : 4;  // packs in flight before the first sum needs one
  int step = 0;
  for (; step + kAhead <= steps; step += kAhead) {
    Pack<T, N> packs[kAhead], outputs[kAhead];
    const auto at_step = [&](int i) { return begin + (step + i) * stride; };
    for (int i = 0; i < kAhead; ++i) {
      packs[i] = load_pack<N>(dy + at_step(i));
      if (kRelu) outputs[i] = load_pack<N>(y + at_step(i));
    }
    for (int i = 0; i < kAhead; ++i) {
      if (kRelu) {
        add_before_relu(outputs[i], packs[i], at_step(i));
      } else {
        add(packs[i]);
      }
    }
  }
  for (; step < steps; ++step) {
    const std::int64_t first = begin + step * stride;
    const Pack<T, N> pack = load_pack<N>(dy + first);
    if (kRelu) {
      add_before_relu(load_pack<N>(y + first), pack, first);
    } else {
      add(pack);
    }
  }
  const std::int64_t row = at.first + std::int64_t{steps} * tiling.rows_at_once;
  if (row < at.end) {  // the incomplete row
    const std::int64_t first = (row * tiling.columns + at.column) * N;
    for (int j = 0; j < N; ++j) {
      if (first + j >= pixels * channels) break;
      T& gradient = dy[first + j];
      if (kRelu) gradient = before_relu(y[first + j], gradient);
      sum[j] += static_cast<double>(load(gradient));
    }
  }
  for (int j = 0; j < N; ++j) sums[j][threadIdx.x] = sum[j];
  __syncthreads();

  const std::int64_t tile = blockIdx.x % tiling.column_tiles;
  const std::int64_t chunk = blockIdx.x / tiling.column_tiles;
  const int width = tiling.columns_a_block;
  for (int e = static_cast<int>(threadIdx.x); e < width * N; e += kBlockThreads) {
    const std::int64_t column = tile * width + e / N;
    if (column >= tiling.columns) break;
    double total = 0;
    for (int r = 0; r < tiling.rows_at_once; ++r) total += sums[e % N][r * width + e / N];
    partial[(chunk * tiling.columns + column) * N + e % N] = total;
  }
}

/// Second stage, a warp a channel: each lane adds every 32nd of the terms, partial
/// [terms, channels], in their order; then the lanes are added by halves.
__global__ void bias_backward_sum_kernel(const double* partial, std::int64_t terms,
                                         std::int64_t channels, float* db) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t channel = thread / 32;
  if (channel >= channels) return;
  double sum = 0;
  for (std::int64_t i = thread % 32; i < terms; i += 32) sum += partial[i * channels + channel];
  sum = warp_sum(sum);
  if (thread % 32 == 0) db[channel] = static_cast<float>(sum);
}

/// One pack a thread until the grid is as large as that of an elementwise kernel.
ColumnTiling bias_forward_tiling(std::int64_t pixels, std::int64_t channels, int pack) {
  return column_tiling(pixels, channels, pack, 1, 1 << 16);
}

LaunchShape shape_of(const ColumnTiling& tiling) {
  return {static_cast<unsigned>(tiling.blocks()), kBlockThreads};
}

template <bool kRelu, class T>
void launch_bias_forward(const T* b, T* y, std::int64_t pixels, std::int64_t channels,
                         cudaStream_t stream) {
  if (pixels * channels == 0) return;
  with_width<kPackElements<T>>(is_aligned(b, y), [&](auto width) {
    const ColumnTiling tiling = bias_forward_tiling(pixels, channels, width.value);
    TANDEM_CUDA_TRY(launch(bias_forward_kernel<width.value, kRelu, T>, shape_of(tiling), stream,
                           tiling, b, y, pixels, channels));
  });
}

template <bool kRelu, class T>
void launch_bias_backward(const T* y, T* dy, float* db, std::int64_t pixels, std::int64_t channels,
                          void* workspace, cudaStream_t stream) {
  if (channels == 0) return;
  double* partial = static_cast<double*>(workspace);
  std::int64_t terms = 0;
  if (pixels > 0) {
    with_width<kPackElements<T>>(is_aligned(dy, kRelu ? y : dy), [&](auto width) {
      const ColumnTiling tiling = bias_backward_tiling(pixels, channels, width.value);
      terms = tiling.row_chunks * tiling.pixels_a_row;
      TANDEM_CUDA_TRY(launch(bias_backward_kernel<width.value, kRelu, T>, shape_of(tiling), stream,
                             tiling, y, dy, pixels, channels, partial));
    });
  }
  const LaunchShape shape = {
      static_cast<unsigned>(ceil_div<std::int64_t>(channels * 32, kBlockThreads)), kBlockThreads};
  TANDEM_CUDA_TRY(launch(bias_backward_sum_kernel, shape, stream, partial, terms, channels, db));
}

/// Launches what goes over `count` elements of T one pack a thread, as body(Width<N>, shape) says.
template <class T, class Body>
void over_packs(std::int64_t count, bool aligned, Body body) {
  if (count == 0) return;
  with_width<kPackElements<T>>(aligned, [&](auto width) {
    TANDEM_CUDA_TRY(body(width, elementwise_shape(ceil_div<std::int64_t>(count, width.value))));
  });
}

}  // namespace

template <class T>
void u8_to_float(const ImageShape& shape, const std::uint8_t* x, float scale, ImageOrder order,
                 T* y, cudaStream_t stream) {
  const std::int64_t pixels = shape.n * shape.h * shape.w;
  if (pixels * shape.c == 0) return;
  TANDEM_CUDA_TRY(
      launch(u8_to_float_kernel<T>, elementwise_shape(pixels), stream, shape, x, scale, order, y));
}

template <class T>
void relu_forward(T* y, std::int64_t count, cudaStream_t stream) {
  over_packs<T>(count, is_aligned(y), [&](auto width, LaunchShape shape) {
    return launch(relu_forward_kernel<width.value, T>, shape, stream, y, count);
  });
}

template <class T>
void relu_backward(const T* y, T* dy, std::int64_t count, cudaStream_t stream) {
  over_packs<T>(count, is_aligned(y, dy), [&](auto width, LaunchShape shape) {
    return launch(relu_backward_kernel<width.value, T>, shape, stream, y, dy, count);
  });
}

template <class T>
void sigmoid_forward(const T* x, T* y, std::int64_t count, cudaStream_t stream) {
  over_packs<T>(count, is_aligned(x, y), [&](auto width, LaunchShape shape) {
    return launch(sigmoid_forward_kernel<width.value, T>, shape, stream, x, y, count);
  });
}

template <class T>
void sigmoid_backward(const T* y, T* dy, std::int64_t count, cudaStream_t stream) {
  over_packs<T>(count, is_aligned(y, dy), [&](auto width, LaunchShape shape) {
    return launch(sigmoid_backward_kernel<width.value, T>, shape, stream, y, dy, count);
  });
}

template <class T>
void bias_forward(const T* b, T* y, std::int64_t pixels, std::int64_t channels,
                  cudaStream_t stream) {
  launch_bias_forward<false>(b, y, pixels, channels, stream);
}

template <class T>
void bias_relu_forward(const T* b, T* y, std::int64_t pixels, std::int64_t channels,
                       cudaStream_t stream) {
  launch_bias_forward<true>(b, y, pixels, channels, stream);
}

template <class T>
void bias_backward(const T* dy, float* db, std::int64_t pixels, std::int64_t channels,
                   void* workspace, cudaStream_t stream) {
  // Without ReLU dy is only read.
  launch_bias_backward<false, T>(nullptr, const_cast<T*>(dy), db, pixels, channels, workspace,
                                 stream);
}

template <class T>
void relu_bias_backward(const T* y, T* dy, float* db, std::int64_t pixels, std::int64_t channels,
                        void* workspace, cudaStream_t stream) {
  launch_bias_backward<true>(y, dy, db, pixels, channels, workspace, stream);
}

#define TANDEM_INSTANTIATE(T)                                                               \
  template void u8_to_float(const ImageShape&, const std::uint8_t*, float, ImageOrder, T*,  \
                            cudaStream_t);                                                  \
  template void relu_forward(T*, std::int64_t, cudaStream_t);                               \
  template void relu_backward(const T*, T*, std::int64_t, cudaStream_t);                    \
  template void sigmoid_forward(const T*, T*, std::int64_t, cudaStream_t);                  \
  template void sigmoid_backward(const T*, T*, std::int64_t, cudaStream_t);                 \
  template void bias_forward(const T*, T*, std::int64_t, std::int64_t, cudaStream_t);       \
  template void bias_relu_forward(const T*, T*, std::int64_t, std::int64_t, cudaStream_t);  \
  template void relu_bias_backward(const T*, T*, float*, std::int64_t, std::int64_t, void*, \
                                   cudaStream_t);                                           \
  template void bias_backward(const T*, float*, std::int64_t, std::int64_t, void*, cudaStream_t)
TANDEM_INSTANTIATE(float);
TANDEM_INSTANTIATE(bf16);
#undef TANDEM_INSTANTIATE

}  // namespace tandem::cuda
