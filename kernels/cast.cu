// SPDX-License-Identifier: Apache-2.0
#include <tandem/kernels/cast.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/device.cuh>

namespace tandem::cuda {

namespace {

template <int N, class In, class Out>
__global__ void cast_kernel(const In* x, Out* y, std::int64_t count) {
  for_each_pack<N>(count, [&](std::int64_t first, auto width) {
    constexpr int n = width.value;
    const Pack<In, n> in = load_pack<n>(x + first);
    Pack<Out, n> out;
    for (int j = 0; j < n; ++j) out.element[j] = Out(in.element[j]);
    store_pack(y + first, out);
  });
}

template <class In, class Out>
void convert(const In* x, Out* y, std::int64_t count, cudaStream_t stream) {
  if (count == 0) return;
  with_width<kPackElements<In, Out>>(is_aligned(x, y), [&](auto width) {
    const LaunchShape shape = elementwise_shape(ceil_div<std::int64_t>(count, width.value));
    TANDEM_CUDA_TRY(launch(cast_kernel<width.value, In, Out>, shape, stream, x, y, count));
  });
}

}  // namespace

void cast(const float* x, bf16* y, std::int64_t count, cudaStream_t stream) {
  convert(x, y, count, stream);
}

void cast(const bf16* x, float* y, std::int64_t count, cudaStream_t stream) {
  convert(x, y, count, stream);
}

}  // namespace tandem::cuda
