// SPDX-License-Identifier: Apache-2.0
// Data sets: sample i is a function of (settings, i) alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tandem {

/// Pictures with a label a pixel (segmentation) or a label each (classification), or rows of
/// numbers with a label each. Thread-safe: sample() may be called from many threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t image() const noexcept = 0;  ///< S; pictures are 3 x S x S. Of rows 1
  /// Numbers a sample, where it is a row of floats in place of a picture; 0: pictures.
  virtual std::int64_t features() const noexcept { return 0; }
  virtual std::int64_t epoch_size() const noexcept = 0;  ///< samples in an epoch
  /// Class c's name; index 0 is the background where the data set has one.
  virtual const std::vector<std::string>& class_names() const noexcept = 0;

  /// Labels a sample: S * S, or 1 where the whole picture has one.
  virtual std::int64_t label_count() const noexcept { return image() * image(); }
  /// Which of the data's records sample `index` shows: what a sample's id in the batch header is,
  /// and what its augmentation is drawn for. Differs from `index` where records come back in later
  /// epochs, or shuffled.
  virtual std::int64_t record(std::int64_t index) const { return index; }

  /// Writes sample `index` (0, 1, 2, ...; epoch e holds e * epoch_size() and following): `picture`
  /// is S x S x 3 bytes in raster order (nhwc), or the bytes of features() floats, `labels`
  /// label_count() bytes, each a class or 255 (ignore). Throws Error{data} that names the file or
  /// record if it cannot be read.
  virtual void sample(std::int64_t index, std::uint8_t* picture, std::uint8_t* labels) const = 0;

  /// Bytes that sample() writes to `picture`.
  std::int64_t sample_bytes() const noexcept {
    constexpr std::int64_t kFloat = sizeof(float);
    return features() > 0 ? kFloat * features() : 3 * image() * image();
  }
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
  int garments = 1;        ///< 1 .. 4 a scene; later ones cover earlier ones
  double min_scale = 0.8;  ///< a garment's side is U(min_scale, 1) * S
};
/// Throws Error{data} for missing or malformed files, Error{usage} for options out of range.
std::unique_ptr<Dataset> make_fashion_scenes(const FashionScenesOptions& options);

/// The article's data: uniform random bytes and uniform random class maps.
std::unique_ptr<Dataset> make_synthetic(std::int64_t image, std::int64_t classes,
                                        std::uint64_t seed);

/// The article's second job: uniform random bytes with a uniform random class a picture.
std::unique_ptr<Dataset> make_synthetic_classes(std::int64_t image, std::int64_t classes,
                                                std::uint64_t seed);

/// Fashion-MNIST for classification: 28 x 28, grey in three equal channels, 10 classes. `directory`
/// as in FashionScenesOptions. Throws Error{data}.
std::unique_ptr<Dataset> make_fashion_mnist(const std::string& directory, Split split);

/// CIFAR-10's official binary files: 32 x 32, 10 classes. Train: data_batch_1.bin .. 5, held_out:
/// test_batch.bin. The official files hold 10,000 records of 3073 bytes each; any number from 1 on
/// is taken, so that a part of the data can be used. Throws Error{data} that names a missing file,
/// or one that is empty or no multiple of 3073 bytes, or a label above 9 with its record.
std::unique_ptr<Dataset> make_cifar10(const std::string& directory, Split split);

/// A folder a class, 2 to 254 of them, JPEG and PNG files in each; classes in alphabetical order of
/// the folders.
/// Files whose names begin with a dot are left out, others that are no JPEG or PNG are refused.
/// Beside the class folders other files may lie, but no pictures. A picture is cut to its middle
/// square and resized to `image` on the host; see picture_file.hpp for what is read and how.
/// make_folder() reads the names only, and throws Error{data} that names what does not belong.
struct FolderOptions {
  std::string directory;
  std::int64_t image = 256;  ///< S
  /// Each class's files, sorted by name: every fifth is held out, the others are for training. With
  /// folders `train` and `test` (or `val`) in the directory, those are used instead.
  Split split = Split::train;
  /// What a file does that cannot be read: end the run with Error{data} that names it (true), or be
  /// passed over, named once (false). Passed over for training, the next good file of its class
  /// takes its place; Error{data} if there is none. Held out, the sample is a black picture with
  /// the label 255, which no score counts, so that no other file counts twice; Error{data} once no
  /// held out file can be read. The sample's record stays that of the broken file.
  bool broken_is_fatal = true;
  /// Called once for each broken file with its name and the reason, from any thread; not at the
  /// same time. Only where broken files are not fatal.
  std::function<void(const std::string& file, const std::string& reason)> on_broken;
};
std::unique_ptr<Dataset> make_folder(const FolderOptions& options);

/// Rows of comma-separated numbers: the first line names the columns, the last column is the label,
/// a whole number from 0 to 253, the others are features. There are as many classes as the largest
/// label says. Values are taken as they are: scale them before. Of a file every fifth row of each
/// class is held out; of a folder train.csv is for training and test.csv, or else val.csv, held
/// out. Throws Error{data} that names the file, the line, the column and the value that is wrong.
std::unique_ptr<Dataset> make_csv(const std::string& path, Split split);

/// Rows of `features` uniform random numbers of -1 to 1 with a uniform random class each.
std::unique_ptr<Dataset> make_synthetic_rows(std::int64_t features, std::int64_t classes,
                                             std::uint64_t seed);

/// The same samples, each epoch in an order of its own: a permutation drawn from Philox keyed by
/// `seed`, counter (epoch, i). Every record once an epoch. Thread-safe.
std::unique_ptr<Dataset> shuffled(std::shared_ptr<const Dataset> data, std::uint64_t seed);

}  // namespace tandem
