// SPDX-License-Identifier: Apache-2.0
// Data sets by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tandem/engine/dataset.hpp>
#include <vector>

#include "options.hpp"

namespace tandem::program {

/// What the labels of a data set belong to.
enum class Labels : std::uint8_t { pixels, pictures };

struct DataChoice {
  std::string data;  ///< NAME, NAME:DIR or NAME:FILE
  std::int64_t garments = 1;
  double garment_scale = 0.8;
  std::string broken = "fatal";
};

/// --data for data with a label a pixel, and the options of scenes.
void add_scene_options(Options& options, DataChoice& choice);
/// --data for data with a label a picture, and --broken.
void add_picture_options(Options& options, DataChoice& choice);
/// For commands that take both kinds.
void add_all_data_options(Options& options, DataChoice& choice);

/// Files that could not be read and were passed over. Each is named on standard error.
struct BrokenFiles {
  struct File {
    std::string name, reason;
  };
  std::vector<File> files;

  /// [{file, reason}, ..]
  Json json() const;
};

/// What to open.
struct DataRequest {
  Labels labels = Labels::pixels;
  Split split = Split::train;
  std::int64_t image = 0;     ///< side of the pictures, of data that have no side of their own
  std::int64_t features = 0;  ///< numbers a row, of data that are rows; 0: pictures
  std::int64_t classes = 0;   ///< the number that has to be there; 0: any
  /// Who needs these labels, and what says that number, for messages.
  std::string who, says_classes = "--classes is";
  std::uint64_t seed = 0;
  std::shared_ptr<BrokenFiles> broken;  ///< null: nobody wants to know
};

/// Throws Error{usage} for a name that is none, has pictures where rows are needed or the other way
/// round, has the other kind of labels, or where the number of features or of classes is another
/// one; Error{data} as the data sets do.
std::shared_ptr<const Dataset> open_data(const DataChoice& choice, const DataRequest& request);

/// The name without the folder or file: "cifar10".
std::string data_name(const DataChoice& choice);
/// True if the data set has that kind of labels. False for a name that is none.
bool has_labels(const DataChoice& choice, Labels labels);
/// True for data that are made, sample after sample, instead of read.
bool is_generated(const DataChoice& choice);
/// False for data whose labels carry nothing that could be learnt.
bool has_held_out(const DataChoice& choice);

}  // namespace tandem::program
