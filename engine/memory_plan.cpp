// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <numeric>
#include <tandem/engine/alignment.hpp>
#include <tandem/engine/plan.hpp>

namespace tandem {
namespace {

/// Operations of its stage between which a scratch buffer holds something.
struct Lifetime {
  std::size_t first = std::numeric_limits<std::size_t>::max();
  std::size_t last = 0;
  bool meets(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

Lifetime lifetime_of(const Stage& stage, BufferId buffer) {
  Lifetime life;
  for (std::size_t i = 0; i < stage.operations.size(); ++i) {
    const Operation& operation = stage.operations[i];
    for (const Operand& operand : operation.operands) {
      if (operand.buffer != buffer) continue;
      life.first = std::min(life.first, i);
      life.last = std::max(life.last, i);
      // A side lane may still run when later operations of the main lane do.
      if (operation.lane != Lane::main) life.last = stage.operations.size();
    }
  }
  return life;
}

/// Places the scratch buffers of one stage from `base` on; returns the end. Largest first, each at
/// the lowest offset where no buffer lies that is alive at the same time.
std::size_t place_scratch(const Plan& plan, int stage, std::size_t base, bool share,
                          std::vector<std::vector<std::size_t>>& offset) {
  struct Placed {
    std::size_t begin, end;
    Lifetime life;
  };
  std::vector<std::size_t> order;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    if (plan.buffers[b].scope == Scope::scratch && plan.buffers[b].index == stage)
      order.push_back(b);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return plan.buffers[a].bytes > plan.buffers[b].bytes;
  });

  std::vector<Placed> placed;  // in order of begin
  std::size_t end = base;
  for (const std::size_t b : order) {
    const std::size_t bytes = aligned_size(plan.buffers[b].bytes);
    const Lifetime life =
        lifetime_of(plan.stages[static_cast<std::size_t>(stage)], static_cast<BufferId>(b));
    std::size_t at = base;
    for (const Placed& other : placed) {
      if (share && !other.life.meets(life)) continue;
      if (at + bytes <= other.begin) break;
      at = std::max(at, other.end);
    }
    const Placed mine{at, at + bytes, life};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), mine,
                         [](const Placed& x, const Placed& y) { return x.begin < y.begin; }),
        mine);
    offset[b] = {at};
    end = std::max(end, mine.end);
  }
  return end;
}

}  // namespace

bool is_pinned(const Plan& plan, const Buffer& buffer) noexcept {
  return buffer.scope == Scope::result ||
         (buffer.scope == Scope::input && plan.input_memory == MemoryKind::pinned);
}

int copies(const Plan& plan, const Buffer& buffer) noexcept {
  switch (buffer.scope) {
    case Scope::persistent:
    case Scope::scratch:
      return 1;
    case Scope::handover:
      return plan.slots;
    case Scope::input:
      return plan.input_slots;
    case Scope::result:
      break;
  }
  return plan.window();
}

MemoryPlan plan_memory(const Plan& plan, bool share) {
  MemoryPlan memory;
  memory.offset.resize(plan.buffers.size());
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    if (buffer.scope == Scope::scratch) continue;
    std::size_t& end = is_pinned(plan, buffer) ? memory.pinned_bytes : memory.device_bytes;
    for (int copy = 0; copy < copies(plan, buffer); ++copy) {
      memory.offset[b].push_back(end);
      end += aligned_size(buffer.bytes);
    }
  }
  // Stages run side by side, so no two share scratch memory.
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    memory.device_bytes =
        place_scratch(plan, static_cast<int>(s), memory.device_bytes, share, memory.offset);
  }
  return memory;
}

std::vector<MemoryPart> memory_parts(const Plan& plan, const MemoryPlan& memory) {
  std::vector<MemoryPart> parts;
  const auto add = [&](const std::string& purpose, std::size_t bytes, bool pinned) {
    const auto part = std::find_if(parts.begin(), parts.end(), [&](const MemoryPart& other) {
      return other.purpose == purpose && other.pinned == pinned;
    });
    if (part != parts.end()) {
      part->bytes += bytes;
    } else if (bytes > 0) {
      parts.push_back({purpose, bytes, pinned});
    }
  };
  const auto stage_name = [&](int stage) {
    return plan.stages[static_cast<std::size_t>(stage)].name;
  };
  for (const Buffer& buffer : plan.buffers) {
    const std::size_t bytes =
        aligned_size(buffer.bytes) * static_cast<std::size_t>(copies(plan, buffer));
    switch (buffer.scope) {
      case Scope::persistent:
        add(buffer.name.substr(buffer.name.rfind('.') + 1), bytes, false);
        break;
      case Scope::handover:
        add("hand-over of " + stage_name(buffer.index), bytes, false);
        break;
      case Scope::input:
        add("input", bytes, is_pinned(plan, buffer));
        break;
      case Scope::result:
        add("result", bytes, true);
        break;
      case Scope::scratch:
        break;
    }
  }
  // The stages' scratch regions follow each other and end the arena.
  std::vector<std::size_t> begin(plan.stages.size() + 1, memory.device_bytes);
  for (std::size_t b = 0; b < plan.buffers.size(); ++b)
    if (plan.buffers[b].scope == Scope::scratch) {
      std::size_t& first = begin[static_cast<std::size_t>(plan.buffers[b].index)];
      first = std::min(first, memory.offset[b].front());
    }
  for (std::size_t s = plan.stages.size(); s-- > 0;) begin[s] = std::min(begin[s], begin[s + 1]);
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    add("scratch of " + plan.stages[s].name, begin[s + 1] - begin[s], false);
  return parts;
}

std::vector<std::size_t> live_scratch(const Plan& plan, int stage) {
  const Stage& of = plan.stages[static_cast<std::size_t>(stage)];
  std::vector<std::size_t> live(of.operations.size());
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    if (plan.buffers[b].scope != Scope::scratch || plan.buffers[b].index != stage) continue;
    const Lifetime life = lifetime_of(of, static_cast<BufferId>(b));
    for (std::size_t i = life.first; i <= life.last && i < live.size(); ++i)
      live[i] += plan.buffers[b].bytes;
  }
  return live;
}

}  // namespace tandem
