// SPDX-License-Identifier: Apache-2.0
// The same training in processes whose environment changes how CUDA runs: the same hash. Each child
// is one of the DISABLED_ tests below, under a watchdog.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <tandem/engine/backend_cuda.hpp>
#include <tandem/models/parameters.hpp>
#include <tandem/tests/support/gpu_gate.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <tandem/tests/support/gpu_segmenter.hpp>

namespace tandem::test {
namespace {

/// Trains in every precision and prints a line "hash fp32 <sha256 of weights> <last loss>" for
/// each.
void train_and_print(Schedule schedule) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    const auto backend = make_cuda_backend();
    const EngineConfig config = still_config(64, 8, precision, schedule);
    const StartValues start(config);
    StillSegmenter segmenter(*backend, config, start);
    segmenter.train(0, 30);
    ASSERT_EQ(segmenter.losses().size(), 30u);
    fmt::print("hash {} {} {}\n", name_of(precision),
               parameters_sha256(segmenter.trainer().trained()), segmenter.losses().back());
  }
}

TEST(EnvironmentChild, DISABLED_Overlap) { train_and_print(Schedule::overlap); }
TEST(EnvironmentChild, DISABLED_Serial) { train_and_print(Schedule::serial); }

// The first thing that the process does on the device: 200 ms on the caller's blocking stream,
// behind which nothing may get stuck for good, although every kernel is loaded meanwhile.
TEST(EnvironmentChild, DISABLED_BesideABusyBlockingStream) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  launch_delay(200'000'000, stream);
  train_and_print(Schedule::overlap);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

class EnvironmentHeavy : public GpuTest {
 protected:
  /// The child's "hash" lines. Fails if it fails, or is not done after two minutes.
  static std::string run_child(const std::string& variables, const std::string& child) {
    std::array<char, 4096> path{};
    if (readlink("/proc/self/exe", path.data(), path.size() - 1) <= 0) return "no path";
    const std::string command = fmt::format(
        "env {} timeout --kill-after=5 120 '{}' --gtest_also_run_disabled_tests "
        "--gtest_filter=EnvironmentChild.DISABLED_{} 2>&1",
        variables, path.data(), child);
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return "no pipe";
    std::string output, hashes;
    std::array<char, 4096> line{};
    while (std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr) {
      const std::string text = line.data();
      output += text;
      if (text.rfind("hash ", 0) == 0) hashes += text;
    }
    const int status = pclose(pipe);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    EXPECT_NE(code, 124) << "the watchdog ended: " << command << "\n" << output;
    EXPECT_EQ(code, 0) << command << "\n" << output;
    EXPECT_EQ(std::count(hashes.begin(), hashes.end(), '\n'), 3) << output;
    return hashes;
  }

  static const std::string& plain() {
    static const std::string hashes = run_child("", "Overlap");
    return hashes;
  }
};

TEST_F(EnvironmentHeavy, TheSameCommandTwiceGivesTheSameHash) {
  EXPECT_EQ(run_child("", "Overlap"), plain());
}

TEST_F(EnvironmentHeavy, SerialGivesTheSameHash) { EXPECT_EQ(run_child("", "Serial"), plain()); }

TEST_F(EnvironmentHeavy, BlockingLaunches) {
  EXPECT_EQ(run_child("CUDA_LAUNCH_BLOCKING=1", "Overlap"), plain());
}

TEST_F(EnvironmentHeavy, OneHardwareQueue) {
  EXPECT_EQ(run_child("CUDA_DEVICE_MAX_CONNECTIONS=1", "Overlap"), plain());
}

TEST_F(EnvironmentHeavy, LazyLoading) {
  EXPECT_EQ(run_child("CUDA_MODULE_LOADING=LAZY", "Overlap"), plain());
}

TEST_F(EnvironmentHeavy, EagerLoading) {
  EXPECT_EQ(run_child("CUDA_MODULE_LOADING=EAGER", "Overlap"), plain());
}

TEST_F(EnvironmentHeavy, AllOfThemAtOnce) {
  EXPECT_EQ(run_child("CUDA_LAUNCH_BLOCKING=1 CUDA_DEVICE_MAX_CONNECTIONS=1 "
                      "CUDA_MODULE_LOADING=LAZY",
                      "Overlap"),
            plain());
}

TEST_F(EnvironmentHeavy, LazyLoadingBesideABusyBlockingStreamInAFreshProcess) {
  EXPECT_EQ(run_child("CUDA_MODULE_LOADING=LAZY", "BesideABusyBlockingStream"), plain());
}

}  // namespace
}  // namespace tandem::test
