// SPDX-License-Identifier: Apache-2.0
// What the sub-commands share: networks by name, the environment, files, Ctrl-C.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tandem/models/parameters.hpp>
#include <tandem/models/trainer.hpp>
#include <vector>

#include "device.hpp"
#include "options.hpp"

namespace tandem::program {

/// A sub-command: declares its options, and says what to run in `selected` once they are parsed.
using Command = std::function<void()>;
void add_info(CLI::App& root, Command& selected);
void add_train(CLI::App& root, Command& selected);
void add_bench(CLI::App& root, Command& selected);
void add_predict(CLI::App& root, Command& selected);
void add_eval(CLI::App& root, Command& selected);
void add_augment(CLI::App& root, Command& selected);
void add_plan(CLI::App& root, Command& selected);
void add_tune(CLI::App& root, Command& selected);
void add_find_batch(CLI::App& root, Command& selected);
void add_profile(CLI::App& root, Command& selected);
void add_report(CLI::App& root, Command& selected);
void add_compare(CLI::App& root, Command& selected);
/// Under `bench`.
void add_bench_overlap(CLI::App& bench, Command& selected);

// --- model ---

InitScheme init_scheme(const std::string& name);
Schedule schedule(const std::string& name);

struct SegmenterWeights {
  Parameters encoder, decoder;
};
SegmenterWeights initial_segmenter(const EngineConfig& config, InitScheme scheme,
                                   std::uint64_t seed);

/// Sizes of the segmenter; everything else as EngineConfig has it.
EngineConfig segmenter_config(std::int64_t image, std::int64_t classes, std::int64_t batch);
/// Of the classifier, of which nothing is frozen.
EngineConfig classifier_config(std::int64_t image, std::int64_t classes, std::int64_t batch);

// --- results ---

/// {cpu, cores, compiler, openblas, os, version, commit, date}, and {cuda, cudnn, cublaslt} where
/// CUDA is built in.
Json environment();

/// JSON text; bytes that are not UTF-8 (of file names) are replaced.
std::string to_text(const Json& value, int indent = -1);

/// Name of the log in the folder of `train --out`.
inline constexpr const char* kLogFile = "log.jsonl";
/// And until the weights it belongs to are written.
inline constexpr const char* kUnfinishedLogFile = "log.jsonl.new";

/// Text on one line: control characters are written as escapes.
std::string printable(const std::string& text);

/// Throws Error{usage} where two of them are one file. Empty paths and "-" are none.
void check_distinct(const std::vector<NamedFile>& files);

/// Throws Error{data} unless the file can be opened to write, or created; it may be a pipe or a
/// device. Leaves nothing behind.
void check_writable(const std::string& option, const std::string& path);
/// And unless write_file() can replace it. Leaves nothing behind.
void check_replaceable(const std::string& option, const std::string& path);
/// check_replaceable() for the file of --json; nothing for "-" and "".
void check_json(const std::string& path);

/// Replaces the file as a whole, or leaves it as it was and throws Error{data}.
void write_file(const std::string& path, const std::string& text);

/// write_file(), or to standard output for "-".
void write_text(const std::string& path, const std::string& text);
/// As write_text(); nothing for "".
void write_json(const std::string& path, const Json& value);

/// "1 scene", "2 scenes"
std::string count_of(std::int64_t count, const std::string& noun);

// --- stopping ---

/// From here on the first Ctrl-C is remembered, and the second ends the process.
void watch_interrupt();
bool interrupted() noexcept;

}  // namespace tandem::program
