// SPDX-License-Identifier: Apache-2.0
// A model as data: a list of layers with named shapes. Nothing is computed here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

enum class LayerKind : std::uint8_t {
  conv,             ///< kernel 1 (pad 0), 2 (stride 2, pad 0) or 3 (pad 1); with bias
  transposed_conv,  ///< kernel 2, stride 2; with bias
  relu,
  sigmoid,  ///< as the last trained layer it makes the loss binary cross-entropy, see EngineConfig
  flatten,  ///< [C, h, w] -> C * h * w features, in PyTorch's order
  linear,   ///< features in, features out; with bias
};

struct Layer {
  LayerKind kind = LayerKind::relu;
  std::int64_t in_channels = 0, out_channels = 0;  ///< equal for relu and sigmoid; of flatten,
                                                   ///< `out` is 0: the picture's size says it
  int kernel = 1, stride = 1, padding = 0;
  int input = -1;  ///< index of the layer it reads from; -1: the input of the model
  double l2 = 0;   ///< l2 * sum of w^2 of the weight, not the bias, is added to the loss
};

/// Layers with a weight and a bias.
constexpr bool has_weights(LayerKind kind) {
  return kind == LayerKind::conv || kind == LayerKind::transposed_conv || kind == LayerKind::linear;
}

/// One weight or bias. Files and hashes use PyTorch's shape and order; memory of the engine is the
/// channels-last permutation of it.
struct ParameterSpec {
  std::string name;  ///< "3.weight": key in PyTorch's nn.Sequential
  int layer = 0;     ///< index into layers()
  bool bias = false;
  std::vector<std::int64_t>
      shape;  ///< PyTorch's: conv [K,C,kh,kw], transposed [C,K,kh,kw], linear [K,C], bias [K]
  std::int64_t fan_in =
      0;  ///< terms summed into one output: C*kh*kw; linear: C; transposed 2x2 stride 2: C
  std::int64_t elements = 0;
};

/// Builds a list of layers, checking that channels fit. Throws Error{usage} that names the layer.
///
///   Sequential model(3);
///   model.conv(16, 1).relu().conv(32, 2, 2).relu();
class Sequential {
 public:
  explicit Sequential(std::int64_t in_channels);

  Sequential& conv(std::int64_t out_channels, int kernel, int stride = 1, int padding = 0);
  Sequential& transposed_conv(std::int64_t out_channels, int kernel, int stride);
  Sequential& relu();
  Sequential& sigmoid();
  Sequential& flatten();
  /// After flatten(), or where a picture is one pixel. `in_features` has to be what arrives there,
  /// which only a plan knows: it refuses another number by the layer's name.
  Sequential& linear(std::int64_t in_features, std::int64_t out_features);
  /// Adds `factor` times the sum of the squared weights of the last layer to the loss, as Keras'
  /// kernel_regularizer=l2(factor): the gradient of a weight w grows by 2 * factor * w. 0 .. 1000.
  Sequential& l2(double factor);
  /// Makes the next layer read from layer `index` instead of from the last one.
  Sequential& from(int index);

  std::int64_t in_channels() const noexcept { return in_channels_; }
  std::int64_t out_channels() const noexcept;
  const std::vector<Layer>& layers() const noexcept { return layers_; }
  bool ends_in_sigmoid() const noexcept;

  /// In layer order, weight before bias.
  std::vector<ParameterSpec> parameters() const;

 private:
  Sequential& append(Layer layer);
  std::int64_t channels_of(int index) const;
  std::int64_t in_channels_;
  std::vector<Layer> layers_;
  int next_input_ = -1;
};

/// What lies between two layers: a picture, or after flatten() features, as channels of one pixel.
struct PictureSize {
  std::int64_t channels = 0, height = 0, width = 0;
};

/// What each layer makes of a picture of that size, and in front of it the picture itself: element
/// i + 1 belongs to layer i. Throws Error{usage} that names the layer which does not fit, and both
/// numbers: another number of features than arrives, windows of 2x2 on a picture whose side is not
/// a power of two.
std::vector<PictureSize> picture_sizes(const Sequential& model, std::int64_t height,
                                       std::int64_t width);

}  // namespace tandem
