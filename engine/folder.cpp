// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/picture_file.hpp>

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kHeldOut = 5;  // of so many files of a class the last one is held out
constexpr std::size_t kMinClasses = 2, kMaxClasses = 254;  // as models have, see check_classes()
constexpr std::uint8_t kIgnored = 255;

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw Error(ErrorCode::data, fmt::format("{}: {}", path.string(), what));
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

/// What is in a folder, sorted by name, without what begins with a dot.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().front() != '.') entries.push_back(it->path());
  }
  if (error) fail(folder, error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

/// By its name.
bool is_picture(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& letter : extension) {
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

/// Names of the class folders. Other files beside them may be anything but pictures.
std::vector<std::string> classes_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& entry : entries_of(folder)) {
    if (is_folder(entry)) {
      names.push_back(entry.filename().string());
    } else if (is_picture(entry)) {
      fail(entry, "a picture beside the folders of the classes, in none of them");
    }
  }
  return names;
}

std::vector<std::string> pictures_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& entry : entries_of(folder)) {
    if (is_folder(entry)) fail(entry, "a folder in the folder of a class");
    if (!is_picture(entry)) {
      fail(entry, "no JPEG or PNG file, by its name; allowed are .jpg, .jpeg and .png");
    }
    names.push_back(entry.filename().string());
  }
  if (names.empty()) fail(folder, "no picture for this class");
  return names;
}

/// Which of a class's sorted files belong to a split.
std::vector<std::string> part_of(const std::vector<std::string>& files, Split split) {
  std::vector<std::string> part;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if ((i % kHeldOut == kHeldOut - 1) == (split == Split::held_out)) part.push_back(files[i]);
  }
  return part;
}

class Folder final : public Dataset {
 public:
  explicit Folder(const FolderOptions& options) : options_(options), root_(options.directory) {
    if (!is_folder(root_)) {
      std::error_code ignored;
      fail(root_, fs::exists(root_, ignored) ? "not a folder" : "No such file or directory");
    }
    const fs::path train = root_ / "train";
    const fs::path test = root_ / (is_folder(root_ / "test") ? "test" : "val");
    const bool own_folders = is_folder(train) && is_folder(test);

    const fs::path of_classes = own_folders ? train : root_;
    names_ = classes_in(of_classes);
    if (names_.size() < kMinClasses || names_.size() > kMaxClasses) {
      fail(of_classes, fmt::format("{} folders in it; one for each of {} to {} classes is needed",
                                   names_.size(), kMinClasses, kMaxClasses));
    }
    if (own_folders) {
      root_ = options.split == Split::train ? train : test;
      for (const std::string& name : classes_in(root_)) {
        if (!std::binary_search(names_.begin(), names_.end(), name)) {
          fail(root_ / name, fmt::format("there is no class of that name in {}", train.string()));
        }
      }
    }
    for (const std::string& name : names_) {
      first_.push_back(files_.size());
      if (own_folders && !is_folder(root_ / name)) continue;  // no picture of it is held out
      const std::vector<std::string> all = pictures_in(root_ / name);
      const std::vector<std::string> files = own_folders ? all : part_of(all, options.split);
      files_.insert(files_.end(), files.begin(), files.end());
    }
    first_.push_back(files_.size());
    if (files_.empty()) {
      fail(root_, fmt::format("no picture is held out; that takes a class of at least {}, or "
                              "folders train and test",
                              kHeldOut));
    }
    broken_.resize(files_.size());
  }

  std::int64_t image() const noexcept override { return options_.image; }
  std::int64_t epoch_size() const noexcept override {
    return static_cast<std::int64_t>(files_.size());
  }
  const std::vector<std::string>& class_names() const noexcept override { return names_; }
  std::int64_t label_count() const noexcept override { return 1; }
  std::int64_t record(std::int64_t index) const override { return index % epoch_size(); }

  void sample(std::int64_t index, std::uint8_t* picture, std::uint8_t* labels) const override {
    if (index < 0) {
      throw Error(ErrorCode::usage, fmt::format("sample index {}; at least 0 is allowed", index));
    }
    const auto wanted = static_cast<std::size_t>(record(index));
    const auto next_class = std::upper_bound(first_.begin(), first_.end(), wanted);
    const auto label = static_cast<std::size_t>(next_class - first_.begin()) - 1;
    labels[0] = static_cast<std::uint8_t>(label);
    if (options_.split == Split::held_out) {
      if (!is_broken(wanted) && read(label, wanted, picture)) return;
      if (all_broken()) {
        fail(root_, fmt::format("none of its {} held out pictures can be read", files_.size()));
      }
      std::memset(picture, 0, static_cast<std::size_t>(3 * options_.image * options_.image));
      labels[0] = kIgnored;  // no other picture's: it would count twice
      return;
    }
    const std::size_t begin = first_[label], count = *next_class - begin;
    for (std::size_t k = 0; k < count; ++k) {  // ends at the first good one
      const std::size_t file = begin + (wanted - begin + k) % count;
      if (!is_broken(file) && read(label, file, picture)) return;
    }
    fail(root_ / names_[label], fmt::format("none of its {} pictures can be read", count));
  }

 private:
  /// False if it is broken and that is not fatal.
  bool read(std::size_t label, std::size_t file, std::uint8_t* picture) const {
    const std::string path = (root_ / names_[label] / files_[file]).string();
    try {
      const auto pixels = middle_square(read_picture(path), options_.image);
      std::memcpy(picture, pixels.data(), pixels.size());
      return true;
    } catch (const Error& error) {
      if (options_.broken_is_fatal || error.code() != ErrorCode::data) throw;
      // The text begins with the path, and ": ".
      set_broken(file, path, std::string(error.what()).substr(path.size() + 2));
      return false;
    }
  }

  bool is_broken(std::size_t file) const {
    const std::lock_guard lock(mutex_);
    return broken_[file];
  }
  bool all_broken() const {
    const std::lock_guard lock(mutex_);
    return std::find(broken_.begin(), broken_.end(), false) == broken_.end();
  }
  /// Two threads may find the same file broken; it is named once.
  void set_broken(std::size_t file, const std::string& path, const std::string& reason) const {
    const std::lock_guard lock(mutex_);
    if (broken_[file]) return;
    broken_[file] = true;
    if (options_.on_broken) options_.on_broken(path, reason);
  }

  FolderOptions options_;
  fs::path root_;                   // of the class folders that are used
  std::vector<std::string> names_;  // of the classes
  std::vector<std::string> files_;  // names, class after class
  std::vector<std::size_t> first_;  // class c has files first_[c] .. first_[c + 1] - 1
  mutable std::mutex mutex_;
  mutable std::vector<bool> broken_;
};

}  // namespace

std::unique_ptr<Dataset> make_folder(const FolderOptions& options) {
  if (options.image < 8 || options.image > 4096) {
    throw Error(ErrorCode::usage, fmt::format("folder: image side {}; the allowed range is 8 to "
                                              "4096",
                                              options.image));
  }
  return std::make_unique<Folder>(options);
}

}  // namespace tandem
