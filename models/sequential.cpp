// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <tandem/engine/error.hpp>
#include <tandem/models/sequential.hpp>

namespace tandem {
namespace {

constexpr std::int64_t kMostFeatures = std::int64_t{1} << 28;  // of 65536 channels, 64 x 64 each
constexpr double kMostL2 = 1000;

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
  return append({LayerKind::conv, 0, out_channels, kernel, stride, padding});
}

Sequential& Sequential::transposed_conv(std::int64_t out_channels, int kernel, int stride) {
  if (kernel != 2 || stride != 2)
    refuse(static_cast<int>(layers_.size()),
           fmt::format("transposed convolution with kernel {}, stride {}; allowed: 2/2", kernel,
                       stride));
  return append({LayerKind::transposed_conv, 0, out_channels, kernel, stride});
}

Sequential& Sequential::relu() { return append({LayerKind::relu}); }

Sequential& Sequential::sigmoid() { return append({LayerKind::sigmoid}); }

Sequential& Sequential::flatten() { return append({LayerKind::flatten}); }

Sequential& Sequential::linear(std::int64_t in_features, std::int64_t out_features) {
  if (in_features < 1 || in_features > kMostFeatures)
    refuse(static_cast<int>(layers_.size()),
           fmt::format("linear takes {} features; allowed: 1 .. {}", in_features, kMostFeatures));
  return append({LayerKind::linear, in_features, out_features});
}

Sequential& Sequential::l2(double factor) {
  const int layer = static_cast<int>(layers_.size()) - 1;
  if (layer < 0 || !has_weights(layers_.back().kind))
    refuse(std::max(layer, 0),
           "l2 of a layer without weights; allowed: conv, transposed_conv, "
           "linear");
  if (!(factor >= 0 && factor <= kMostL2))
    refuse(layer, fmt::format("l2 is {}; allowed: 0 .. {}", factor, kMostL2));
  layers_.back().l2 = factor;
  return *this;
}

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
  const std::int64_t arriving = channels_of(layer.input);  // 0: features, as many as there are
  const bool convolves = layer.kind == LayerKind::conv || layer.kind == LayerKind::transposed_conv;
  if (convolves && arriving == 0)
    refuse(index,
           "a convolution of features, which have no picture; allowed: linear, relu, sigmoid");
  if (layer.kind != LayerKind::linear) layer.in_channels = arriving;
  if (layer.kind == LayerKind::relu || layer.kind == LayerKind::sigmoid)
    layer.out_channels = arriving;
  if (convolves || layer.kind == LayerKind::linear)
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

bool Sequential::ends_in_sigmoid() const noexcept {
  return !layers_.empty() && layers_.back().kind == LayerKind::sigmoid;
}

std::vector<ParameterSpec> Sequential::parameters() const {
  std::vector<ParameterSpec> specs;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    if (!has_weights(layer.kind)) continue;
    const std::int64_t k = layer.kernel, in = layer.in_channels, out = layer.out_channels;
    const bool transposed = layer.kind == LayerKind::transposed_conv;

    ParameterSpec weight;
    weight.name = fmt::format("{}.weight", i);
    weight.layer = static_cast<int>(i);
    weight.shape = transposed ? std::vector{in, out, k, k} : std::vector{out, in, k, k};
    if (layer.kind == LayerKind::linear) weight.shape.resize(2);
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

std::vector<PictureSize> picture_sizes(const Sequential& model, std::int64_t height,
                                       std::int64_t width) {
  std::vector<PictureSize> sizes{{model.in_channels(), height, width}};
  for (std::size_t i = 0; i < model.layers().size(); ++i) {
    const Layer& layer = model.layers()[i];
    const int index = static_cast<int>(i);
    PictureSize size = sizes[static_cast<std::size_t>(layer.input + 1)];
    const auto arriving = [&] {
      return fmt::format("{} channels of {} x {} pixels", size.channels, size.height, size.width);
    };
    switch (layer.kind) {
      case LayerKind::relu:
      case LayerKind::sigmoid:
        break;
      case LayerKind::conv:
      case LayerKind::transposed_conv: {
        const bool power_of_two = (size.height & (size.height - 1)) == 0;
        const bool halves = layer.kind == LayerKind::conv && layer.stride == 2;
        if (layer.kernel == 2 &&
            !(power_of_two && size.height == size.width && size.height >= (halves ? 2 : 1)))
          refuse(index, fmt::format("windows of 2x2 on {}; allowed: squares whose side is a power "
                                    "of two, at least {}",
                                    arriving(), halves ? 2 : 1));
        size.channels = layer.out_channels;
        if (layer.kind == LayerKind::transposed_conv) {
          size.height *= 2;
          size.width *= 2;
        } else {
          size.height /= layer.stride;
          size.width /= layer.stride;
        }
        constexpr std::int64_t kMostSide = 65536;
        if (size.height > kMostSide || size.width > kMostSide)
          refuse(index, fmt::format("makes {} x {} pixels; allowed: sides of at most {}",
                                    size.height, size.width, kMostSide));
        break;
      }
      case LayerKind::flatten:
        size = {size.channels * size.height * size.width, 1, 1};
        break;
      case LayerKind::linear:
        if (size.height * size.width != 1)
          refuse(index, fmt::format("linear takes {} features; {} arrive, without a flatten",
                                    layer.in_channels, arriving()));
        if (size.channels != layer.in_channels)
          refuse(index, fmt::format("linear takes {} features; {} arrive", layer.in_channels,
                                    size.channels));
        size.channels = layer.out_channels;
        break;
    }
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace tandem
