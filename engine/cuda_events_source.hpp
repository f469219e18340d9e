// SPDX-License-Identifier: Apache-2.0
// Records of operations on the GPU by timed events, where CUPTI cannot be had. Needs no CUDA
// header.
#pragma once

#include <memory>
#include <tandem/engine/profile_source.hpp>

namespace tandem {

/// Records a timed event before and behind each operation, on its stream: a record is an operation,
/// not a kernel, gaps between its kernels count as busy, and the events themselves take time beside
/// short operations. Of a kernel's blocks nothing is known. What is timed so is not captured into
/// graphs: the graph schedule issues its steps one by one. For one cuda backend on `device`; the
/// recorder must outlive it. Throws Error{run_failed}.
std::unique_ptr<ProfileSource> make_cuda_events_source(int device, Recorder& recorder, bool shapes);

}  // namespace tandem
