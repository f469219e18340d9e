// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <cudnn.h>
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <mutex>
#include <optional>
#include <tandem/engine/algorithm_cache.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/library_check.hpp>
#include <tandem/engine/library_findings.hpp>
#include <tandem/engine/unique_handle.hpp>
#include <tandem/kernels/check.hpp>

namespace tandem {
namespace {

constexpr int kCandidates = 24;

/// How the parts of a product may be added: in the type of the sum.
constexpr std::uint32_t kReductions =
    CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

const char* name_of(Math math) { return math == Math::tf32 ? "tf32" : "strict"; }

/// How a descriptor of a library is owned.
template <class HandleType, auto destroy_call>
struct DescriptorTraits {
  using Handle = HandleType;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle handle) noexcept { static_cast<void>(destroy_call(handle)); }
};

template <class Traits, class Create>
UniqueHandle<Traits> created(Create create) {
  typename Traits::Handle handle{};
  create(&handle);
  return UniqueHandle<Traits>::adopt(handle);
}

/// An algorithm as hexadecimal digits of the library's own, versioned description.
std::string to_hex(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

std::optional<cublasLtMatmulAlgo_t> from_hex(const std::string& text) {
  cublasLtMatmulAlgo_t algorithm{};
  constexpr std::size_t kWords = sizeof algorithm.data / sizeof algorithm.data[0];
  if (text.size() != 16 * kWords || text.find_first_not_of("0123456789abcdef") != text.npos)
    return std::nullopt;
  for (std::size_t i = 0; i < kWords; ++i)
    algorithm.data[i] = std::stoull(text.substr(16 * i, 16), nullptr, 16);
  return algorithm;
}

// --- products ---

cudaDataType_t cuda_type(DType type) { return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

/// Sets an epilogue of a Matmul, where what was found out about the library allows it. The only
/// place that sets one: tests/host/library_findings_test.cpp holds the sources to that.
#define TANDEM_SET_EPILOGUE(epilogue) \
  (require_epilogue(#epilogue), set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue))

/// The library's description of a product. It counts columns first, so it is asked for the
/// transpose: c^T [n,m] = op(b)^T op(a)^T, which lies in memory as c does.
class Matmul {
 public:
  explicit Matmul(const MatmulProblem& p) {
    const bool fast = p.in == DType::f32 && p.math == Math::tf32;
    const cublasComputeType_t compute = fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    description_ = created<DescriptionTraits>([&](cublasLtMatmulDesc_t* d) {
      TANDEM_CUBLAS_TRY(cublasLtMatmulDescCreate(d, compute, CUDA_R_32F));
    });
    const cublasOperation_t first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, first);
    set(CUBLASLT_MATMUL_DESC_TRANSB, second);
    first_ = p.transpose_b ? layout(p.in, p.k, p.n) : layout(p.in, p.n, p.k);
    second_ = p.transpose_a ? layout(p.in, p.m, p.k) : layout(p.in, p.k, p.m);
    out_ = layout(p.out, p.n, p.m);
    const cublasLtPointerMode_t scalars =
        p.update ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST;
    set(CUBLASLT_MATMUL_DESC_POINTER_MODE, scalars);
    if (p.update) require_finding("wgrad_in_place_device_scalars", fmt::format("'{}'", to_key(p)));
    TANDEM_SET_EPILOGUE(CUBLASLT_EPILOGUE_DEFAULT);
  }

  /// What passes the filter, in the library's order.
  std::vector<cublasLtMatmulHeuristicResult_t> heuristics(const CudaLane& lane,
                                                          std::int64_t k) const {
    const auto preference = created<PreferenceTraits>([](cublasLtMatmulPreference_t* h) {
      TANDEM_CUBLAS_TRY(cublasLtMatmulPreferenceCreate(h));
    });
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      TANDEM_CUBLAS_TRY(
          cublasLtMatmulPreferenceSetAttribute(preference.get(), what, &value, sizeof value));
    };
    const std::uint64_t workspace = kLaneWorkspace;
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions);

    std::vector<cublasLtMatmulHeuristicResult_t> results(kCandidates);
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        lane.cublaslt, description_.get(), first_.get(), second_.get(), out_.get(), out_.get(),
        preference.get(), kCandidates, results.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED)
      count = 0;
    else
      TANDEM_CUBLAS_TRY(status);
    results.resize(static_cast<std::size_t>(count));
    std::erase_if(results, [](const cublasLtMatmulHeuristicResult_t& r) {
      return r.state != CUBLAS_STATUS_SUCCESS || r.workspaceSize > kLaneWorkspace;
    });
    // What may drop terms goes to the end: it is taken only where there is nothing else.
    if (!finding_holds("ones_probe"))
      std::stable_partition(
          results.begin(), results.end(),
          [&](const cublasLtMatmulHeuristicResult_t& r) { return !may_drop_terms(r.algo, k); });
    return results;
  }

  /// Why an algorithm that was not asked for here cannot be taken, or nothing: the library does not
  /// run it for this product, or it does not pass the filter of heuristics().
  std::string refusal(const CudaLane& lane, const cublasLtMatmulAlgo_t& algorithm) const {
    cublasLtMatmulHeuristicResult_t result{};
    cublasStatus_t status =
        cublasLtMatmulAlgoCheck(lane.cublaslt, description_.get(), first_.get(), second_.get(),
                                out_.get(), out_.get(), &algorithm, &result);
    if (status == CUBLAS_STATUS_SUCCESS) status = result.state;
    if (status != CUBLAS_STATUS_SUCCESS)
      return fmt::format("the library does not run it for this product ({})",
                         cublasLtGetStatusName(status));
    if (result.workspaceSize > kLaneWorkspace)
      return fmt::format("it needs a workspace of {} bytes; allowed: up to {}",
                         result.workspaceSize, kLaneWorkspace);
    std::uint32_t reduction = 0;
    TANDEM_CUBLAS_TRY(cublasLtMatmulAlgoConfigGetAttribute(
        &algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction, sizeof reduction, nullptr));
    if ((reduction & ~kReductions) != 0)
      return fmt::format("it adds its parts with reduction scheme {}; allowed: {} and {}",
                         reduction, static_cast<int>(CUBLASLT_REDUCTION_SCHEME_NONE),
                         static_cast<int>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    return {};
  }

  /// With a header, which lies on the device, c is updated.
  void run(const CudaLane& lane, const cublasLtMatmulAlgo_t& algorithm, const void* a,
           const void* b, void* c, const BatchHeader* header) const {
    const float one = 1, zero = 0;
    const float* const alpha = header != nullptr ? &header->minus_rate_over_count : &one;
    const float* const beta = header != nullptr ? &header->keep : &zero;
    TANDEM_CUBLAS_TRY(cublasLtMatmul(lane.cublaslt, description_.get(), alpha, b, first_.get(), a,
                                     second_.get(), beta, c, out_.get(), c, out_.get(), &algorithm,
                                     lane.workspace, kLaneWorkspace, lane.stream));
  }

 private:
  /// Whether an algorithm shares out a number of terms that does not fill its tiles. One such, on
  /// an H200 with cuBLASLt 13.1, left out the last of 4097: the finding ones_probe.
  static bool may_drop_terms(const cublasLtMatmulAlgo_t& algorithm, std::int64_t k) {
    constexpr std::int64_t kTile = 64;  // terms that a block takes at a time, at most
    std::int32_t parts = 1;
    TANDEM_CUBLAS_TRY(cublasLtMatmulAlgoConfigGetAttribute(
        &algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, nullptr));
    return parts > 1 && k % kTile != 0;
  }

  using DescriptionTraits = DescriptorTraits<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using LayoutTraits = DescriptorTraits<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  using PreferenceTraits =
      DescriptorTraits<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t what, const Value& value) {
    TANDEM_CUBLAS_TRY(
        cublasLtMatmulDescSetAttribute(description_.get(), what, &value, sizeof value));
  }

  static UniqueHandle<LayoutTraits> layout(DType type, std::int64_t rows, std::int64_t columns) {
    return created<LayoutTraits>([&](cublasLtMatrixLayout_t* h) {
      TANDEM_CUBLAS_TRY(cublasLtMatrixLayoutCreate(h, cuda_type(type),
                                                   static_cast<std::uint64_t>(rows),
                                                   static_cast<std::uint64_t>(columns), rows));
    });
  }

  UniqueHandle<DescriptionTraits> description_;
  UniqueHandle<LayoutTraits> first_, second_, out_;
};

// --- convolutions ---

/// The library's description of a 3x3 convolution.
class Conv {
 public:
  explicit Conv(const ConvProblem& p) : pass_(p.pass) {
    const cudnnDataType_t type = p.storage == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    x_ = tensor(type, p.n, p.c, p.h, p.w);
    y_ = tensor(type, p.n, p.k, p.h, p.w);
    w_ = created<FilterTraits>(
        [&](cudnnFilterDescriptor_t* h) { TANDEM_CUDNN_TRY(cudnnCreateFilterDescriptor(h)); });
    TANDEM_CUDNN_TRY(cudnnSetFilter4dDescriptor(
        w_.get(), type, CUDNN_TENSOR_NHWC, static_cast<int>(p.k), static_cast<int>(p.c), 3, 3));
    convolution_ = created<ConvolutionTraits>([&](cudnnConvolutionDescriptor_t* h) {
      TANDEM_CUDNN_TRY(cudnnCreateConvolutionDescriptor(h));
    });
    TANDEM_CUDNN_TRY(cudnnSetConvolution2dDescriptor(convolution_.get(), 1, 1, 1, 1, 1, 1,
                                                     CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    math_ =
        p.storage == DType::bf16 || p.math == Math::tf32 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
    TANDEM_CUDNN_TRY(cudnnSetConvolutionMathType(convolution_.get(), math_));
  }

  /// Numbers of the library's algorithms that pass the filter, in its order.
  std::vector<int> heuristics(const CudaLane& lane) const {
    switch (pass_) {
      case ConvPass::forward: {
        cudnnConvolutionFwdAlgoPerf_t results[CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
        int count = 0;
        TANDEM_CUDNN_TRY(cudnnGetConvolutionForwardAlgorithm_v7(
            lane.cudnn, x_.get(), w_.get(), convolution_.get(), y_.get(),
            CUDNN_CONVOLUTION_FWD_ALGO_COUNT, &count, results));
        return passing(
            results, count,
            {CUDNN_CONVOLUTION_FWD_ALGO_FFT, CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
             CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED});
      }
      case ConvPass::backward_data: {
        cudnnConvolutionBwdDataAlgoPerf_t results[CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT];
        int count = 0;
        TANDEM_CUDNN_TRY(cudnnGetConvolutionBackwardDataAlgorithm_v7(
            lane.cudnn, w_.get(), y_.get(), convolution_.get(), x_.get(),
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, &count, results));
        return passing(
            results, count,
            {CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
             CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING, CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
             CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED});
      }
      case ConvPass::backward_weights:
        break;
    }
    cudnnConvolutionBwdFilterAlgoPerf_t results[CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT];
    int count = 0;
    TANDEM_CUDNN_TRY(cudnnGetConvolutionBackwardFilterAlgorithm_v7(
        lane.cudnn, x_.get(), y_.get(), convolution_.get(), w_.get(),
        CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, &count, results));
    return passing(
        results, count,
        {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3,
         CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING,
         CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD,
         CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED});
  }

  void run(const CudaLane& lane, int algorithm, const void* first, const void* second, void* out,
           bool accumulate) const {
    const float one = 1, beta = accumulate ? 1 : 0;
    switch (pass_) {
      case ConvPass::forward:
        TANDEM_CUDNN_TRY(cudnnConvolutionForward(
            lane.cudnn, &one, x_.get(), first, w_.get(), second, convolution_.get(),
            static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), lane.workspace, kLaneWorkspace,
            &beta, y_.get(), out));
        return;
      case ConvPass::backward_data:
        TANDEM_CUDNN_TRY(cudnnConvolutionBackwardData(
            lane.cudnn, &one, w_.get(), second, y_.get(), first, convolution_.get(),
            static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm), lane.workspace, kLaneWorkspace,
            &beta, x_.get(), out));
        return;
      case ConvPass::backward_weights:
        break;
    }
    TANDEM_CUDNN_TRY(cudnnConvolutionBackwardFilter(
        lane.cudnn, &one, x_.get(), first, y_.get(), second, convolution_.get(),
        static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm), lane.workspace, kLaneWorkspace,
        &beta, w_.get(), out));
  }

 private:
  using TensorTraits = DescriptorTraits<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
  using FilterTraits = DescriptorTraits<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
  using ConvolutionTraits =
      DescriptorTraits<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;

  static UniqueHandle<TensorTraits> tensor(cudnnDataType_t type, std::int64_t n, std::int64_t c,
                                           std::int64_t h, std::int64_t w) {
    auto handle = created<TensorTraits>(
        [](cudnnTensorDescriptor_t* t) { TANDEM_CUDNN_TRY(cudnnCreateTensorDescriptor(t)); });
    TANDEM_CUDNN_TRY(cudnnSetTensor4dDescriptor(handle.get(), CUDNN_TENSOR_NHWC, type,
                                                static_cast<int>(n), static_cast<int>(c),
                                                static_cast<int>(h), static_cast<int>(w)));
    return handle;
  }

  template <class Result>
  std::vector<int> passing(const Result* results, int count,
                           std::initializer_list<int> forbidden) const {
    std::vector<int> numbers;
    for (int i = 0; i < count; ++i) {
      const Result& r = results[i];
      const bool banned = std::find(forbidden.begin(), forbidden.end(), static_cast<int>(r.algo)) !=
                          forbidden.end();
      if (r.status == CUDNN_STATUS_SUCCESS && r.determinism == CUDNN_DETERMINISTIC &&
          r.memory <= kLaneWorkspace && r.mathType == math_ && !banned)
        numbers.push_back(static_cast<int>(r.algo));
    }
    return numbers;
  }

  ConvPass pass_;
  cudnnMathType_t math_;
  UniqueHandle<TensorTraits> x_, y_;
  UniqueHandle<FilterTraits> w_;
  UniqueHandle<ConvolutionTraits> convolution_;
};

const char* name_of(ConvPass pass) {
  switch (pass) {
    case ConvPass::forward:
      return "forward";
    case ConvPass::backward_data:
      return "backward_data";
    case ConvPass::backward_weights:
      break;
  }
  return "backward_weights";
}

[[noreturn]] void nothing_passes(const std::string& key) {
  throw Error(ErrorCode::run_failed,
              fmt::format("the library has no algorithm for '{}' that passes the filter", key));
}

}  // namespace

std::string to_key(const MatmulProblem& p) {
  return fmt::format("matmul {} {} {} {}{} {} {} {}{}", tandem::name_of(p.in),
                     tandem::name_of(p.out), name_of(p.math), p.transpose_a ? 't' : 'n',
                     p.transpose_b ? 't' : 'n', p.m, p.n, p.k, p.update ? " update" : "");
}

std::string to_key(const ConvProblem& p) {
  return fmt::format("conv3x3 {} {} {} {} {} {} {} {}", name_of(p.pass), tandem::name_of(p.storage),
                     name_of(p.math), p.n, p.h, p.w, p.c, p.k);
}

struct AlgorithmCache::Impl {
  struct Product {
    MatmulProblem problem;
    Matmul matmul;
    cublasLtMatmulAlgo_t algorithm;
  };
  struct Convolution {
    ConvProblem problem;
    Conv conv;
    int algorithm;
  };

  /// The product's description and algorithm; chosen here if this is its first use.
  const Product& product(const CudaLane& lane, const MatmulProblem& problem) {
    const std::string key = to_key(problem);
    const std::lock_guard lock(mutex);
    if (const auto found = products.find(key); found != products.end()) return found->second;
    Product made{problem, Matmul(problem), {}};
    if (const auto entry = table.entries.find(key); entry != table.entries.end()) {
      const auto algorithm = from_hex(entry->second);
      if (!algorithm)
        throw Error(ErrorCode::data, fmt::format("the plan file's algorithm of '{}' is '{}'; {} "
                                                 "hexadecimal digits are required",
                                                 key, entry->second, 2 * sizeof made.algorithm));
      if (const std::string why = made.matmul.refusal(lane, *algorithm); !why.empty())
        throw Error(ErrorCode::data,
                    fmt::format("the plan file's algorithm of '{}' does not fit: {}", key, why),
                    "make the file anew: tandem tune");
      made.algorithm = *algorithm;
    } else {
      const auto results = made.matmul.heuristics(lane, problem.k);
      if (results.empty()) nothing_passes(key);
      made.algorithm = results.front().algo;
      table.entries[key] = to_hex(made.algorithm);
    }
    return products.emplace(key, std::move(made)).first->second;
  }

  const Convolution& convolution(const CudaLane& lane, const ConvProblem& problem) {
    const std::string key = to_key(problem);
    const std::lock_guard lock(mutex);
    if (const auto found = convolutions.find(key); found != convolutions.end())
      return found->second;
    // Of bf16 convolutions nothing was measured but what the filter says.
    if (problem.storage == DType::f32)
      require_finding(
          fmt::format("cudnn_conv3x3_nhwc_{}_{}", name_of(problem.math), name_of(problem.pass)),
          fmt::format("'{}'", key));
    Convolution made{problem, Conv(problem), 0};
    const std::vector<int> passing = made.conv.heuristics(lane);
    if (passing.empty()) nothing_passes(key);
    made.algorithm = passing.front();
    if (const auto entry = table.entries.find(key); entry != table.entries.end()) {
      const auto same = [&](int a) { return std::to_string(a) == entry->second; };
      const auto chosen = std::find_if(passing.begin(), passing.end(), same);
      if (chosen == passing.end())
        throw Error(ErrorCode::data,
                    fmt::format("the plan file's algorithm of '{}' is '{}', which does not pass "
                                "the filter",
                                key, entry->second));
      made.algorithm = *chosen;
    }
    table.entries[key] = std::to_string(made.algorithm);
    return convolutions.emplace(key, std::move(made)).first->second;
  }

  bool supports(const CudaLane& lane, const ConvProblem& problem) {
    const std::string key = to_key(problem);
    const std::lock_guard lock(mutex);
    const auto found = supported.find(key);
    if (found != supported.end()) return found->second;
    const bool any = !Conv(problem).heuristics(lane).empty();
    return supported[key] = any;
  }

  mutable std::mutex mutex;
  AlgorithmTable table;
  std::map<std::string, bool> supported;
  std::map<std::string, Product> products;
  std::map<std::string, Convolution> convolutions;
};

AlgorithmCache::AlgorithmCache(AlgorithmTable table) : impl_(std::make_unique<Impl>()) {
  impl_->table = std::move(table);
}
AlgorithmCache::~AlgorithmCache() = default;

void AlgorithmCache::matmul(const CudaLane& lane, const MatmulProblem& problem, const void* a,
                            const void* b, void* c, const BatchHeader* header) {
  const Impl::Product& product = impl_->product(lane, problem);
  product.matmul.run(lane, product.algorithm, a, b, c, header);
}

void AlgorithmCache::conv3x3(const CudaLane& lane, const ConvProblem& problem, const void* first,
                             const void* second, void* out) {
  const Impl::Convolution& convolution = impl_->convolution(lane, problem);
  convolution.conv.run(lane, convolution.algorithm, first, second, out, problem.accumulate);
}

void AlgorithmCache::choose(const CudaLane& lane, const MatmulProblem& problem) {
  impl_->product(lane, problem);
}
void AlgorithmCache::choose(const CudaLane& lane, const ConvProblem& problem) {
  impl_->convolution(lane, problem);
}

bool AlgorithmCache::supports(const CudaLane& lane, const ConvProblem& problem) {
  return impl_->supports(lane, problem);
}

std::vector<std::string> AlgorithmCache::candidates(const CudaLane& lane,
                                                    const MatmulProblem& problem) {
  std::vector<std::string> texts;
  for (const auto& result : Matmul(problem).heuristics(lane, problem.k))
    texts.push_back(to_hex(result.algo));
  return texts;
}

std::vector<std::string> AlgorithmCache::candidates(const CudaLane& lane,
                                                    const ConvProblem& problem) {
  std::vector<std::string> texts;
  for (const int number : Conv(problem).heuristics(lane)) texts.push_back(std::to_string(number));
  return texts;
}

AlgorithmTable AlgorithmCache::chosen() const {
  const std::lock_guard lock(impl_->mutex);
  AlgorithmTable chosen;
  chosen.environment = impl_->table.environment;
  const auto add = [&](const std::string& key) { chosen.entries[key] = impl_->table.entries[key]; };
  for (const auto& [key, product] : impl_->products) add(key);
  for (const auto& [key, convolution] : impl_->convolutions) add(key);
  return chosen;
}

std::vector<MatmulProblem> AlgorithmCache::matmuls() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<MatmulProblem> problems;
  for (const auto& [key, product] : impl_->products) problems.push_back(product.problem);
  return problems;
}

std::vector<ConvProblem> AlgorithmCache::convolutions() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<ConvProblem> problems;
  for (const auto& [key, convolution] : impl_->convolutions) {
    problems.push_back(convolution.problem);
  }
  return problems;
}

}  // namespace tandem
