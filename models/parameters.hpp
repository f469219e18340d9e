// SPDX-License-Identifier: Apache-2.0
// Values of a model's parameters on the host, in PyTorch's shapes and order.
#pragma once

#include <cstdint>
#include <string>
#include <tandem/engine/safetensors.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/models/sequential.hpp>
#include <vector>

namespace tandem {

enum class InitScheme : std::uint8_t {
  he,     ///< weights normal with variance 2 / fan_in, biases 0
  torch,  ///< PyTorch's default: weights and biases uniform in +-1 / sqrt(fan_in of PyTorch)
};

/// One tensor per ParameterSpec of the model, in the same order.
using Parameters = std::vector<NamedTensor>;

/// Draws from Philox keyed by (seed, tensor index, element): the same on every machine. `stream`
/// tells models with the same seed apart (0 encoder, 1 decoder).
Parameters initialise(const Sequential& model, InitScheme scheme, std::uint64_t seed, int stream);

/// Throws Error{data} that names the tensor and both shapes unless `values` fits the model exactly.
void check_parameters(const Sequential& model, const Parameters& values, const std::string& source);

/// SHA-256 over the fp32 values in order.
std::string parameters_sha256(const Parameters& values);

/// PyTorch's order <-> the engine's channels-last order of one tensor:
/// conv [K,C,kh,kw] <-> [K,kh,kw,C], transposed [C,K,kh,kw] <-> [C,kh,kw,K], linear and bias
/// unchanged. Throws Error{data} for another number of values than the tensor has.
std::vector<float> to_channels_last(const ParameterSpec& spec,
                                    const std::vector<float>& torch_order);
std::vector<float> from_channels_last(const ParameterSpec& spec,
                                      const std::vector<float>& engine_order);

/// The values that a bf16 copy of a weight holds: the nearest ones, ties to even.
std::vector<bf16> to_bf16(const std::vector<float>& values);

}  // namespace tandem
