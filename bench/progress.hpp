// SPDX-License-Identifier: Apache-2.0
// How far a run is, on standard error: a bar on a terminal, otherwise a line every tenth.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tandem::program {

/// Writes to standard error, control characters but ends of lines as escapes. A reader that has
/// gone away is no reason to stop.
void say(const std::string& text);

class Progress {
 public:
  Progress(std::string label, std::uint64_t total, bool quiet);
  /// Ends the bar's line, also when the run failed.
  ~Progress();

  /// Says that `done` of the total are done. `text` follows the count.
  void update(std::uint64_t done, const std::string& text);

  /// A line of its own, also while there is a bar.
  void note(const std::string& text);

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void draw(std::uint64_t done, const std::string& text);

  std::string label_;
  std::uint64_t total_;
  bool quiet_, terminal_, colour_;
  std::uint64_t tenths_ = 0;  // lines written
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_draw_{};
};

}  // namespace tandem::program
