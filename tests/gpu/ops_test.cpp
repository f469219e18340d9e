// SPDX-License-Identifier: Apache-2.0
// Every operation of the registry on the CUDA backend, against the oracles of the host tests.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/engine/buffer.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/plan.hpp>
#include <tandem/engine/registry.hpp>
#include <tandem/engine/stream.hpp>
#include <tandem/models/segmenter.hpp>
#include <tandem/models/trainer.hpp>
#include <tandem/tests/support/gpu_gate.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/op_cases.hpp>
#include <vector>

namespace tandem::test {
namespace {

// --- which operations, and what may differ ---

/// Sums of products, which libraries compute on tensor cores in tf32 and bf16.
bool is_product(OpKind kind) {
  return kind >= OpKind::conv1x1_forward && kind <= OpKind::conv3x3_backward_weights;
}

enum class Pass { forward, backward_data, backward_weights };
Pass pass_of(OpKind kind) {
  const int number = static_cast<int>(kind) - static_cast<int>(OpKind::conv1x1_forward);
  return static_cast<Pass>(number % 3);
}
bool is_transposed(OpKind kind) {
  return kind >= OpKind::tconv2x2_forward && kind <= OpKind::tconv2x2_backward_weights;
}
bool is_conv3x3(OpKind kind) { return kind >= OpKind::conv3x3_forward && is_product(kind); }

/// Terms of one output; the most there are, where the border of an image has fewer.
std::int64_t terms(const Operation& op) {
  const TensorDesc &first = op.operands[0].desc, &second = op.operands[1].desc;
  switch (pass_of(op.kind)) {
    case Pass::forward:  // x, w; w is [K,kh,kw,C] or [C,kh,kw,K]
      return is_transposed(op.kind) ? second.n : second.elements() / second.n;
    case Pass::backward_data:  // dy, w: the outputs that an input takes part in
      if (is_transposed(op.kind)) return second.elements() / second.n;
      return is_conv3x3(op.kind) ? second.elements() / second.c : second.n;
    case Pass::backward_weights:
      break;
  }
  return std::min(first.pixels(), second.pixels());  // x, dy
}

/// The oracle's values, with the bounds widened where the arithmetic is coarser than the sums of
/// products in f32 that they are made for:
///   tf32        each factor has 11 significant bits. A library may round (error up to 2^-11) or
///               cut off (up to 2^-10); the documentation does not say, so the latter.
///   tf32, bf16  tensor cores may cut off where they add, which doubles the unit of the sum.
std::vector<std::vector<Expected>> expected_on_cuda(const OpCase& c) {
  auto expected = c.expected();
  const bool tf32 = c.operation.math == Math::tf32;
  if (!is_product(c.operation.kind) || (!tf32 && c.type != DType::bf16)) return expected;
  OpCase absolute = c;
  for (Raster& values : absolute.values)
    for (double& value : values) value = std::abs(value);
  const auto magnitudes = absolute.expected();  // S, the sums of the absolute terms

  const double factor = tf32 ? 1 + 0x1p-10 : 1;
  const auto n = static_cast<double>(terms(c.operation));
  const double relative = factor * factor * (1 + gamma(n, 0x1p-23)) - 1 + gamma(n, 0x1p-53);
  const DType type = c.operation.operands[2].desc.dtype;
  for (std::size_t i = 0; i < expected[2].size(); ++i)
    expected[2][i] = stored(expected[2][i].value, relative * magnitudes[2][i].value, type);
  return expected;
}

/// What the CUDA backend offers of a kind: f32, products also with TF32, and bf16.
std::vector<OpCase> cuda_cases(OpKind kind) {
  std::vector<OpCase> cases;
  for (OpCase& c : op_cases(kind)) {
    const auto& operands = c.operation.operands;
    if (std::any_of(operands.begin(), operands.end(),
                    [](const Operand& o) { return o.desc.dtype == DType::f64; }))
      continue;
    cases.push_back(c);
    if (!is_product(kind) || c.type != DType::f32) continue;
    c.operation.math = Math::tf32;
    c.name += " tf32";
    cases.push_back(c);
  }
  return cases;
}

// --- running them ---

/// A backend with a lane, and another lane that can be kept busy.
class CudaOps : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!runs()) return;
    preload_test_kernels();
    backend_ = make_cuda_backend();
    stream_ = make_stream(*backend_, "tested");
    device_ = Memory(*backend_, kArena, MemoryKind::device, "the tested memory");
    staging_ = Memory(*backend_, kArena, MemoryKind::pinned, "a copy of it");
  }

  /// Runs the case's operation on a copy of the memory on the device, and copies all of it back.
  void run(OpMemory& memory) {
    const auto [arena, bytes] = memory.arena();
    ASSERT_LE(bytes, kArena);
    auto* device = static_cast<std::byte*>(device_.data());
    auto* staging = static_cast<std::byte*>(staging_.data());
    Launch up("upload", [&, bytes = bytes](cudaStream_t s) {
      TANDEM_CUDA_TRY(cudaMemcpyAsync(device, staging, bytes, cudaMemcpyHostToDevice, s));
    });
    Launch down("download", [&, bytes = bytes](cudaStream_t s) {
      TANDEM_CUDA_TRY(cudaMemcpyAsync(staging, device, bytes, cudaMemcpyDeviceToHost, s));
    });
    std::memcpy(staging, arena, bytes);
    memory.run([&, arena = arena](const Operation& op, void* const* pointers) {
      BoundOperation bound;
      bound.operation = &op;
      bound.stage = "test";
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        bound.pointers[i] = device + (static_cast<std::byte*>(pointers[i]) - arena);
      backend_->enqueue(stream_.get(), up.bound());
      backend_->enqueue(stream_.get(), bound);
      backend_->enqueue(stream_.get(), down.bound());
      backend_->synchronise(stream_.get());
    });
    std::memcpy(arena, staging, bytes);
  }

  /// Keeps another lane busy with products that fill the GPU, some milliseconds at a time.
  void keep_busy() {
    if (!busy_) busy_ = std::make_unique<Busy>(*backend_);
    busy_->refill();
  }
  bool is_busy() { return busy_ && busy_->running(); }

  std::unique_ptr<Backend> backend_;
  Stream stream_;

 private:
  static constexpr std::size_t kArena = std::size_t{32} << 20;

  class Busy {
   public:
    explicit Busy(Backend& backend)
        : backend_(backend),
          stream_(make_stream(backend, "busy")),
          event_(make_event(backend, "busy")),
          x_(backend, 4096 * 4096 * 4, MemoryKind::device, "a factor"),
          w_(backend, 2048 * 4096 * 4, MemoryKind::device, "a factor"),
          y_(backend, 4096 * 2048 * 4, MemoryKind::device, "a product") {
      operation_.kind = OpKind::conv1x1_forward;
      operation_.name = "busy";
      operation_.operands = {
          {0, {DType::f32, Layout::nhwc, 1, 64, 64, 4096}, Access::read, "x", false},
          {1, {DType::f32, Layout::nhwc, 2048, 1, 1, 4096}, Access::read, "w", false},
          {2, {DType::f32, Layout::nhwc, 1, 64, 64, 2048}, Access::write, "y", false}};
      check_operation(operation_);
      bound_.operation = &operation_;
      bound_.stage = "test";
      bound_.pointers[0] = x_.data();
      bound_.pointers[1] = w_.data();
      bound_.pointers[2] = y_.data();
    }
    ~Busy() { backend_.block(event_.get()); }

    bool running() { return !backend_.query(event_.get()); }
    void refill() {
      if (running()) return;
      for (int i = 0; i < 4; ++i) backend_.enqueue(stream_.get(), bound_);
      backend_.record(event_.get(), stream_.get());
    }

   private:
    Backend& backend_;
    Stream stream_;
    Event event_;
    Memory x_, w_, y_;
    Operation operation_;
    BoundOperation bound_;
  };

  Memory device_, staging_;
  std::unique_ptr<Busy> busy_;
};

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, ", "));
}

// --- against the oracles ---

class EveryKindOnCuda : public CudaOps, public ::testing::WithParamInterface<int> {
 protected:
  OpKind kind() const { return static_cast<OpKind>(GetParam()); }
};
// The contract suite is about a callable.
INSTANTIATE_TEST_SUITE_P(Ops, EveryKindOnCuda, ::testing::ValuesIn(kinds_with_cases()),
                         kind_test_name);

TEST_P(EveryKindOnCuda, EqualsTheOracleAndWritesOnlyWhatItDeclares) {
  const std::vector<OpCase> cases = cuda_cases(kind());
  ASSERT_FALSE(cases.empty());
  for (const OpCase& c : cases) {
    const auto expected = expected_on_cuda(c);
    OpMemory memory(c);
    ASSERT_NO_THROW(run(memory)) << c.name;
    EXPECT_EQ(memory.trespasses(), std::vector<std::string>{})
        << c.name << " changed without declaring it: " << joined(memory.trespasses());
    for (std::size_t i = 0; i < c.operation.operands.size(); ++i) {
      const Operand& operand = c.operation.operands[i];
      if (!writes(operand.access)) continue;
      const DType type = c.is_result(i) ? DType::f64 : operand.desc.dtype;
      EXPECT_TRUE(all_close(expected[i], memory.values(i), type, c.name + ": " + operand.name));
    }
  }
}

TEST_P(EveryKindOnCuda, CoversEveryPrecision) {
  std::set<std::string> seen;
  for (const OpCase& c : cuda_cases(kind()))
    seen.insert(std::string(name_of(c.type)) + (c.operation.math == Math::tf32 ? " tf32" : ""));
  EXPECT_TRUE(seen.count("f32"));
  EXPECT_EQ(seen.count("f32 tf32"), is_product(kind()) ? 1u : 0u);
  const std::vector<DType> types = storage_types(kind());
  const bool in_bf16 = std::find(types.begin(), types.end(), DType::bf16) != types.end();
  EXPECT_EQ(seen.count("bf16"), in_bf16 ? 1u : 0u);
}

/// Bytes of every written operand.
std::vector<std::vector<std::byte>> outputs(const OpCase& c, const OpMemory& memory) {
  std::vector<std::vector<std::byte>> result;
  for (std::size_t i = 0; i < c.operation.operands.size(); ++i)
    if (writes(c.operation.operands[i].access)) result.push_back(memory.bytes(i));
  return result;
}

// What the outputs and the workspace held before is other garbage in the second run, so that an
// element that is not written, or read before it is written, shows as well.
TEST_P(EveryKindOnCuda, GivesTheSameBitsAgainAndBesideABusyStream) {
  int overlapped = 0;
  for (const OpCase& c : cuda_cases(kind())) {
    OpMemory first(c, 0xFF), again(c, 0x5A), beside(c, 0xC3);
    ASSERT_NO_THROW(run(first)) << c.name;
    ASSERT_NO_THROW(run(again)) << c.name;
    keep_busy();
    ASSERT_NO_THROW(run(beside)) << c.name;
    overlapped += is_busy();
    EXPECT_TRUE(outputs(c, first) == outputs(c, again)) << c.name << ": other bits in a second run";
    EXPECT_TRUE(outputs(c, first) == outputs(c, beside))
        << c.name << ": other bits beside a busy stream";
  }
  EXPECT_GT(overlapped, 0) << "the other stream was never still busy afterwards";
}

TEST_F(CudaOps, AKindWithoutABodyIsAFailureThatNamesTheOperation) {
  Operation operation;
  operation.kind = static_cast<OpKind>(kOpKindCount);
  operation.name = "unheard of";
  BoundOperation bound;
  bound.operation = &operation;
  bound.stage = "test";
  bound.step = 7;
  ASSERT_NO_THROW(backend_->enqueue(stream_.get(), bound));
  try {
    backend_->synchronise(stream_.get());
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("unheard of"), std::string::npos) << error.what();
  }
}

// The comparison sees an operation that errs by more than its precision, and one that does nothing.
TEST_F(CudaOps, TheBoundsSeeTf32WhereStrictIsAskedFor) {
  OpCase strict = make_case(OpKind::conv1x1_forward, DType::f32, Layout::nhwc,
                            {"big", 3, 3, 16, 16, 16, 64, 64});
  const auto of_strict = expected_on_cuda(strict);
  OpCase tf32 = strict;
  tf32.operation.math = Math::tf32;
  OpMemory memory(tf32);
  ASSERT_NO_THROW(run(memory));
  EXPECT_TRUE(all_close(expected_on_cuda(tf32)[2], memory.values(2), DType::f32, "tf32"));
  EXPECT_FALSE(all_close(of_strict[2], memory.values(2), DType::f32, "strict"));
}

TEST_F(CudaOps, PoisonIsNotTakenForAResult) {
  const OpCase c = make_case(OpKind::conv1x1_forward, DType::f32, Layout::nhwc, case_sizes()[0]);
  const OpMemory untouched(c);
  EXPECT_FALSE(all_close(expected_on_cuda(c)[2], untouched.values(2), DType::f32, "y"));
}

// --- all ones ---

/// Terms of each output of a 3x3 convolution whose factors are all 1: the taps inside the image
/// times the channels, or, for the gradient of a weight, the pixels it meets.
std::vector<float> conv3x3_of_ones(const Operation& op) {
  const TensorDesc& out = op.operands[2].desc;
  const TensorDesc& first = op.operands[0].desc;
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(out.elements()));
  const auto inside = [](std::int64_t at, std::int64_t size) {  // taps of -1, 0, 1 inside
    return 3 - (at == 0) - (at == size - 1);
  };
  const bool of_weights = pass_of(op.kind) == Pass::backward_weights;
  for (std::int64_t n = 0; n < out.n; ++n)
    for (std::int64_t h = 0; h < out.h; ++h)
      for (std::int64_t w = 0; w < out.w; ++w) {
        const std::int64_t value = of_weights
                                       ? first.n * (first.h - (h != 1)) * (first.w - (w != 1))
                                       : inside(h, out.h) * inside(w, out.w) * first.c;
        values.insert(values.end(), static_cast<std::size_t>(out.c), static_cast<float>(value));
      }
  return values;
}

class OnesProbeHeavy : public CudaOps, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Batches, OnesProbeHeavy, ::testing::Values(1, 3, 8));

// Every product of the plan of the article's segmenter. With all factors 1 each output equals the
// number of its terms, exactly, in any precision; terms that an algorithm drops or counts twice
// show, whatever the sizes are.
TEST_P(OnesProbeHeavy, EveryProductOfTheSegmenterCountsItsTerms) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    EngineConfig config;
    config.frozen = segmenter_encoder(256);
    config.trained = segmenter_decoder(256, 10);
    config.batch = GetParam();
    config.precision = precision;
    const Plan plan = plan_training(config);

    std::vector<std::size_t> bytes(4, sizeof(unsigned long long));
    for (const Stage& stage : plan.stages)
      for (const Operation& op : stage.operations)
        if (is_product(op.kind))
          for (std::size_t i = 0; i < op.operands.size(); ++i)
            bytes[i] = std::max(bytes[i], op.operands[i].desc.bytes());
    std::vector<Memory> memory;
    for (const std::size_t size : bytes)
      memory.emplace_back(*backend_, (size + 255) / 256 * 256, MemoryKind::device, "an operand");
    const Memory differing(*backend_, sizeof(unsigned long long), MemoryKind::device, "a count");

    int probed = 0;
    for (const Stage& stage : plan.stages)
      for (const Operation& op : stage.operations) {
        if (!is_product(op.kind)) continue;
        ++probed;
        const TensorDesc& out = op.operands[2].desc;
        const bool narrow = out.dtype == DType::bf16;
        const std::string what =
            fmt::format("{}, batch {}, {}: {} {}", name_of(precision), GetParam(),
                        op_info(op.kind).name, op.name, to_string(out));
        const auto expected_terms = static_cast<double>(terms(op));
        ASSERT_EQ(round_to(out.dtype, expected_terms), expected_terms) << what;
        const auto n = static_cast<float>(expected_terms);
        std::uint32_t n_bits = 0;
        std::memcpy(&n_bits, &n, sizeof n);

        Launch prepare("prepare", [&](cudaStream_t s) {
          for (std::size_t i = 0; i < 2; ++i) {
            const TensorDesc& d = op.operands[i].desc;
            launch_fill(static_cast<std::uint32_t*>(memory[i].data()), (d.bytes() + 3) / 4,
                        d.dtype == DType::bf16 ? 0x3F803F80u : 0x3F800000u, s);
          }
          launch_fill(static_cast<std::uint32_t*>(memory[2].data()), (out.bytes() + 3) / 4,
                      0xFFFFFFFFu, s);
          TANDEM_CUDA_TRY(cudaMemsetAsync(differing.data(), 0, sizeof(unsigned long long), s));
        });
        Launch compare("compare", [&](cudaStream_t s) {
          auto* count = static_cast<unsigned long long*>(differing.data());
          const auto elements = static_cast<std::size_t>(out.elements());
          if (narrow)
            launch_count_other_than(static_cast<std::uint16_t*>(memory[2].data()), elements,
                                    static_cast<std::uint16_t>(n_bits >> 16), count, s);
          else
            launch_count_other_than(static_cast<std::uint32_t*>(memory[2].data()), elements, n_bits,
                                    count, s);
        });
        BoundOperation bound;
        bound.operation = &op;
        bound.stage = stage.name.c_str();
        for (std::size_t i = 0; i < op.operands.size(); ++i) bound.pointers[i] = memory[i].data();
        backend_->enqueue(stream_.get(), prepare.bound());
        backend_->enqueue(stream_.get(), bound);
        if (!is_conv3x3(op.kind)) {
          backend_->enqueue(stream_.get(), compare.bound());
          unsigned long long wrong = 1;
          ASSERT_NO_THROW(download(stream_.get(), &wrong, differing.data(), sizeof wrong)) << what;
          EXPECT_EQ(wrong, 0u) << what << ": outputs that are not " << n;
          continue;
        }
        std::vector<std::byte> raw(out.bytes());
        ASSERT_NO_THROW(download(stream_.get(), raw.data(), memory[2].data(), raw.size())) << what;
        const std::vector<float> expected = conv3x3_of_ones(op);
        std::size_t wrong = 0, first_wrong = 0;
        for (std::size_t i = expected.size(); i-- > 0;) {
          std::uint32_t word = 0;
          std::memcpy(reinterpret_cast<std::byte*>(&word) + (narrow ? 2 : 0),
                      raw.data() + i * size_of(out.dtype), size_of(out.dtype));
          float value = 0;
          std::memcpy(&value, &word, sizeof value);
          if (value == expected[i]) continue;
          ++wrong;
          first_wrong = i;
        }
        EXPECT_EQ(wrong, 0u) << what << ": the first is element " << first_wrong << ", should be "
                             << expected[first_wrong];
      }
    EXPECT_EQ(probed, 9 + 9 * 3 - 1) << "the encoder's products, three a layer of the decoder, and "
                                        "no gradient of the features";
  }
}

}  // namespace
}  // namespace tandem::test
