// SPDX-License-Identifier: Apache-2.0
// The one exception type of the library.
#pragma once

#include <stdexcept>
#include <string>

namespace tandem {

/// Why something failed. The value is the exit code of the program.
enum class ErrorCode : int {
  run_failed = 1,     ///< an operation or a check failed while running
  usage = 2,          ///< an argument, option or size outside its range
  data = 3,           ///< a file or a record that is missing, truncated or malformed
  no_device = 4,      ///< no usable device, driver or backend
  out_of_memory = 5,  ///< memory, or no batch size fits
  non_finite = 6,     ///< a NaN or an infinity where a number is required
  distributed = 7,    ///< a collective failed or timed out
  interrupted = 130,  ///< stopped by the user
};

/// Thrown by every function of the library. what() is one line that names the thing, its value and
/// the allowed range; hint() may say what to do next. Classified by code, never by text.
class Error : public std::runtime_error {
 public:
  explicit Error(ErrorCode code, const std::string& message, std::string hint = {})
      : std::runtime_error(message), code_(code), hint_(std::move(hint)) {}

  ErrorCode code() const noexcept { return code_; }
  const std::string& hint() const noexcept { return hint_; }

 private:
  ErrorCode code_;
  std::string hint_;
};

}  // namespace tandem
