// SPDX-License-Identifier: Apache-2.0
// Thousands of damaged results. Each is read, and then makes a whole page, or refused with
// Error{data} in one line. The damage comes from a seeded generator, so that a failure repeats.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <tandem/bench/report_page.hpp>
#include <tandem/bench/result_file.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/tests/support/files.hpp>
#include <tandem/tests/support/mutate.hpp>

namespace tandem::program {
namespace {

using testing::Bytes;

bool read_or_refuse(const std::string& text) {
  try {
    const std::string page = report_page({parse_result("r.json", text)});
    EXPECT_EQ(page.find("nan"), std::string::npos) << text;
    EXPECT_EQ(page.substr(page.size() - 8), "</html>\n");
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
    EXPECT_EQ(std::string(error.what()).rfind("r.json: ", 0), 0u) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return false;
  }
}

const std::string kEnvironment = R"("environment": {"cpu": "c"}, "config": {"schedule": "overlap",
 "precision": "fp32", "input": "loader", "workers": 2}, "device": "host", "gpu": null, "driver": null,
 "workload": "w", "image": 32, )";

const std::string kResults[] = {
    R"({"schema": 1, "command": "bench", )" + kEnvironment + R"("rows": [{"workload": "w",
 "batch": 8, "image": 32, "classes": 10, "schedule": "serial", "precision": "fp32", "device": "host",
 "input": "loader", "workers": 2, "augment": null, "steps_per_s": {"median": 2.5, "min": 2, "max": 3},
 "images_per_s": 20, "stage_ms": {"encode": 1.5, "train": 3}, "bound": 1.5, "gpu_busy_pct": null,
 "memory_bytes": 1048576, "verified": true}, {"workload": "w", "batch": 8, "image": 32,
 "classes": 10, "schedule": "overlap", "precision": "fp32", "input": "loader", "workers": 2,
 "steps_per_s": {"median": 3.5, "min": 3, "max": 4}, "images_per_s": 28, "stage_ms": {},
 "bound": null, "memory_bytes": 1048576, "verified": true}]})",
    R"({"schema": 1, "command": "find-batch", )" + kEnvironment +
        R"("memory_bytes": 9000000, "rows": [{"global_batch": 4, "status": "ok", "reason": null,
 "predicted_bytes": 4000, "steps_run": 30, "throughput_median": 8, "throughput_min": 7,
 "throughput_max": 9, "step_ms_mean": 500, "mem_peak_bytes": 4000, "stage_ms": {"a": 1, "b": 2},
 "serial_ms": 3, "overlap_ms": 2, "predicted_speedup": 1.5, "measured_speedup": 1.5,
 "overlap": "Overlap pays."}, {"global_batch": 8, "status": "oom", "reason": "r",
 "predicted_bytes": 8000}], "notes": ["n"], "largest_feasible": {"batch": 4, "reason": "r"},
 "best_throughput": {"batch": 4, "reason": "r"}, "recommended": {"batch": 4, "reason": "r"}})",
    R"({"schema": 1, "command": "find-batch", )" + kEnvironment +
        R"("memory_bytes": 9000000, "accuracy": {"score": "miou", "seeds": 2, "train_samples": 8,
 "comparison": "c"}, "rows": [{"global_batch": 4, "status": "ok", "predicted_bytes": 4000,
 "steps_run": 30, "throughput_median": 8, "throughput_min": 7, "throughput_max": 9,
 "step_ms_mean": 500, "mem_peak_bytes": 4000, "scores": [0.5, null], "score_mean": 0.5,
 "score_stddev": null, "score_min": 0.5, "score_max": 0.5, "diverged": 1}], "notes": [],
 "largest_feasible": {"batch": 4, "reason": "r"}, "best_throughput": {"batch": 4, "reason": "r"},
 "recommended": {"batch": 4, "reason": "r"}})",
    R"({"schema": 1, "command": "bench overlap", )" + kEnvironment + R"("rows": [{"balance": "1:2",
 "grid_fill": 50, "t_a_ms": 1, "t_b_ms": 2, "serial_ms": 3, "overlap_ms": 2, "bound": 1.5,
 "speedup": 1.5, "efficiency": 1, "verdict": "pays"}], "sentences": ["s"]})",
    R"({"schema": 1, "command": "profile", )" + kEnvironment + R"("rows": [{"batch": 8, "steps": 6,
 "step_ms": 3, "plain_step_ms": 2, "split_ms": {"kernel": 1.5, "rest": 1.5}, "hidden_ms": {"copy": 1},
 "stage_ms": {"train": 2}, "kernel_busy_pct": 50, "overlap_pct": 10, "sm_fill_pct": null,
 "nvml_util_pct": null, "memory": {"device_bytes": 5, "pinned_bytes": 6,
 "parts": [{"purpose": "weights", "bytes": 5, "pinned": false}]}, "top_kernels": [{"name": "k",
 "count_per_step": 1, "ms_per_step": 2}], "findings": [{"rule": "r", "text": "t"}]}]})"};

TEST(ResultFileFuzz, DamagedTextIsReadOrRefused) {
  std::mt19937 random(1);
  int refused = 0;
  for (const std::string& text : kResults) {
    EXPECT_TRUE(read_or_refuse(text));
    for (int i = 0; i < 2000; ++i) {
      Bytes damaged(text.begin(), text.end());
      testing::mutate(damaged, 0, damaged.size(), random);
      refused += !read_or_refuse({damaged.begin(), damaged.end()});
    }
  }
  EXPECT_GT(refused, 3000);
}

// Damage that leaves it JSON, so that it is the fields that are judged.
TEST(ResultFileFuzz, ChangedFieldsAreReadOrRefused) {
  std::mt19937 random(2);
  const std::vector<std::string> values = {"0",      "1",
                                           "2",      "-1",
                                           "1e-9",   "1e15",
                                           "1e300",  "1e999",
                                           "0.5",    "\"\"",
                                           "null",   "[]",
                                           "{}",     "true",
                                           "[[1]]",  "5e-324",
                                           "\"w\"",  "\"\\u0000\\n\"",
                                           "[null]", "18446744073709551615",
                                           "\"ok\""};
  int refused = 0, read = 0;
  for (const std::string& text : kResults) {
    for (int i = 0; i < 3000; ++i) {
      (read_or_refuse(testing::with_other_values(text, values, random)) ? read : refused) += 1;
    }
  }
  EXPECT_GT(refused, 3000);
  EXPECT_GT(read, 500);
}

}  // namespace
}  // namespace tandem::program
