// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tandem/engine/hazards.hpp>
#include <tuple>

namespace tandem {
namespace {

/// clock[s] = how many operations of stream s happened before this point.
using VectorClock = std::vector<int>;

void join(VectorClock& into, const VectorClock& other) {
  for (std::size_t s = 0; s < into.size(); ++s) into[s] = std::max(into[s], other[s]);
}

/// Happens-before of the operations of a trace, as vector clocks (Fidge 1988, Mattern 1989).
class Order {
 public:
  explicit Order(const Trace& trace)
      : trace_(trace), clock_(trace.entries.size()), number_(trace.entries.size(), 0) {
    std::vector<VectorClock> now(trace.streams.size(), VectorClock(trace.streams.size(), 0));
    for (std::size_t i = 0; i < trace.entries.size(); ++i) {
      const TraceEntry& entry = trace.entries[i];
      if (entry.kind == TraceEntry::host_wait) continue;  // never an edge
      const auto s = static_cast<std::size_t>(entry.stream);
      if (entry.kind == TraceEntry::operation) number_[i] = ++now[s][s];
      if (entry.kind == TraceEntry::wait && entry.binds_to >= 0)
        join(now[s], clock_[static_cast<std::size_t>(entry.binds_to)]);
      clock_[i] = now[s];
    }
  }

  /// For operations a and b, a issued before b.
  bool before(std::size_t a, std::size_t b) const {
    const auto s = static_cast<std::size_t>(trace_.entries[a].stream);
    return clock_[b][s] >= number_[a];
  }

 private:
  const Trace& trace_;
  std::vector<VectorClock> clock_;  // per entry, after it
  std::vector<int> number_;         // per operation: its place in its stream, from 1
};

const char* verb(Access access) {
  switch (access) {
    case Access::read:
      return "read";
    case Access::write:
      return "write";
    case Access::read_write:
      break;
  }
  return "read_write";
}

const TraceEntry& entry_of(const Trace& trace, int index) {
  return trace.entries[static_cast<std::size_t>(index)];
}

/// "encode.permute write features"
std::string side(const Trace& trace, int index, int access) {
  const TraceEntry& entry = entry_of(trace, index);
  const TraceAccess& touched = entry.accesses[static_cast<std::size_t>(access)];
  return fmt::format("{}.{} {} {}", entry.stage, entry.name, verb(touched.access), touched.name);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

std::vector<Hazard> find_hazards(const Trace& trace) {
  // All accesses by address; each is compared with those that start before it ends.
  struct Item {
    std::uintptr_t begin, end;
    int entry, access;
    bool writes;
  };
  std::vector<Item> items;
  for (std::size_t e = 0; e < trace.entries.size(); ++e) {
    const auto& accesses = trace.entries[e].accesses;
    for (std::size_t a = 0; a < accesses.size(); ++a) {
      if (accesses[a].begin == accesses[a].end) continue;
      items.push_back({accesses[a].begin, accesses[a].end, static_cast<int>(e), static_cast<int>(a),
                       writes(accesses[a].access)});
    }
  }
  std::sort(items.begin(), items.end(),
            [](const Item& a, const Item& b) { return a.begin < b.begin; });

  const Order order(trace);
  std::vector<Hazard> hazards;
  for (std::size_t i = 0; i < items.size(); ++i) {
    for (std::size_t j = i + 1; j < items.size() && items[j].begin < items[i].end; ++j) {
      const Item* first = &items[i];
      const Item* second = &items[j];
      if (first->entry > second->entry) std::swap(first, second);
      if (first->entry == second->entry || (!first->writes && !second->writes)) continue;
      if (order.before(static_cast<std::size_t>(first->entry),
                       static_cast<std::size_t>(second->entry)))
        continue;
      hazards.push_back({first->entry, second->entry, first->access, second->access});
    }
  }
  std::sort(hazards.begin(), hazards.end(), [](const Hazard& a, const Hazard& b) {
    return std::tie(a.first, a.second, a.first_access, a.second_access) <
           std::tie(b.first, b.second, b.first_access, b.second_access);
  });
  return hazards;
}

std::string describe(const Trace& trace, const Hazard& hazard) {
  return fmt::format("{} (step {}) || {} (step {})", side(trace, hazard.first, hazard.first_access),
                     entry_of(trace, hazard.first).step,
                     side(trace, hazard.second, hazard.second_access),
                     entry_of(trace, hazard.second).step);
}

std::vector<std::string> distinct_pairs(const Trace& trace, const std::vector<Hazard>& hazards) {
  std::set<std::string> pairs;
  for (const Hazard& hazard : hazards) {
    std::string a = side(trace, hazard.first, hazard.first_access);
    std::string b = side(trace, hazard.second, hazard.second_access);
    if (b < a) std::swap(a, b);
    pairs.insert(a + " | " + b);
  }
  return {pairs.begin(), pairs.end()};
}

std::vector<std::string> writers_of(const Trace& trace, const void* begin, const void* end) {
  const auto low = reinterpret_cast<std::uintptr_t>(begin);
  const auto high = reinterpret_cast<std::uintptr_t>(end);
  std::set<std::string> names;
  for (const TraceEntry& entry : trace.entries) {
    for (const TraceAccess& access : entry.accesses) {
      if (writes(access.access) && access.begin < high && low < access.end)
        names.insert(entry.stage + "." + entry.name);
    }
  }
  return {names.begin(), names.end()};
}

int host_waits(const Trace& trace) {
  return static_cast<int>(
      std::count_if(trace.entries.begin(), trace.entries.end(),
                    [](const TraceEntry& e) { return e.kind == TraceEntry::host_wait; }));
}

std::string to_dot(const Trace& trace, const std::vector<Hazard>& hazards) {
  std::string dot =
      "digraph trace {\n"
      "  rankdir=LR; nodesep=0.5; ranksep=1.1; fontname=\"Helvetica\"; fontsize=12;\n"
      "  node [shape=box, fontname=\"Helvetica\", fontsize=10];\n"
      "  edge [fontname=\"Helvetica\", fontsize=9];\n";
  const std::size_t count = trace.entries.size();

  // A row a stream, its operations from left to right.
  std::vector<int> previous(trace.streams.size(), -1);          // last operation of each stream
  std::vector<int> last_at_record(count, -1);                   // record -> operation it stands for
  std::vector<std::vector<int>> pending(trace.streams.size());  // waits before the next operation
  std::string edges;
  for (std::size_t s = 0; s < trace.streams.size(); ++s) {
    dot += fmt::format("  subgraph cluster_{} {{\n    label={}; labeljust=l; style=rounded;\n", s,
                       quoted(trace.streams[s]));
    for (std::size_t i = 0; i < count; ++i) {
      const TraceEntry& entry = trace.entries[i];
      if (entry.kind != TraceEntry::operation || entry.stream != static_cast<int>(s)) continue;
      dot += fmt::format("    n{} [label={}];\n", i,
                         quoted(fmt::format("{}\n{}", entry.name, entry.step)));
    }
    dot += "  }\n";
  }
  for (std::size_t i = 0; i < count; ++i) {
    const TraceEntry& entry = trace.entries[i];
    if (entry.kind == TraceEntry::host_wait) continue;
    const auto s = static_cast<std::size_t>(entry.stream);
    if (entry.kind == TraceEntry::record) {
      last_at_record[i] = previous[s];
    } else if (entry.kind == TraceEntry::wait) {
      if (entry.binds_to >= 0) pending[s].push_back(entry.binds_to);
    } else {
      if (previous[s] >= 0) edges += fmt::format("  n{} -> n{};\n", previous[s], i);
      for (const int record : pending[s]) {
        const int source = last_at_record[static_cast<std::size_t>(record)];
        if (source < 0) continue;
        const auto event = static_cast<std::size_t>(entry_of(trace, record).event);
        edges += fmt::format("  n{} -> n{} [style=dashed, color=blue, fontcolor=blue, label={}];\n",
                             source, i, quoted(trace.events[event]));
      }
      pending[s].clear();
      previous[s] = static_cast<int>(i);
    }
  }
  for (const Hazard& hazard : hazards) {
    const auto& access =
        entry_of(trace, hazard.first).accesses[static_cast<std::size_t>(hazard.first_access)];
    edges += fmt::format(
        "  n{} -> n{} [color=red, fontcolor=red, dir=both, constraint=false, "
        "label={}];\n",
        hazard.first, hazard.second, quoted(access.name));
  }
  return dot + edges + "}\n";
}

}  // namespace tandem
