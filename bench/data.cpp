// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tandem/engine/error.hpp>

#include "common.hpp"
#include "progress.hpp"

namespace tandem::program {
namespace {

enum class Folder : std::uint8_t { none, optional, required };

struct KnownData {
  const char* name;
  Folder folder;
  bool pixels, pictures;  // labels it has
  bool generated;
};
constexpr KnownData kKnown[] = {
    {"fashion-scenes", Folder::optional, true, false, true},
    {"fashion-mnist", Folder::optional, false, true, false},
    {"cifar10", Folder::required, false, true, false},
    {"folder", Folder::required, false, true, false},
    {"synthetic", Folder::none, true, true, true},
};

bool has(const KnownData& known, Labels labels) {
  return labels == Labels::pixels ? known.pixels : known.pictures;
}

std::string with_folder(const KnownData& known) {
  const char* const folder[] = {"", "[:DIR]", ":DIR"};
  return std::string(known.name) + folder[static_cast<int>(known.folder)];
}

/// "fashion-scenes[:DIR], synthetic"
template <class Condition>
std::string names(const char* separator, Condition condition) {
  std::vector<std::string> all;
  for (const KnownData& known : kKnown)
    if (condition(known)) all.push_back(with_folder(known));
  return fmt::format("{}", fmt::join(all, separator));
}

const KnownData* find(const std::string& name) {
  const auto* const found =
      std::find_if(std::begin(kKnown), std::end(kKnown),
                   [&](const KnownData& known) { return known.name == name; });
  return found == std::end(kKnown) ? nullptr : found;
}

[[noreturn]] void refuse(const DataChoice& choice, const std::string& what) {
  throw Error(ErrorCode::usage, fmt::format("--data {}: {}", choice.data, what));
}

/// Of the folder in "NAME:DIR"; empty if there is none.
std::string folder_of(const DataChoice& choice) {
  const std::size_t colon = choice.data.find(':');
  return colon == std::string::npos ? "" : choice.data.substr(colon + 1);
}

/// The entry of the table, after all that can be said without opening anything.
const KnownData& checked(const DataChoice& choice, const DataRequest& request) {
  const std::string allowed =
      names(", ", [&](const KnownData& known) { return has(known, request.labels); });
  const std::string name = data_name(choice), folder = folder_of(choice);
  const KnownData* const known = find(name);
  if (known == nullptr)
    throw Error(ErrorCode::usage,
                fmt::format("--data: '{}' is not allowed; allowed: {}", choice.data, allowed));
  if (!has(*known, request.labels)) {
    if (name == "folder") refuse(choice, "masks for segmentation are not in this version");
    const bool pixels = request.labels == Labels::pixels;
    refuse(choice, fmt::format("has a label a {}, but {} needs a label a {}; allowed: {}",
                               pixels ? "picture" : "pixel", request.who,
                               pixels ? "pixel" : "picture", allowed));
  }
  if (name.size() != choice.data.size() && folder.empty())
    refuse(choice, "no folder after the colon");
  if (known->folder == Folder::none && !folder.empty())
    refuse(choice, fmt::format("{} has no folder; allowed: {}", name, with_folder(*known)));
  if (known->folder == Folder::required && folder.empty())
    refuse(choice, fmt::format("which folder? allowed: {}", with_folder(*known)));
  return *known;
}

std::shared_ptr<const Dataset> open_scenes(const DataChoice& choice, const DataRequest& request) {
  FashionScenesOptions options;
  options.directory = folder_of(choice);
  options.split = request.split;
  options.image = request.image;
  options.seed = request.seed;
  options.garments = static_cast<int>(choice.garments);
  options.min_scale = choice.garment_scale;
  return make_fashion_scenes(options);
}

std::shared_ptr<const Dataset> open_folder(const DataChoice& choice, const DataRequest& request) {
  FolderOptions options;
  options.directory = folder_of(choice);
  options.image = request.image;
  options.split = request.split;
  options.broken_is_fatal = choice.broken == "fatal";
  if (!options.broken_is_fatal)
    options.on_broken = [broken = request.broken](const std::string& file,
                                                  const std::string& reason) {
      say(fmt::format("skipped {}: {}\n", printable(file), printable(reason)));
      if (broken) broken->files.push_back({file, reason});
    };
  return make_folder(options);
}

std::shared_ptr<const Dataset> open_synthetic(const DataRequest& request) {
  const std::int64_t classes = request.classes == 0 ? 10 : request.classes;
  return request.labels == Labels::pixels
             ? make_synthetic(request.image, classes, request.seed)
             : make_synthetic_classes(request.image, classes, request.seed);
}

std::shared_ptr<const Dataset> open_named(const std::string& name, const DataChoice& choice,
                                          const DataRequest& request) {
  if (name == "fashion-scenes") return open_scenes(choice, request);
  if (name == "fashion-mnist") return make_fashion_mnist(folder_of(choice), request.split);
  if (name == "cifar10") return make_cifar10(folder_of(choice), request.split);
  if (name == "folder") return open_folder(choice, request);
  return open_synthetic(request);
}

template <class Condition>
void add_data_option(Options& options, DataChoice& choice, Condition condition) {
  options.text("--data", choice.data, names("|", condition),
               "pictures with labels; DIR holds their files");
}

void add_garment_options(Options& options, DataChoice& choice) {
  options.number("--garments", choice.garments, 1, 4, "garments in a scene");
  options.real("--garment-scale", choice.garment_scale, 0.1, 1.0,
               "smallest side of a garment, as a share of the picture's; the largest is 1");
}

void add_broken_option(Options& options, DataChoice& choice) {
  options.choice("--broken", choice.broken, {"fatal", "skip"},
                 "files of a folder that cannot be read: end the run, or be named and passed over");
}

}  // namespace

void add_scene_options(Options& options, DataChoice& choice) {
  add_data_option(options, choice, [](const KnownData& known) { return known.pixels; });
  add_garment_options(options, choice);
}

void add_picture_options(Options& options, DataChoice& choice) {
  add_data_option(options, choice, [](const KnownData& known) { return known.pictures; });
  add_broken_option(options, choice);
}

void add_all_data_options(Options& options, DataChoice& choice) {
  add_data_option(options, choice, [](const KnownData&) { return true; });
  add_garment_options(options, choice);
  add_broken_option(options, choice);
}

Json BrokenFiles::json() const {
  Json list = Json::array();
  for (const File& file : files) list.push_back({{"file", file.name}, {"reason", file.reason}});
  return list;
}

std::shared_ptr<const Dataset> open_data(const DataChoice& choice, const DataRequest& request) {
  const KnownData& known = checked(choice, request);
  std::shared_ptr<const Dataset> data = open_named(known.name, choice, request);
  if (request.classes != 0 && request.classes != data->classes())
    throw Error(ErrorCode::usage, fmt::format("{} {}, but {} has {} classes", request.says_classes,
                                              request.classes, known.name, data->classes()));
  return data;
}

std::string data_name(const DataChoice& choice) {
  return choice.data.substr(0, choice.data.find(':'));
}

bool has_labels(const DataChoice& choice, Labels labels) {
  const KnownData* const known = find(data_name(choice));
  return known != nullptr && has(*known, labels);
}

bool is_generated(const DataChoice& choice) {
  const KnownData* const known = find(data_name(choice));
  return known != nullptr && known->generated;
}

bool has_held_out(const DataChoice& choice) { return data_name(choice) != "synthetic"; }

}  // namespace tandem::program
