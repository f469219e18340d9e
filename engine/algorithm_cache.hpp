// SPDX-License-Identifier: Apache-2.0
// Library calls whose algorithm is chosen once a problem. Private to the CUDA half.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tandem/engine/algorithms.hpp>
#include <tandem/engine/cuda_lane.hpp>
#include <tandem/kernels/batch_header.hpp>
#include <vector>

namespace tandem {

/// c [m,n] = op(a) op(b), row-major and dense, as host::gemm: a transposed operand lies in memory
/// as [k,m] or [n,k]. Sums in fp32.
struct MatmulProblem {
  DType in = DType::f32, out = DType::f32;
  Math math = Math::strict;
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  /// c = keep * c - lr / count * op(a) op(b), with both factors read from a batch header on the
  /// device: an update of weights in place.
  bool update = false;
};

enum class ConvPass : std::uint8_t { forward, backward_data, backward_weights };

/// 3x3 convolution, pad 1, in raster nhwc: x [N,H,W,C], w [K,3,3,C], y [N,H,W,K], all of one type.
struct ConvProblem {
  ConvPass pass = ConvPass::forward;
  DType storage = DType::f32;
  Math math = Math::strict;
  std::int64_t n = 0, h = 0, w = 0, c = 0, k = 0;
  bool accumulate = false;  ///< add to what the output holds; not part of the key
};

/// "matmul f32 f32 tf32 nt 8192 512 1024", with "update" behind it for an update: the key of an
/// AlgorithmTable.
std::string to_key(const MatmulProblem& problem);
std::string to_key(const ConvProblem& problem);

/// The choices, made on first use: from the table where it has the problem, else the library's
/// first heuristic that passes the filter. The filter lets through what repeats its bits and sums
/// as asked: for products no reduction in a type narrower than the sum; for convolutions what the
/// library calls deterministic, in the math asked for, within the lane's workspace, without
/// Winograd and FFT. What the table has is asked for the same, and whether the library runs it for
/// the problem: throws Error{data} that names the problem if not. Throws Error{run_failed} that
/// names the problem if nothing passes. Thread-safe.
class AlgorithmCache {
 public:
  explicit AlgorithmCache(AlgorithmTable table);
  ~AlgorithmCache();

  /// Run on the lane. b is the second factor; for a convolution the operands are (x, w), (dy, w) or
  /// (x, dy). The header, in device memory, is for updates only.
  void matmul(const CudaLane& lane, const MatmulProblem& problem, const void* a, const void* b,
              void* c, const BatchHeader* header = nullptr);
  void conv3x3(const CudaLane& lane, const ConvProblem& problem, const void* first,
               const void* second, void* out);

  /// Whether any algorithm passes the filter.
  bool supports(const CudaLane& lane, const ConvProblem& problem);

  void choose(const CudaLane& lane, const MatmulProblem& problem);
  void choose(const CudaLane& lane, const ConvProblem& problem);

  /// All that pass the filter, in the library's order, as a table holds them. For tuning.
  std::vector<std::string> candidates(const CudaLane& lane, const MatmulProblem& problem);
  std::vector<std::string> candidates(const CudaLane& lane, const ConvProblem& problem);

  /// What has been chosen so far, by problem; nothing that is only in the table.
  AlgorithmTable chosen() const;
  /// Those problems, in the order of their keys.
  std::vector<MatmulProblem> matmuls() const;
  std::vector<ConvProblem> convolutions() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
