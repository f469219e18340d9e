// SPDX-License-Identifier: Apache-2.0
// Overlapping changes the time and nothing else.
#include <gtest/gtest.h>

#include <string>
#include <tandem/engine/backend_host.hpp>
#include <tandem/models/parameters.hpp>
#include <tandem/tests/support/small_segmenter.hpp>
#include <tandem/tests/support/training_checks.hpp>

namespace tandem::test {
namespace {

constexpr int kSteps = 200;

TEST(Equality, SerialAndOverlapGiveTheSameBits) {
  const auto backend = make_host_backend();
  SmallSegmenter serial(*backend, small_config(Schedule::serial));
  SmallSegmenter overlap(*backend, small_config(Schedule::overlap));
  serial.train(0, kSteps);
  overlap.train(0, kSteps);

  ASSERT_EQ(serial.losses().size(), static_cast<std::size_t>(kSteps));
  EXPECT_EQ(serial.losses(), overlap.losses());
  const Parameters weights = serial.trainer().trained();
  EXPECT_TRUE(same_bits(weights, overlap.trainer().trained()));
  EXPECT_EQ(parameters_sha256(weights), parameters_sha256(overlap.trainer().trained()));

  expect_moved(serial.trained_start(), weights);
  EXPECT_LT(serial.losses().back(), serial.losses().front());
}

TEST(Equality, AnotherSeedGivesAnotherHash) {
  const auto backend = make_host_backend();
  std::string hashes[3];
  const std::uint64_t seeds[3] = {0, 1, 0};
  for (int i = 0; i < 3; ++i) {
    SmallSegmenter segmenter(*backend, small_config(), seeds[i]);
    segmenter.train(0, 3);
    hashes[i] = parameters_sha256(segmenter.trainer().trained());
  }
  EXPECT_NE(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[0], hashes[2]);
}

}  // namespace
}  // namespace tandem::test
