// SPDX-License-Identifier: Apache-2.0
// The augmentation alone, on the GPU: pictures of 256 x 256, crop 128, result 256 in Z-order, any
// angle up to 45 degrees, blur of 7 taps. Noise as pictures; four batches with draws of their own
// take turns. `warm`: launches one behind the other, the time of one is the mean. `cold`: one
// launch between two events, after 256 MiB have been written elsewhere. Before anything is timed,
// the fused kernel and the plain path must give the same bits.
#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tandem/engine/augment_draw.hpp>
#include <tandem/kernels/augment.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/check.hpp>
#include <tandem/kernels/philox.hpp>
#include <vector>

namespace tandem {
namespace {

constexpr int kBatches = 4;
constexpr std::size_t kFlushBytes = std::size_t{256} << 20;
constexpr double kMemoryRate = 4.3e12;  // bytes a second that an H200's memory reaches

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};
using Memory = std::unique_ptr<void, Free>;

Memory device_memory(std::size_t bytes) {
  void* memory = nullptr;
  TANDEM_CUDA_TRY(cudaMalloc(&memory, bytes));
  return Memory(memory);
}

template <class T>
Memory copied(const std::vector<T>& values) {
  Memory memory = device_memory(values.size() * sizeof(T));
  TANDEM_CUDA_TRY(
      cudaMemcpy(memory.get(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

AugmentSpec published_spec() {
  AugmentSpec spec;
  spec.in_h = spec.in_w = spec.out_h = spec.out_w = 256;
  spec.crop_h = spec.crop_w = 128;
  spec.rotate = true;
  spec.blur_taps = 7;
  const float mean[] = {0.485f, 0.456f, 0.406f}, deviation[] = {0.229f, 0.224f, 0.225f};
  std::copy_n(mean, kAugmentChannels, spec.mean);
  std::copy_n(deviation, kAugmentChannels, spec.deviation);
  return spec;
}

template <class T>
class Augmentation {
 public:
  explicit Augmentation(std::int64_t n) : n_(n) {
    std::vector<unsigned char> tables(augment_table_bytes(spec_));
    fill_augment_tables(spec_, tables.data());
    tables_ = copied(tables);
    const auto picture = static_cast<std::size_t>(spec_.in_h * spec_.in_w * kAugmentChannels);
    for (std::uint64_t batch = 0; batch < kBatches; ++batch) {
      std::vector<std::uint8_t> x(static_cast<std::size_t>(n) * picture);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto counter = philox_counter(i / 16, batch);
        if (i % 16 == 0) words_ = philox4x32_10(counter, philox_key(1));
        x[i] = static_cast<std::uint8_t>(words_.word[i % 16 / 4] >> (8 * (i % 4)));
      }
      std::vector<AugmentDraw> draws;
      for (std::int64_t i = 0; i < n; ++i) {
        draws.push_back(draw_augment(spec_, AugmentRanges(), 1, batch, i));
      }
      x_.push_back(copied(x));
      draws_.push_back(copied(draws));
      y_.push_back(device_memory(result_bytes()));
    }
    scratch_ = device_memory(augment_plain_bytes(spec_, n));
    flush_ = device_memory(kFlushBytes);
    TANDEM_CUDA_TRY(cudaDeviceSynchronize());  // the stream does not wait for copies
    TANDEM_CUDA_TRY(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    TANDEM_CUDA_TRY(cudaEventCreate(&start_));
    TANDEM_CUDA_TRY(cudaEventCreate(&end_));
    check();
  }
  Augmentation(const Augmentation&) = delete;
  Augmentation& operator=(const Augmentation&) = delete;
  ~Augmentation() {
    cudaEventDestroy(end_);
    cudaEventDestroy(start_);
    cudaStreamDestroy(stream_);
  }

  /// What must be read and written at least: the crops and the results.
  double bytes() const {
    return static_cast<double>(n_ * spec_.crop_h * spec_.crop_w * kAugmentChannels) +
           static_cast<double>(result_bytes());
  }

  /// Seconds of one batch.
  double time(bool fused, bool cold) {
    const int launches = cold ? 1 : 5 * kBatches;
    if (cold) {
      TANDEM_CUDA_TRY(cudaMemsetAsync(flush_.get(), 1, kFlushBytes, stream_));
    }
    TANDEM_CUDA_TRY(cudaEventRecord(start_, stream_));
    for (int i = 0; i < launches; ++i) launch(fused, turn_++ % kBatches);
    TANDEM_CUDA_TRY(cudaEventRecord(end_, stream_));
    TANDEM_CUDA_TRY(cudaEventSynchronize(end_));
    float milliseconds = 0;
    TANDEM_CUDA_TRY(cudaEventElapsedTime(&milliseconds, start_, end_));
    return milliseconds * 1e-3 / launches;
  }

 private:
  std::size_t result_bytes() const {
    return static_cast<std::size_t>(n_ * spec_.out_h * spec_.out_w * kAugmentChannels) * sizeof(T);
  }

  void launch(bool fused, std::size_t batch) {
    const auto* x = static_cast<const std::uint8_t*>(x_[batch].get());
    const auto* draws = static_cast<const AugmentDraw*>(draws_[batch].get());
    T* y = static_cast<T*>(y_[batch].get());
    if (fused) {
      cuda::augment_fused(spec_, tables_.get(), n_, x, draws, ImageOrder::zorder, y, stream_);
    } else {
      cuda::augment_plain(spec_, tables_.get(), n_, x, draws, ImageOrder::zorder, y, scratch_.get(),
                          stream_);
    }
  }

  void check() {
    std::vector<unsigned char> result[2];
    for (const bool fused : {false, true}) {
      std::vector<unsigned char>& bytes = result[fused];
      bytes.resize(result_bytes());
      TANDEM_CUDA_TRY(cudaMemsetAsync(y_[0].get(), 0xff, bytes.size(), stream_));
      launch(fused, 0);
      TANDEM_CUDA_TRY(cudaStreamSynchronize(stream_));
      TANDEM_CUDA_TRY(cudaMemcpy(bytes.data(), y_[0].get(), bytes.size(), cudaMemcpyDeviceToHost));
    }
    if (result[0] != result[1]) {
      throw std::runtime_error("the fused kernel and the plain path give different bits");
    }
  }

  AugmentSpec spec_ = published_spec();
  std::int64_t n_;
  PhiloxWords words_ = {};
  std::vector<Memory> x_, draws_, y_;
  Memory tables_, scratch_, flush_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
  std::size_t turn_ = 0;
};

/// Made once for each batch size: noise takes longer than what is measured.
template <class T>
Augmentation<T>& augmentation_of(std::int64_t n) {
  static std::map<std::int64_t, std::unique_ptr<Augmentation<T>>> made;
  std::unique_ptr<Augmentation<T>>& augmentation = made[n];
  if (!augmentation) augmentation = std::make_unique<Augmentation<T>>(n);
  return *augmentation;
}

template <class T>
void augment(benchmark::State& state, bool fused, bool cold) {
  try {
    const std::int64_t n = state.range(0);
    Augmentation<T>& augmentation = augmentation_of<T>(n);
    augmentation.time(fused, false);  // the first launches
    double seconds = 0;
    for (auto _ : state) {
      const double once = augmentation.time(fused, cold);
      state.SetIterationTime(once);
      seconds += once;
    }
    seconds /= static_cast<double>(state.iterations());
    state.counters["us"] = seconds * 1e6;
    state.counters["images_per_s"] = static_cast<double>(n) / seconds;
    state.counters["bytes"] = augmentation.bytes();
    state.counters["share_of_4.3TB_per_s"] = augmentation.bytes() / seconds / kMemoryRate;
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

template <class T>
void add(const std::string& type) {
  for (const bool fused : {true, false}) {
    for (const bool cold : {false, true}) {
      const std::string name = std::string(fused ? "fused" : "plain") + "/" + type + "/" +
                               (cold ? "cold" : "warm") + "/batch";
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& state) { augment<T>(state, fused, cold); })
          ->Arg(8)
          ->Arg(32)
          ->Arg(128)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::add<float>("fp32");
  tandem::add<tandem::bf16>("bf16");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  cudaDeviceProp device;
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) {
    std::fprintf(stderr, "bench_augment: no usable GPU\n");
    return 4;
  }
  benchmark::AddCustomContext("gpu", device.name);
  benchmark::RunSpecifiedBenchmarks();
}
