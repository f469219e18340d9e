// SPDX-License-Identifier: Apache-2.0
// Networks on rows of numbers on the CUDA backend: fp32 against PyTorch in double, and the same
// bits in every schedule and precision.
#include <memory>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/tests/support/dense_checks.hpp>
#include <tandem/tests/support/gpu_guard.hpp>

namespace tandem::test {
namespace {

class DenseOnCuda : public GpuTest {};

DenseOutcome on_cuda(const Sequential& model, const nlohmann::json& run, EngineConfig config = {}) {
  const std::unique_ptr<Backend> backend = make_cuda_backend();
  return train_dense(*backend, model, run, config);
}

TEST_F(DenseOnCuda, TrainsAsInPyTorch) {
  for (const auto& [name, model] :
       {std::pair("keras_example", keras_example()), {"hidden_sigmoids", hidden_sigmoids()}}) {
    const nlohmann::json& run = dense_run(name);
    const DenseErrors errors = dense_errors(on_cuda(model, run), run);
    EXPECT_TRUE(is_dense_parity(errors)) << name << ": " << to_text(errors);
  }
  const nlohmann::json& run = dense_run("keras_example");
  EXPECT_FALSE(is_dense_parity(dense_errors(on_cuda(keras_example(0.0101), run), run)));
}

TEST_F(DenseOnCuda, EveryScheduleGivesTheSameBits) {
  const nlohmann::json& run = dense_run("keras_example");
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    EngineConfig config;
    config.precision = precision;
    config.fuse.pointwise = config.fuse.many = true;
    config.scheduler.schedule = Schedule::serial;
    const DenseOutcome serial = on_cuda(keras_example(), run, config);
    for (const Schedule schedule : {Schedule::overlap, Schedule::graph}) {
      config.scheduler.schedule = schedule;
      const DenseOutcome other = on_cuda(keras_example(), run, config);
      EXPECT_EQ(serial.losses, other.losses) << name_of(precision);
      for (std::size_t t = 0; t < serial.end.size(); ++t)
        EXPECT_EQ(serial.end[t].data, other.end[t].data) << serial.end[t].name;
    }
  }
}

}  // namespace
}  // namespace tandem::test
