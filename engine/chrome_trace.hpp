// SPDX-License-Identifier: Apache-2.0
// A recording as a file that Perfetto and chrome://tracing open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tandem/engine/profile_summary.hpp>
#include <tandem/engine/recorder.hpp>
#include <vector>

namespace tandem {

/// A value that holds from a moment on, drawn as a curve.
struct CounterSample {
  std::uint64_t time = 0;  ///< profile_clock()
  std::string name;        ///< "train live", with its unit
  double value = 0;
};

struct TraceOptions {
  std::string device = "device";                   ///< names the group of streams
  bool paths = false;                              ///< each event's argument `path`
  std::size_t most_bytes = std::size_t{64} << 20;  ///< of the file; what comes later is left out
};

struct TraceText {
  std::string json;
  std::uint64_t events = 0, dropped = 0;  ///< without those that give names
};

/// Four groups, in this order: steps and stages; the device's streams, in the order in which they
/// were created; threads of the host; counters. Each record that meets the window is an event with
/// the arguments step, stage, bytes, blocks, path and shapes, as far as they are known and wanted.
/// Events are sorted by time, in microseconds from the first one; none has a negative duration. How
/// many were dropped, by the recorder and for the size of the file, is in `otherData`.
TraceText chrome_trace(const Recording& recording, const ProfileWindow& window,
                       const std::vector<CounterSample>& counters, const TraceOptions& options);

}  // namespace tandem
