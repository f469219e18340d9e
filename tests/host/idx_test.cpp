// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>
#include <tandem/engine/idx.hpp>
#include <tandem/tests/support/files.hpp>

namespace tandem {
namespace {

using namespace testing;

Bytes counting(std::size_t count) {
  Bytes data(count);
  std::iota(data.begin(), data.end(), std::uint8_t{1});
  return data;
}

class Idx : public ::testing::Test {
 protected:
  void expect_refused(const Bytes& bytes, std::initializer_list<std::string> parts) {
    const std::string path = folder_.file("bad");
    write_bytes(path, bytes);
    expect_error(ErrorCode::data, parts, [&] { read_idx(path); });
    expect_error(ErrorCode::data, {path}, [&] { read_idx(path); });
  }
  TemporaryFolder folder_;
};

TEST_F(Idx, ReadsOneToFourDimensionsPlainAndGzipped) {
  const std::vector<std::vector<std::uint32_t>> shapes{{24}, {4, 6}, {2, 3, 4}, {2, 3, 2, 2}};
  for (const auto& shape : shapes) {
    const Bytes bytes = idx_bytes(shape, counting(24));
    write_bytes(folder_.file("plain"), bytes);
    write_bytes(folder_.file("no_suffix_needed"), gzipped(bytes));
    for (const char* name : {"plain", "no_suffix_needed"}) {
      const IdxArray array = read_idx(folder_.file(name));
      EXPECT_EQ(array.shape, std::vector<std::int64_t>(shape.begin(), shape.end())) << name;
      EXPECT_EQ(array.data, counting(24)) << name;
    }
  }
}

TEST_F(Idx, ReadsAnEmptyArray) {
  write_bytes(folder_.file("empty"), idx_bytes({0, 28, 28}, {}));
  const IdxArray array = read_idx(folder_.file("empty"));
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{0, 28, 28}));
  EXPECT_TRUE(array.data.empty());
}

// Zeros compress almost as far as deflate can: the bound on claims must let them through.
TEST_F(Idx, ReadsWhatCompressesBest) {
  const Bytes zeros(10'000'000, 0);
  write_bytes(folder_.file("zeros.gz"), gzipped(idx_bytes({10'000'000}, zeros)));
  EXPECT_EQ(read_idx(folder_.file("zeros.gz")).data, zeros);
}

TEST_F(Idx, RefusesWhatIsNoFile) {
  expect_error(ErrorCode::data, {folder_.file("absent"), "No such file"},
               [&] { read_idx(folder_.file("absent")); });
  expect_error(ErrorCode::data, {folder_.path(), "not a regular file"},
               [&] { read_idx(folder_.path()); });
}

TEST_F(Idx, RefusesBadHeaders) {
  expect_refused({}, {"truncated"});
  expect_refused({0, 0, 8}, {"truncated"});
  expect_refused({'P', 'K', 3, 4, 0, 0, 0, 0}, {"not IDX", "0x50"});
  expect_refused({0, 0, 0x0d, 1, 0, 0, 0, 1, 0, 0, 0, 0}, {"element type 0x0d", "0x08"});
  expect_refused({0, 0, 8, 0, 0}, {"0 dimensions", "1 to 4"});
  expect_refused(Bytes{0, 0, 8, 5}, {"5 dimensions", "1 to 4"});
  expect_refused({0, 0, 8, 2, 0, 0, 0, 1, 0, 0}, {"truncated", "2 dimensions"});
}

TEST_F(Idx, RefusesTheWrongLength) {
  for (const bool compress : {false, true}) {
    const auto form = [&](const Bytes& bytes) { return compress ? gzipped(bytes) : bytes; };
    expect_refused(form(idx_bytes({2, 3}, counting(5))), {"truncated"});
    expect_refused(form(idx_bytes({2, 3}, counting(7))), {"longer than the 6 bytes"});
    expect_refused(form(idx_bytes({100'000}, counting(70'000))), {"truncated"});
  }
}

// Believed, each of these claims would end in bad_alloc or in a wrapped product, not in an Error.
TEST_F(Idx, RefusesGreatClaimsWithoutTakingMemory) {
  const std::vector<std::vector<std::uint32_t>> claims{
      {1u << 20, 1u << 20},
      {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
      {1u << 31, 1u << 31, 4},  // 2^64: the product is 0 if it wraps
      {1u << 16, 1u << 16, 1u << 16, 1u << 16}};
  for (const auto& claim : claims) {
    expect_refused(idx_bytes(claim, counting(100)), {"truncated", "claims more elements"});
    expect_refused(gzipped(idx_bytes(claim, counting(100))), {"truncated", "claims more elements"});
  }
}

TEST_F(Idx, RefusesDamagedGzip) {
  Bytes noise(5000);
  std::uint32_t state = 1;
  for (auto& byte : noise)
    byte = static_cast<std::uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  const Bytes good = gzipped(idx_bytes({5000}, noise));
  write_bytes(folder_.file("good"), good);
  ASSERT_EQ(read_idx(folder_.file("good")).data, noise);

  expect_refused(Bytes(good.begin(), good.begin() + 2), {"truncated"});
  expect_refused(Bytes(good.begin(), good.begin() + 2500), {"truncated"});
  expect_refused(Bytes(good.begin(), good.end() - 1), {"truncated"});  // within the checksum
  Bytes changed = good;
  changed[2500] ^= 1;
  expect_refused(changed, {"damaged gzip stream"});
  changed = good;
  changed[changed.size() - 6] ^= 1;  // in the checksum
  expect_refused(changed, {"damaged gzip stream"});
}

TEST_F(Idx, RefusesWhatFollowsTheGzipStream) {
  const Bytes good = gzipped(idx_bytes({2, 3}, counting(6)));
  for (const Bytes& more : {Bytes{'x'}, Bytes{0}, Bytes(100'000, 'x')}) {
    Bytes longer = good;
    longer.insert(longer.end(), more.begin(), more.end());
    expect_refused(longer, {"bytes after the end of the gzip stream"});
  }
  Bytes longer = good;
  longer.push_back(0x1f);  // as another stream begins
  expect_refused(longer, {"truncated"});
  longer.push_back('x');
  expect_refused(longer, {"damaged gzip stream"});
  longer = good;
  longer.insert(longer.end(), good.begin(), good.end());
  expect_refused(longer, {"longer than the 6 bytes"});
}

// As `cat a.gz b.gz` makes them.
TEST_F(Idx, ReadsSeveralGzipStreamsInARow) {
  const Bytes bytes = idx_bytes({2, 3}, counting(6));
  Bytes file;
  for (std::size_t begin = 0; begin < bytes.size(); begin += 6) {
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
    const Bytes part = gzipped(Bytes(first, first + 6));
    file.insert(file.end(), part.begin(), part.end());
  }
  write_bytes(folder_.file("parts"), file);
  EXPECT_EQ(read_idx(folder_.file("parts")).data, counting(6));
}

}  // namespace
}  // namespace tandem
