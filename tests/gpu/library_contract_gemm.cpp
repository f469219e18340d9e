// SPDX-License-Identifier: Apache-2.0
// What cuBLASLt does: in-place weight gradients, ReLU masks, NaN, bias gradients, ragged K,
// repeats. Integer data make every sum exact, so most comparisons are for equality.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tandem/tests/gpu/library_contract.hpp>

namespace tandem::contract {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Keeps the first of the texts that say what is wrong.
void keep_first(std::string& first, const std::string& text) {
  if (first.empty()) first = text;
}

/// Weight gradients as the plan asks for them: D[m, n] = A[m, pixels] B[n, pixels]^T.
GemmShape weight_gradient(std::int64_t m, std::int64_t n, std::int64_t pixels) {
  return {false, true, m, n, pixels};
}

// --- W += alpha dW ---

/// Runs every algorithm on one set of data, whose sums may be exact; adds to `runs`, returns what
/// is wrong.
std::string in_place_update(const Lane& lane, Precision precision, const GemmShape& shape,
                            const std::vector<double>& a, const std::vector<double>& b,
                            const std::vector<double>& w, float alpha, bool exact, int& runs) {
  Gemm gemm(precision, shape, CUDA_R_32F);
  gemm.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
  const std::string what = fmt::format("{} {}x{} K={}", name(precision), shape.m, shape.n, shape.k);
  const auto algorithms = gemm.algorithms(lane);
  if (algorithms.empty()) return what + ": " + gemm.refusal();

  std::vector<test::Expected> expected;
  const auto products = gemm_reference(shape, a, b);
  for (std::size_t i = 0; i < products.size(); ++i) {
    const auto& [value, absolute] = products[i];
    const double scale = static_cast<double>(alpha);
    // K products and sums, the product with alpha, the sum with W.
    const double error = exact ? 0 : sum_error(static_cast<double>(shape.k + 2), precision);
    expected.push_back(
        {w[i] + scale * value, error * (std::abs(w[i]) + std::abs(scale) * absolute)});
  }
  const cudaDataType_t type = input_type(precision);
  const DeviceBytes device_a = device(a, type), device_b = device(b, type);
  const DeviceBytes scalars = device({static_cast<double>(alpha), 1.0}, CUDA_R_32F);
  const DeviceBytes device_w(w.size() * sizeof(float));
  for (const Algorithm& algorithm : algorithms) {
    device_w.upload(w, CUDA_R_32F);
    const cublasStatus_t status =
        gemm.run(lane, algorithm, scalars.at(0), device_a.data(), device_b.data(),
                 scalars.at(sizeof(float)), device_w.data());
    if (status != CUBLAS_STATUS_SUCCESS)
      return fmt::format("{} {}: {}", what, algorithm.text, cublasLtGetStatusString(status));
    ++runs;
    const std::string wrong =
        mismatch(expected, device_w.download(w.size(), CUDA_R_32F), what + " " + algorithm.text);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

// --- ReLU masks ---

/// A forward GEMM with RELU_AUX_BIAS on rows x columns, and a backward GEMM with DRELU that reads
/// the same mask memory as back_rows x back_columns.
struct MaskCase {
  std::int64_t rows, columns, back_rows, back_columns;
  float alpha;
  std::vector<double> weights, bias;  // [rows, kInner] and [rows]
  static constexpr std::int64_t kInner = 16;
};

struct MaskOutcome {
  int runs = 0;
  std::string refused, wrong;

  /// A refusal is loud, so that outside bf16 it does not count against the library.
  bool acceptable(Precision precision) const {
    if (!refused.empty()) return precision != Precision::bf16;
    return runs > 0 && wrong.empty();
  }
  std::string text() const {
    if (!refused.empty()) return "refused (" + refused + ")";
    return wrong.empty() ? fmt::format("right in {} runs", runs) : "wrong: " + wrong;
  }
};

MaskOutcome run_mask(const Lane& lane, Precision precision, const MaskCase& c) {
  const std::int64_t inner = MaskCase::kInner;
  const GemmShape forward_shape = {false, false, c.rows, c.columns, inner};
  const GemmShape backward_shape = {false, false, c.back_rows, c.back_columns, inner};
  const cudaDataType_t type = input_type(precision);
  const auto count = static_cast<std::size_t>(c.rows * c.columns);

  const auto x = integers(inner * c.columns, 11);
  const auto w2 = integers(c.back_rows * inner, 12), dy = integers(inner * c.back_columns, 13);
  std::vector<test::Expected> outputs(count), gradients(count);
  const auto products = gemm_reference(forward_shape, c.weights, x);
  const auto unmasked = gemm_reference(backward_shape, w2, dy);
  for (std::size_t i = 0; i < count; ++i) {
    const double pre = static_cast<double>(c.alpha) * products[i].first +
                       c.bias[i % static_cast<std::size_t>(c.rows)];
    outputs[i].value = pre > 0 ? pre : 0;
    gradients[i].value = pre > 0 ? unmasked[i].first : 0;
  }

  const DeviceBytes device_w = device(c.weights, type), device_x = device(x, type);
  const DeviceBytes device_w2 = device(w2, type), device_dy = device(dy, type);
  const DeviceBytes bias = device(c.bias, type);
  const DeviceBytes y(count * sizeof(float)), dx(count * sizeof(float));
  const DeviceBytes mask(count);  // one bit an element would do
  const void* bias_pointer = bias.data();
  void* mask_pointer = mask.data();

  MaskOutcome outcome;
  Gemm forward(precision, forward_shape, type), backward(precision, backward_shape, type);
  forward.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_AUX_BIAS);
  forward.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_pointer);
  forward.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask_pointer);
  backward.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DRELU);
  backward.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask_pointer);
  for (const auto& [gemm, ld] : {std::pair{&forward, c.rows}, std::pair{&backward, c.back_rows}}) {
    const cublasStatus_t status = gemm->try_set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
    if (status != CUBLAS_STATUS_SUCCESS)
      keep_first(outcome.refused,
                 fmt::format("mask ld {}: {}", ld, cublasLtGetStatusString(status)));
  }
  if (!outcome.refused.empty()) return outcome;
  const auto forwards = forward.algorithms(lane), backwards = backward.algorithms(lane);
  if (forwards.empty()) keep_first(outcome.refused, "RELU_AUX_BIAS: " + forward.refusal());
  if (backwards.empty()) keep_first(outcome.refused, "DRELU: " + backward.refusal());

  const auto run_pair = [&](const Algorithm& f, const Algorithm& b) {
    for (const DeviceBytes* memory : {&y, &dx, &mask}) memory->poison();
    cublasStatus_t status =
        forward.run(lane, f, c.alpha, device_w.data(), device_x.data(), 0.0f, y.data());
    if (status == CUBLAS_STATUS_SUCCESS)
      status = backward.run(lane, b, 1.0f, device_w2.data(), device_dy.data(), 0.0f, dx.data());
    if (status != CUBLAS_STATUS_SUCCESS) {
      keep_first(outcome.refused, cublasLtGetStatusString(status));
      return;
    }
    ++outcome.runs;
    keep_first(outcome.wrong, mismatch(outputs, y.download(count, type), "output, " + f.text));
    keep_first(outcome.wrong, mismatch(gradients, dx.download(count, type),
                                       "gradient, " + f.text + ", " + b.text));
  };
  // Every forward algorithm with the first backward one, and the other way round.
  for (std::size_t i = 0; outcome.refused.empty() && i < forwards.size(); ++i)
    run_pair(forwards[i], backwards[0]);
  for (std::size_t i = 1; outcome.refused.empty() && i < backwards.size(); ++i)
    run_pair(forwards[0], backwards[i]);
  return outcome;
}

/// [pixels, 4C] written, [4 pixels, C] read. The bias makes no pre-activation 0.
MaskOutcome reinterpreted_mask(const Lane& lane, Precision precision, std::int64_t channels) {
  const std::int64_t pixels = 200;
  MaskCase c = {4 * channels, pixels, channels, 4 * pixels, 1.0f, {}, {}};
  c.weights = integers(c.rows * MaskCase::kInner, 10, 1);
  c.bias = integers(c.rows, 14);
  for (double& value : c.bias) value += 0.5;
  return run_mask(lane, precision, c);
}

// --- NaN ---

/// Of the algorithms of a forward epilogue, how many keep a NaN of a weight and of a bias.
struct NanOutcome {
  int kept = 0, all = 0;
  std::string refused;
};

NanOutcome run_nan(const Lane& lane, Precision precision, cublasLtEpilogue_t epilogue) {
  const GemmShape shape = {false, false, 128, 64, 32};
  const std::int64_t weight_row = 3, bias_row = 7;
  const bool biased = epilogue != CUBLASLT_EPILOGUE_RELU;
  const cudaDataType_t type = input_type(precision);
  auto weights = integers(shape.m * shape.k, 20), bias = integers(shape.m, 21);
  weights[static_cast<std::size_t>(weight_row + 5 * shape.m)] = kNaN;
  bias[static_cast<std::size_t>(bias_row)] = kNaN;

  const DeviceBytes device_w = device(weights, type), device_bias = device(bias, type);
  const DeviceBytes x = device(integers(shape.k * shape.n, 22), type);
  const auto count = static_cast<std::size_t>(shape.m * shape.n);
  const DeviceBytes mask(count), y(count * sizeof(float));
  const void* bias_pointer = device_bias.data();
  void* mask_pointer = mask.data();

  Gemm gemm(precision, shape, type);
  gemm.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (biased) gemm.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_pointer);
  if (epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS) {
    gemm.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask_pointer);
    gemm.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.m);
  }
  NanOutcome outcome;
  const auto algorithms = gemm.algorithms(lane);
  if (algorithms.empty()) outcome.refused = gemm.refusal();
  for (const Algorithm& algorithm : algorithms) {
    TANDEM_TRY(cudaDeviceSynchronize());
    TANDEM_TRY(cudaMemset(y.data(), 0, y.size()));
    TANDEM_TRY(cudaDeviceSynchronize());
    TANDEM_TRY(gemm.run(lane, algorithm, 1.0f, device_w.data(), x.data(), 0.0f, y.data()));
    bool kept = true;
    const auto values = y.download(count, type);
    for (std::size_t i = 0; i < count; ++i) {
      const auto row = static_cast<std::int64_t>(i) % shape.m;
      const bool should = row == weight_row || (biased && row == bias_row);
      kept = kept && std::isnan(values[i]) == should;
    }
    outcome.kept += kept;
    ++outcome.all;
  }
  return outcome;
}

// --- bias gradients ---

/// "scaled", "unscaled", "refused" or "wrong", for the first algorithm.
std::string run_bias_gradient(const Lane& lane, Precision precision, cublasLtEpilogue_t epilogue,
                              bool device_scalars) {
  const GemmShape shape = weight_gradient(64, 32, 64);
  const bool of_a = epilogue == CUBLASLT_EPILOGUE_BGRADA;
  const std::int64_t length = of_a ? shape.m : shape.n;
  const float alpha = -0.5f;
  const cudaDataType_t type = input_type(precision);
  const auto a = integers(shape.m * shape.k, 30), b = integers(shape.n * shape.k, 31);
  std::vector<test::Expected> sums(static_cast<std::size_t>(length)), scaled;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    for (std::int64_t p = 0; p < shape.k; ++p)
      sums[i].value += (of_a ? a : b)[i + static_cast<std::size_t>(p * length)];
    scaled.push_back({static_cast<double>(alpha) * sums[i].value, 0});
  }

  const DeviceBytes device_a = device(a, type), device_b = device(b, type);
  const DeviceBytes d(static_cast<std::size_t>(shape.m * shape.n) * sizeof(float));
  const DeviceBytes gradient(sums.size() * sizeof(float));
  const DeviceBytes scalars = device({static_cast<double>(alpha), 0.0}, CUDA_R_32F);
  void* gradient_pointer = gradient.data();
  Gemm gemm(precision, shape, CUDA_R_32F);
  gemm.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  gemm.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, gradient_pointer);
  if (device_scalars) gemm.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
  const auto algorithms = gemm.algorithms(lane);
  if (algorithms.empty()) return "refused";
  gradient.poison();
  d.poison();
  const cublasStatus_t status =
      device_scalars
          ? gemm.run(lane, algorithms[0], scalars.at(0), device_a.data(), device_b.data(),
                     scalars.at(sizeof(float)), d.data())
          : gemm.run(lane, algorithms[0], alpha, device_a.data(), device_b.data(), 0.0f, d.data());
  if (status != CUBLAS_STATUS_SUCCESS) return "refused";
  const auto actual = gradient.download(sums.size(), CUDA_R_32F);
  return mismatch(scaled, actual, "").empty() ? "scaled"
         : mismatch(sums, actual, "").empty() ? "unscaled"
                                              : "wrong";
}

// --- ragged K ---

struct OnesTally {
  int runs = 0, wrong = 0, wrong_first = 0;  // the last: with the library's first proposal
  std::string first;
};

/// A and B are the same ones, so that every output is K.
void probe_ones(const Lane& lane, Precision precision, const GemmShape& shape,
                const DeviceBytes& ones, OnesTally& tally) {
  const auto count = static_cast<std::size_t>(shape.m * shape.n);
  const DeviceBytes d(count * sizeof(float));
  std::vector<float> host(count);
  Gemm gemm(precision, shape, CUDA_R_32F);
  const auto algorithms = gemm.algorithms(lane, count > (1 << 20) ? 4 : 16);
  const std::string what = fmt::format("{} {}x{} K={}", name(precision), shape.m, shape.n, shape.k);
  if (algorithms.empty()) keep_first(tally.first, what + ": " + gemm.refusal());
  for (const Algorithm& algorithm : algorithms) {
    d.poison();
    const cublasStatus_t status =
        gemm.run(lane, algorithm, 1.0f, ones.data(), ones.data(), 0.0f, d.data());
    TANDEM_TRY(cudaStreamSynchronize(lane.stream()));
    TANDEM_TRY(cudaMemcpy(host.data(), d.data(), d.size(), cudaMemcpyDeviceToHost));
    std::size_t unequal = 0, first = 0;
    for (std::size_t i = count; i-- > 0;) {
      if (host[i] == static_cast<float>(shape.k)) continue;
      ++unequal;
      first = i;
    }
    ++tally.runs;
    if (unequal == 0 && status == CUBLAS_STATUS_SUCCESS) continue;
    ++tally.wrong;
    tally.wrong_first += &algorithm == &algorithms.front();
    keep_first(tally.first, fmt::format("{} {} ({}): {} of {} outputs wrong, element {} is {}",
                                        what, algorithm.text, cublasLtGetStatusString(status),
                                        unequal, count, first, host[first]));
  }
}

}  // namespace

Finding wgrad_in_place_device_scalars(const Lane& lane) {
  int runs = 0;
  std::string wrong;
  for (const Precision precision : kPrecisions) {
    const cudaDataType_t type = input_type(precision);
    for (const GemmShape& shape : {weight_gradient(64, 32, 7), weight_gradient(48, 16, 1000),
                                   weight_gradient(512, 256, 33), weight_gradient(16, 64, 4097)}) {
      const std::int64_t m = shape.m, n = shape.n, k = shape.k;
      keep_first(wrong, in_place_update(lane, precision, shape, integers(m * k, 1),
                                        integers(n * k, 2), integers(m * n, 3), -0.5f, true, runs));
      keep_first(wrong, in_place_update(lane, precision, shape, reals(m * k, 4, type),
                                        reals(n * k, 5, type), reals(m * n, 6, CUDA_R_32F), -1e-3f,
                                        false, runs));
    }
  }
  return {wrong.empty(), wrong.empty() ? fmt::format("right in {} runs", runs) : wrong};
}

Finding relu_mask_reinterpreted_c128(const Lane& lane) {
  Finding finding{true, ""};
  for (const Precision precision : kPrecisions) {
    for (const std::int64_t channels : {64, 128, 256}) {
      const MaskOutcome outcome = reinterpreted_mask(lane, precision, channels);
      if (channels >= 128) finding.holds = finding.holds && outcome.acceptable(precision);
      finding.detail += fmt::format("{}{} C={}: {}", finding.detail.empty() ? "" : "; ",
                                    name(precision), channels, outcome.text());
    }
  }
  return finding;
}

Finding relu_mask_at_zero(const Lane& lane) {
  Finding finding{true, ""};
  for (const Precision precision : kPrecisions) {
    // Weights of 0 leave the bias; alpha = -1 makes the empty sum -0.0, so that -0.0 stays one.
    MaskCase c = {128, 200, 128, 200, -1.0f, {}, {}};
    c.weights.assign(static_cast<std::size_t>(c.rows * MaskCase::kInner), 0.0);
    const double pattern[] = {0.0, -0.0, 1.0, -1.0};
    for (std::size_t i = 0; i < static_cast<std::size_t>(c.rows); ++i)
      c.bias.push_back(pattern[i % 4]);
    const MaskOutcome outcome = run_mask(lane, precision, c);
    finding.holds = finding.holds && outcome.acceptable(precision);
    finding.detail += fmt::format("{}{}: {}", finding.detail.empty() ? "" : "; ", name(precision),
                                  outcome.text());
  }
  return finding;
}

Finding relu_epilogue_keeps_nan(const Lane& lane) {
  Finding finding{true, "algorithms that keep NaN:"};
  const std::pair<cublasLtEpilogue_t, const char*> epilogues[] = {
      {CUBLASLT_EPILOGUE_RELU, "RELU"},
      {CUBLASLT_EPILOGUE_RELU_BIAS, "RELU_BIAS"},
      {CUBLASLT_EPILOGUE_RELU_AUX_BIAS, "RELU_AUX_BIAS"}};
  for (const Precision precision : kPrecisions) {
    for (const auto& [epilogue, text] : epilogues) {
      const NanOutcome outcome = run_nan(lane, precision, epilogue);
      finding.holds = finding.holds && outcome.kept == outcome.all &&
                      (outcome.all > 0 || precision != Precision::bf16);
      finding.detail += fmt::format(" {} {} {}/{}{};", name(precision), text, outcome.kept,
                                    outcome.all, outcome.refused);
    }
  }
  return finding;
}

Finding alpha_scales_bgrada(const Lane& lane) {
  int scaled = 0, others = 0;
  std::string detail;
  for (const Precision precision : kPrecisions) {
    for (const auto& [epilogue, text] : {std::pair{CUBLASLT_EPILOGUE_BGRADA, "BGRADA"},
                                         std::pair{CUBLASLT_EPILOGUE_BGRADB, "BGRADB"}}) {
      for (const bool on_device : {false, true}) {
        const std::string outcome = run_bias_gradient(lane, precision, epilogue, on_device);
        scaled += outcome == "scaled";
        others += outcome == "unscaled" || outcome == "wrong";
        detail += fmt::format("{}{} {} {} scalars: {}", detail.empty() ? "" : "; ", name(precision),
                              text, on_device ? "device" : "host", outcome);
      }
    }
  }
  return {scaled > 0 && others == 0, detail};
}

Finding ones_probe(const Lane& lane) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 30;  // of A or B
  constexpr double kMostOperations = 2e11;
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {16, 16}, {16, 64}, {32, 32}, {64, 16}, {64, 64}, {64, 4096}, {4096, 64}, {4096, 4096}};
  OnesTally tally;
  for (const Precision precision : kPrecisions) {
    const bool half = precision == Precision::bf16;
    const DeviceBytes ones(static_cast<std::size_t>(kMostElements) * (half ? 2 : 4));
    ones.repeat(std::vector<std::uint32_t>(1 << 20, half ? 0x3F803F80u : 0x3F800000u));
    for (const auto& [m, n] : sizes) {
      for (const std::int64_t k : {1, 7, 33, 1000, 4097, 65535, 131071, 524296}) {
        const double operations = 2.0 * static_cast<double>(m * n) * static_cast<double>(k);
        if (std::max(m, n) * k <= kMostElements && operations <= kMostOperations)
          probe_ones(lane, precision, weight_gradient(m, n, k), ones, tally);
      }
    }
  }
  return {
      tally.first.empty() && tally.runs > 0,
      fmt::format("{} of {} runs wrong, {} with the first proposal{}{}", tally.wrong, tally.runs,
                  tally.wrong_first, tally.first.empty() ? "" : "; first: ", tally.first)};
}

Finding repeats_beside_busy_stream_gemm(const Lane& lane, const Lane& busy_lane) {
  BusyWork busy(busy_lane);
  int cases = 0, overlapped = 0;
  std::string wrong;
  for (const Precision precision : kPrecisions) {
    const cudaDataType_t type = input_type(precision);
    for (const GemmShape& shape : {weight_gradient(64, 32, 16383), weight_gradient(256, 128, 4097),
                                   weight_gradient(4096, 64, 1000)}) {
      const DeviceBytes a = device(reals(shape.m * shape.k, 40, type), type);
      const DeviceBytes b = device(reals(shape.n * shape.k, 41, type), type);
      const DeviceBytes d(static_cast<std::size_t>(shape.m * shape.n) * sizeof(float));
      Gemm gemm(precision, shape, CUDA_R_32F);
      for (const Algorithm& algorithm : gemm.algorithms(lane, 8)) {
        const RepeatsOutcome outcome = repeat_beside(busy, lane, d, [&] {
          TANDEM_TRY(gemm.run(lane, algorithm, 1.0f, a.data(), b.data(), 0.0f, d.data()));
        });
        ++cases;
        overlapped += outcome.overlapped;
        if (outcome.differing > 0)
          keep_first(wrong,
                     fmt::format("{} {}x{} K={} {}: {} of {} differ", name(precision), shape.m,
                                 shape.n, shape.k, algorithm.text, outcome.differing, kRepeats));
      }
    }
  }
  return {wrong.empty() && overlapped > 0,
          fmt::format("{} algorithms, {} seen overlapping{}{}", cases, overlapped,
                      wrong.empty() ? "" : "; first: ", wrong)};
}

}  // namespace tandem::contract
