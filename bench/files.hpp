// SPDX-License-Identifier: Apache-2.0
// Which files a command reads and writes, by the names of its options.
#pragma once

#include <CLI/CLI.hpp>
#include <vector>

#include "options.hpp"

namespace tandem::program {

/// Throws Error{usage} where the command would write over a file that it reads, or twice to one.
/// For every command, once its options are parsed and before anything runs. A training's own folder
/// is not looked into: run_training() does. An option of a file or folder that nothing is known of
/// is a std::logic_error.
void check_files(const CLI::App& command);

/// The files that the given options name to be read: a network, a plan, a table, a configuration.
/// Weights to start from are none: a training may replace them.
std::vector<NamedFile> input_files(const CLI::App& command);

}  // namespace tandem::program
