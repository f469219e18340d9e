// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <set>
#include <tandem/engine/error.hpp>
#include <tandem/engine/plan.hpp>
#include <tandem/engine/registry.hpp>
#include <tandem/engine/sha256.hpp>

namespace tandem {
namespace {

const char* name_of(Scope scope) {
  switch (scope) {
    case Scope::persistent:
      return "persistent";
    case Scope::handover:
      return "handover";
    case Scope::scratch:
      return "scratch";
    case Scope::input:
      return "input";
    case Scope::result:
      break;
  }
  return "result";
}

const char* name_of(Access access) {
  switch (access) {
    case Access::read:
      return "r";
    case Access::write:
      return "w";
    case Access::read_write:
      break;
  }
  return "rw";
}

/// Every member of the settings of an augmentation, and whether it takes one kernel a part.
std::string augment_text(const AugmentSpec& a, bool plain) {
  return fmt::format(
      " in {}x{} crop {}x{} out {}x{} padding {} antialias {:d} rotate {:d} rotation {} "
      "blur_taps {} border {} fill {} scale {} mean {},{},{} deviation {},{},{} plain {:d}",
      a.in_h, a.in_w, a.crop_h, a.crop_w, a.out_h, a.out_w, a.padding, a.antialias, a.rotate,
      static_cast<int>(a.rotation), a.blur_taps, static_cast<int>(a.border), a.fill, a.scale,
      a.mean[0], a.mean[1], a.mean[2], a.deviation[0], a.deviation[1], a.deviation[2], plain);
}

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::usage, message); }

const Buffer& buffer_of(const Plan& plan, const Operand& operand, const std::string& where) {
  if (operand.buffer < 0 || static_cast<std::size_t>(operand.buffer) >= plan.buffers.size())
    refuse(fmt::format("{}: operand {} names buffer {}; the plan has {}", where, operand.name,
                       operand.buffer, plan.buffers.size()));
  return plan.buffers[static_cast<std::size_t>(operand.buffer)];
}

/// Why an operation of stage `stage` may not access the buffer so, or null if it may.
const char* scope_violation(const Plan& plan, const Buffer& buffer, Access access, int stage) {
  const int last = static_cast<int>(plan.stages.size()) - 1;
  switch (buffer.scope) {
    case Scope::persistent:
      return nullptr;
    case Scope::handover:
      if (stage == buffer.index) return nullptr;
      if (stage != buffer.index + 1) return "a hand-over is used by its producer and consumer only";
      return writes(access) ? "a hand-over is written by its producer only" : nullptr;
    case Scope::scratch:
      return stage == buffer.index ? nullptr : "a scratch buffer is used by its own stage only";
    case Scope::input:
      if (stage != 0) return "an input is used by the first stage only";
      return writes(access) ? "an input is only read" : nullptr;
    case Scope::result:
      break;
  }
  if (stage != last) return "a result is used by the last stage only";
  return reads(access) ? "a result is only written" : nullptr;
}

}  // namespace

PlanBuilder::PlanBuilder(int slots, int input_slots, MemoryKind input_memory) {
  plan_.slots = slots;
  plan_.input_slots = input_slots;
  plan_.input_memory = input_memory;
}

BufferId PlanBuilder::add_buffer(std::string name, const TensorDesc& desc, Scope scope, int index) {
  for (const std::int64_t size : {desc.n, desc.h, desc.w, desc.c}) {
    if (size < 1)
      refuse(fmt::format("buffer {} is {}; sizes are at least 1", name, to_string(desc)));
  }
  plan_.buffers.push_back({std::move(name), desc.bytes(), scope, index});
  return static_cast<BufferId>(plan_.buffers.size()) - 1;
}

void PlanBuilder::begin_stage(std::string name) { plan_.stages.push_back({std::move(name), {}}); }

Operand PlanBuilder::operand(BufferId buffer, const TensorDesc& desc, Access access) const {
  Operand operand{buffer, desc, access, {}};
  operand.name = buffer_of(plan_, operand, "operand").name;
  return operand;
}
Operand PlanBuilder::read(BufferId buffer, const TensorDesc& desc) const {
  return operand(buffer, desc, Access::read);
}
Operand PlanBuilder::write(BufferId buffer, const TensorDesc& desc) const {
  return operand(buffer, desc, Access::write);
}
Operand PlanBuilder::read_write(BufferId buffer, const TensorDesc& desc) const {
  return operand(buffer, desc, Access::read_write);
}

Operation& PlanBuilder::add(Operation operation) {
  if (plan_.stages.empty()) refuse(fmt::format("operation {} is outside a stage", operation.name));
  check_operation(operation);
  if (const std::size_t bytes = op_info(operation.kind).workspace(operation); bytes > 0) {
    const TensorDesc desc = byte_desc(bytes);
    const BufferId buffer =
        add_buffer(operation.name + ".workspace", desc, Scope::scratch, stage());
    operation.operands.push_back(write(buffer, desc));
    operation.operands.back().workspace = true;
  }
  auto& operations = plan_.stages.back().operations;
  operations.push_back(std::move(operation));
  return operations.back();
}

Plan PlanBuilder::build() && {
  validate(plan_);
  return std::move(plan_);
}

void validate(const Plan& plan) {
  if (plan.stages.empty()) refuse("the plan has no stages");
  for (const Stage& stage : plan.stages) {
    if (stage.operations.empty()) refuse(fmt::format("stage {} has no operations", stage.name));
  }
  static constexpr int kMostSlots = 65536;
  const auto require_slots = [](const char* name, int value) {
    if (value < 1 || value > kMostSlots)
      refuse(fmt::format("{} is {}; allowed: 1 .. {}", name, value, kMostSlots));
  };
  require_slots("slots", plan.slots);
  require_slots("input_slots", plan.input_slots);

  const int stages = static_cast<int>(plan.stages.size());
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.scope != Scope::handover && buffer.scope != Scope::scratch) continue;
    const int end = buffer.scope == Scope::handover ? stages - 1 : stages;
    if (buffer.index < 0 || buffer.index >= end)
      refuse(fmt::format("buffer {} belongs to {} {}; the plan has {}", buffer.name,
                         name_of(buffer.scope), buffer.index, end));
  }

  // Which stages read or write each persistent buffer: nothing orders two stages but hand-overs.
  std::vector<std::set<int>> users(plan.buffers.size()), writers(plan.buffers.size());

  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    std::set<BufferId> written;  // what the stage has filled so far
    std::set<std::string> names;
    for (const Operation& operation : plan.stages[s].operations) {
      const std::string where =
          fmt::format("operation {} of stage {}", operation.name, plan.stages[s].name);
      if (!names.insert(operation.name).second)
        refuse(fmt::format("{} is there twice; names are unique within a stage", where));
      if (operation.operands.size() > kMaxOperands)
        refuse(fmt::format("{} has {} operands; at most {} are allowed", where,
                           operation.operands.size(), kMaxOperands));
      check_aliases(operation);
      for (const Operand& operand : operation.operands) {
        const Buffer& buffer = buffer_of(plan, operand, where);
        if (operand.desc.bytes() > buffer.bytes)
          refuse(fmt::format("{}: operand {} needs {} bytes; buffer {} has {}", where, operand.name,
                             operand.desc.bytes(), buffer.name, buffer.bytes));
        if (const char* why = scope_violation(plan, buffer, operand.access, static_cast<int>(s)))
          refuse(fmt::format("{}: buffer {} ({} {}): {}", where, buffer.name, name_of(buffer.scope),
                             buffer.index, why));
        const bool own = buffer.scope == Scope::scratch ||
                         (buffer.scope == Scope::handover && buffer.index == static_cast<int>(s));
        if (own && reads(operand.access) && written.count(operand.buffer) == 0)
          refuse(fmt::format("{}: buffer {} ({} {}) is read before it is written", where,
                             buffer.name, name_of(buffer.scope), buffer.index));
        if (buffer.scope == Scope::persistent) {
          const auto b = static_cast<std::size_t>(operand.buffer);
          users[b].insert(static_cast<int>(s));
          if (writes(operand.access)) writers[b].insert(static_cast<int>(s));
          if (!writers[b].empty() && users[b].size() > 1)
            refuse(
                fmt::format("{}: buffer {} is persistent and written, and used by two stages, "
                            "which nothing orders",
                            where, buffer.name));
        }
      }
      for (const Operand& operand : operation.operands)
        if (writes(operand.access)) written.insert(operand.buffer);
    }
  }
}

std::string to_text(const Plan& plan) {
  std::string text = fmt::format("slots {} input_slots {} input_memory {}\n", plan.slots,
                                 plan.input_slots, static_cast<int>(plan.input_memory));
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    text += fmt::format("buffer {} {} {} {} {}\n", b, buffer.name, buffer.bytes,
                        name_of(buffer.scope), buffer.index);
  }
  for (const Stage& stage : plan.stages) {
    text += fmt::format("stage {}\n", stage.name);
    for (const Operation& operation : stage.operations) {
      text +=
          fmt::format("  {} {} lane {} math {} scale {} ignore {}", op_info(operation.kind).name,
                      operation.name, static_cast<int>(operation.lane),
                      static_cast<int>(operation.math), operation.scale, operation.ignore_label);
      if (operation.own_kernel) text += " own kernel";
      if (operation.kind == OpKind::augment)
        text += augment_text(operation.augment, operation.plain);
      if (operation.kind == OpKind::l2_penalty) text += fmt::format(" l2 {}", operation.l2);
      for (const Operand& operand : operation.operands)
        text += fmt::format(" | {} {} {}{}", name_of(operand.access), operand.buffer,
                            to_string(operand.desc), operand.workspace ? " workspace" : "");
      text += '\n';
    }
  }
  return text;
}

std::string plan_hash(const Plan& plan) {
  const std::string text = to_text(plan);
  Sha256 hash;
  hash.update(text.data(), text.size());
  return hash.hex().substr(0, 16);
}

}  // namespace tandem
