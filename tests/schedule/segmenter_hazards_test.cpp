// SPDX-License-Identifier: Apache-2.0
// The hazard checker on the segmenter's own plan: no hazards, the encoder is frozen, and each edge
// removed in turn gives exactly the pairs that it orders.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tandem/engine/backend_trace.hpp>
#include <tandem/engine/hazards.hpp>
#include <tandem/engine/scheduler.hpp>
#include <tandem/models/segmenter.hpp>
#include <tandem/models/trainer.hpp>
#include <vector>

namespace tandem {
namespace {

using Pairs = std::vector<std::string>;
constexpr int kStages = 3;
constexpr int kBatches = 12;

EngineConfig config_of(int slots, bool momentum = true) {
  EngineConfig config;
  config.frozen = segmenter_encoder(32);
  config.trained = segmenter_decoder(32, 4);
  config.image = 32;
  config.batch = 2;
  config.slots = slots;
  config.momentum = momentum;
  return config;
}

struct Traced {
  Traced(Plan plan, Schedule schedule, Edge drop = {}) {
    SchedulerOptions options;
    options.schedule = schedule;
    options.test_drop_edge = drop;
    scheduler = std::make_unique<Scheduler>(backend, std::move(plan), options);
    backend.clear();
    const int inputs = scheduler->plan().input_slots;
    for (int n = 0; n < kBatches; ++n) {
      scheduler->push(n % inputs, static_cast<std::uint64_t>(n));
      waits_after_push.push_back(host_waits(backend.trace()));
    }
    scheduler->drain();
  }
  Pairs pairs() const { return distinct_pairs(backend.trace(), find_hazards(backend.trace())); }

  TraceBackend backend;
  std::vector<int> waits_after_push;
  std::unique_ptr<Scheduler> scheduler;
};

class SegmenterHazards : public ::testing::TestWithParam<int> {
 protected:
  int slots() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Slots, SegmenterHazards, ::testing::Values(2, 3));

TEST_P(SegmenterHazards, ThereAreNone) {
  for (bool momentum : {true, false})
    for (Schedule schedule : {Schedule::serial, Schedule::overlap, Schedule::graph}) {
      const Traced traced(plan_training(config_of(slots(), momentum)), schedule);
      EXPECT_EQ(traced.pairs(), Pairs{}) << name_of(schedule);
    }
  for (Schedule schedule : {Schedule::overlap, Schedule::graph})
    EXPECT_EQ(Traced(plan_prediction(config_of(slots())), schedule).pairs(), Pairs{});
}

TEST_P(SegmenterHazards, TheEncoderIsNeverWrittenAndTheDecoderOnlyByItsUpdates) {
  const Traced traced(plan_training(config_of(slots())), Schedule::overlap);
  const std::vector<Buffer>& buffers = traced.scheduler->plan().buffers;
  int encoder = 0, decoder = 0;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].scope != Scope::persistent) continue;
    const std::string& name = buffers[b].name;
    const auto* begin =
        static_cast<const std::byte*>(traced.scheduler->address(static_cast<BufferId>(b)));
    const Pairs writers = writers_of(traced.backend.trace(), begin, begin + buffers[b].bytes);
    if (name.rfind("encoder.", 0) == 0) {
      EXPECT_EQ(writers, Pairs{}) << name;
      ++encoder;
    } else if (name.find("gradient") == std::string::npos &&
               name.find("velocity") == std::string::npos) {
      EXPECT_EQ(writers, Pairs{"train." + name + ".sgd_momentum"}) << name;
      ++decoder;
    }
  }
  // conv1x1 and 5 times conv2x2; 5 times tconv2x2 and the head; weight and bias each.
  EXPECT_EQ(encoder, 12);
  EXPECT_EQ(decoder, 12);
}

/// What hand-over 0 orders: the batch as it was copied in.
Pairs copied_batch() {
  return {"copy.header write header | encode.header read header",
          "copy.images write images | encode.u8_to_float read images",
          "copy.labels write labels | encode.labels read labels"};
}

/// What hand-over 1 orders: features, labels and header. The header is read to the very end of the
/// step, by the update of each of the decoder's tensors.
Pairs encoded_batch() {
  Pairs pairs{
      "encode.encoder.10.bias_forward read_write features | "
      "train.decoder.0.tconv2x2_backward_weights read features",
      "encode.encoder.10.bias_forward read_write features | "
      "train.decoder.0.tconv2x2_forward read features",
      "encode.encoder.10.conv2x2_forward write features | "
      "train.decoder.0.tconv2x2_backward_weights read features",
      "encode.encoder.10.conv2x2_forward write features | "
      "train.decoder.0.tconv2x2_forward read features",
      "encode.header write header | train.loss read header",
      "encode.labels write labels | train.loss read labels",
  };
  for (const char* layer : {"0", "2", "4", "6", "8", "10"})
    for (const char* tensor : {"weight", "bias"})
      pairs.push_back(std::string("encode.header write header | train.decoder.")
                          .append(layer)
                          .append(".")
                          .append(tensor)
                          .append(".sgd_momentum read header"));
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

TEST_P(SegmenterHazards, EachMissingEdgeIsNamed) {
  for (Edge::Kind kind : {Edge::ready, Edge::free})
    for (int handover : {0, 1}) {
      const Traced traced(plan_training(config_of(slots())), Schedule::overlap, {kind, handover});
      EXPECT_EQ(traced.pairs(), handover == 0 ? copied_batch() : encoded_batch())
          << (kind == Edge::ready ? "ready " : "free ") << handover;
    }
}

/// The numbers that scheduler_test derives: B ticks, or B + K - 1 under overlap; one wait each, the
/// first when the window of R + 2 is full.
TEST_P(SegmenterHazards, TheHostWaitsForItsWindowAndNothingElse) {
  for (Schedule schedule : {Schedule::serial, Schedule::overlap, Schedule::graph}) {
    const Traced traced(plan_training(config_of(slots())), schedule);
    for (int n = 0; n < kBatches; ++n)
      EXPECT_EQ(traced.waits_after_push[static_cast<std::size_t>(n)],
                std::max(0, n + 1 - (slots() + 2)));
    EXPECT_EQ(host_waits(traced.backend.trace()),
              kBatches + (schedule == Schedule::serial ? 0 : kStages - 1));
  }
}

}  // namespace
}  // namespace tandem
