// SPDX-License-Identifier: Apache-2.0
// The closed registry of operations: kind -> name, shape check, workspace, host body. The CUDA
// bodies are in ops_cuda.cpp, in the half of the library that needs CUDA.
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
};

/// Bytes of scratch memory that every stream of the cuda backend has, for kernels and libraries
/// that take no workspace operand: the same in every schedule. What needs more is refused by its
/// check.
inline constexpr std::size_t kLaneWorkspace = std::size_t{64} << 20;

/// Thread-safe; never fails for a valid kind.
const OpInfo& op_info(OpKind kind) noexcept;

/// Images that the CUDA body of a 3x3 convolution hands to the library at a time, a function of the
/// shape alone: as many as make 2^19 pixels. It bounds the library's workspace and that of the fp32
/// copies on which a bf16 convolution computes.
std::int64_t conv3x3_chunk(const TensorDesc& image) noexcept;

/// Bytes of an fp32 copy of operand `index` of a 3x3 convolution: of a chunk of images, or of the
/// filter. Up to the next multiple of 256.
std::size_t conv3x3_widened_bytes(const Operation& operation, std::size_t index) noexcept;

/// Refuses an operation two of whose operands are the same buffer, if it writes one of them: no
/// body says what it makes of that, and what works in place has one operand, read and written. Not
/// for a callable, whose author knows. Throws Error{usage} that names operation and operands.
void check_aliases(const Operation& operation);

/// check() of the operation's kind, with the number and access of the operands checked first, and
/// that no buffer which it writes is two of its operands.
void check_operation(const Operation& operation);

}  // namespace tandem
