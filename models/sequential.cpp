// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <tandem/engine/error.hpp>
#include <tandem/models/sequential.hpp>

namespace tandem {
namespace {

[[noreturn]] void refuse(int layer, const std::string& message) {
  throw Error(ErrorCode::usage, fmt::format("layer {}: {}", layer, message));
}

void require_channels(int layer, const char* which, std::int64_t channels) {
  if (channels < 1 || channels > 65536)
    refuse(layer, fmt::format("{} channels is {}; allowed: 1 .. 65536", which, channels));
}

}  // namespace

Sequential::Sequential(std::int64_t in_channels) : in_channels_(in_channels) {
  require_channels(0, "input", in_channels);
}

Sequential& Sequential::conv(std::int64_t out_channels, int kernel, int stride, int padding) {
  const int layer = static_cast<int>(layers_.size());
  const bool known = (kernel == 1 && stride == 1 && padding == 0) ||
                     (kernel == 2 && stride == 2 && padding == 0) ||
                     (kernel == 3 && stride == 1 && padding == 1);
  if (!known)
    refuse(layer, fmt::format("convolution with kernel {}, stride {}, padding {}; allowed: 1/1/0, "
                              "2/2/0, 3/1/1",
                              kernel, stride, padding));
  return append({LayerKind::conv, 0, out_channels, kernel, stride, padding, -1});
}

Sequential& Sequential::transposed_conv(std::int64_t out_channels, int kernel, int stride) {
  if (kernel != 2 || stride != 2)
    refuse(static_cast<int>(layers_.size()),
           fmt::format("transposed convolution with kernel {}, stride {}; allowed: 2/2", kernel,
                       stride));
  return append({LayerKind::transposed_conv, 0, out_channels, kernel, stride, 0, -1});
}

Sequential& Sequential::relu() { return append({LayerKind::relu, 0, 0, 1, 1, 0, -1}); }

Sequential& Sequential::from(int index) {
  const int layer = static_cast<int>(layers_.size());
  if (layer == 0) refuse(layer, fmt::format("reads from layer {}; there is none before it", index));
  if (index < 0 || index >= layer)
    refuse(layer, fmt::format("reads from layer {}; allowed: 0 .. {}", index, layer - 1));
  next_input_ = index;
  return *this;
}

Sequential& Sequential::append(Layer layer) {
  const int index = static_cast<int>(layers_.size());
  layer.input = next_input_ >= 0 ? next_input_ : index - 1;
  next_input_ = -1;
  layer.in_channels = channels_of(layer.input);
  if (layer.kind == LayerKind::relu) layer.out_channels = layer.in_channels;
  require_channels(index, "output", layer.out_channels);
  layers_.push_back(layer);
  return *this;
}

std::int64_t Sequential::channels_of(int index) const {
  return index < 0 ? in_channels_ : layers_[static_cast<std::size_t>(index)].out_channels;
}

std::int64_t Sequential::out_channels() const noexcept {
  return channels_of(static_cast<int>(layers_.size()) - 1);
}

std::vector<ParameterSpec> Sequential::parameters() const {
  std::vector<ParameterSpec> specs;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    if (layer.kind == LayerKind::relu) continue;
    const std::int64_t k = layer.kernel, in = layer.in_channels, out = layer.out_channels;
    const bool transposed = layer.kind == LayerKind::transposed_conv;

    ParameterSpec weight;
    weight.name = fmt::format("{}.weight", i);
    weight.layer = static_cast<int>(i);
    weight.shape = transposed ? std::vector{in, out, k, k} : std::vector{out, in, k, k};
    weight.fan_in = transposed ? in : in * k * k;
    weight.elements = in * out * k * k;
    specs.push_back(weight);

    ParameterSpec bias = weight;
    bias.name = fmt::format("{}.bias", i);
    bias.bias = true;
    bias.shape = {out};
    bias.elements = out;
    specs.push_back(bias);
  }
  return specs;
}

}  // namespace tandem
