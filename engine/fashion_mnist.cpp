// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <tandem/engine/error.hpp>
#include <tandem/engine/fashion_mnist.hpp>
#include <tandem/engine/idx.hpp>

namespace tandem {
namespace {

constexpr const char* kDebianFolder = "/usr/share/datasets/fashion-mnist";

/// Path of a data file, plain or gzipped.
std::string find_file(const std::string& directory, const std::string& name,
                      const std::string& data_set) {
  for (const char* suffix : {"", ".gz"}) {
    const std::string path = (std::filesystem::path(directory) / (name + suffix)).string();
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  throw Error(ErrorCode::data,
              fmt::format("{0}: neither {1} nor {1}.gz is in {2}", data_set, name, directory),
              fmt::format("install the Debian package dataset-fashion-mnist, which fills {}, or "
                          "name the folder of the four files with {}:DIR",
                          kDebianFolder, data_set));
}

class FashionMnist final : public Dataset {
 public:
  explicit FashionMnist(Garments garments) : garments_(std::move(garments)) {}

  std::int64_t image() const noexcept override { return kGarmentSide; }
  std::int64_t epoch_size() const noexcept override {
    return static_cast<std::int64_t>(garments_.classes.size());
  }
  const std::vector<std::string>& class_names() const noexcept override { return garment_names(); }
  std::int64_t label_count() const noexcept override { return 1; }
  std::int64_t record(std::int64_t index) const override { return index % epoch_size(); }

  void sample(std::int64_t index, std::uint8_t* picture, std::uint8_t* labels) const override {
    if (index < 0) {
      throw Error(ErrorCode::usage, fmt::format("sample index {}; at least 0 is allowed", index));
    }
    constexpr std::int64_t kPixels = kGarmentSide * kGarmentSide;
    const std::int64_t garment = record(index);
    const std::uint8_t* grey = garments_.pictures.data() + garment * kPixels;
    for (std::int64_t p = 0; p < kPixels; ++p) std::memset(picture + 3 * p, grey[p], 3);
    labels[0] = garments_.classes[static_cast<std::size_t>(garment)];
  }

 private:
  Garments garments_;
};

}  // namespace

const std::vector<std::string>& garment_names() {
  static const std::vector<std::string> names{"T-shirt/top", "Trouser",   "Pullover", "Dress",
                                              "Coat",        "Sandal",    "Shirt",    "Sneaker",
                                              "Bag",         "Ankle boot"};
  return names;
}

Garments read_garments(const std::string& directory, Split split, const std::string& data_set) {
  const std::string folder = directory.empty() ? kDebianFolder : directory;
  const std::string prefix = split == Split::train ? "train" : "t10k";
  const std::string pictures_path = find_file(folder, prefix + "-images-idx3-ubyte", data_set);
  const std::string labels_path = find_file(folder, prefix + "-labels-idx1-ubyte", data_set);
  IdxArray pictures = read_idx(pictures_path);
  IdxArray labels = read_idx(labels_path);

  const auto& shape = pictures.shape;
  if (shape.size() != 3 || shape[0] < 1 || shape[1] != kGarmentSide || shape[2] != kGarmentSide) {
    throw Error(ErrorCode::data, fmt::format("{}: not pictures of {} x {} pixels", pictures_path,
                                             kGarmentSide, kGarmentSide));
  }
  if (labels.shape.size() != 1 || labels.shape[0] != shape[0]) {
    throw Error(ErrorCode::data, fmt::format("{}: not one label for each of the {} pictures in {}",
                                             labels_path, shape[0], pictures_path));
  }
  const std::size_t classes = garment_names().size();
  for (std::size_t i = 0; i < labels.data.size(); ++i) {
    if (labels.data[i] >= classes) {
      throw Error(ErrorCode::data,
                  fmt::format("{}: label {} of picture {}; the allowed range is 0 to {}",
                              labels_path, labels.data[i], i, classes - 1));
    }
  }
  return {std::move(pictures.data), std::move(labels.data)};
}

std::unique_ptr<Dataset> make_fashion_mnist(const std::string& directory, Split split) {
  return std::make_unique<FashionMnist>(read_garments(directory, split, "fashion-mnist"));
}

}  // namespace tandem
