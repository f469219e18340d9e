// SPDX-License-Identifier: Apache-2.0
// Asks cuBLASLt and cuDNN what the CUDA backend must know, about a minute on an H200. Prints a
// table, writes it as JSON (to the path in TANDEM_FINDINGS, else library_findings.json), and fails
// where it differs from the table that the plan reads, engine/library_findings.cpp.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tandem/engine/cuda_info.hpp>
#include <tandem/engine/library_findings.hpp>
#include <tandem/tests/gpu/library_contract.hpp>
#include <tandem/tests/support/gpu_guard.hpp>

namespace tandem::contract {
namespace {

std::string findings_path() {
  const char* path = std::getenv("TANDEM_FINDINGS");
  return path != nullptr ? path : "library_findings.json";
}

nlohmann::ordered_json environment() {
  const CudaInfo info = query_cuda();
  const char* override = std::getenv("NVIDIA_TF32_OVERRIDE");
  return {{"gpu", info.devices.at(0).name},
          {"multiprocessors", info.devices.at(0).multiprocessors},
          {"driver", info.driver},
          {"runtime", info.runtime},
          {"cublaslt", info.cublaslt},
          {"cudnn", info.cudnn},
          {"nvidia_tf32_override", override != nullptr ? override : "unset"}};
}

/// The rows of the table by measuring function, run in this order.
std::vector<std::pair<std::string, std::function<Finding()>>> measurements(const Lane& lane,
                                                                           const Lane& busy) {
  std::vector<std::pair<std::string, std::function<Finding()>>> list;
#define TANDEM_MEASURE(function, ...) \
  list.emplace_back(#function, [&] { return function(__VA_ARGS__); })
  TANDEM_MEASURE(wgrad_in_place_device_scalars, lane);
  TANDEM_MEASURE(relu_mask_reinterpreted_c128, lane);
  TANDEM_MEASURE(relu_mask_at_zero, lane);
  TANDEM_MEASURE(relu_epilogue_keeps_nan, lane);
  TANDEM_MEASURE(alpha_scales_bgrada, lane);
  TANDEM_MEASURE(ones_probe, lane);
  TANDEM_MEASURE(repeats_beside_busy_stream_gemm, lane, busy);
  TANDEM_MEASURE(repeats_beside_busy_stream_conv, lane, busy);
  for (const bool tf32 : {false, true}) {
    for (const auto& [pass, text] : {std::pair{ConvPass::forward, "forward"},
                                     std::pair{ConvPass::backward_data, "backward_data"},
                                     std::pair{ConvPass::backward_weights, "backward_weights"}}) {
      list.emplace_back(fmt::format("cudnn_conv3x3_nhwc_{}_{}", tf32 ? "tf32" : "strict", text),
                        [&lane, pass = pass, tf32] { return conv3x3_nhwc(lane, pass, tf32); });
    }
  }
  TANDEM_MEASURE(cudnn_nan_propagates, lane);
  TANDEM_MEASURE(cublaslt_w1_heuristics, lane);
#undef TANDEM_MEASURE
  return list;
}

using LibraryContract = test::GpuTest;

TEST_F(LibraryContract, AgreesWithTheTable) {
  using Clock = std::chrono::steady_clock;
  int lowest = 0, highest = 0;
  TANDEM_TRY(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  const Lane lane(highest), busy(lowest);
  nlohmann::ordered_json file;
  file["environment"] = environment();
  file["findings"] = nlohmann::ordered_json::object();
  fmt::print("{}\n", file["environment"].dump());

  std::string lines;  // of the table, to paste
  for (const auto& [name, measure] : measurements(lane, busy)) {
    const auto begin = Clock::now();
    Finding finding;
    try {
      finding = measure();
      TANDEM_TRY(cudaDeviceSynchronize());
    } catch (const std::exception& error) {
      finding = {false, std::string("error: ") + error.what()};
      ADD_FAILURE() << name << ": " << error.what();
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    fmt::print("{:5} {} ({:.1f} s)\n      {}\n", finding.holds ? "holds" : "FAILS", name, seconds,
               finding.detail);
    std::fflush(stdout);
    // Written after each, so that what is known survives a crash of the next.
    file["findings"][name] = {{"holds", finding.holds}, {"detail", finding.detail}};
    std::ofstream(findings_path()) << file.dump(2) << "\n";

    const FindingState measured = finding.holds ? FindingState::holds : FindingState::fails;
    bool known = false;
    for (const LibraryFinding& row : library_findings()) {
      if (row.name != name) continue;
      known = true;
      if (row.state != measured)
        lines += fmt::format("      {{\"{}\", FindingState::{},\n       \"{}\"}},\n", name,
                             finding.holds ? "holds" : "fails", row.meaning);
    }
    EXPECT_TRUE(known) << name << " is missing from engine/library_findings.cpp";
  }
  EXPECT_EQ(file["findings"].size(), library_findings().size()) << "a row was not measured";
  EXPECT_TRUE(lines.empty()) << "differs from engine/library_findings.cpp; copy " << findings_path()
                             << " to engine/library_findings.json, and there put\n"
                             << lines;
  EXPECT_TRUE(std::ifstream(findings_path()).good()) << findings_path() << " was not written";
}

}  // namespace
}  // namespace tandem::contract
