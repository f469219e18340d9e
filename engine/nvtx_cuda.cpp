// SPDX-License-Identifier: Apache-2.0
#include <tandem/engine/nvtx.hpp>

#if defined(TANDEM_HAS_NVTX) && !defined(NVTX_DISABLE)
#include <nvtx3/nvToolsExtCudaRt.h>

namespace tandem::nvtx {
void name_stream(CUstream_st* stream, const std::string& name) noexcept {
  if (listening()) nvtxNameCudaStreamA(stream, name.c_str());
}
}  // namespace tandem::nvtx

#else

namespace tandem::nvtx {
void name_stream(CUstream_st*, const std::string&) noexcept {}
}  // namespace tandem::nvtx

#endif
