// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <tandem/engine/tensor.hpp>

namespace tandem {

std::size_t size_of(DType type) noexcept {
  switch (type) {
    case DType::u8:
      return 1;
    case DType::bf16:
      return 2;
    case DType::f32:
      return 4;
    case DType::f64:
      return 8;
  }
  return 0;
}

const char* name_of(DType type) noexcept {
  switch (type) {
    case DType::u8:
      return "u8";
    case DType::bf16:
      return "bf16";
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
  }
  return "unknown type";
}

const char* name_of(Layout layout) noexcept {
  switch (layout) {
    case Layout::flat:
      return "flat";
    case Layout::nchw:
      return "nchw";
    case Layout::nhwc:
      return "nhwc";
    case Layout::zorder:
      return "zorder";
  }
  return "unknown layout";
}

bool operator==(const TensorDesc& a, const TensorDesc& b) noexcept {
  return a.dtype == b.dtype && a.layout == b.layout && a.n == b.n && a.h == b.h && a.w == b.w &&
         a.c == b.c;
}

std::string to_string(const TensorDesc& desc) {
  return fmt::format("{} {} {}x{}x{}x{}", name_of(desc.dtype), name_of(desc.layout), desc.n, desc.h,
                     desc.w, desc.c);
}

TensorDesc byte_desc(std::size_t bytes) noexcept {
  TensorDesc desc;
  desc.dtype = DType::u8;
  desc.c = static_cast<std::int64_t>(bytes);
  return desc;
}

}  // namespace tandem
