// SPDX-License-Identifier: Apache-2.0
// What cuBLASLt and cuDNN were found to do on the GPU: the file of record that the CUDA plan reads.
// tests/gpu/library_contract measures each finding and fails where it differs from this table.
#pragma once

#include <string_view>
#include <vector>

namespace tandem {

/// `unknown` until the test has run on a GPU; it counts as not holding.
enum class FindingState { unknown, fails, holds };

struct LibraryFinding {
  std::string_view name;     ///< lower case, digits and underscores
  FindingState state;        ///< as last measured
  std::string_view meaning;  ///< what is so where it holds
};

/// Every finding, in the order in which the test reports them. Thread-safe.
const std::vector<LibraryFinding>& library_findings();

/// Whether the plan may rely on it. Throws Error (usage) for a name that is not in the table.
bool finding_holds(std::string_view name);

/// Throws Error (run_failed) unless the finding holds: names `use`, which needs it, the finding,
/// what was found and the file to measure it into. `table` is another one than the plan's in tests
/// only.
void require_finding(std::string_view name, std::string_view use,
                     const std::vector<LibraryFinding>& table = library_findings());

/// Whether a cuBLASLt epilogue, named as in its header ("CUBLASLT_EPILOGUE_BIAS"), may be used: all
/// findings that it depends on hold. An epilogue nobody asked the library about may not.
bool epilogue_allowed(std::string_view epilogue);

/// Throws Error (run_failed) unless the epilogue may be used, as require_finding() does. Every
/// epilogue that the CUDA half gives to the library goes through this.
void require_epilogue(std::string_view epilogue,
                      const std::vector<LibraryFinding>& table = library_findings());

}  // namespace tandem
