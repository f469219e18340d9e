// SPDX-License-Identifier: Apache-2.0
// Thousands of damaged IDX files. Each is read, or refused with Error{data}; nothing else happens.
// The damage comes from a seeded generator, so that a failure repeats.
#include <gtest/gtest.h>

#include <random>
#include <tandem/engine/idx.hpp>
#include <tandem/tests/support/files.hpp>
#include <tandem/tests/support/mutate.hpp>

namespace tandem {
namespace {

using namespace testing;

Bytes picture_file(std::mt19937& random) {
  Bytes data(5 * 28 * 28);
  for (auto& byte : data) byte = static_cast<std::uint8_t>(random());
  return idx_bytes({5, 28, 28}, data);
}

/// Reads it; what is read must be consistent. True if it was read.
bool read_or_refuse(const std::string& path, const Bytes& bytes) {
  write_bytes(path, bytes);
  try {
    const IdxArray array = read_idx(path);
    std::int64_t elements = 1;
    for (const std::int64_t size : array.shape) elements *= size;
    EXPECT_EQ(static_cast<std::int64_t>(array.data.size()), elements);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
    return false;
  }
}

TEST(IdxFuzz, DamagedFilesAreReadOrRefused) {
  const TemporaryFolder folder;
  std::mt19937 random(1);
  const Bytes plain = picture_file(random);
  for (const Bytes& file : {plain, gzipped(plain)}) {
    int refused = 0;
    for (int i = 0; i < 4000; ++i) {
      Bytes damaged = file;
      mutate(damaged, 0, i % 2 ? 24 : damaged.size(), random);
      refused += !read_or_refuse(folder.file("f"), damaged);
    }
    EXPECT_GT(refused, 500);  // the damage does hit the header
  }
}

TEST(IdxFuzz, DamagedHeadersInsideGzipAreReadOrRefused) {
  const TemporaryFolder folder;
  std::mt19937 random(2);
  const Bytes plain = picture_file(random);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    Bytes damaged = plain;
    mutate(damaged, 0, 16, random);
    refused += !read_or_refuse(folder.file("f"), gzipped(damaged));
  }
  EXPECT_GT(refused, 500);
}

TEST(IdxFuzz, ChangedPayloadStillReads) {
  const TemporaryFolder folder;
  std::mt19937 random(3);
  const Bytes plain = picture_file(random);
  for (int i = 0; i < 1000; ++i) {
    Bytes changed = plain;
    for (int k = 0; k < 5; ++k)
      changed[16 + random() % (changed.size() - 16)] ^=
          static_cast<std::uint8_t>(1u << random() % 8);
    write_bytes(folder.file("f"), changed);
    const IdxArray array = read_idx(folder.file("f"));
    ASSERT_EQ(array.data, Bytes(changed.begin() + 16, changed.end()));
  }
}

}  // namespace
}  // namespace tandem
