// SPDX-License-Identifier: Apache-2.0
// What cuDNN's legacy interface does for the head: a 3x3 convolution, padding 1, 16 channels to 10
// or 11 classes, f32 in NHWC.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <tandem/tests/gpu/library_contract.hpp>

namespace tandem::contract {
namespace {

struct ConvShape {
  int N, H, W, C, K;
  std::int64_t x_count() const { return std::int64_t{N} * H * W * C; }
  std::int64_t y_count() const { return std::int64_t{N} * H * W * K; }
  std::int64_t w_count() const { return std::int64_t{K} * 9 * C; }
};

constexpr ConvShape kSmall10 = {8, 64, 64, 16, 10}, kSmall11 = {8, 64, 64, 16, 11};
constexpr ConvPass kPasses[] = {ConvPass::forward, ConvPass::backward_data,
                                ConvPass::backward_weights};

// --- the oracle ---

struct Operands {
  std::vector<double> x, w, dy;  // [N,H,W,C], [K,3,3,C], [N,H,W,K]
};

/// y, dx and dw with, as bounds, the sums of the absolute terms; and how many terms at most.
struct ConvReference {
  std::vector<test::Expected> result[3];  // by ConvPass
};

ConvReference reference(const ConvShape& s, const Operands& o) {
  ConvReference r;
  r.result[0].resize(o.dy.size());
  r.result[1].resize(o.x.size());
  r.result[2].resize(o.w.size());
  const auto add = [](test::Expected& sum, double product) {
    sum.value += product;
    sum.bound += std::abs(product);
  };
  for (int n = 0; n < s.N; ++n)
    for (int h = 0; h < s.H; ++h)
      for (int w = 0; w < s.W; ++w)
        for (int tap = 0; tap < 9; ++tap) {
          const int ih = h + tap / 3 - 1, iw = w + tap % 3 - 1;
          if (ih < 0 || ih >= s.H || iw < 0 || iw >= s.W) continue;
          const auto in = (std::size_t(n) * s.H + ih) * s.W + iw;
          const auto out = (std::size_t(n) * s.H + h) * s.W + w;
          for (int k = 0; k < s.K; ++k)
            for (int c = 0; c < s.C; ++c) {
              const auto ix = in * s.C + c, iy = out * s.K + k;
              const auto iw9 = (std::size_t(k) * 9 + tap) * s.C + c;
              add(r.result[0][iy], o.x[ix] * o.w[iw9]);
              add(r.result[1][ix], o.dy[iy] * o.w[iw9]);
              add(r.result[2][iw9], o.dy[iy] * o.x[ix]);
            }
        }
  return r;
}

double terms(const ConvShape& s, ConvPass pass) {
  return pass == ConvPass::forward         ? 9.0 * s.C
         : pass == ConvPass::backward_data ? 9.0 * s.K
                                           : 1.0 * s.N * s.H * s.W;
}

// --- the library ---

/// cudnnConvolution*AlgoPerf_t of the three passes as one.
struct ConvAlgorithm {
  int algo;
  std::size_t memory;
  cudnnMathType_t math;
};

class Conv {
 public:
  Conv(const ConvShape& s, cudnnTensorFormat_t format, cudnnMathType_t math)
      : x_(create<Tensor>(cudnnCreateTensorDescriptor)),
        y_(create<Tensor>(cudnnCreateTensorDescriptor)),
        w_(create<Filter>(cudnnCreateFilterDescriptor)),
        conv_(create<Convolution>(cudnnCreateConvolutionDescriptor)) {
    TANDEM_TRY(cudnnSetTensor4dDescriptor(x_.get(), format, CUDNN_DATA_FLOAT, s.N, s.C, s.H, s.W));
    TANDEM_TRY(cudnnSetTensor4dDescriptor(y_.get(), format, CUDNN_DATA_FLOAT, s.N, s.K, s.H, s.W));
    TANDEM_TRY(cudnnSetFilter4dDescriptor(w_.get(), CUDNN_DATA_FLOAT, format, s.K, s.C, 3, 3));
    TANDEM_TRY(cudnnSetConvolution2dDescriptor(conv_.get(), 1, 1, 1, 1, 1, 1,
                                               CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    TANDEM_TRY(cudnnSetConvolutionMathType(conv_.get(), math));
  }

  /// The library's proposals that pass the filter, in its order, and all of them in words.
  std::vector<ConvAlgorithm> algorithms(const Lane& lane, ConvPass pass, bool tf32,
                                        std::string& proposals) const {
    std::vector<ConvAlgorithm> passing;
    const auto keep = [&](int algo, cudnnStatus_t status, std::size_t memory,
                          cudnnDeterminism_t determinism, cudnnMathType_t math) {
      const bool passes = status == CUDNN_STATUS_SUCCESS && determinism == CUDNN_DETERMINISTIC &&
                          memory <= kWorkspaceBytes && allowed(pass, algo) &&
                          (math == CUDNN_FMA_MATH || math == CUDNN_DEFAULT_MATH) != tf32;
      if (passes) passing.push_back({algo, memory, math});
      if (status == CUDNN_STATUS_SUCCESS)
        proposals += fmt::format("{}{}/{}{}/{:.1f}MiB{}", proposals.empty() ? "" : " ", algo,
                                 math == CUDNN_FMA_MATH         ? "fma"
                                 : math == CUDNN_DEFAULT_MATH   ? "default"
                                 : math == CUDNN_TENSOR_OP_MATH ? "tensor"
                                                                : "tensor-converting",
                                 determinism == CUDNN_DETERMINISTIC ? "" : "/random",
                                 static_cast<double>(memory) / 1048576, passes ? "*" : "");
    };
    int count = 0;
    if (pass == ConvPass::forward) {
      cudnnConvolutionFwdAlgoPerf_t results[CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
      TANDEM_TRY(cudnnGetConvolutionForwardAlgorithm_v7(
          lane.cudnn(), x_.get(), w_.get(), conv_.get(), y_.get(), CUDNN_CONVOLUTION_FWD_ALGO_COUNT,
          &count, results));
      for (int i = 0; i < count; ++i)
        keep(results[i].algo, results[i].status, results[i].memory, results[i].determinism,
             results[i].mathType);
    } else if (pass == ConvPass::backward_data) {
      cudnnConvolutionBwdDataAlgoPerf_t results[CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT];
      TANDEM_TRY(cudnnGetConvolutionBackwardDataAlgorithm_v7(
          lane.cudnn(), w_.get(), y_.get(), conv_.get(), x_.get(),
          CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, &count, results));
      for (int i = 0; i < count; ++i)
        keep(results[i].algo, results[i].status, results[i].memory, results[i].determinism,
             results[i].mathType);
    } else {
      cudnnConvolutionBwdFilterAlgoPerf_t results[CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT];
      TANDEM_TRY(cudnnGetConvolutionBackwardFilterAlgorithm_v7(
          lane.cudnn(), x_.get(), y_.get(), conv_.get(), w_.get(),
          CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, &count, results));
      for (int i = 0; i < count; ++i)
        keep(results[i].algo, results[i].status, results[i].memory, results[i].determinism,
             results[i].mathType);
    }
    return passing;
  }

  /// Enqueues the pass; writes y, dx or dw over what was there.
  void run(const Lane& lane, ConvPass pass, const ConvAlgorithm& algorithm, void* x, void* w,
           void* y) const {
    TANDEM_TRY(cudnnSetConvolutionMathType(conv_.get(), algorithm.math));
    const float one = 1, zero = 0;
    if (pass == ConvPass::forward) {
      TANDEM_TRY(cudnnConvolutionForward(lane.cudnn(), &one, x_.get(), x, w_.get(), w, conv_.get(),
                                         static_cast<cudnnConvolutionFwdAlgo_t>(algorithm.algo),
                                         lane.workspace(), kWorkspaceBytes, &zero, y_.get(), y));
    } else if (pass == ConvPass::backward_data) {
      TANDEM_TRY(
          cudnnConvolutionBackwardData(lane.cudnn(), &one, w_.get(), w, y_.get(), y, conv_.get(),
                                       static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm.algo),
                                       lane.workspace(), kWorkspaceBytes, &zero, x_.get(), x));
    } else {
      TANDEM_TRY(cudnnConvolutionBackwardFilter(
          lane.cudnn(), &one, x_.get(), x, y_.get(), y, conv_.get(),
          static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm.algo), lane.workspace(),
          kWorkspaceBytes, &zero, w_.get(), w));
    }
  }

 private:
  using Tensor = Owner<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
  using Filter = Owner<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
  using Convolution = Owner<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;

  /// No FFT, no Winograd; of the backward ones 0 (and 3) add with atomics.
  static bool allowed(ConvPass pass, int algo) {
    return pass == ConvPass::forward         ? algo <= CUDNN_CONVOLUTION_FWD_ALGO_DIRECT
           : pass == ConvPass::backward_data ? algo == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
                                             : algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
  }

  Tensor x_, y_;
  Filter w_;
  Convolution conv_;
};

/// A convolution with what passes the filter: TF32 asked for by name, else as the default allows.
struct Planned {
  Conv conv;
  std::vector<ConvAlgorithm> algorithms;
  std::string proposals;
};

Planned plan(const Lane& lane, const ConvShape& shape, cudnnTensorFormat_t format, ConvPass pass,
             bool tf32) {
  std::string proposals;
  Conv conv(shape, format, tf32 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH);
  auto algorithms = conv.algorithms(lane, pass, tf32, proposals);
  if (tf32 && algorithms.empty()) {
    std::string by_default;
    Conv other(shape, format, CUDNN_DEFAULT_MATH);
    algorithms = other.algorithms(lane, pass, tf32, by_default);
    proposals += " | default math: " + by_default;
    conv = std::move(other);
  }
  if (!tf32) {
    // Asked for FMA, a result that says "default" would allow TF32 when set.
    for (ConvAlgorithm& algorithm : algorithms) algorithm.math = CUDNN_FMA_MATH;
  }
  return {std::move(conv), std::move(algorithms), std::move(proposals)};
}

struct DeviceOperands {
  DeviceBytes x, w, y;
  explicit DeviceOperands(const Operands& o)
      : x(device(o.x, CUDA_R_32F)), w(device(o.w, CUDA_R_32F)), y(device(o.dy, CUDA_R_32F)) {}
  const DeviceBytes& output(ConvPass pass) const {
    return pass == ConvPass::forward ? y : pass == ConvPass::backward_data ? x : w;
  }
};

std::vector<double> run_once(const Lane& lane, const Planned& planned, ConvPass pass,
                             const ConvAlgorithm& algorithm, const Operands& operands) {
  const DeviceOperands device_operands(operands);
  const DeviceBytes& output = device_operands.output(pass);
  output.poison();
  planned.conv.run(lane, pass, algorithm, device_operands.x.data(), device_operands.w.data(),
                   device_operands.y.data());
  return output.download(output.size() / sizeof(float), CUDA_R_32F);
}

enum class Data { integers, reals, bf16_values };

Operands operands(const ConvShape& s, Data data) {
  const auto make = [data](std::int64_t count, std::uint64_t seed) {
    return data == Data::integers
               ? integers(count, seed)
               : reals(count, seed, data == Data::reals ? CUDA_R_32F : CUDA_R_16BF);
  };
  return {make(s.x_count(), 60), make(s.w_count(), 61), make(s.y_count(), 62)};
}

/// Every passing algorithm on every kind of data. Sets `rounds` if inputs are rounded to TF32.
std::string verify(const Lane& lane, const Planned& planned, const ConvShape& shape, ConvPass pass,
                   bool tf32, bool& rounds) {
  for (const Data data : {Data::integers, Data::reals, Data::bf16_values}) {
    const Operands o = operands(shape, data);
    const ConvReference oracle = reference(shape, o);
    const auto expected = [&](Precision precision) {
      auto bounds = oracle.result[static_cast<int>(pass)];
      for (test::Expected& e : bounds)
        e.bound *= data == Data::integers ? 0 : sum_error(terms(shape, pass), precision);
      return bounds;
    };
    // A bf16 value is a TF32 value too, so that there nothing is lost but in the sums.
    const Precision precision = !tf32                 ? Precision::strict
                                : data == Data::reals ? Precision::tf32
                                                      : Precision::bf16;
    for (const ConvAlgorithm& algorithm : planned.algorithms) {
      const auto actual = run_once(lane, planned, pass, algorithm, o);
      const std::string wrong =
          mismatch(expected(precision), actual, fmt::format("algorithm {}", algorithm.algo));
      if (!wrong.empty()) return wrong;
      if (data == Data::reals)
        rounds = rounds || !mismatch(expected(Precision::bf16), actual, "").empty();
    }
  }
  return {};
}

/// The first passing algorithm at batch 8 and full size, with operands too large for L2.
std::string time_text(const Lane& lane, ConvPass pass, bool tf32) {
  const ConvShape shape = {8, 256, 256, 16, 10};
  const Planned planned = plan(lane, shape, CUDNN_TENSOR_NHWC, pass, tf32);
  if (planned.algorithms.empty()) return "nothing passes at [8,256,256,16]";
  constexpr std::size_t kCopies = 4;
  const auto x_bytes = static_cast<std::size_t>(shape.x_count()) * sizeof(float);
  const auto y_bytes = static_cast<std::size_t>(shape.y_count()) * sizeof(float);
  const DeviceBytes x(kCopies * x_bytes), y(kCopies * y_bytes);
  const DeviceBytes w(static_cast<std::size_t>(shape.w_count()) * sizeof(float));
  for (const DeviceBytes* memory : {&x, &y, &w}) memory->repeat({0x3F000000u, 0xBE800000u});
  try {
    const double time = microseconds(lane, 20, [&](int i) {
      const std::size_t copy = static_cast<std::size_t>(i) % kCopies;
      planned.conv.run(lane, pass, planned.algorithms[0], x.at(copy * x_bytes), w.data(),
                       y.at(copy * y_bytes));
    });
    return fmt::format("algorithm {} {:.1f} us at [8,256,256,16]", planned.algorithms[0].algo,
                       time);
  } catch (const std::runtime_error& error) {
    return std::string("not captured in a graph: ") + error.what();
  }
}

}  // namespace

Finding conv3x3_nhwc(const Lane& lane, ConvPass pass, bool tf32) {
  Finding finding{true, ""};
  for (const ConvShape& shape : {kSmall10, kSmall11}) {
    const Planned planned = plan(lane, shape, CUDNN_TENSOR_NHWC, pass, tf32);
    bool rounds = false;
    const std::string wrong = verify(lane, planned, shape, pass, tf32, rounds);
    // The chunk of images that the engine hands to the library at a time: 2^19 pixels.
    const ConvShape large = {8, 256, 256, shape.C, shape.K};
    const Planned at_large = plan(lane, large, CUDNN_TENSOR_NHWC, pass, tf32);
    const bool passes = !planned.algorithms.empty() && !at_large.algorithms.empty();
    finding.holds = finding.holds && passes && wrong.empty();
    finding.detail += fmt::format("K={}: [{}] {}{}; 8 images of 256x256: [{}]; ", shape.K,
                                  planned.proposals, wrong.empty() ? "right" : "wrong: " + wrong,
                                  rounds ? ", rounds to tf32" : "", at_large.proposals);
    if (!passes) {
      const Planned nchw = plan(lane, shape, CUDNN_TENSOR_NCHW, pass, tf32);
      finding.detail +=
          fmt::format("in NCHW {} pass: [{}]; ", nchw.algorithms.size(), nchw.proposals);
    }
  }
  finding.detail += time_text(lane, pass, tf32);
  return finding;
}

Finding cudnn_nan_propagates(const Lane& lane) {
  const ConvShape shape = kSmall10;
  Operands o = operands(shape, Data::integers);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  // Pixels inside the image and a centre tap: padding is never multiplied by them.
  const auto pixel = [&](int n, int h, int w) {
    return (static_cast<std::size_t>(n) * shape.H + h) * shape.W + w;
  };
  o.x[pixel(1, 5, 6) * shape.C + 3] = nan;
  o.dy[pixel(2, 60, 33) * shape.K + 7] = nan;
  o.w[(2 * 9 + 4) * shape.C + 1] = nan;
  const ConvReference oracle = reference(shape, o);

  Finding finding{true, "algorithms that pass NaN on, and nothing but it:"};
  for (const bool tf32 : {false, true}) {
    for (const ConvPass pass : kPasses) {
      const Planned planned = plan(lane, shape, CUDNN_TENSOR_NHWC, pass, tf32);
      const auto& expected = oracle.result[static_cast<int>(pass)];
      int right = 0;
      for (const ConvAlgorithm& algorithm : planned.algorithms) {
        const auto actual = run_once(lane, planned, pass, algorithm, o);
        bool same = true;
        for (std::size_t i = 0; i < expected.size(); ++i)
          same = same && std::isnan(expected[i].value) == std::isnan(actual[i]);
        right += same;
      }
      const auto all = static_cast<int>(planned.algorithms.size());
      finding.holds = finding.holds && right == all;
      finding.detail += fmt::format(" {} {} {}/{};", tf32 ? "tf32" : "strict",
                                    pass == ConvPass::forward         ? "forward"
                                    : pass == ConvPass::backward_data ? "data"
                                                                      : "weights",
                                    right, all);
    }
  }
  return finding;
}

Finding repeats_beside_busy_stream_conv(const Lane& lane, const Lane& busy_lane) {
  BusyWork busy(busy_lane);
  int cases = 0, overlapped = 0;
  std::string wrong;
  for (const bool tf32 : {false, true}) {
    for (const ConvPass pass : kPasses) {
      const Planned planned = plan(lane, kSmall10, CUDNN_TENSOR_NHWC, pass, tf32);
      // The output replaces an operand of the other passes: start each from the same operands.
      const DeviceOperands fresh(operands(kSmall10, Data::reals));
      for (const ConvAlgorithm& algorithm : planned.algorithms) {
        const RepeatsOutcome outcome = repeat_beside(busy, lane, fresh.output(pass), [&] {
          planned.conv.run(lane, pass, algorithm, fresh.x.data(), fresh.w.data(), fresh.y.data());
        });
        ++cases;
        overlapped += outcome.overlapped;
        if (outcome.differing > 0 && wrong.empty())
          wrong = fmt::format("{} pass {} algorithm {}: {} of {} differ", tf32 ? "tf32" : "strict",
                              static_cast<int>(pass), algorithm.algo, outcome.differing, kRepeats);
      }
    }
  }
  return {wrong.empty() && overlapped > 0,
          fmt::format("{} algorithms, {} seen overlapping{}{}", cases, overlapped,
                      wrong.empty() ? "" : "; first: ", wrong)};
}

}  // namespace tandem::contract
