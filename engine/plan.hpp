// SPDX-License-Identifier: Apache-2.0
// A plan: stages, operations and buffers as plain values, and where each buffer lies. Host code
// that needs no device; what a scheduler executes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tandem/engine/backend.hpp>
#include <tandem/engine/operation.hpp>
#include <vector>

namespace tandem {

/// How long a buffer's contents live, and hence how many copies of it there are.
enum class Scope : std::uint8_t {
  persistent,  ///< from prepare() to the end: weights, gradients, velocities. One copy.
  handover,    ///< written by stage `index`, read by stage `index` + 1. One copy a slot.
  scratch,     ///< within one execution of stage `index`. Copies may share memory by lifetime.
  input,       ///< filled outside the plan and read by the first stage. One copy an input slot.
  result,      ///< written by the last stage, read by the host. One copy a tick of the window.
};

struct Buffer {
  std::string name;
  std::size_t bytes = 0;
  Scope scope = Scope::persistent;
  int index = 0;  ///< hand-over or stage, see Scope
};

struct Stage {
  std::string name;  ///< "copy", "encode", "train"
  std::vector<Operation> operations;
};

/// Stages run in order on each batch; stage k hands batch n over to stage k + 1 in slot
/// n mod `slots`. A stage's hand-over holds everything that later stages need.
struct Plan {
  std::vector<Buffer> buffers;
  std::vector<Stage> stages;
  int slots = 2;        ///< R, copies of each hand-over; at least 1
  int input_slots = 4;  ///< copies of each input buffer; at least 1
  MemoryKind input_memory = MemoryKind::pinned;

  /// Ticks that the host may issue before it waits for the oldest: R + 2.
  int window() const noexcept { return slots + 2; }
};

/// Appends buffers and operations to a plan, checking shapes on the way. Throws Error{usage}.
class PlanBuilder {
 public:
  explicit PlanBuilder(int slots = 2, int input_slots = 4,
                       MemoryKind input_memory = MemoryKind::pinned);

  BufferId add_buffer(std::string name, const TensorDesc& desc, Scope scope, int index = 0);
  void begin_stage(std::string name);
  int stage() const noexcept { return static_cast<int>(plan_.stages.size()) - 1; }

  /// Checks the operation, appends its workspace if it needs one, and adds it to the open stage.
  Operation& add(Operation operation);

  /// Shorthands for operands; the name is the buffer's.
  Operand read(BufferId buffer, const TensorDesc& desc) const;
  Operand write(BufferId buffer, const TensorDesc& desc) const;
  Operand read_write(BufferId buffer, const TensorDesc& desc) const;

  /// Hands the finished plan over, after validate().
  Plan build() &&;

 private:
  Operand operand(BufferId buffer, const TensorDesc& desc, Access access) const;
  Plan plan_;
};

/// Throws Error{usage} if there is no stage, a stage has no operation, or an operation uses a
/// buffer outside its bounds or its scope: a hand-over written by another stage than its producer
/// or read by another than its producer or consumer, an input used after the first stage, a result
/// used before the last, a scratch buffer used by another stage, a scratch buffer or a hand-over
/// read by its stage before it was written, a persistent buffer that one stage writes and another
/// uses. Or if slots or input_slots is outside 1 .. 65536.
void validate(const Plan& plan);

/// Where every copy of every buffer lies. Two buffers share bytes only if the most parallel
/// schedule orders all their uses: scratch buffers of one stage whose lifetimes do not meet. A
/// buffer that a side lane touches lives to the end of its stage.
struct MemoryPlan {
  std::vector<std::vector<std::size_t>> offset;  ///< [buffer][copy], in its arena, 256-aligned
  std::size_t device_bytes = 0;                  ///< the arena
  std::size_t pinned_bytes = 0;                  ///< inputs (if pinned) and results
};

/// `share` off gives every buffer its own bytes, for tests.
MemoryPlan plan_memory(const Plan& plan, bool share = true);

/// Bytes that a plan needs for one purpose, gaps between buffers included.
struct MemoryPart {
  std::string purpose;  ///< "weight", "gradient", "hand-over of encode", "scratch of train"
  std::size_t bytes = 0;
  bool pinned = false;
};

/// What the two arenas are for. Persistent buffers go by what is behind the last dot of their name;
/// the others by scope and stage. Those of an arena add up to its bytes.
std::vector<MemoryPart> memory_parts(const Plan& plan, const MemoryPlan& memory);

/// For each operation of a stage the bytes of the stage's scratch buffers that hold something then.
std::vector<std::size_t> live_scratch(const Plan& plan, int stage);

/// True if the buffer lies in pinned memory.
bool is_pinned(const Plan& plan, const Buffer& buffer) noexcept;

/// Number of copies of a buffer.
int copies(const Plan& plan, const Buffer& buffer) noexcept;

/// One line an operation and a buffer, stable across runs and machines.
std::string to_text(const Plan& plan);

/// First 16 hexadecimal digits of the SHA-256 of to_text(). A schedule never changes it.
std::string plan_hash(const Plan& plan);

}  // namespace tandem
