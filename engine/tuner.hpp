// SPDX-License-Identifier: Apache-2.0
// Chooses the algorithms of a plan's library calls by timing them, once and for all: the result is
// a table that later runs read. Needs no CUDA header; defined in the CUDA half of the engine.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <tandem/engine/algorithms.hpp>
#include <tandem/engine/plan.hpp>
#include <vector>

namespace tandem {

/// One library call: how many algorithms passed the filter and ran, and the times of the one that
/// is used without a table and of the one that was chosen (medians, with a cold L2).
struct TunedProblem {
  std::string problem, algorithm;  ///< as in the table
  int candidates = 0;
  double default_us = 0, chosen_us = 0;
};

struct TuneResult {
  AlgorithmTable table;
  std::vector<TunedProblem> problems;
};

/// Called before each problem, in another thread than the caller's. May throw: that ends the run.
using OnTune = std::function<void(std::size_t done, std::size_t total, const std::string& problem)>;

/// Times every candidate of every product and convolution of the plans, each run behind a write of
/// twice the L2 cache, and takes the fastest that also passes a probe: with operands of ones every
/// output is the number of its terms, exactly. Blocks; the caller's current device and last error
/// stay as they are. Throws Error{no_device}, Error{out_of_memory}, and Error{run_failed} that
/// names the problem where nothing passes.
TuneResult tune_algorithms(const std::vector<Plan>& plans, int device, const OnTune& on_tune = {});

}  // namespace tandem
