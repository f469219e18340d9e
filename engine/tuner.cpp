// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <tandem/engine/algorithm_cache.hpp>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/engine/buffer.hpp>
#include <tandem/engine/cuda_handles.hpp>
#include <tandem/engine/cuda_lane.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/library_check.hpp>
#include <tandem/engine/tuner.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/cuda_context.hpp>

namespace tandem {
namespace {

constexpr int kRepeats = 15;
/// Of timed updates. Not 0, at which a product may leave out its sums; too small to make a result
/// grow.
constexpr float kTimedFactor = 0x1p-100f;
/// Sums of ones are exact in fp32 up to here.
constexpr std::int64_t kExactOnes = std::int64_t{1} << 24;

struct Operands {
  DType type = DType::f32;
  std::int64_t elements = 0;
  std::size_t bytes() const { return static_cast<std::size_t>(elements) * size_of(type); }
};

/// A library call as the tuner sees it.
struct Call {
  std::string key;
  std::vector<std::string> candidates;
  Operands first, second, result;
  /// Elements at the start of `first` that the probe sets to 0, so that no sum is above kExactOnes.
  std::int64_t zeros = 0;
  bool updates = false;  ///< what the result holds is added to, with the factors of a header
  std::function<void(AlgorithmCache&, const CudaLane&, const void*, const void*, void*,
                     const BatchHeader*)>
      run;
  /// Number of ones that add up to element i of the result.
  std::function<std::int64_t(std::int64_t)> terms;
};

Call call_of(const MatmulProblem& p) {
  Call call;
  call.key = to_key(p);
  call.first = {p.in, p.m * p.k};
  call.second = {p.in, p.k * p.n};
  call.result = {p.out, p.m * p.n};
  // Only a sum over pixels is that long; its first factor is transposed, so its rows are terms.
  const std::int64_t left_out = p.transpose_a ? std::max<std::int64_t>(0, p.k - kExactOnes) : 0;
  call.zeros = left_out * p.m;
  call.updates = p.update;
  call.run = [p](AlgorithmCache& cache, const CudaLane& lane, const void* a, const void* b, void* c,
                 const BatchHeader* header) { cache.matmul(lane, p, a, b, c, header); };
  call.terms = [terms = p.k - left_out](std::int64_t) { return terms; };
  return call;
}

/// Taps of a 3-wide window round `i` that lie inside 0 .. size - 1.
std::int64_t taps_inside(std::int64_t i, std::int64_t size) {
  return 3 - (i == 0) - (i == size - 1);
}

Call call_of(ConvProblem p) {
  p.accumulate = false;
  Call call;
  call.key = to_key(p);
  const Operands x{p.storage, p.n * p.h * p.w * p.c}, y{p.storage, p.n * p.h * p.w * p.k},
      w{p.storage, p.k * 9 * p.c};
  // A window on the image has one term a tap and channel; at the border some taps are outside.
  const auto windows = [h = p.h, w = p.w](std::int64_t in_channels, std::int64_t out_channels) {
    return [=](std::int64_t i) {
      const std::int64_t pixel = i / out_channels;
      return taps_inside(pixel / w % h, h) * taps_inside(pixel % w, w) * in_channels;
    };
  };
  switch (p.pass) {
    case ConvPass::forward:
      call.first = x, call.second = w, call.result = y;
      call.terms = windows(p.c, p.k);
      break;
    case ConvPass::backward_data:
      call.first = y, call.second = w, call.result = x;
      call.terms = windows(p.k, p.c);
      break;
    case ConvPass::backward_weights: {
      call.first = x, call.second = y, call.result = w;
      const std::int64_t samples = std::min(p.n, std::max<std::int64_t>(1, kExactOnes / p.h / p.w));
      call.zeros = (p.n - samples) * p.h * p.w * p.c;
      // dw[k, r, s, c] has a term for each pixel whose tap (r, s) is inside.
      call.terms = [p, samples](std::int64_t i) {
        const std::int64_t tap = i / p.c % 9, r = tap / 3, s = tap % 3;
        return samples * (p.h - (r != 1)) * (p.w - (s != 1));
      };
      break;
    }
  }
  call.run = [p](AlgorithmCache& cache, const CudaLane& lane, const void* a, const void* b, void* c,
                 const BatchHeader*) { cache.conv3x3(lane, p, a, b, c); };
  return call;
}

/// Times and probes candidates on a stream of its own. Lives in one thread, with the device
/// current.
class Tuner {
 public:
  Tuner(Backend& backend, int device) : backend_(backend) {
    int l2 = 0;
    TANDEM_CUDA_TRY(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device));
    flush_ = Memory(backend_, 2 * static_cast<std::size_t>(l2) + 256, MemoryKind::device,
                    "writing over the L2 cache");
    workspace_ = Memory(backend_, kLaneWorkspace, MemoryKind::device, "a stream's workspace");
    header_ = Memory(backend_, sizeof(BatchHeader), MemoryKind::device, "a batch header");
    cudaStream_t stream = nullptr;
    TANDEM_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stream_ = CudaStreamHandle::adopt(stream);
    cublasLtHandle_t cublaslt = nullptr;
    TANDEM_CUBLAS_TRY(cublasLtCreate(&cublaslt));
    cublaslt_ = CublasLtHandle::adopt(cublaslt);
    cudnnHandle_t cudnn = nullptr;
    TANDEM_CUDNN_TRY(cudnnCreate(&cudnn));
    cudnn_ = CudnnHandle::adopt(cudnn);
    TANDEM_CUDNN_TRY(cudnnSetStream(cudnn, stream));
    for (int i = 0; i < 2 * kRepeats; ++i) {
      cudaEvent_t event = nullptr;
      TANDEM_CUDA_TRY(cudaEventCreate(&event));
      events_.push_back(CudaEventHandle::adopt(event));
    }
  }

  /// The library calls of the plans, each problem once.
  std::vector<Call> calls(const std::vector<Plan>& plans) {
    AlgorithmCache cache({});
    const CudaLane lane = lane_with(cache);
    for (const Plan& plan : plans) {
      for (const Stage& stage : plan.stages) {
        for (const Operation& operation : stage.operations) choose_algorithms(operation, lane);
      }
    }
    std::vector<Call> calls;
    const auto add = [&](const auto& problem) {
      calls.push_back(call_of(problem));
      calls.back().candidates = cache.candidates(lane, problem);
    };
    for (const MatmulProblem& problem : cache.matmuls()) add(problem);
    for (const ConvProblem& problem : cache.convolutions()) add(problem);
    return calls;
  }

  TunedProblem tune(const Call& call) {
    take_memory(call);
    set_header(kTimedFactor);
    fill(first_, call.first, random_values());
    fill(second_, call.second, random_values());
    std::map<std::string, double> us;
    for (const std::string& candidate : call.candidates) {
      if (const auto time = median_us(call, candidate)) us[candidate] = *time;
    }
    std::vector<std::string> fastest_first;
    for (const std::string& candidate : call.candidates)
      if (us.count(candidate) != 0) fastest_first.push_back(candidate);
    TunedProblem tuned;
    tuned.problem = call.key;
    tuned.candidates = static_cast<int>(fastest_first.size());
    if (!fastest_first.empty()) tuned.default_us = us[fastest_first.front()];
    std::stable_sort(fastest_first.begin(), fastest_first.end(),
                     [&](const auto& a, const auto& b) { return us[a] < us[b]; });

    set_header(1);
    const std::vector<float> one{1.0f}, zero{0.0f};
    fill(first_, call.first, one);
    fill(first_, {call.first.type, call.zeros}, zero);
    fill(second_, call.second, one);
    std::string wrong;
    for (const std::string& candidate : fastest_first) {
      wrong = wrong_sum(call, candidate);
      if (!wrong.empty()) continue;
      tuned.algorithm = candidate;
      tuned.chosen_us = us[candidate];
      return tuned;
    }
    throw Error(ErrorCode::run_failed,
                fmt::format("of {} algorithms for '{}' {} ran, and none adds ones exactly{}",
                            call.candidates.size(), call.key, fastest_first.size(),
                            wrong.empty() ? "" : "; with the last one " + wrong));
  }

 private:
  CudaLane lane_with(AlgorithmCache& cache) const {
    return {stream_.get(), cublaslt_.get(), cudnn_.get(), workspace_.data(), &cache};
  }

  const BatchHeader* header_of(const Call& call) const {
    return call.updates ? static_cast<const BatchHeader*>(header_.data()) : nullptr;
  }

  /// For updates: result = result + factor * product.
  void set_header(float factor) {
    BatchHeader header;
    header.minus_rate_over_count = factor;
    TANDEM_CUDA_TRY(cudaMemcpyAsync(header_.data(), &header, sizeof header, cudaMemcpyHostToDevice,
                                    stream_.get()));
    TANDEM_CUDA_TRY(cudaStreamSynchronize(stream_.get()));
  }

  void take_memory(const Call& call) {
    const auto at_least = [&](Memory& memory, std::size_t bytes) {
      if (memory.bytes() >= bytes) return;
      memory = Memory();
      memory = Memory(backend_, bytes, MemoryKind::device, call.key);
    };
    at_least(first_, call.first.bytes());
    at_least(second_, call.second.bytes());
    at_least(result_, call.result.bytes());
  }

  static std::vector<float> random_values() {
    std::mt19937 random(1);
    std::vector<float> values(65536);
    for (float& value : values)
      value = static_cast<float>(static_cast<double>(random()) / 2147483648.0 - 1.0);
    return values;
  }

  /// Sets the elements of an operand to the values, over and over.
  void fill(const Memory& memory, const Operands& operands, const std::vector<float>& values) {
    if (operands.elements == 0) return;
    const std::size_t count = std::min(values.size(), static_cast<std::size_t>(operands.elements));
    std::vector<std::byte> bytes(count * size_of(operands.type));
    if (operands.type == DType::bf16) {
      const std::vector<bf16> narrow(values.begin(), values.begin() + static_cast<long>(count));
      std::memcpy(bytes.data(), narrow.data(), bytes.size());
    } else {
      std::memcpy(bytes.data(), values.data(), bytes.size());
    }
    auto* const target = static_cast<std::byte*>(memory.data());
    TANDEM_CUDA_TRY(
        cudaMemcpyAsync(target, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_.get()));
    for (std::size_t done = bytes.size(); done < operands.bytes();) {
      const std::size_t more = std::min(done, operands.bytes() - done);
      TANDEM_CUDA_TRY(
          cudaMemcpyAsync(target + done, target, more, cudaMemcpyDeviceToDevice, stream_.get()));
      done += more;
    }
    TANDEM_CUDA_TRY(cudaStreamSynchronize(stream_.get()));
  }

  /// Median of the times, or nothing if the library refuses to run the candidate.
  std::optional<double> median_us(const Call& call, const std::string& candidate) {
    AlgorithmCache cache({{}, {{call.key, candidate}}});
    const CudaLane lane = lane_with(cache);
    const auto run = [&] {
      call.run(cache, lane, first_.data(), second_.data(), result_.data(), header_of(call));
    };
    try {
      run();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::out_of_memory) throw;
      return std::nullopt;
    }
    for (std::size_t r = 0; r < kRepeats; ++r) {
      TANDEM_CUDA_TRY(
          cudaMemsetAsync(flush_.data(), static_cast<int>(r), flush_.bytes(), stream_.get()));
      TANDEM_CUDA_TRY(cudaEventRecord(events_[2 * r].get(), stream_.get()));
      run();
      TANDEM_CUDA_TRY(cudaEventRecord(events_[2 * r + 1].get(), stream_.get()));
    }
    TANDEM_CUDA_TRY(cudaStreamSynchronize(stream_.get()));
    std::vector<float> ms(kRepeats);
    for (std::size_t r = 0; r < kRepeats; ++r)
      TANDEM_CUDA_TRY(cudaEventElapsedTime(&ms[r], events_[2 * r].get(), events_[2 * r + 1].get()));
    std::nth_element(ms.begin(), ms.begin() + kRepeats / 2, ms.end());
    return 1e3 * static_cast<double>(ms[kRepeats / 2]);
  }

  /// With operands of ones every element of the result is its number of terms: the first that is
  /// not, or nothing.
  std::string wrong_sum(const Call& call, const std::string& candidate) {
    AlgorithmCache cache({{}, {{call.key, candidate}}});
    // A NaN in each type: what is not written shows. An update reads what it writes: from 0.
    const int before = call.updates ? 0 : 0xff;
    TANDEM_CUDA_TRY(cudaMemsetAsync(result_.data(), before, call.result.bytes(), stream_.get()));
    call.run(cache, lane_with(cache), first_.data(), second_.data(), result_.data(),
             header_of(call));
    std::vector<std::byte> bytes(call.result.bytes());
    TANDEM_CUDA_TRY(cudaMemcpyAsync(bytes.data(), result_.data(), bytes.size(),
                                    cudaMemcpyDeviceToHost, stream_.get()));
    TANDEM_CUDA_TRY(cudaStreamSynchronize(stream_.get()));
    if (call.result.type == DType::bf16) return first_wrong<bf16>(call, bytes);
    return first_wrong<float>(call, bytes);
  }

  template <class T>
  static std::string first_wrong(const Call& call, const std::vector<std::byte>& bytes) {
    for (std::int64_t i = 0; i < call.result.elements; ++i) {
      T value;
      std::memcpy(&value, bytes.data() + static_cast<std::size_t>(i) * sizeof value, sizeof value);
      const T expected(static_cast<float>(call.terms(i)));
      if (!(static_cast<float>(value) == static_cast<float>(expected)))
        return fmt::format("element {} is {}, not {}", i, static_cast<float>(value),
                           static_cast<float>(expected));
    }
    return {};
  }

  Backend& backend_;  // for its memory
  Memory flush_, workspace_, header_, first_, second_, result_;
  CudaStreamHandle stream_;
  CublasLtHandle cublaslt_;
  CudnnHandle cudnn_;
  std::vector<CudaEventHandle> events_;
};

TuneResult tune_on_this_thread(const std::vector<Plan>& plans, int device, const OnTune& on_tune) {
  const auto backend = make_cuda_backend({device, {}, {}});  // throws if there is no such device
  TANDEM_CUDA_TRY(cudaSetDevice(device));
  Tuner tuner(*backend, device);
  TuneResult result;
  result.table.environment = cuda_environment(device);
  const std::vector<Call> calls = tuner.calls(plans);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (on_tune) on_tune(i, calls.size(), calls[i].key);
    result.problems.push_back(tuner.tune(calls[i]));
    result.table.entries[calls[i].key] = result.problems.back().algorithm;
  }
  return result;
}

}  // namespace

TuneResult tune_algorithms(const std::vector<Plan>& plans, int device, const OnTune& on_tune) {
  // The current device and the last error belong to a thread: this takes one of its own.
  try {
    TuneResult result;
    in_new_thread([&] { result = tune_on_this_thread(plans, device, on_tune); });
    return result;
  } catch (const CudaError& error) {
    throw Error(ErrorCode::run_failed, fmt::format("tuning: {}", error.what()));
  }
}

}  // namespace tandem
