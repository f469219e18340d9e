// SPDX-License-Identifier: Apache-2.0
// What the parts of the library contract share: a lane with its libraries, device memory, GEMMs as
// the plan would ask for them, and the filter of algorithms. The findings themselves: measure_*.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tandem/engine/unique_handle.hpp>
#include <tandem/tests/support/approx.hpp>
#include <utility>
#include <vector>

namespace tandem::contract {

// --- findings ---

/// What was measured, with the evidence in one line.
struct Finding {
  bool holds = false;
  std::string detail;
};

class Lane;

Finding wgrad_in_place_device_scalars(const Lane& lane);
Finding relu_mask_reinterpreted_c128(const Lane& lane);
Finding relu_mask_at_zero(const Lane& lane);
Finding relu_epilogue_keeps_nan(const Lane& lane);
Finding alpha_scales_bgrada(const Lane& lane);
Finding ones_probe(const Lane& lane);
Finding repeats_beside_busy_stream_gemm(const Lane& lane, const Lane& busy);
Finding repeats_beside_busy_stream_conv(const Lane& lane, const Lane& busy);
Finding cublaslt_w1_heuristics(const Lane& lane);

enum class ConvPass { forward, backward_data, backward_weights };
Finding conv3x3_nhwc(const Lane& lane, ConvPass pass, bool tf32);
Finding cudnn_nan_propagates(const Lane& lane);

// --- errors and owners ---

void check(cudaError_t status, const char* call, int line);
void check(cublasStatus_t status, const char* call, int line);
void check(cudnnStatus_t status, const char* call, int line);

/// Throws std::runtime_error with the call, the line and the library's text.
#define TANDEM_TRY(call) ::tandem::contract::check((call), #call, __LINE__)

template <class Pointer, auto Destroy>
struct LibraryTraits {
  using Handle = Pointer;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle handle) noexcept { Destroy(handle); }
};
template <class Pointer, auto Destroy>
using Owner = UniqueHandle<LibraryTraits<Pointer, Destroy>>;

/// `Create` as in cudnnCreateTensorDescriptor.
template <class Owned, class Create>
Owned create(Create call) {
  typename Owned::Handle handle{};
  TANDEM_TRY(call(&handle));
  return Owned::adopt(handle);
}

/// Device memory. Copies wait for all streams before and after.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes);
  void* data() const { return memory_.get(); }
  void* at(std::size_t byte) const { return static_cast<char*>(memory_.get()) + byte; }
  std::size_t size() const { return size_; }

  /// Numbers as f32 or bf16; each must be representable.
  void upload(const std::vector<double>& values, cudaDataType_t type) const;
  std::vector<double> download(std::size_t count, cudaDataType_t type) const;
  /// Every byte 0xFF: NaN in both types.
  void poison() const;
  /// The whole memory filled with repetitions of `pattern`.
  void repeat(const std::vector<std::uint32_t>& pattern) const;

 private:
  Owner<void*, cudaFree> memory_;
  std::size_t size_ = 0;
};

/// Device memory that holds `values`.
DeviceBytes device(const std::vector<double>& values, cudaDataType_t type);

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

/// A non-blocking stream with its own library handles and workspace, as a lane of the backend.
class Lane {
 public:
  explicit Lane(int priority);
  cudaStream_t stream() const { return stream_.get(); }
  cublasLtHandle_t cublaslt() const { return cublaslt_.get(); }
  cudnnHandle_t cudnn() const { return cudnn_.get(); }
  void* workspace() const { return workspace_.data(); }

 private:
  DeviceBytes workspace_;
  Owner<cudaStream_t, cudaStreamDestroy> stream_;
  Owner<cublasLtHandle_t, cublasLtDestroy> cublaslt_;
  Owner<cudnnHandle_t, cudnnDestroy> cudnn_;
};

// --- numbers ---

/// Integers in [-limit, limit]: all sums of the tests are exact, in any order and type.
std::vector<double> integers(std::int64_t count, std::uint64_t seed, int limit = 2);
/// Numbers in [-1, 1) that the type represents.
std::vector<double> reals(std::int64_t count, std::uint64_t seed, cudaDataType_t type);

enum class Precision { strict, tf32, bf16 };
constexpr Precision kPrecisions[] = {Precision::strict, Precision::tf32, Precision::bf16};
const char* name(Precision precision);
cudaDataType_t input_type(Precision precision);

/// Relative error of one product of `terms` summed in f32, in any order. Tensor cores may cut off
/// instead of rounding, which doubles the unit; TF32 may do so with either factor, at 10 bits.
double sum_error(double terms, Precision precision);

/// Empty if every element is within its bound; else one line that names the worst.
std::string mismatch(const std::vector<test::Expected>& expected, const std::vector<double>& actual,
                     const std::string& what);

// --- GEMM ---

/// D (m x n) = alpha op(A) op(B) + beta D, column-major as in the library, packed.
struct GemmShape {
  bool transpose_a, transpose_b;
  std::int64_t m, n, k;
};

/// The value and the sum of the absolute terms of every element of op(A) op(B).
std::vector<std::pair<double, double>> gemm_reference(const GemmShape& shape,
                                                      const std::vector<double>& a,
                                                      const std::vector<double>& b);

struct Algorithm {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspace;
  std::string text;  // "algorithm 66, split 4"
};

/// One GEMM with C = D in place. Epilogue attributes are set before the query.
class Gemm {
 public:
  Gemm(Precision precision, const GemmShape& shape, cudaDataType_t output);

  template <class T>
  cublasStatus_t try_set(cublasLtMatmulDescAttributes_t attribute, T value) const {
    return cublasLtMatmulDescSetAttribute(matmul_.get(), attribute, &value, sizeof value);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) const {
    TANDEM_TRY(try_set(attribute, value));
  }

  /// The library's first `most` proposals that pass the filter (no reduction but in the compute
  /// type, workspace of a lane), in its order. Empty if it refuses; then refusal() says why.
  std::vector<Algorithm> algorithms(const Lane& lane, int most = 24);
  const std::string& refusal() const { return refusal_; }

  cublasStatus_t run(const Lane& lane, const Algorithm& algorithm, const void* alpha, const void* a,
                     const void* b, const void* beta, void* d) const;
  /// With scalars of the host.
  cublasStatus_t run(const Lane& lane, const Algorithm& algorithm, float alpha, const void* a,
                     const void* b, float beta, void* d) const {
    return run(lane, algorithm, &alpha, a, b, &beta, d);
  }

 private:
  using Layout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  static Layout layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns);

  Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> matmul_;
  Layout a_, b_, d_;
  std::string refusal_;
};

// --- time and repeats ---

/// Mean time of one of `repeats` launches, replayed as a CUDA graph so that the host does not
/// count. launch(i) enqueues the i-th; one has run before, so that its kernels are loaded.
double microseconds(const Lane& lane, int repeats, const std::function<void(int)>& launch);

/// Work that keeps half of the GPU busy on a lane of its own.
class BusyWork {
 public:
  explicit BusyWork(const Lane& lane);
  /// Enqueues about half a millisecond.
  void enqueue();
  bool done() const;

 private:
  const Lane& lane_;
  Gemm gemm_;
  DeviceBytes a_, b_, d_;
  std::vector<Algorithm> algorithms_;
};

constexpr int kRepeats = 50;

struct RepeatsOutcome {
  int differing = 0;        // of kRepeats, from the one on the idle GPU
  bool overlapped = false;  // the other stream was still computing when the last one had ended
};

/// Runs `work` once on the idle GPU and kRepeats times beside the busy stream.
RepeatsOutcome repeat_beside(BusyWork& busy, const Lane& lane, const DeviceBytes& output,
                             const std::function<void()>& work);

}  // namespace tandem::contract
