// SPDX-License-Identifier: Apache-2.0
// Shapes, element types and layouts. Values only: no memory is owned or touched here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tandem {

enum class DType : std::uint8_t { u8, f32, bf16, f64 };

/// Order of the elements in memory. Dimensions are always named N, H, W, C.
enum class Layout : std::uint8_t {
  flat,    ///< bytes or a vector; only the element count matters
  nchw,    ///< planes, as PyTorch's contiguous format; public interface and files only
  nhwc,    ///< channels last, pixels in raster order
  zorder,  ///< channels last, pixels in Z-order (Morton): bit 0 of the index is x, bit 1 is y
};

std::size_t size_of(DType type) noexcept;
const char* name_of(DType type) noexcept;
const char* name_of(Layout layout) noexcept;

/// A tensor's type, layout and shape. Filters use the same four dimensions: a convolution's weight
/// is [K][kh][kw][C] = {n=K, h=kh, w=kw, c=C}, a transposed one's [C][kh][kw][K] = {n=C, .., c=K},
/// both the channels-last memory of PyTorch's tensor; a bias is {1, 1, 1, K}.
struct TensorDesc {
  DType dtype = DType::f32;
  Layout layout = Layout::flat;
  std::int64_t n = 1, h = 1, w = 1, c = 1;

  std::int64_t elements() const noexcept { return n * h * w * c; }
  std::int64_t pixels() const noexcept { return n * h * w; }
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(elements()) * size_of(dtype); }
};
bool operator==(const TensorDesc& a, const TensorDesc& b) noexcept;
inline bool operator!=(const TensorDesc& a, const TensorDesc& b) noexcept { return !(a == b); }

/// "f32 zorder 8x64x64x16", for messages.
std::string to_string(const TensorDesc& desc);

/// A vector of `bytes` bytes without further structure (headers, results, workspaces).
TensorDesc byte_desc(std::size_t bytes) noexcept;

}  // namespace tandem
