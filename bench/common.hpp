// SPDX-License-Identifier: Apache-2.0
// What the sub-commands share: data and weights by name, the environment, files, Ctrl-C.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tandem/engine/backend.hpp>
#include <tandem/engine/dataset.hpp>
#include <tandem/models/parameters.hpp>
#include <tandem/models/trainer.hpp>

#include "device.hpp"
#include "options.hpp"

namespace tandem::program {

/// A sub-command: declares its options, and says what to run in `selected` once they are parsed.
using Command = std::function<void()>;
void add_info(CLI::App& root, Command& selected);
void add_train(CLI::App& root, Command& selected);
void add_bench(CLI::App& root, Command& selected);
void add_predict(CLI::App& root, Command& selected);
void add_tune(CLI::App& root, Command& selected);
/// Under `bench`.
void add_bench_overlap(CLI::App& bench, Command& selected);

// --- data
// -----------------------------------------------------------------------------------------

struct DataChoice {
  std::string data = "fashion-scenes";  ///< NAME or NAME:DIR
  std::int64_t garments = 1;
  double garment_scale = 0.8;
};
void add_data_options(Options& options, DataChoice& choice);

/// `classes` is what the user asked for, 0 for nothing. Throws Error{usage} where the data has
/// another number.
std::shared_ptr<const Dataset> open_data(const DataChoice& choice, Split split,
                                                  std::int64_t image, std::int64_t classes,
                                                  std::uint64_t seed);
/// False for data whose labels carry nothing that could be learnt.
bool has_held_out(const DataChoice& choice);

// --- model
// ----------------------------------------------------------------------------------------

InitScheme init_scheme(const std::string& name);
Schedule schedule(const std::string& name);

struct SegmenterWeights {
  Parameters encoder, decoder;
};
SegmenterWeights initial_segmenter(const EngineConfig& config, InitScheme scheme,
                                   std::uint64_t seed);

/// Sizes of the segmenter; everything else as EngineConfig has it.
EngineConfig segmenter_config(std::int64_t image, std::int64_t classes, std::int64_t batch);

/// Called in order with each sample: picture [S, S, 3], truth and prediction [S, S].
using OnPicture = std::function<void(std::int64_t index, const std::uint8_t* picture,
                                     const std::uint8_t* truth, const std::uint8_t* prediction)>;
/// Predicts samples 0 .. count - 1.
void predict_samples(Backend& backend, const EngineConfig& config, const SegmenterWeights& weights,
                     const std::shared_ptr<const Dataset>& data, std::int64_t count,
                     int workers, const OnPicture& on_picture);

// --- results
// --------------------------------------------------------------------------------------

/// {cpu, cores, compiler, openblas, os, version, commit, date}, and {cuda, cudnn, cublaslt} where
/// CUDA is built in.
Json environment();

/// JSON text; bytes that are not UTF-8 (of file names) are replaced.
std::string to_text(const Json& value, int indent = -1);

/// Throws Error{data} unless a file of that name can be created. Leaves nothing behind.
void check_writable(const std::string& option, const std::string& path);

/// Replaces the file as a whole, or leaves it as it was and throws Error{data}.
void write_file(const std::string& path, const std::string& text);

/// Writes to the file, or to standard output for "-"; nothing for "".
void write_json(const std::string& path, const Json& value);

/// "1 scene", "2 scenes"
std::string count_of(std::int64_t count, const std::string& noun);

// --- stopping
// -------------------------------------------------------------------------------------

/// From here on the first Ctrl-C is remembered, and the second ends the process.
void watch_interrupt();
bool interrupted() noexcept;

}  // namespace tandem::program
