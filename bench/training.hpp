// SPDX-License-Identifier: Apache-2.0
// The one training loop of the program: `train segment`, `train classify` and `train --model` say
// what is trained on what, this trains it, with a log, held-out scores and files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/engine/metrics.hpp>
#include <tandem/models/model_json.hpp>
#include <tandem/models/parameters.hpp>
#include <tandem/models/trainer.hpp>
#include <vector>

#include "augmentation.hpp"
#include "common.hpp"
#include "data.hpp"
#include "device.hpp"
#include "options.hpp"

namespace tandem::program {

/// What every kind of training is told.
struct TrainOptions {
  std::int64_t batch = 32;  ///< 0: what the batch-size finder recommends
  std::int64_t steps = 2000, epochs = 0, seed = 0, workers = 1, slots = 2;
  std::int64_t held_out = 512;  ///< samples to score; -1: all
  std::int64_t trial_ms = 500;  ///< that a trial for `auto` measures at least
  double learning_rate = 0.1, momentum = 0.9, weight_decay = 0;
  std::string schedule = "overlap", precision = "fp32", device = "auto", init, scheme = "he";
  std::string last_batch = "partial", plan, out, log, json;
  std::vector<std::string> fuse{"all"};
  std::string side_lanes = "auto";
  bool no_shuffle = false, quiet = false;
};

/// And each of the three kinds besides.
struct SegmentOptions : TrainOptions {
  DataChoice data{"fashion-scenes"};
  std::int64_t image = 32, classes = 0;
};
struct ClassifyOptions : TrainOptions {
  ClassifyOptions() {
    held_out = -1;
    learning_rate = 0.02;  // with 0.1, which suits the segmenter's decoder, it learns nothing
  }
  DataChoice data{"fashion-mnist"};
  AugmentChoice augment;
  std::int64_t image = 32, classes = 0;
};
struct ModelOptions : TrainOptions {
  ModelOptions() {
    held_out = -1;
    learning_rate = 0.02;
  }
  std::string model;
  DataChoice data;
  AugmentChoice augment;
};

/// Those whose names and meanings are the same for all.
void add_training_options(Options& options, TrainOptions& values);
/// The same, and those of a training that may read pictures with a label each.
void add_training_options(Options& options, TrainOptions& values, AugmentChoice& augment);

/// A file of --out.
struct OutFile {
  std::string name;
  std::function<void(const std::string& path, const Parameters& trained)> write;
};

/// What is trained, and on what.
struct TrainJob {
  std::string workload;  ///< "segment", "classify", or the name of the user's network
  Labels labels = Labels::pixels;
  EngineConfig config;  ///< networks, sizes and augmentation; the rest comes from the options
  Parameters frozen, trained;                     ///< initial values
  std::shared_ptr<const Dataset> data, held_out;  ///< no `held_out`: no scores
  std::shared_ptr<const BrokenFiles> broken;
  bool skips_broken = false;  ///< so fewer may be scored than are held out
  std::optional<LoaderAugment> augment;
  /// Read data come in epochs also where --steps are counted: each ends with what --last-batch
  /// says, and with scores. Made data are one stream then.
  bool in_epochs = false;
  std::vector<OutFile> files;
};

/// Opens the device that the options name; the first thing a command does.
Device open_training_device(const TrainOptions& options);

/// Opens the data of training, shuffled where they are read, and those to score. `request` is for
/// both. Resolves options.held_out. Throws Error{usage} for an --eval of data without anything held
/// out.
void open_training_data(TrainOptions& options, bool eval_given, const DataChoice& choice,
                        DataRequest request, TrainJob& job);

/// What `train segment`, `train classify` and `train --model` train. `eval_given`: the user gave
/// --eval. Resolves what the options leave open. Throws as what it reads and opens does.
TrainJob segment_job(SegmentOptions& options, bool eval_given);
TrainJob classify_job(ClassifyOptions& options, bool eval_given);
TrainJob model_job(ModelOptions& options, bool eval_given);

/// Puts the tensors of the file --init in the place of the first of `values`. They are those of one
/// of the models: of the one with as many, or else of the last. Throws Error{data} that names the
/// file and the first tensor that does not fit.
void put_initial(const std::string& path, const std::vector<Sequential>& models,
                 Parameters& values);

/// Trains and reports. `declared` is stored with the result.
void run_training(TrainOptions& options, const Options& declared, const Device& device,
                  TrainJob job);

/// A sub-command: opens the device, then the data, and trains. `Values` are options of one kind,
/// `job` makes what they ask for.
template <class Values>
void open_and_train(Values& values, const Options& declared,
                    TrainJob (*job)(Values&, bool eval_given)) {
  const Device device = open_training_device(values);
  run_training(values, declared, device, job(values, declared.given("--eval")));
}

/// The same training without a report or a file, for the counts of the held-out data, which the job
/// has to have. Throws Error{non_finite} where it diverges, Error{interrupted} after Ctrl-C.
Confusion train_and_score(const TrainOptions& options, const Device& device, TrainJob job);

/// A label a pixel for networks that give back the picture's size, a label a picture for 1 x 1.
/// `path` is for messages. Throws Error{data} for others.
Labels labels_of(const Model& model, const std::string& path);

/// For a command that takes --model or a workload: selects `run` where the option was given. Throws
/// Error{usage} for both, and for other options without either.
void choose_model(CLI::App& app, CLI::Option* model, Command& selected, Command run);

/// Under `train`.
void add_train_segment(CLI::App& train, Command& selected);
void add_train_classify(CLI::App& train, Command& selected);
/// The options of `train --model FILE`, on `train` itself.
void add_train_model(CLI::App& train, Command& selected);

}  // namespace tandem::program
