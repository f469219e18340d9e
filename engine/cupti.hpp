// SPDX-License-Identifier: Apache-2.0
// CUPTI, NVIDIA's library for profilers, loaded at run time where it is installed: records of every
// kernel, copy and call. A process has room for one user of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tandem/engine/profile_source.hpp>

namespace tandem {

/// The few functions that are used, by the binary interface of libcupti.so.12 and later. Each
/// returns 0 for success. A test gives its own.
struct CuptiFunctions {
  using RequestBuffer = void (*)(std::uint8_t** buffer, std::size_t* size, std::size_t* records);
  using BufferFull = void (*)(void* context, std::uint32_t stream, std::uint8_t* buffer,
                              std::size_t size, std::size_t valid);
  using Clock = std::uint64_t (*)();

  int (*result_string)(int status, const char** text) = nullptr;  ///< cuptiGetResultString
  int (*subscribe)(void** subscriber, void* callback, void* user) = nullptr;  ///< cuptiSubscribe
  int (*unsubscribe)(void* subscriber) = nullptr;                             ///< cuptiUnsubscribe
  int (*callbacks)(RequestBuffer, BufferFull) = nullptr;  ///< cuptiActivityRegisterCallbacks
  int (*clock)(Clock) = nullptr;                ///< cuptiActivityRegisterTimestampCallback
  int (*enable)(int kind) = nullptr;            ///< cuptiActivityEnable
  int (*disable)(int kind) = nullptr;           ///< cuptiActivityDisable
  int (*flush)(std::uint32_t flags) = nullptr;  ///< cuptiActivityFlushAll
  int (*next)(std::uint8_t* buffer, std::size_t valid, void** record) = nullptr;  ///< ..NextRecord
  int (*lost)(void* context, std::uint32_t stream, std::size_t* records) = nullptr;  ///< ..Dropped
  int (*push)(int kind, std::uint64_t id) = nullptr;  ///< cuptiActivityPushExternalCorrelationId
  int (*pop)(int kind, std::uint64_t* id) = nullptr;  ///< cuptiActivityPopExternalCorrelationId
  int (*call_name)(int domain, std::uint32_t call,
                   const char** name) = nullptr;  ///< ..CallbackName
};

/// Where the fields that are read lie in CUPTI's records, in bytes. tests/gpu holds them to
/// CUPTI's header.
namespace cupti_layout {
inline constexpr int kMemcpy = 1, kMemset = 2, kDriverCall = 4, kRuntimeCall = 5, kKernel = 10,
                     kExternalId = 39;  // values of the first 4 bytes
inline constexpr int kOurIds = 3;       // CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0

struct Work {
  std::size_t begin, end, stream, correlation, bytes;
};
inline constexpr Work kMemcpyAt{16, 24, 40, 44, 8}, kMemsetAt{16, 24, 40, 44, 8};
inline constexpr std::size_t kCopyDirection = 4;
inline constexpr Work kKernelAt{16, 24, 48, 92, 0};
inline constexpr std::size_t kKernelGrid = 52, kKernelName = 104;
inline constexpr std::size_t kCallId = 4, kCallBegin = 8, kCallEnd = 16, kCallCorrelation = 32;
inline constexpr std::size_t kExternalKind = 4, kExternalValue = 8, kExternalCorrelation = 16;
}  // namespace cupti_layout

/// The functions, or why there are none.
struct CuptiLibrary {
  std::optional<CuptiFunctions> functions;
  std::string reason;
};

/// Loads the library of a major version of CUDA, for the rest of the process: the file that the
/// variable TANDEM_CUPTI names, else where the loader finds it, else from the toolkit's folders
/// (CUDA_HOME, CUDA_PATH, /usr/local/cuda). A missing one is a reason and not an error.
CuptiLibrary load_cupti(int cuda_major);

/// A source for the cuda backend, or why there is none.
struct CuptiSource {
  std::unique_ptr<ProfileSource> source;
  std::string reason;
};

/// Each record of a kernel or copy has name, stage, step, path and stream of the operation whose
/// calls queued it; calls outside of operations are left out. There is none if another tool uses
/// CUPTI: that one is left alone. One at a time in a process. The recorder must outlive it.
CuptiSource make_cupti_source(const CuptiLibrary& library, Recorder& recorder, bool shapes);

/// "sgd_kernel<float>" of the mangled name of "void tandem::cuda::(anonymous
/// namespace)::sgd_kernel<float>(float*)": without result, arguments and namespaces of ours. What
/// is no mangled name stays as it is.
std::string kernel_name(const char* mangled);

}  // namespace tandem
