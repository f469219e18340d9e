// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <system_error>
#include <tandem/engine/error.hpp>
#include <tandem/engine/sha256.hpp>
#include <tandem/kernels/philox.hpp>
#include <tandem/models/parameters.hpp>
#include <thread>

namespace tandem {
namespace {

/// Pixels of the window of a weight [A, B, kh, kw]; of a linear layer's [A, B] it is one.
std::int64_t window_of(const std::vector<std::int64_t>& weight_shape) {
  return weight_shape.size() == 4 ? weight_shape[2] * weight_shape[3] : 1;
}

/// Bound of PyTorch's default initialisation, 1 / sqrt(fan_in) with PyTorch's fan_in: dimension 1
/// times the window, which for a transposed convolution is its output channels.
double torch_bound(const std::vector<std::int64_t>& weight_shape) {
  return 1.0 / std::sqrt(static_cast<double>(weight_shape[1] * window_of(weight_shape)));
}

/// Calls body(begin, end) for parts of 0 .. count - 1, in threads of their own where there is
/// enough to do: `cost` is that of one, in elements.
template <class Body>
void in_parts(std::size_t count, std::size_t cost, const Body& body) {
  constexpr std::size_t kElementsAThread = 1 << 18;
  const std::size_t most = std::max(1u, std::min(16u, std::thread::hardware_concurrency()));
  const std::size_t parts = std::clamp<std::size_t>(count * cost / kElementsAThread, 1, most);
  const auto part = [&](std::size_t i) { body(i * count / parts, (i + 1) * count / parts); };
  std::vector<std::future<void>> others;
  std::size_t mine = 1;  // the first part that no thread has
  try {
    for (; mine < parts; ++mine) others.push_back(std::async(std::launch::async, part, mine));
  } catch (const std::system_error&) {  // no more threads are to be had
  }
  part(0);
  for (; mine < parts; ++mine) part(mine);
  for (std::future<void>& other : others) other.get();
}

/// Calls visit(torch_index, engine_index) for every element of a weight [A, B, kh, kw], whose
/// channels-last order is [A, kh, kw, B]; a linear layer's is the same in both. Several threads
/// share the elements of a large one.
template <class Visit>
void for_each_element(const ParameterSpec& spec, const Visit& visit) {
  if (spec.bias) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(spec.elements); ++i) visit(i, i);
    return;
  }
  const auto a = static_cast<std::size_t>(spec.shape[0]),
             b = static_cast<std::size_t>(spec.shape[1]);
  const auto window = static_cast<std::size_t>(window_of(spec.shape));
  in_parts(a, b * window, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      for (std::size_t j = 0; j < b; ++j) {
        for (std::size_t k = 0; k < window; ++k)
          visit((i * b + j) * window + k, (i * window + k) * b + j);
      }
    }
  });
}

void check_size(const ParameterSpec& spec, const std::vector<float>& values) {
  if (values.size() != static_cast<std::size_t>(spec.elements))
    throw Error(ErrorCode::data, fmt::format("{}: {} values; a tensor of shape {} has {}",
                                             spec.name, values.size(), spec.shape, spec.elements));
}

/// Elements 2 i and 2 i + 1 become draw(i): an element never depends on how many others there are,
/// nor on the number of threads that share the work.
template <class Draw>
void fill_by_pairs(std::vector<float>& values, const Draw& draw) {
  in_parts((values.size() + 1) / 2, 2, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const NormalPair pair = draw(i);
      values[2 * i] = static_cast<float>(pair.first);
      if (2 * i + 1 < values.size()) values[2 * i + 1] = static_cast<float>(pair.second);
    }
  });
}

}  // namespace

Parameters initialise(const Sequential& model, InitScheme scheme, std::uint64_t seed, int stream) {
  const std::vector<ParameterSpec> specs = model.parameters();
  Parameters values;
  for (std::size_t t = 0; t < specs.size(); ++t) {
    const ParameterSpec& spec = specs[t];
    NamedTensor tensor{spec.name, spec.shape, {}};
    tensor.data.resize(static_cast<std::size_t>(spec.elements));
    const ParameterSpec& weight = spec.bias ? specs[t - 1] : spec;
    const double deviation = std::sqrt(2.0 / static_cast<double>(weight.fan_in));
    const double bound = torch_bound(weight.shape);
    if (scheme == InitScheme::torch || !spec.bias) {
      const auto draw = [&](std::uint64_t pair) -> NormalPair {
        const PhiloxWords words = philox4x32_10(
            philox_counter(pair, static_cast<std::uint64_t>(stream) << 32 | t), philox_key(seed));
        if (scheme == InitScheme::he) {
          const NormalPair normal = normal_pair(words);
          return {deviation * normal.first, deviation * normal.second};
        }
        const auto uniform = [&](int word) {
          return bound * (2.0 * uniform_double(words.word[word], words.word[word + 1]) - 1.0);
        };
        return {uniform(0), uniform(2)};
      };
      fill_by_pairs(tensor.data, draw);
    }
    values.push_back(std::move(tensor));
  }
  return values;
}

void check_parameters(const Sequential& model, const Parameters& values,
                      const std::string& source) {
  const std::vector<ParameterSpec> specs = model.parameters();
  for (std::size_t t = 0; t < specs.size(); ++t) {
    const ParameterSpec& spec = specs[t];
    if (t >= values.size())
      throw Error(ErrorCode::data, fmt::format("{}: tensor {} with shape {} is missing", source,
                                               spec.name, spec.shape));
    const NamedTensor& tensor = values[t];
    if (tensor.name != spec.name || tensor.shape != spec.shape ||
        tensor.data.size() != static_cast<std::size_t>(spec.elements))
      throw Error(ErrorCode::data,
                  fmt::format("{}: tensor {} has name {} and shape {}; the model needs {} with "
                              "shape {}",
                              source, t, tensor.name, tensor.shape, spec.name, spec.shape));
  }
  if (values.size() > specs.size())
    throw Error(ErrorCode::data,
                fmt::format("{}: tensor {} is not part of the model, which has {} tensors", source,
                            values[specs.size()].name, specs.size()));
}

std::string parameters_sha256(const Parameters& values) {
  Sha256 hash;
  for (const NamedTensor& tensor : values)
    hash.update(tensor.data.data(), tensor.data.size() * sizeof(float));
  return hash.hex();
}

std::vector<float> to_channels_last(const ParameterSpec& spec,
                                    const std::vector<float>& torch_order) {
  check_size(spec, torch_order);
  std::vector<float> out(torch_order.size());
  for_each_element(
      spec, [&](std::size_t torch, std::size_t engine) { out[engine] = torch_order[torch]; });
  return out;
}

std::vector<bf16> to_bf16(const std::vector<float>& values) {
  std::vector<bf16> out(values.size());
  in_parts(values.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) out[i] = bf16(values[i]);
  });
  return out;
}

std::vector<float> from_channels_last(const ParameterSpec& spec,
                                      const std::vector<float>& engine_order) {
  check_size(spec, engine_order);
  std::vector<float> out(engine_order.size());
  for_each_element(
      spec, [&](std::size_t torch, std::size_t engine) { out[torch] = engine_order[engine]; });
  return out;
}

}  // namespace tandem
