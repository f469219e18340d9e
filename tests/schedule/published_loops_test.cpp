// SPDX-License-Identifier: Apache-2.0
// The two loops of the published articles, entered call by call, and what the hazard checker says
// about them; the same jobs through our ring; and the pictures of both in docs/images.
//
// Two rules of PyTorch matter. Side streams do not synchronise with the default stream. A freed
// tensor's memory goes to the next allocation on the stream that allocated it, unless the tensor
// was recorded on another stream: then only once that stream has passed the point of the free.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tandem/engine/backend_trace.hpp>
#include <tandem/engine/hazards.hpp>
#include <tandem/engine/scheduler.hpp>
#include <tandem/engine/stream.hpp>
#include <tandem/tests/support/gate.hpp>
#include <vector>

namespace tandem::testing {
namespace {

using Pairs = std::vector<std::string>;
constexpr std::size_t kBytes = 256;

/// A tensor, as far as order is concerned: memory and the stream whose allocator it came from.
struct Tensor {
  void* memory = nullptr;
  std::string name, owner;
  std::vector<std::string> recorded_on;
  explicit operator bool() const { return memory != nullptr; }
};

/// PyTorch's streams and caching allocator on the trace backend.
class Torch {
 public:
  explicit Torch(std::vector<std::string> streams) {
    for (const std::string& name : streams) {
      streams_.emplace(name, make_stream(backend_, name));
      events_.emplace(name, make_event(backend_, name));
    }
  }

  /// New memory on a stream: that of a tensor freed there, if there is one.
  Tensor allocate(const std::string& stream, const std::string& name) {
    auto& free = free_[{stream, name}];  // by name: one size class a tensor
    Tensor tensor{nullptr, name, stream, {}};
    if (free.empty()) {
      tensor.memory = backend_.allocate(kBytes, MemoryKind::device, name);
      return tensor;
    }
    const Tensor old = free.front();
    free.pop_front();
    tensor.memory = old.memory;
    // Recorded on another stream: the allocator hands the memory out after that stream's event.
    for (const std::string& other : old.recorded_on)
      if (other != stream) backend_.wait(at(stream), freed_.at({old.memory, other}).get());
    return tensor;
  }
  void record_stream(Tensor& tensor, const std::string& stream) {
    tensor.recorded_on.push_back(stream);
  }
  void drop(const Tensor& tensor) {
    if (!tensor) return;
    for (const std::string& stream : tensor.recorded_on) {
      const auto key = std::make_pair(tensor.memory, stream);
      if (freed_.count(key) == 0) freed_.emplace(key, make_event(backend_, "freed on " + stream));
      backend_.record(freed_.at(key).get(), at(stream));
    }
    free_[{tensor.owner, tensor.name}].push_back(tensor);
  }
  void wait_stream(const std::string& waiter, const std::string& other) {
    backend_.record(events_.at(other).get(), at(other));
    backend_.wait(at(waiter), events_.at(other).get());
  }
  void run(const std::string& stream, const std::string& operation, std::uint64_t step,
           std::vector<Tensor> reads, std::vector<Tensor> writes) {
    std::vector<Work::Touch> touches;
    for (const Tensor& t : reads) touches.push_back({t.memory, kBytes, Access::read, t.name});
    for (const Tensor& t : writes) touches.push_back({t.memory, kBytes, Access::write, t.name});
    work_.emplace_back(operation, nullptr, std::move(touches), stream, step);
    backend_.enqueue(at(stream), work_.back().bound());
  }

  const Trace& trace() const { return backend_.trace(); }
  Pairs pairs() const { return distinct_pairs(trace(), find_hazards(trace())); }

 private:
  StreamRef at(const std::string& stream) const { return streams_.at(stream).get(); }

  std::deque<Work> work_;
  TraceBackend backend_;
  std::map<std::string, Stream> streams_;
  std::map<std::string, Event> events_;
  std::map<std::pair<void*, std::string>, Event> freed_;
  std::map<std::pair<std::string, std::string>, std::deque<Tensor>> free_;
};

/// What is repaired of a loop. All false: as published.
struct Repair {
  bool wait_for_inputs = false;   ///< side streams wait for the default stream's copies
  bool record_consumers = false;  ///< every tensor is recorded on each stream that reads it
};

/// W1: the frozen encoder on batch n + 1 beside the decoder's training on batch n.
void partial_training(Torch& torch, std::uint64_t steps, Repair repair = {}) {
  Tensor weights = torch.allocate("model", "weights"),
         gradients = torch.allocate("model", "gradients");
  Tensor raw, images, labels, features;
  for (std::uint64_t n = 0; n < steps; ++n) {
    torch.drop(raw);
    raw = torch.allocate("default", "raw");
    torch.run("default", "copy_images", n, {}, {raw});
    images = torch.allocate("default", "images");
    torch.run("default", "convert", n, {raw}, {images});
    Tensor labels_next = torch.allocate("default", "labels");
    torch.run("default", "copy_labels", n, {}, {labels_next});

    if (features) {  // of batch n - 1
      torch.wait_stream("model", "encoder");
      torch.run("model", "decode", n - 1, {features, weights}, {});
      torch.run("model", "loss", n - 1, {labels}, {});
      torch.run("model", "backward", n - 1, {features, weights}, {gradients});
      torch.run("model", "update", n - 1, {gradients}, {weights});
    }
    // The model waits for these labels in the next step, and the copy is issued before its work.
    if (repair.wait_for_inputs) torch.wait_stream("model", "default");

    if (repair.wait_for_inputs) torch.wait_stream("encoder", "default");
    Tensor features_next = torch.allocate("encoder", "features");
    torch.run("encoder", "encode", n, {images}, {features_next});
    torch.record_stream(features_next, "encoder");  // the producer: changes nothing
    if (repair.record_consumers) {
      torch.record_stream(features_next, "model");
      torch.record_stream(images, "encoder");
      torch.record_stream(labels_next, "model");
    }
    torch.drop(images);
    torch.drop(labels);
    torch.drop(features);
    labels = labels_next;
    features = features_next;
  }
}

/// W2: the transform of batch n + 1 beside the model's training on batch n.
void augmentation_offload(Torch& torch, std::uint64_t steps, Repair repair = {}) {
  Tensor weights = torch.allocate("model", "weights");
  Tensor transformed;
  for (std::uint64_t n = 0; n < steps; ++n) {
    if (transformed) {  // of batch n - 1
      Tensor labels = torch.allocate("model", "labels");
      torch.run("model", "copy_labels", n - 1, {}, {labels});
      torch.wait_stream("model", "transform");
      torch.run("model", "train", n - 1, {transformed, labels, weights}, {weights});
      torch.drop(labels);
    }
    Tensor images = torch.allocate("transform", "images");
    torch.run("transform", "copy_images", n, {}, {images});
    Tensor next = torch.allocate("transform", "transformed");
    torch.run("transform", "augment", n, {images}, {next});
    torch.record_stream(next, "transform");  // the producer: changes nothing
    if (repair.record_consumers) torch.record_stream(next, "model");
    torch.drop(images);
    torch.drop(transformed);
    transformed = next;
  }
}

const std::vector<std::string> kPartialStreams{"default", "encoder", "model"};
const std::vector<std::string> kOffloadStreams{"transform", "model"};

TEST(PublishedLoops, PartialTrainingMissesFiveEdges) {
  Torch torch(kPartialStreams);
  partial_training(torch, 12);
  EXPECT_EQ(
      torch.pairs(),
      (Pairs{
          // The encoder never waits for the images, and their memory is reused while it reads.
          "default.convert write images | encoder.encode read images",
          // The model never waits for the labels, and their memory is reused while it reads.
          "default.copy_labels write labels | model.loss read labels",
          // The features' memory is reused while the model reads: recorded on the producer.
          "encoder.encode write features | model.backward read features",
          "encoder.encode write features | model.decode read features",
      }));
  // In the first two pairs each direction is missing: the write may come too late and too early.
  int late_images = 0, early_images = 0, late_labels = 0, early_labels = 0, features_read_late = 0;
  for (const Hazard& hazard : find_hazards(torch.trace())) {
    const auto& entries = torch.trace().entries;
    const TraceEntry& first = entries[static_cast<std::size_t>(hazard.first)];
    const std::string name = first.accesses[static_cast<std::size_t>(hazard.first_access)].name;
    const bool write_first =
        writes(first.accesses[static_cast<std::size_t>(hazard.first_access)].access);
    if (name == "images") ++(write_first ? late_images : early_images);
    if (name == "labels") ++(write_first ? late_labels : early_labels);
    if (name == "features" && write_first) ++features_read_late;
  }
  EXPECT_GT(late_images, 0);
  EXPECT_GT(early_images, 0);
  EXPECT_GT(late_labels, 0);
  EXPECT_GT(early_labels, 0);
  // The model waits for the encoder before the encoder's newest work is issued, which is right.
  EXPECT_EQ(features_read_late, 0);
}

TEST(PublishedLoops, RecordingTheConsumerClosesTheReuseAndWaitsCloseTheRest) {
  Torch recorded(kPartialStreams), waited(kPartialStreams), repaired(kPartialStreams);
  partial_training(recorded, 12, {false, true});
  EXPECT_EQ(recorded.pairs(), (Pairs{"default.convert write images | encoder.encode read images",
                                     "default.copy_labels write labels | model.loss read labels"}));
  partial_training(waited, 12, {true, false});
  EXPECT_EQ(waited.pairs(), (Pairs{"default.convert write images | encoder.encode read images",
                                   "default.copy_labels write labels | model.loss read labels",
                                   "encoder.encode write features | model.backward read features",
                                   "encoder.encode write features | model.decode read features"}));
  partial_training(repaired, 12, {true, true});
  EXPECT_EQ(repaired.pairs(), Pairs{});
}

TEST(PublishedLoops, AugmentationOffloadMissesOneEdge) {
  Torch torch(kOffloadStreams);
  augmentation_offload(torch, 12);
  EXPECT_EQ(torch.pairs(),
            Pairs{"model.train read transformed | transform.augment write transformed"});
  // Only the reuse: the model waits for the transform of its batch, so it never reads too early.
  const std::vector<Hazard> hazards = find_hazards(torch.trace());
  EXPECT_FALSE(hazards.empty());
  for (const Hazard& hazard : hazards) {
    const TraceEntry& first = torch.trace().entries[static_cast<std::size_t>(hazard.first)];
    EXPECT_EQ(first.name, "train") << describe(torch.trace(), hazard);
  }
  // The labels are the model stream's own, and the repair of the article's later edition, which
  // records the consumer, is enough. The same job through our ring: classifier_hazards_test.cpp.
  Torch repaired(kOffloadStreams);
  augmentation_offload(repaired, 12, {false, true});
  EXPECT_EQ(repaired.pairs(), Pairs{});
}

// --- pictures ---

/// The article's loop with one operation a stream and step, for the picture.
void small_partial_training(Torch& torch, int steps) {
  Tensor images, labels, features;
  for (std::uint64_t n = 0; n < static_cast<std::uint64_t>(steps); ++n) {
    images = torch.allocate("default", "images");
    Tensor labels_next = torch.allocate("default", "labels");
    torch.run("default", "copy", n, {}, {images, labels_next});
    if (features) {
      torch.wait_stream("model", "encoder");
      torch.run("model", "train", n - 1, {features, labels}, {});
    }
    Tensor features_next = torch.allocate("encoder", "features");
    torch.run("encoder", "encode", n, {images}, {features_next});
    torch.drop(images);
    torch.drop(labels);
    torch.drop(features);
    labels = labels_next;
    features = features_next;
  }
}

/// The same job as a plan of ours. The labels travel with the batch, through every slot.
Plan small_plan() {
  const TensorDesc any = byte_desc(kBytes);
  PlanBuilder plan(2, 4);
  const BufferId batch = plan.add_buffer("batch", any, Scope::input);
  const BufferId images = plan.add_buffer("images", any, Scope::handover, 0);
  const BufferId labels = plan.add_buffer("labels", any, Scope::handover, 0);
  const BufferId features = plan.add_buffer("features", any, Scope::handover, 1);
  const BufferId labels_too = plan.add_buffer("labels", any, Scope::handover, 1);
  const auto add = [&](const char* name, std::vector<Operand> operands) {
    Operation operation;
    operation.name = name;
    operation.operands = std::move(operands);
    operation.callable.function = [](void*, void* const*, const CallContext&) {};
    plan.add(operation);
  };
  plan.begin_stage("copy");
  add("copy", {plan.read(batch, any), plan.write(images, any), plan.write(labels, any)});
  plan.begin_stage("encode");
  add("encode", {plan.read(images, any), plan.read(labels, any), plan.write(features, any),
                 plan.write(labels_too, any)});
  plan.begin_stage("train");
  add("train", {plan.read(features, any), plan.read(labels_too, any)});
  return std::move(plan).build();
}

/// The hazards worth drawing: of several that an operation has over the same tensor with later
/// operations of a stream, the first.
std::vector<Hazard> nearest(const Trace& trace, const std::vector<Hazard>& hazards) {
  std::set<std::tuple<int, int, std::string>> seen;
  std::vector<Hazard> kept;
  for (const Hazard& hazard : hazards) {
    const TraceEntry& first = trace.entries[static_cast<std::size_t>(hazard.first)];
    const TraceEntry& second = trace.entries[static_cast<std::size_t>(hazard.second)];
    const std::string& tensor = first.accesses[static_cast<std::size_t>(hazard.first_access)].name;
    if (seen.insert({hazard.first, second.stream, tensor}).second) kept.push_back(hazard);
  }
  return kept;
}

void expect_committed(const std::string& name, const std::string& dot) {
  const std::string path = std::string(TANDEM_SOURCE_DIR) + "/docs/images/" + name + ".dot";
  if (const char* directory = std::getenv("TANDEM_WRITE_PICTURES"))
    std::ofstream(std::string(directory) + "/" + name + ".dot") << dot;
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing";
  std::ostringstream committed;
  committed << file.rdbuf();
  EXPECT_EQ(committed.str(), dot) << path << " is out of date: see docs/scheduling.md";
}

TEST(Pictures, TheArticlesLoop) {
  Torch torch(kPartialStreams);
  small_partial_training(torch, 3);
  const std::vector<Hazard> hazards = find_hazards(torch.trace());
  EXPECT_EQ(distinct_pairs(torch.trace(), hazards),
            (Pairs{"default.copy write images | encoder.encode read images",
                   "default.copy write labels | model.train read labels",
                   "encoder.encode write features | model.train read features"}));
  expect_committed("article_loop", to_dot(torch.trace(), nearest(torch.trace(), hazards)));
}

TEST(Pictures, OurLoop) {
  TraceBackend trace;
  Scheduler scheduler(trace, small_plan(), {});
  trace.clear();
  for (int n = 0; n < 4; ++n) scheduler.push(n, static_cast<std::uint64_t>(n));
  scheduler.drain();
  const std::vector<Hazard> hazards = find_hazards(trace.trace());
  EXPECT_TRUE(hazards.empty());
  expect_committed("ring_loop", to_dot(trace.trace(), hazards));
}

}  // namespace
}  // namespace tandem::testing
