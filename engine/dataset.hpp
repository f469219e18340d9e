// SPDX-License-Identifier: Apache-2.0
// Data sets for segmentation: sample i is a function of (seed, i) alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem {

/// Pictures with a label a pixel. Thread-safe: sample() may be called from many threads at once.
class SegmentationData {
 public:
  virtual ~SegmentationData() = default;
  virtual std::int64_t image() const noexcept = 0;       ///< S; pictures are 3 x S x S
  virtual std::int64_t epoch_size() const noexcept = 0;  ///< samples in an epoch
  /// Class c's name; index 0 is the background where the data set has one.
  virtual const std::vector<std::string>& class_names() const noexcept = 0;

  /// Writes sample `index` (0, 1, 2, ...; epoch e holds e * epoch_size() and following): `picture`
  /// is S x S x 3 bytes in raster order (nhwc), `labels` S x S bytes, each a class or 255 (ignore).
  virtual void sample(std::int64_t index, std::uint8_t* picture, std::uint8_t* labels) const = 0;

  std::int64_t classes() const noexcept { return static_cast<std::int64_t>(class_names().size()); }
};

enum class Split : std::uint8_t { train, held_out };

/// Garments of Fashion-MNIST placed at random on a black S x S canvas. Label = class + 1 where the
/// scaled garment is >= 32 of 255, else 0 (background); 11 classes. An epoch is 10,000 scenes.
/// Which garment, its scale and its place come from Philox keyed by (seed, split, index, garment
/// number). A pixel of value 1 .. 31 is drawn too, as background, where it does not darken what is
/// there. All arithmetic is exact, so scene i is the same on every machine.
struct FashionScenesOptions {
  std::string directory;  ///< of the four IDX files, gzipped or plain; empty: the Debian package's
  Split split = Split::train;  ///< train: the 60,000 garments; held_out: the 10,000
  std::int64_t image = 256;
  std::uint64_t seed = 0;
  int garments = 1;              ///< 1 .. 4 a scene; later ones cover earlier ones
  double min_scale = 0.8;        ///< a garment's side is U(min_scale, 1) * S
};
/// Throws Error{data} for missing or malformed files, Error{usage} for options out of range.
std::unique_ptr<SegmentationData> make_fashion_scenes(const FashionScenesOptions& options);

/// The article's data: uniform random bytes and uniform random class maps.
std::unique_ptr<SegmentationData> make_synthetic(std::int64_t image, std::int64_t classes,
                                                 std::uint64_t seed);

}  // namespace tandem
