// SPDX-License-Identifier: Apache-2.0
// The GEMMs of workload W1 (eight levels, 256 x 256, 16 to 4096 channels): how many proposals pass
// the filter, and the first one's time beside the best.
#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <tandem/tests/gpu/library_contract.hpp>

namespace tandem::contract {
namespace {

struct NamedGemm {
  const char* kind;
  GemmShape shape;
  bool update;  // f32 weights in place, scalars in device memory
};

/// The GEMMs of a level with C channels on its side of `pixels` pixels, 2C in the 2 x 2 pixels of
/// C / 2 channels on the other. Column-major: a row-major matrix is its transpose.
std::vector<NamedGemm> level(std::int64_t channels, std::int64_t pixels) {
  const std::int64_t wide = 2 * channels;
  return {
      {"encoder", {true, false, channels, pixels, wide}, false},  // and the decoder's dgrad
      {"forward", {false, false, wide, pixels, channels}, false},
      {"wgrad", {false, true, wide, channels, pixels}, true},
  };
}

struct Times {
  std::size_t passing = 0;
  double first = 0, best = 0;
  std::string best_text, refused;
};

/// Operands of one GEMM, as many copies as it takes for L2 to hold none of the next.
class Pools {
 public:
  Pools() : a_(kBytes), b_(kBytes), d_(kBytes), scalars_(device({-0x1p-20, 1.0}, CUDA_R_32F)) {
    // Random halves in [-1, 1); as f32 their pairs are such numbers too.
    const auto values = reals(1 << 20, 50, CUDA_R_16BF);
    const DeviceBytes halves = device(values, CUDA_R_16BF);
    std::vector<std::uint32_t> pattern(values.size() / 2);
    TANDEM_TRY(cudaMemcpy(pattern.data(), halves.data(), halves.size(), cudaMemcpyDeviceToHost));
    for (const DeviceBytes* pool : {&a_, &b_, &d_}) pool->repeat(pattern);
  }

  Times measure(const Lane& lane, Precision precision, const NamedGemm& g) const {
    const cudaDataType_t type = input_type(precision);
    const cudaDataType_t output = g.update ? CUDA_R_32F : type;
    const std::size_t a_bytes = stride(g.shape.m * g.shape.k, type);
    const std::size_t b_bytes = stride(g.shape.n * g.shape.k, type);
    const std::size_t d_bytes = stride(g.shape.m * g.shape.n, output);
    const std::size_t largest = std::max({a_bytes, b_bytes, d_bytes});
    const std::size_t copies =
        std::clamp<std::size_t>(kColdBytes / (a_bytes + b_bytes + d_bytes), 1, kBytes / largest);

    Gemm gemm(precision, g.shape, output);
    if (g.update) gemm.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
    const float one = 1, zero = 0;
    const void* alpha = g.update ? scalars_.at(0) : &one;
    const void* beta = g.update ? scalars_.at(sizeof(float)) : static_cast<const void*>(&zero);
    Times times;
    for (const Algorithm& algorithm : gemm.algorithms(lane)) {
      double time = 0;
      try {
        time = microseconds(lane, 20, [&](int i) {
          const std::size_t copy = static_cast<std::size_t>(i) % copies;
          TANDEM_TRY(gemm.run(lane, algorithm, alpha, a_.at(copy * a_bytes), b_.at(copy * b_bytes),
                              beta, d_.at(copy * d_bytes)));
        });
      } catch (const std::runtime_error& error) {
        times.refused += fmt::format("    {}: {}\n", algorithm.text, error.what());
        continue;
      }
      if (times.passing == 0) times.first = time;
      if (times.passing == 0 || time < times.best) {
        times.best = time;
        times.best_text = algorithm.text;
      }
      ++times.passing;
    }
    return times;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 30;  // twice the largest operand
  static constexpr std::size_t kColdBytes = std::size_t{200} << 20;

  static std::size_t stride(std::int64_t count, cudaDataType_t type) {
    const std::size_t bytes = static_cast<std::size_t>(count) * (type == CUDA_R_16BF ? 2 : 4);
    return (bytes + 255) / 256 * 256;
  }

  DeviceBytes a_, b_, d_, scalars_;
};

}  // namespace

Finding cublaslt_w1_heuristics(const Lane& lane) {
  const Pools pools;
  Finding finding{true, ""};
  std::size_t fewest = 1000;
  std::string slow;
  fmt::print("  us, sum of 8 levels, first proposal / best of those that pass, cold L2\n");
  fmt::print("  {:6} {:>5} {:>5} {:>17} {:>17} {:>17}\n", "", "batch", "least", "encoder or dgrad",
             "forward", "wgrad");
  for (const Precision precision : kPrecisions) {
    for (const std::int64_t batch : {8, 32, 128}) {
      double first[3] = {}, best[3] = {};
      std::size_t least = 1000;
      for (int depth = 1; depth <= 8; ++depth) {
        const std::int64_t channels = 8192 >> depth, pixels = batch << (2 * (depth - 1));
        const auto gemms = level(channels, pixels);
        for (std::size_t column = 0; column < gemms.size(); ++column) {
          const NamedGemm& gemm = gemms[column];
          const std::string what =
              fmt::format("{} b{} {} C={}", name(precision), batch, gemm.kind, channels);
          const Times times = pools.measure(lane, precision, gemm);
          if (!times.refused.empty()) fmt::print("  {} cannot run:\n{}", what, times.refused);
          least = std::min(least, times.passing);
          if (times.passing == 0) {
            finding.holds = false;
            finding.detail += what + " has none; ";
          }
          first[column] += times.first;
          best[column] += times.best;
          if (times.first > 1.25 * times.best && times.first - times.best > 1)
            slow += fmt::format("    {}: {:.1f} / {:.1f}, {}\n", what, times.first, times.best,
                                times.best_text);
        }
      }
      fewest = std::min(fewest, least);
      fmt::print("  {:6} {:5} {:5}", name(precision), batch, least);
      for (int i = 0; i < 3; ++i)
        fmt::print(" {:>17}", fmt::format("{:.1f} / {:.1f}", first[i], best[i]));
      fmt::print("\n");
    }
  }
  fmt::print("  first proposal more than 25 % and 1 us behind the best:\n{}",
             slow.empty() ? "    none\n" : slow);
  finding.detail += fmt::format("at least {} of 24 proposals pass", fewest);
  return finding;
}

}  // namespace tandem::contract
