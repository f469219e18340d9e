// SPDX-License-Identifier: Apache-2.0
// The closed registry of operations: kind -> name, shape check, workspace, bodies.
#pragma once

#include <cstddef>

#include <tandem/engine/operation.hpp>

namespace tandem {

struct OpInfo {
  const char* name;

  /// Throws Error{usage} that names the operation, the operand, its shape and what is required.
  void (*check)(const Operation&);

  /// Bytes of scratch memory the body needs beside the operands; 0 for most. The plan appends a
  /// workspace operand of that size as the last operand, so that hazard checks see it.
  std::size_t (*workspace)(const Operation&);

  /// The host twin: runs the operation on `pointers`, one per operand. Null for `callable`, which
  /// a backend calls itself.
  void (*host)(const Operation&, void* const* pointers);

  /// Set by the CUDA half of the library; null without it.
  void (*cuda)(const Operation&, void* const* pointers, void* native_stream);
};

/// Thread-safe; never fails for a valid kind.
const OpInfo& op_info(OpKind kind) noexcept;

/// check() of the operation's kind, with the number and access of the operands checked first.
void check_operation(const Operation& operation);

}  // namespace tandem
