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

/// Whether a folder, or a file, is named with the data set.
enum class Place : std::uint8_t { none, optional_folder, folder, file };

struct KnownData {
  const char* name;
  Place place;
  bool pixels, pictures;  // labels of pictures that it has
  bool rows;              // of numbers, with a label each
  bool generated;
};
constexpr KnownData kKnown[] = {
    {"fashion-scenes", Place::optional_folder, true, false, false, true},
    {"fashion-mnist", Place::optional_folder, false, true, false, false},
    {"cifar10", Place::folder, false, true, false, false},
    {"folder", Place::folder, false, true, false, false},
    {"csv", Place::file, false, false, true, false},
    {"synthetic", Place::none, true, true, true, true},
};

bool has(const KnownData& known, Labels labels) {
  return labels == Labels::pixels ? known.pixels : known.pictures;
}

bool fits(const KnownData& known, const DataRequest& request) {
  return request.features > 0 ? known.rows : has(known, request.labels);
}

std::string with_place(const KnownData& known) {
  const char* const place[] = {"", "[:DIR]", ":DIR", ":FILE"};
  return std::string(known.name) + place[static_cast<int>(known.place)];
}

/// "fashion-scenes[:DIR], synthetic"
template <class Condition>
std::string names(const char* separator, Condition condition) {
  std::vector<std::string> all;
  for (const KnownData& known : kKnown)
    if (condition(known)) all.push_back(with_place(known));
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

/// The folder or file in "NAME:DIR"; empty if there is none.
std::string place_of(const DataChoice& choice) {
  const std::size_t colon = choice.data.find(':');
  return colon == std::string::npos ? "" : choice.data.substr(colon + 1);
}

/// What the request needs, in words, and what a data set has that does not fit it.
std::string needed(const KnownData* known, const DataRequest& request) {
  if (request.features > 0) return fmt::format("rows of {}", count_of(request.features, "number"));
  if (known == nullptr || known->rows) return "pictures";
  return request.labels == Labels::pixels ? "a label a pixel" : "a label a picture";
}
std::string has_instead(const KnownData& known, const DataRequest& request) {
  if (request.features > 0) return "pictures";
  if (known.rows) return "rows of numbers";
  return known.pixels ? "a label a pixel" : "a label a picture";
}

/// The entry of the table, after all that can be said without opening anything.
const KnownData& checked(const DataChoice& choice, const DataRequest& request) {
  const std::string allowed =
      names(", ", [&](const KnownData& known) { return fits(known, request); });
  const std::string name = data_name(choice), place = place_of(choice);
  if (name.empty())
    throw Error(ErrorCode::usage, fmt::format("--data is missing: {} needs {}; allowed: {}",
                                              request.who, needed(nullptr, request), allowed));
  const KnownData* const known = find(name);
  if (known == nullptr)
    throw Error(ErrorCode::usage,
                fmt::format("--data: '{}' is not allowed; allowed: {}", choice.data, allowed));
  if (!fits(*known, request)) {
    if (name == "folder" && request.features == 0)
      refuse(choice, "masks for segmentation are not in this version");
    refuse(choice, fmt::format("has {}, but {} needs {}; allowed: {}", has_instead(*known, request),
                               request.who, needed(known, request), allowed));
  }
  const char* const what = known->place == Place::file ? "file" : "folder";
  if (name.size() != choice.data.size() && place.empty())
    refuse(choice, fmt::format("no {} after the colon", what));
  if (known->place == Place::none && !place.empty())
    refuse(choice, fmt::format("{} has no folder; allowed: {}", name, with_place(*known)));
  if (known->place >= Place::folder && place.empty())
    refuse(choice, fmt::format("which {}? allowed: {}", what, with_place(*known)));
  return *known;
}

std::shared_ptr<const Dataset> open_scenes(const DataChoice& choice, const DataRequest& request) {
  FashionScenesOptions options;
  options.directory = place_of(choice);
  options.split = request.split;
  options.image = request.image;
  options.seed = request.seed;
  options.garments = static_cast<int>(choice.garments);
  options.min_scale = choice.garment_scale;
  return make_fashion_scenes(options);
}

std::shared_ptr<const Dataset> open_folder(const DataChoice& choice, const DataRequest& request) {
  FolderOptions options;
  options.directory = place_of(choice);
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
  if (request.features > 0) return make_synthetic_rows(request.features, classes, request.seed);
  return request.labels == Labels::pixels
             ? make_synthetic(request.image, classes, request.seed)
             : make_synthetic_classes(request.image, classes, request.seed);
}

std::shared_ptr<const Dataset> open_named(const std::string& name, const DataChoice& choice,
                                          const DataRequest& request) {
  if (name == "fashion-scenes") return open_scenes(choice, request);
  if (name == "fashion-mnist") return make_fashion_mnist(place_of(choice), request.split);
  if (name == "cifar10") return make_cifar10(place_of(choice), request.split);
  if (name == "folder") return open_folder(choice, request);
  if (name == "csv") return make_csv(place_of(choice), request.split);
  return open_synthetic(request);
}

template <class Condition>
void add_data_option(Options& options, DataChoice& choice, Condition condition) {
  options.text("--data", choice.data, names("|", condition),
               "samples with labels; DIR holds their files");
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
  if (request.features != data->features())
    refuse(choice,
           fmt::format("has {} a row beside the label, but {} reads {}",
                       count_of(data->features(), "number"), request.who, request.features));
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
