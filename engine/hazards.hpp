// SPDX-License-Identifier: Apache-2.0
// Happens-before over a trace: which pairs of accesses to the same bytes have no order.
#pragma once

#include <string>
#include <tandem/engine/backend_trace.hpp>
#include <vector>

namespace tandem {

/// Two operations that touch overlapping bytes, at least one writing, with no order between them.
/// `first` was issued earlier. Entry indices into the trace; access indices into the entries.
struct Hazard {
  int first = 0, second = 0;
  int first_access = 0, second_access = 0;
};

/// Every hazard of the trace, in order of (first, second). Order comes from streams and from record
/// and wait pairs; a host wait is never counted as an edge.
std::vector<Hazard> find_hazards(const Trace& trace);

/// "encode.conv2.forward write features (step 3) || train.conv0.backward_weights read features
/// (step 1)".
std::string describe(const Trace& trace, const Hazard& hazard);

/// The distinct pairs behind a list of hazards, without step numbers, sorted; the
/// two sides of a pair are in alphabetical order:
/// "encode.permute write features | train.tconv1.backward_weights read features". For assertions.
std::vector<std::string> distinct_pairs(const Trace& trace, const std::vector<Hazard>& hazards);

/// The operations that write any byte of [begin, end), as "stage.operation", distinct and sorted.
std::vector<std::string> writers_of(const Trace& trace, const void* begin, const void* end);

/// Number of host waits in the trace (on events and on streams).
int host_waits(const Trace& trace);

/// Graphviz: a row a stream, solid edges for stream order, dashed for events, red for hazards.
std::string to_dot(const Trace& trace, const std::vector<Hazard>& hazards);

}  // namespace tandem
