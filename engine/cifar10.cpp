// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/file_bytes.hpp>

namespace tandem {
namespace {

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kPixels = kSide * kSide;
/// A label, then the red, the green and the blue values of the pixels.
constexpr std::int64_t kRecordBytes = 1 + 3 * kPixels;

const std::vector<std::string>& names() {
  static const std::vector<std::string> result{"airplane", "automobile", "bird",  "cat",  "deer",
                                               "dog",      "frog",       "horse", "ship", "truck"};
  return result;
}

std::vector<std::uint8_t> read_records(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(ErrorCode::data, fmt::format("cifar10: there is no {}", path),
                "name the folder of data_batch_1.bin .. 5 and test_batch.bin, the files of the "
                "binary version");
  }
  std::vector<std::uint8_t> records = read_file_bytes(path);
  if (records.empty() || records.size() % kRecordBytes != 0) {
    throw Error(ErrorCode::data,
                fmt::format("CIFAR-10 file {}: {} bytes; it must be a multiple of {}, at least one",
                            path, records.size(), kRecordBytes));
  }
  const std::size_t count = records.size() / kRecordBytes;
  for (std::size_t r = 0; r < count; ++r) {
    const std::uint8_t label = records[r * kRecordBytes];
    if (label >= names().size()) {
      throw Error(ErrorCode::data,
                  fmt::format("CIFAR-10 file {}: label {} of record {}; the allowed range is 0 to "
                              "{}",
                              path, label, r, names().size() - 1));
    }
  }
  return records;
}

class Cifar10 final : public Dataset {
 public:
  Cifar10(const std::string& directory, Split split) {
    std::vector<std::string> files{"test_batch.bin"};
    if (split == Split::train) {
      files.clear();
      for (int i = 1; i <= 5; ++i) files.push_back(fmt::format("data_batch_{}.bin", i));
    }
    for (const std::string& file : files) {
      const auto records = read_records((std::filesystem::path(directory) / file).string());
      records_.insert(records_.end(), records.begin(), records.end());
    }
  }

  std::int64_t image() const noexcept override { return kSide; }
  std::int64_t epoch_size() const noexcept override {
    return static_cast<std::int64_t>(records_.size()) / kRecordBytes;
  }
  const std::vector<std::string>& class_names() const noexcept override { return names(); }
  std::int64_t label_count() const noexcept override { return 1; }
  std::int64_t record(std::int64_t index) const override { return index % epoch_size(); }

  void sample(std::int64_t index, std::uint8_t* picture, std::uint8_t* labels) const override {
    if (index < 0) {
      throw Error(ErrorCode::usage, fmt::format("sample index {}; at least 0 is allowed", index));
    }
    const std::uint8_t* planes = records_.data() + record(index) * kRecordBytes;
    labels[0] = *planes++;
    for (std::int64_t p = 0; p < kPixels; ++p) {
      for (std::int64_t c = 0; c < 3; ++c) picture[3 * p + c] = planes[c * kPixels + p];
    }
  }

 private:
  std::vector<std::uint8_t> records_;
};

}  // namespace

std::unique_ptr<Dataset> make_cifar10(const std::string& directory, Split split) {
  return std::make_unique<Cifar10>(directory, split);
}

}  // namespace tandem
