// SPDX-License-Identifier: Apache-2.0
// Which algorithm a library runs for a product or a convolution: chosen before the first step, and
// then part of the plan. Plain values, no CUDA.
#pragma once

#include <map>
#include <string>

namespace tandem {

/// Problem -> algorithm, both as text that the CUDA half writes and reads. Two tables with the same
/// entries make the same bits.
///
///   "matmul bf16 f32 n t 8192 512 1024"  ->  "cublaslt id 21 tile 18 stages 12 split 1 ..."
struct AlgorithmTable {
  std::string environment;  ///< GPU, SM count, driver and library versions
  std::map<std::string, std::string> entries;
};

/// First 16 hexadecimal digits of the SHA-256 of the entries.
std::string algorithms_hash(const AlgorithmTable& table);

/// JSON file. Throws Error{data} that names the file and what is wrong, or that it was made in
/// another environment than `environment`, naming both.
AlgorithmTable read_algorithms(const std::string& path, const std::string& environment);
void write_algorithms(const std::string& path, const AlgorithmTable& table);

}  // namespace tandem
