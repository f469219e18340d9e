// SPDX-License-Identifier: Apache-2.0
// Thousands of damaged tables. Each is read, or refused with Error{data} in one line; nothing else
// happens. The damage comes from a seeded generator, so that a failure repeats.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/tests/support/files.hpp>
#include <tandem/tests/support/mutate.hpp>

namespace tandem {
namespace {

using namespace testing;

/// Reads it; what is read must be consistent. True if it was read.
bool read_or_refuse(const std::string& path, const Bytes& bytes, Split split) {
  write_bytes(path, bytes);
  try {
    const auto data = make_csv(path, split);
    Bytes row(static_cast<std::size_t>(data->sample_bytes()));
    for (std::int64_t i = 0; i < data->epoch_size(); ++i) {
      std::uint8_t label = 255;
      data->sample(i, row.data(), &label);
      EXPECT_LT(label, data->classes());
      for (std::size_t at = 0; at < row.size(); at += sizeof(float)) {
        float value = 0;
        std::memcpy(&value, row.data() + at, sizeof value);
        EXPECT_TRUE(std::isfinite(value));
      }
    }
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return false;
  }
}

TEST(CsvFuzz, DamagedTablesAreReadOrRefused) {
  const TemporaryFolder folder;
  std::mt19937 random(1);
  std::string text = "age,dose,effect\n";
  for (int i = 0; i < 12; ++i)
    text += std::to_string(i) + ".25," + std::to_string(100 - i) + "e-1," + std::to_string(i % 2) +
            "\n";
  const Bytes table(text.begin(), text.end());
  int read = 0, refused = 0;
  for (int i = 0; i < 8000; ++i) {
    Bytes damaged = table;
    mutate(damaged, 0, i % 4 == 0 ? 20 : damaged.size(), random);
    ++(read_or_refuse(folder.file("t.csv"), damaged, i % 2 == 0 ? Split::train : Split::held_out)
           ? read
           : refused);
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace tandem
