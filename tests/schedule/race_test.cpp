// SPDX-License-Identifier: Apache-2.0
// A missing edge is a data race that thread sanitizer reports, also where only OpenBLAS, which it
// cannot see into, touches the slot: the host backend announces what each operation declares.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/scheduler.hpp>
#include <tandem/tests/support/gate.hpp>
#include <thread>

namespace tandem::testing {
namespace {

constexpr int kSlots = 2;

/// Two stages whose hand-over only GEMMs touch, each with a callable before and after the GEMM that
/// touches nothing.
///
///   write  hold, conv1x1 input -> slot, wrote      read  hold, conv1x1 slot -> output, has_read
///
/// Both lanes are held until the host has queued everything, so that none of its locks orders them.
/// Then: all slots are written; batch 0 is read; batch R is written over it. Relaxed flags bring
/// that about, and they are no order: the `free` edge is, or nothing.
class GemmStages {
 public:
  void run(Edge drop) {
    const auto backend = make_host_backend();
    SchedulerOptions options;
    options.test_drop_edge = drop;
    Scheduler scheduler(*backend, plan(), options);
    OpenOnExit open_on_exit(gate_);
    for (int n = 0; n <= kSlots; ++n) scheduler.push(n, static_cast<std::uint64_t>(n));
    gate_.open();
    // Until both sides are through, the host takes no lock that a lane takes.
    await(written_, kSlots + 1);
    scheduler.drain();
  }

 private:
  static GemmStages& self(void* user) { return *static_cast<GemmStages*>(user); }
  static void await(const std::atomic<int>& count, int at_least) {
    while (count.load(std::memory_order_relaxed) < at_least) std::this_thread::yield();
  }
  using Body = void (*)(void*, void* const*, const CallContext&);

  Operation callable(const char* name, Body body) {
    Operation operation;
    operation.name = name;
    operation.callable = {body, this};
    return operation;
  }

  Plan plan() {
    const TensorDesc pixels{DType::f32, Layout::nhwc, 2, 16, 16, 32};
    const TensorDesc weights{DType::f32, Layout::nhwc, 32, 1, 1, 32};
    PlanBuilder plan(kSlots, 4);
    const BufferId input = plan.add_buffer("input", pixels, Scope::input);
    const BufferId slot = plan.add_buffer("slot", pixels, Scope::handover, 0);
    const BufferId first = plan.add_buffer("first weights", weights, Scope::persistent);
    const BufferId second = plan.add_buffer("second weights", weights, Scope::persistent);
    const BufferId output = plan.add_buffer("output", pixels, Scope::persistent);
    Operation gemm;
    gemm.kind = OpKind::conv1x1_forward;

    plan.begin_stage("write");
    plan.add(callable("hold", [](void* user, void* const*, const CallContext& context) {
      if (context.step == 0) self(user).gate_.pass();
      if (context.step == kSlots) await(self(user).read_, 1);
    }));
    gemm.name = "write_slot";
    gemm.operands = {plan.read(input, pixels), plan.read(first, weights), plan.write(slot, pixels)};
    plan.add(gemm);
    plan.add(callable("wrote", [](void* user, void* const*, const CallContext&) {
      self(user).written_.fetch_add(1, std::memory_order_relaxed);
    }));

    plan.begin_stage("read");
    plan.add(callable("hold", [](void* user, void* const*, const CallContext& context) {
      if (context.step != 0) return;
      self(user).gate_.pass();
      await(self(user).written_, kSlots);
    }));
    gemm.name = "read_slot";
    gemm.operands = {plan.read(slot, pixels), plan.read(second, weights),
                     plan.write(output, pixels)};
    plan.add(gemm);
    plan.add(callable("has_read", [](void* user, void* const*, const CallContext&) {
      self(user).read_.fetch_add(1, std::memory_order_relaxed);
    }));
    return std::move(plan).build();
  }

  Gate gate_;
  std::atomic<int> read_{0}, written_{0};  // batches
};

/// Run in a child process: a report of thread sanitizer makes a process fail.
TEST(RaceChild, DISABLED_WithEveryEdge) { GemmStages().run({}); }
TEST(RaceChild, DISABLED_WithoutTheFreeEdge) { GemmStages().run({Edge::free, 0}); }

struct ChildResult {
  int exit_code = -1;
  std::string output;
};

ChildResult run_child(const std::string& test) {
  std::array<char, 4096> path{};
  EXPECT_GT(readlink("/proc/self/exe", path.data(), path.size() - 1), 0);
  // One OpenBLAS thread: its own workers synchronise in ways that the sanitizer cannot see.
  const std::string command =
      std::string("OPENBLAS_NUM_THREADS=1 TSAN_OPTIONS=exitcode=66 '") + path.data() +
      "' --gtest_also_run_disabled_tests --gtest_filter=RaceChild." + test + " 2>&1";
  ChildResult result;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> chunk{};
  while (std::fgets(chunk.data(), static_cast<int>(chunk.size()), pipe) != nullptr)
    result.output += chunk.data();
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

TEST(Race, AMissingFreeEdgeIsADataRaceOnASlotThatOnlyAGemmTouches) {
#if !defined(TANDEM_THREAD_SANITIZER)
  GTEST_SKIP() << "not a thread sanitizer build";
#endif
  const ChildResult child = run_child("DISABLED_WithoutTheFreeEdge");
  EXPECT_EQ(child.exit_code, 66) << child.output;
  EXPECT_NE(child.output.find("WARNING: ThreadSanitizer: data race"), std::string::npos)
      << child.output;
  EXPECT_NE(child.output.find("[       OK ]"), std::string::npos) << child.output;
}

TEST(Race, WithEveryEdgeThereIsNone) {
#if !defined(TANDEM_THREAD_SANITIZER)
  GTEST_SKIP() << "not a thread sanitizer build";
#endif
  const ChildResult child = run_child("DISABLED_WithEveryEdge");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_NE(child.output.find("[       OK ]"), std::string::npos) << child.output;
}

}  // namespace
}  // namespace tandem::testing
