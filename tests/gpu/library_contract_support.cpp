// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/philox.hpp>
#include <tandem/tests/gpu/library_contract.hpp>

namespace tandem::contract {
namespace {

[[noreturn]] void fail(const char* call, int line, const char* text, int status) {
  cudaGetLastError();
  throw std::runtime_error(fmt::format("line {}: {} failed: {} ({})", line, call, text, status));
}

std::size_t size_of(cudaDataType_t type) { return type == CUDA_R_16BF ? 2 : 4; }

std::uint32_t word(std::uint64_t index, std::uint64_t seed) {
  return philox4x32_10(philox_counter(index, 0), philox_key(seed)).word[0];
}

}  // namespace

void check(cudaError_t status, const char* call, int line) {
  if (status != cudaSuccess) fail(call, line, cudaGetErrorString(status), status);
}
void check(cublasStatus_t status, const char* call, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(call, line, cublasLtGetStatusString(status), status);
}
void check(cudnnStatus_t status, const char* call, int line) {
  if (status != CUDNN_STATUS_SUCCESS) fail(call, line, cudnnGetErrorString(status), status);
}

// --- memory and lanes ---

DeviceBytes::DeviceBytes(std::size_t bytes) : size_(bytes) {
  void* memory = nullptr;
  TANDEM_TRY(cudaMalloc(&memory, bytes));
  memory_ = Owner<void*, cudaFree>::adopt(memory);
}

void DeviceBytes::upload(const std::vector<double>& values, cudaDataType_t type) const {
  std::vector<char> bytes(values.size() * size_of(type));
  if (bytes.size() > size_) throw std::runtime_error("upload is larger than the memory");
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = static_cast<float>(values[i]);
    const bf16 half(value);
    const double stored =
        static_cast<double>(type == CUDA_R_16BF ? static_cast<float>(half) : value);
    if (stored != values[i] && !std::isnan(values[i]))
      throw std::runtime_error(fmt::format("{} is not representable", values[i]));
    if (type == CUDA_R_16BF) {
      std::memcpy(bytes.data() + 2 * i, &half, 2);
    } else {
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    }
  }
  TANDEM_TRY(cudaDeviceSynchronize());
  TANDEM_TRY(cudaMemcpy(data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  TANDEM_TRY(cudaDeviceSynchronize());  // lanes do not wait for the default stream
}

std::vector<double> DeviceBytes::download(std::size_t count, cudaDataType_t type) const {
  std::vector<char> bytes(count * size_of(type));
  TANDEM_TRY(cudaDeviceSynchronize());
  TANDEM_TRY(cudaMemcpy(bytes.data(), data(), bytes.size(), cudaMemcpyDeviceToHost));
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    float value;
    bf16 half;
    if (type == CUDA_R_16BF) {
      std::memcpy(&half, bytes.data() + 2 * i, 2);
      value = static_cast<float>(half);
    } else {
      std::memcpy(&value, bytes.data() + 4 * i, 4);
    }
    values[i] = static_cast<double>(value);
  }
  return values;
}

void DeviceBytes::poison() const {
  TANDEM_TRY(cudaDeviceSynchronize());
  TANDEM_TRY(cudaMemset(data(), 0xFF, size_));
  TANDEM_TRY(cudaDeviceSynchronize());
}

void DeviceBytes::repeat(const std::vector<std::uint32_t>& pattern) const {
  std::size_t filled = std::min(size_, pattern.size() * sizeof(std::uint32_t));
  TANDEM_TRY(cudaMemcpy(data(), pattern.data(), filled, cudaMemcpyHostToDevice));
  while (filled < size_) {
    const std::size_t next = std::min(filled, size_ - filled);
    TANDEM_TRY(cudaMemcpy(at(filled), data(), next, cudaMemcpyDeviceToDevice));
    filled += next;
  }
  TANDEM_TRY(cudaDeviceSynchronize());
}

DeviceBytes device(const std::vector<double>& values, cudaDataType_t type) {
  DeviceBytes memory(values.size() * size_of(type));
  memory.upload(values, type);
  return memory;
}

Lane::Lane(int priority)
    : workspace_(kWorkspaceBytes),
      stream_(create<decltype(stream_)>([priority](cudaStream_t* stream) {
        return cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, priority);
      })),
      cublaslt_(create<decltype(cublaslt_)>(cublasLtCreate)),
      cudnn_(create<decltype(cudnn_)>(cudnnCreate)) {
  TANDEM_TRY(cudnnSetStream(cudnn_.get(), stream_.get()));
}

// --- numbers ---

std::vector<double> integers(std::int64_t count, std::uint64_t seed, int limit) {
  std::vector<double> values(static_cast<std::size_t>(count));
  const std::uint32_t range = 2 * static_cast<std::uint32_t>(limit) + 1;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(word(i, seed) % range) - limit;
  return values;
}

std::vector<double> reals(std::int64_t count, std::uint64_t seed, cudaDataType_t type) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    float value = 2 * uniform_float(word(i, seed)) - 1;
    if (type == CUDA_R_16BF) value = static_cast<float>(bf16(value));
    values[i] = static_cast<double>(value);
  }
  return values;
}

const char* name(Precision precision) {
  return precision == Precision::strict ? "strict" : precision == Precision::tf32 ? "tf32" : "bf16";
}

cudaDataType_t input_type(Precision precision) {
  return precision == Precision::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

double sum_error(double terms, Precision precision) {
  const double sum = test::gamma(terms, precision == Precision::strict ? 0x1p-24 : 0x1p-23);
  const double factor = precision == Precision::tf32 ? 1 + 0x1p-10 : 1;
  return factor * factor * (1 + sum) - 1;
}

std::string mismatch(const std::vector<test::Expected>& expected, const std::vector<double>& actual,
                     const std::string& what) {
  const testing::AssertionResult result = test::all_close(expected, actual, DType::f32, what);
  return result ? std::string() : result.message();
}

// --- GEMM ---

std::vector<std::pair<double, double>> gemm_reference(const GemmShape& shape,
                                                      const std::vector<double>& a,
                                                      const std::vector<double>& b) {
  std::vector<std::pair<double, double>> d(static_cast<std::size_t>(shape.m * shape.n));
  for (std::int64_t column = 0; column < shape.n; ++column) {
    for (std::int64_t row = 0; row < shape.m; ++row) {
      auto& [value, absolute] = d[static_cast<std::size_t>(row + column * shape.m)];
      for (std::int64_t i = 0; i < shape.k; ++i) {
        const std::int64_t ia = shape.transpose_a ? i + row * shape.k : row + i * shape.m;
        const std::int64_t ib = shape.transpose_b ? column + i * shape.n : i + column * shape.k;
        const double product = a[static_cast<std::size_t>(ia)] * b[static_cast<std::size_t>(ib)];
        value += product;
        absolute += std::abs(product);
      }
    }
  }
  return d;
}

Gemm::Layout Gemm::layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
  return create<Layout>([=](cublasLtMatrixLayout_t* handle) {
    return cublasLtMatrixLayoutCreate(handle, type, static_cast<std::uint64_t>(rows),
                                      static_cast<std::uint64_t>(columns), rows);
  });
}

Gemm::Gemm(Precision precision, const GemmShape& s, cudaDataType_t output)
    : matmul_(create<decltype(matmul_)>([precision](cublasLtMatmulDesc_t* handle) {
        const cublasComputeType_t compute =
            precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
        return cublasLtMatmulDescCreate(handle, compute, CUDA_R_32F);
      })),
      a_(layout(input_type(precision), s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k)),
      b_(layout(input_type(precision), s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n)),
      d_(layout(output, s.m, s.n)) {
  set(CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
}

std::vector<Algorithm> Gemm::algorithms(const Lane& lane, int most) {
  const auto preference =
      create<Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>(
          cublasLtMatmulPreferenceCreate);
  const std::uint64_t workspace = kWorkspaceBytes;
  TANDEM_TRY(cublasLtMatmulPreferenceSetAttribute(
      preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
  const std::uint32_t mask =
      CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  TANDEM_TRY(cublasLtMatmulPreferenceSetAttribute(
      preference.get(), CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &mask, sizeof mask));

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(lane.cublaslt(), matmul_.get(), a_.get(), b_.get(), d_.get(),
                                     d_.get(), preference.get(), most, results.data(), &count);
  refusal_ = cublasLtGetStatusString(status);
  if (status != CUBLAS_STATUS_SUCCESS) return {};

  std::vector<Algorithm> passing;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
    std::int32_t id = 0, split = 0;
    std::uint32_t reduction = 0;
    const auto get = [&result](cublasLtMatmulAlgoConfigAttributes_t attribute, auto& value) {
      TANDEM_TRY(cublasLtMatmulAlgoConfigGetAttribute(&result.algo, attribute, &value, sizeof value,
                                                      nullptr));
    };
    get(CUBLASLT_ALGO_CONFIG_ID, id);
    get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, split);
    get(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, reduction);
    if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspaceBytes ||
        (reduction & ~mask) != 0)
      continue;
    passing.push_back({result.algo, result.workspaceSize,
                       fmt::format("proposal {} (algorithm {}, split {})", i, id, split)});
  }
  if (passing.empty()) refusal_ = "nothing passes the filter";
  return passing;
}

cublasStatus_t Gemm::run(const Lane& lane, const Algorithm& algorithm, const void* alpha,
                         const void* a, const void* b, const void* beta, void* d) const {
  return cublasLtMatmul(lane.cublaslt(), matmul_.get(), alpha, a, a_.get(), b, b_.get(), beta, d,
                        d_.get(), d, d_.get(), &algorithm.algo, lane.workspace(), kWorkspaceBytes,
                        lane.stream());
}

// --- time and repeats ---

double microseconds(const Lane& lane, int repeats, const std::function<void(int)>& launch) {
  launch(0);
  TANDEM_TRY(cudaStreamSynchronize(lane.stream()));

  TANDEM_TRY(cudaStreamBeginCapture(lane.stream(), cudaStreamCaptureModeThreadLocal));
  cudaGraph_t captured = nullptr;
  try {
    for (int i = 0; i < repeats; ++i) launch(i);
  } catch (...) {
    cudaStreamEndCapture(lane.stream(), &captured);
    cudaGetLastError();
    throw;
  }
  TANDEM_TRY(cudaStreamEndCapture(lane.stream(), &captured));
  const auto graph = Owner<cudaGraph_t, cudaGraphDestroy>::adopt(captured);
  const auto executable = create<Owner<cudaGraphExec_t, cudaGraphExecDestroy>>(
      [&graph](cudaGraphExec_t* handle) { return cudaGraphInstantiate(handle, graph.get(), 0); });
  TANDEM_TRY(cudaGraphUpload(executable.get(), lane.stream()));

  using Event = Owner<cudaEvent_t, cudaEventDestroy>;
  const auto make = [](cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
  };
  const Event begin = create<Event>(make), end = create<Event>(make);
  TANDEM_TRY(cudaEventRecord(begin.get(), lane.stream()));
  TANDEM_TRY(cudaGraphLaunch(executable.get(), lane.stream()));
  TANDEM_TRY(cudaEventRecord(end.get(), lane.stream()));
  TANDEM_TRY(cudaEventSynchronize(end.get()));
  float milliseconds = 0;
  TANDEM_TRY(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
  return 1e3 * static_cast<double>(milliseconds) / repeats;
}

// 64 tiles of 128 x 128: about half of a large GPU.
BusyWork::BusyWork(const Lane& lane)
    : lane_(lane),
      gemm_(Precision::bf16, {true, false, 1024, 1024, 8192}, CUDA_R_32F),
      a_(device(reals(1024 * 8192, 1, CUDA_R_16BF), CUDA_R_16BF)),
      b_(device(reals(1024 * 8192, 2, CUDA_R_16BF), CUDA_R_16BF)),
      d_(1024 * 1024 * sizeof(float)),
      algorithms_(gemm_.algorithms(lane)) {
  if (algorithms_.empty()) throw std::runtime_error("busy work: " + gemm_.refusal());
}

void BusyWork::enqueue() {
  for (int i = 0; i < 20; ++i)
    TANDEM_TRY(gemm_.run(lane_, algorithms_[0], 1.0f, a_.data(), b_.data(), 0.0f, d_.data()));
}

bool BusyWork::done() const {
  const cudaError_t status = cudaStreamQuery(lane_.stream());
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  TANDEM_TRY(status);
  return true;
}

RepeatsOutcome repeat_beside(BusyWork& busy, const Lane& lane, const DeviceBytes& output,
                             const std::function<void()>& work) {
  const std::size_t bytes = output.size();
  const DeviceBytes copies(bytes * (kRepeats + 1));
  TANDEM_TRY(cudaDeviceSynchronize());
  for (int i = 0; i <= kRepeats; ++i) {
    if (i > 0) busy.enqueue();
    TANDEM_TRY(cudaMemsetAsync(output.data(), 0xFF, bytes, lane.stream()));
    work();
    TANDEM_TRY(cudaMemcpyAsync(copies.at(bytes * static_cast<std::size_t>(i)), output.data(), bytes,
                               cudaMemcpyDeviceToDevice, lane.stream()));
    if (i == 0) TANDEM_TRY(cudaStreamSynchronize(lane.stream()));
  }
  TANDEM_TRY(cudaStreamSynchronize(lane.stream()));
  RepeatsOutcome outcome;
  outcome.overlapped = !busy.done();
  TANDEM_TRY(cudaDeviceSynchronize());

  std::vector<char> host(bytes * (kRepeats + 1));
  TANDEM_TRY(cudaMemcpy(host.data(), copies.data(), host.size(), cudaMemcpyDeviceToHost));
  for (std::size_t i = 0; i + sizeof(float) <= bytes; i += sizeof(float)) {
    float value;
    std::memcpy(&value, host.data() + i, sizeof value);
    if (std::isnan(value)) throw std::runtime_error("the output was not written completely");
  }
  for (std::size_t i = 1; i <= kRepeats; ++i)
    outcome.differing += std::memcmp(host.data(), host.data() + i * bytes, bytes) != 0;
  return outcome;
}

}  // namespace tandem::contract
