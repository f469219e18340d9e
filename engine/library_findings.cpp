// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tandem/engine/error.hpp>
#include <tandem/engine/library_findings.hpp>

namespace tandem {
namespace {

struct EpilogueRule {
  std::string_view epilogue;
  std::vector<std::string_view> needs;  // findings
};

/// A mask is read back as another shape, so each half of the pair needs all of it.
const std::vector<EpilogueRule>& epilogue_rules() {
  static const std::vector<EpilogueRule> rules = {
      {"CUBLASLT_EPILOGUE_DEFAULT", {}},
      {"CUBLASLT_EPILOGUE_RELU", {"relu_epilogue_keeps_nan"}},
      {"CUBLASLT_EPILOGUE_RELU_BIAS", {"relu_epilogue_keeps_nan"}},
      {"CUBLASLT_EPILOGUE_RELU_AUX_BIAS",
       {"relu_epilogue_keeps_nan", "relu_mask_at_zero", "relu_mask_reinterpreted_c128"}},
      {"CUBLASLT_EPILOGUE_DRELU", {"relu_mask_at_zero", "relu_mask_reinterpreted_c128"}},
      {"CUBLASLT_EPILOGUE_BGRADA", {"alpha_scales_bgrada"}},
      {"CUBLASLT_EPILOGUE_BGRADB", {"alpha_scales_bgrada"}},
  };
  return rules;
}

/// Null for an epilogue that nobody asked the library about.
const EpilogueRule* rule_of(std::string_view epilogue) {
  const auto& rules = epilogue_rules();
  const auto rule = std::find_if(rules.begin(), rules.end(), [epilogue](const EpilogueRule& r) {
    return r.epilogue == epilogue;
  });
  return rule == rules.end() ? nullptr : &*rule;
}

const LibraryFinding& finding(std::string_view name, const std::vector<LibraryFinding>& table) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [name](const LibraryFinding& f) { return f.name == name; });
  if (found == table.end()) {
    throw Error(ErrorCode::usage, "library finding '" + std::string(name) +
                                      "' is not in the table of engine/library_findings.cpp");
  }
  return *found;
}

}  // namespace

const std::vector<LibraryFinding>& library_findings() {
  // Where the test fails it prints the lines to paste here.
  static const std::vector<LibraryFinding> table = {
      {"wgrad_in_place_device_scalars", FindingState::holds,
       "W += alpha dW with D = C = W and both scalars in device memory"},
      {"relu_mask_reinterpreted_c128", FindingState::holds,
       "a mask written as [P, 4C] is read as [4P, C] for C >= 128"},
      {"relu_mask_at_zero", FindingState::fails,
       "the gradient is 0 where the pre-activation is 0.0 or -0.0"},
      {"relu_epilogue_keeps_nan", FindingState::fails, "ReLU epilogues pass a NaN on"},
      {"alpha_scales_bgrada", FindingState::fails,
       "alpha multiplies the bias gradient of BGRADA and BGRADB too"},
      {"ones_probe", FindingState::fails,
       "weight gradients of ones equal K exactly, whatever K, with every algorithm of the filter"},
      {"repeats_beside_busy_stream_gemm", FindingState::holds,
       "50 repeats give the same bits while another stream computes"},
      {"repeats_beside_busy_stream_conv", FindingState::holds,
       "50 repeats give the same bits while another stream computes"},
      {"cudnn_conv3x3_nhwc_strict_forward", FindingState::holds,
       "an algorithm passes the filter and is right, f32 NHWC without tensor cores"},
      {"cudnn_conv3x3_nhwc_strict_backward_data", FindingState::holds,
       "an algorithm passes the filter and is right, f32 NHWC without tensor cores"},
      {"cudnn_conv3x3_nhwc_strict_backward_weights", FindingState::holds,
       "an algorithm passes the filter and is right, f32 NHWC without tensor cores"},
      {"cudnn_conv3x3_nhwc_tf32_forward", FindingState::holds,
       "an algorithm passes the filter and is right, f32 NHWC on tensor cores"},
      {"cudnn_conv3x3_nhwc_tf32_backward_data", FindingState::holds,
       "an algorithm passes the filter and is right, f32 NHWC on tensor cores"},
      {"cudnn_conv3x3_nhwc_tf32_backward_weights", FindingState::holds,
       "an algorithm passes the filter and is right, f32 NHWC on tensor cores"},
      {"cudnn_nan_propagates", FindingState::holds,
       "a NaN in a convolution's operand reaches the outputs that depend on it"},
      {"cublaslt_w1_heuristics", FindingState::holds,
       "every GEMM of workload W1 has an algorithm that passes the filter, in each precision"},
  };
  return table;
}

bool finding_holds(std::string_view name) {
  return finding(name, library_findings()).state == FindingState::holds;
}

void require_finding(std::string_view name, std::string_view use,
                     const std::vector<LibraryFinding>& table) {
  const LibraryFinding& needed = finding(name, table);
  if (needed.state == FindingState::holds) return;
  throw Error(
      ErrorCode::run_failed,
      fmt::format("{} needs the library finding '{}' ({}), which {}", use, name, needed.meaning,
                  needed.state == FindingState::fails ? "fails" : "was not measured"),
      fmt::format("see findings.{} of engine/library_findings.json", name));
}

bool epilogue_allowed(std::string_view epilogue) {
  const EpilogueRule* const rule = rule_of(epilogue);
  return rule != nullptr && std::all_of(rule->needs.begin(), rule->needs.end(), finding_holds);
}

void require_epilogue(std::string_view epilogue, const std::vector<LibraryFinding>& table) {
  const EpilogueRule* const rule = rule_of(epilogue);
  if (rule == nullptr)
    throw Error(
        ErrorCode::run_failed,
        fmt::format("no library finding says whether the epilogue {} may be used", epilogue));
  for (const std::string_view name : rule->needs)
    require_finding(name, fmt::format("the epilogue {}", epilogue), table);
}

}  // namespace tandem
