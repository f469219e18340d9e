// SPDX-License-Identifier: Apache-2.0
// The hazard checker on the classifier's plans, whose pictures are augmented one batch ahead: no
// hazards, the tables are never written, and each edge removed in turn gives exactly the pairs that
// it orders.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tandem/engine/backend_trace.hpp>
#include <tandem/engine/fuse.hpp>
#include <tandem/engine/hazards.hpp>
#include <tandem/engine/scheduler.hpp>
#include <tandem/tests/support/small_classifier.hpp>
#include <utility>
#include <vector>

namespace tandem::test {
namespace {

using Pairs = std::vector<std::string>;
constexpr int kBatches = 12;

EngineConfig config_of(int slots) {
  EngineConfig config = small_classifier_config();
  config.slots = slots;
  return config;
}

struct Traced {
  Traced(Plan plan, Schedule schedule, Edge drop = {})
      : Traced(std::move(plan), options_of(schedule, drop)) {}
  Traced(Plan plan, const SchedulerOptions& options) {
    scheduler = std::make_unique<Scheduler>(backend, std::move(plan), options);
    backend.clear();
    const int inputs = scheduler->plan().input_slots;
    for (int n = 0; n < kBatches; ++n) scheduler->push(n % inputs, static_cast<std::uint64_t>(n));
    scheduler->drain();
  }
  static SchedulerOptions options_of(Schedule schedule, Edge drop) {
    SchedulerOptions options;
    options.schedule = schedule;
    options.test_drop_edge = drop;
    return options;
  }
  bool has_stream(const std::string& name) const {
    const std::vector<std::string>& streams = backend.trace().streams;
    return std::find(streams.begin(), streams.end(), name) != streams.end();
  }
  Pairs pairs() const { return distinct_pairs(backend.trace(), find_hazards(backend.trace())); }
  Pairs writers(BufferId buffer) const {
    const auto* begin = static_cast<const std::byte*>(scheduler->address(buffer));
    const auto& buffers = scheduler->plan().buffers;
    return writers_of(backend.trace(), begin,
                      begin + buffers[static_cast<std::size_t>(buffer)].bytes);
  }

  TraceBackend backend;
  std::unique_ptr<Scheduler> scheduler;
};

std::vector<std::string> stages_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const Stage& stage : plan.stages) names.push_back(stage.name);
  return names;
}

class ClassifierHazards : public ::testing::TestWithParam<int> {
 protected:
  int slots() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Slots, ClassifierHazards, ::testing::Values(2, 3));

TEST_P(ClassifierHazards, ThereAreNoneInAnyOfItsPlans) {
  struct Case {
    const char* name;
    EngineConfig config;
    std::vector<std::string> stages;
  };
  std::vector<Case> cases;
  const auto add = [&](const char* name, std::vector<std::string> stages, auto change) {
    cases.push_back({name, config_of(slots()), std::move(stages)});
    change(cases.back().config);
  };
  add("augment", {"copy", "augment", "train"}, [](EngineConfig&) {});
  add("plain kernels", {"copy", "augment", "train"},
      [](EngineConfig& c) { c.plain_augment = true; });
  add("on the CPU", {"copy", "train"}, [](EngineConfig& c) { c.augment_on_cpu = true; });
  add("no augmentation", {"copy", "train"}, [](EngineConfig& c) { c.augment.reset(); });
  add("frozen as well", {"copy", "augment", "encode", "train"}, [](EngineConfig& c) {
    c.frozen = segmenter_encoder(c.image);
    c.trained = Sequential(16 * c.image).relu().flatten().linear(16 * c.image, kSmallClasses);
  });
  add("in bf16", {"copy", "augment", "train"},
      [](EngineConfig& c) { c.precision = Precision::bf16; });
  add("on the CPU, in bf16", {"copy", "train"}, [](EngineConfig& c) {
    c.augment_on_cpu = true;
    c.precision = Precision::bf16;
  });
  for (const Case& c : cases) {
    EXPECT_EQ(stages_of(plan_training(c.config)), c.stages) << c.name;
    for (Schedule schedule : {Schedule::serial, Schedule::overlap, Schedule::graph}) {
      EXPECT_EQ(Traced(plan_training(c.config), schedule).pairs(), Pairs{})
          << c.name << ", " << name_of(schedule);
      EXPECT_EQ(Traced(plan_prediction(c.config), schedule).pairs(), Pairs{})
          << c.name << ", prediction, " << name_of(schedule);
    }
  }
}

TEST_P(ClassifierHazards, WeightsAreWrittenByTheirUpdatesAndTheTablesByNobody) {
  const Traced traced(plan_training(config_of(slots())), Schedule::overlap);
  const std::vector<Buffer>& buffers = traced.scheduler->plan().buffers;
  int weights = 0, tables = 0;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].scope != Scope::persistent) continue;
    const std::string& name = buffers[b].name;
    const Pairs writers = traced.writers(static_cast<BufferId>(b));
    if (name == "augment.tables") {
      EXPECT_EQ(writers, Pairs{});
      ++tables;
    } else if (name.find("gradient") == std::string::npos &&
               name.find("velocity") == std::string::npos) {
      EXPECT_EQ(writers, Pairs{"train." + name + ".sgd_momentum"}) << name;
      ++weights;
    }
  }
  EXPECT_EQ(tables, 1);
  EXPECT_EQ(weights, 14);  // conv1x1, 5 times conv2x2, linear; weight and bias each
}

/// What hand-over 0 orders: the batch as it was copied in.
Pairs copied_batch() {
  return {"augment.augment read header | copy.header write header",
          "augment.augment read images | copy.images write images",
          "augment.header read header | copy.header write header",
          "augment.labels read labels | copy.labels write labels"};
}

/// What hand-over 1 orders: the augmented pictures, whose last reader is the first layer's weight
/// gradient, labels and header.
Pairs augmented_batch() {
  Pairs pairs{
      "augment.augment write x | train.model.0.conv1x1_backward_weights read x",
      "augment.augment write x | train.model.0.conv1x1_forward read x",
      "augment.header write header | train.loss read header",
      "augment.labels write labels | train.loss read labels",
  };
  for (const char* layer : {"0", "2", "4", "6", "8", "10", "12"})
    for (const char* tensor : {"weight", "bias"})
      pairs.push_back(std::string("augment.header write header | train.model.")
                          .append(layer)
                          .append(".")
                          .append(tensor)
                          .append(".sgd_momentum read header"));
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

TEST_P(ClassifierHazards, EachMissingEdgeIsNamed) {
  for (Edge::Kind kind : {Edge::ready, Edge::free})
    for (int handover : {0, 1}) {
      const Traced traced(plan_training(config_of(slots())), Schedule::overlap, {kind, handover});
      EXPECT_EQ(traced.pairs(), handover == 0 ? copied_batch() : augmented_batch())
          << (kind == Edge::ready ? "ready " : "free ") << handover;
    }
}

/// What runs on a GPU unless it is told otherwise.
EngineConfig fused_on_side_lanes(int slots, Schedule schedule, Precision precision) {
  EngineConfig config = config_of(slots);
  config.precision = precision;
  config.fuse = kFuseAll;
  config.scheduler.schedule = schedule;
  config.scheduler.side_lanes = true;
  return config;
}

TEST_P(ClassifierHazards, FusedPlansOnSideLanesHaveNone) {
  for (const Schedule schedule : {Schedule::serial, Schedule::overlap, Schedule::graph})
    for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
      const EngineConfig config = fused_on_side_lanes(slots(), schedule, precision);
      const Traced traced(plan_training(config), config.scheduler);
      EXPECT_EQ(traced.pairs(), Pairs{}) << name_of(schedule) << " " << name_of(precision);
      EXPECT_EQ(traced.has_stream("train update"), schedule != Schedule::serial);
    }
}

// A check that sees nothing would find no hazard either.
TEST_P(ClassifierHazards, OfAFusedPlanOnSideLanesAreSeen) {
  EngineConfig config = fused_on_side_lanes(slots(), Schedule::graph, Precision::bf16);
  config.scheduler.test_drop_edge = Edge{Edge::ready, 0};
  EXPECT_NE(Traced(plan_training(config), config.scheduler).pairs(), Pairs{});
}

}  // namespace
}  // namespace tandem::test
