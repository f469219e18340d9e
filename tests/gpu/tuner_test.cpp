// SPDX-License-Identifier: Apache-2.0
// Tuned algorithms: there is one for each library call of the plan, and they are what a backend
// with the table uses.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/fuse.hpp>
#include <tandem/engine/tuner.hpp>
#include <tandem/models/segmenter.hpp>
#include <tandem/models/trainer.hpp>
#include <tandem/tests/support/gpu_guard.hpp>

namespace tandem {
namespace {

EngineConfig small_config(Precision precision) {
  EngineConfig config;
  config.frozen = segmenter_encoder(32);
  config.trained = segmenter_decoder(32, 10);
  config.image = 32;
  config.batch = 3;
  config.precision = precision;
  return config;
}

std::set<std::string> problems(const AlgorithmTable& table) {
  std::set<std::string> names;
  for (const auto& [problem, algorithm] : table.entries) names.insert(problem);
  return names;
}

class Tuner : public test::GpuTest {};

TEST_F(Tuner, ChoosesForEveryLibraryCallAndTheBackendFollows) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    SCOPED_TRACE(name_of(precision));
    EngineConfig config = small_config(precision);
    config.fuse = kFuseAll;
    config.momentum = false;  // with momentum no update is part of a product
    const Plan plan = plan_training(config);
    std::size_t calls = 0;
    const TuneResult tuned =
        tune_algorithms({plan}, 0, [&](std::size_t done, std::size_t total, const std::string& p) {
          EXPECT_EQ(done, calls);
          EXPECT_LT(done, total);
          EXPECT_FALSE(p.empty());
          ++calls;
        });
    EXPECT_EQ(tuned.problems.size(), calls);
    EXPECT_EQ(tuned.table.environment, cuda_environment(0));
    for (const TunedProblem& p : tuned.problems) {
      EXPECT_GT(p.candidates, 0) << p.problem;
      EXPECT_GT(p.chosen_us, 0) << p.problem;
    }

    // Of the five transposed convolutions; the gradient of the head is no product. In bf16 all but
    // the narrowest have a kernel of their own, cuda::weight_update.
    const std::set<std::string> names = problems(tuned.table);
    const auto is_update = [](const std::string& p) { return p.find(" update") != p.npos; };
    EXPECT_EQ(std::count_if(names.begin(), names.end(), is_update),
              precision == Precision::bf16 ? 1 : 5);

    const auto plain = make_cuda_backend();
    plain->prepare(plan);
    EXPECT_EQ(problems(cuda_algorithms(*plain)), problems(tuned.table));
    CudaOptions options;
    options.algorithms = tuned.table;
    const auto backend = make_cuda_backend(options);
    backend->prepare(plan);
    EXPECT_EQ(cuda_algorithms(*backend).entries, tuned.table.entries);
  }
}

// What is only in the table is not in the hash of a run.
TEST_F(Tuner, EntriesOfOtherPlansAreNotChosen) {
  const Plan plan = plan_training(small_config(Precision::tf32));
  CudaOptions options;
  options.algorithms.entries.emplace("matmul f32 f32 strict nn 1 1 1", "0");
  const auto backend = make_cuda_backend(options), plain = make_cuda_backend();
  backend->prepare(plan);
  plain->prepare(plan);
  EXPECT_EQ(cuda_algorithms(*backend).entries, cuda_algorithms(*plain).entries);
}

// A file that was made here says of each product what the library runs for it; one that was
// changed, or is another's under our environment, is refused by the entry.
TEST_F(Tuner, AnAlgorithmThatDoesNotFitItsProductIsRefusedByName) {
  const auto chosen_for = [](const Plan& plan) {
    const auto backend = make_cuda_backend();
    backend->prepare(plan);
    return cuda_algorithms(*backend).entries;
  };
  const auto first_product = [](const std::map<std::string, std::string>& entries) {
    const auto found = std::find_if(entries.begin(), entries.end(), [](const auto& entry) {
      return entry.first.rfind("matmul ", 0) == 0;
    });
    if (found == entries.end()) throw std::runtime_error("no product");
    return *found;
  };
  const Plan plan = plan_training(small_config(Precision::fp32));
  const auto [problem, fits] = first_product(chosen_for(plan));
  const std::string others =
      first_product(chosen_for(plan_training(small_config(Precision::bf16)))).second;
  struct Case {
    std::string algorithm, why;
  };
  for (const Case& c :
       {Case{std::string(fits.size(), '0'), "does not fit"}, Case{others, "does not fit"},
        Case{fits.substr(1), "hexadecimal digits are required"},
        Case{"x" + fits.substr(1), "hexadecimal digits are required"}}) {
    SCOPED_TRACE(c.algorithm);
    CudaOptions options;
    options.algorithms.entries = {{problem, c.algorithm}};
    const auto backend = make_cuda_backend(options);
    try {
      backend->prepare(plan);
      ADD_FAILURE() << "it was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
      for (const std::string& part : {"plan file's algorithm of '" + problem + "'", c.why})
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  CudaOptions options;
  options.algorithms.entries = {{problem, fits}};
  EXPECT_NO_THROW(make_cuda_backend(options)->prepare(plan));
}

TEST_F(Tuner, AThrowingCallbackEndsIt) {
  const Plan plan = plan_training(small_config(Precision::tf32));
  try {
    tune_algorithms({plan}, 0, [](std::size_t, std::size_t, const std::string&) {
      throw Error(ErrorCode::interrupted, "enough");
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::interrupted);
  }
}

TEST_F(Tuner, NamesADeviceThatIsNotThere) {
  try {
    tune_algorithms({plan_training(small_config(Precision::fp32))}, 99);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::no_device);
    EXPECT_NE(std::string(error.what()).find("cuda:99"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tandem
