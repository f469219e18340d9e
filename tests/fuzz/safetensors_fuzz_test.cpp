// SPDX-License-Identifier: Apache-2.0
// Thousands of damaged safetensors files. Each is read, or refused with Error{data}; nothing else
// happens. The damage comes from a seeded generator, so that a failure repeats.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <tandem/engine/safetensors.hpp>
#include <tandem/tests/support/files.hpp>
#include <tandem/tests/support/mutate.hpp>

namespace tandem {
namespace {

using namespace testing;

Bytes written_file(const TemporaryFolder& folder, std::mt19937& random) {
  std::vector<NamedTensor> tensors{
      {"0.weight", {4, 3, 2, 2}, {}}, {"0.bias", {4}, {}}, {"scalar", {}, {}}, {"none", {0}, {}}};
  for (auto& tensor : tensors) {
    std::int64_t elements = 1;
    for (const std::int64_t size : tensor.shape) elements *= size;
    for (std::int64_t i = 0; i < elements; ++i) {
      tensor.data.push_back(static_cast<float>(random()) * 0x1p-32f);
    }
  }
  write_safetensors(folder.file("good"), tensors);
  return read_bytes(folder.file("good"));
}

std::size_t data_begin(const Bytes& file) { return 8 + file[0] + 256u * file[1]; }

/// Reads it; what is read must be consistent. True if it was read.
bool read_or_refuse(const std::string& path, const Bytes& bytes) {
  write_bytes(path, bytes);
  try {
    for (const NamedTensor& tensor : read_safetensors(path)) {
      std::int64_t elements = 1;
      for (const std::int64_t size : tensor.shape) elements *= size;
      EXPECT_EQ(static_cast<std::int64_t>(tensor.data.size()), elements);
    }
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return false;
  }
}

TEST(SafetensorsFuzz, DamagedFilesAreReadOrRefused) {
  const TemporaryFolder folder;
  std::mt19937 random(1);
  const Bytes file = written_file(folder, random);
  const std::size_t header_end = data_begin(file);
  int refused = 0;
  for (int i = 0; i < 6000; ++i) {
    Bytes damaged = file;
    // The length, the JSON, anywhere.
    mutate(damaged, i % 3 == 1 ? 8 : 0,
           i % 3 == 0   ? 8
           : i % 3 == 1 ? header_end
                        : file.size(),
           random);
    refused += !read_or_refuse(folder.file("f"), damaged);
  }
  EXPECT_GT(refused, 3000);
}

// Damage to the JSON that keeps the header's length right, so that it is the entries that are
// judged: digits and letters of the header are exchanged.
TEST(SafetensorsFuzz, ChangedHeadersAreReadOrRefused) {
  const TemporaryFolder folder;
  std::mt19937 random(2);
  const Bytes file = written_file(folder, random);
  const std::size_t header_end = data_begin(file);
  const std::string letters = "0123456789[]{},:\"-.eF B16";
  int refused = 0, read = 0;
  for (int i = 0; i < 6000; ++i) {
    Bytes changed = file;
    for (std::size_t k = 1 + random() % 3; k > 0; --k) {
      changed[8 + random() % (header_end - 8)] =
          static_cast<std::uint8_t>(letters[random() % letters.size()]);
    }
    (read_or_refuse(folder.file("f"), changed) ? read : refused) += 1;
  }
  EXPECT_GT(refused, 3000);
  EXPECT_GT(read, 10);  // a changed name still reads
}

TEST(SafetensorsFuzz, ChangedPayloadStillReads) {
  const TemporaryFolder folder;
  std::mt19937 random(3);
  const Bytes file = written_file(folder, random);
  const std::size_t begin = data_begin(file);
  for (int i = 0; i < 1000; ++i) {
    Bytes changed = file;
    for (int k = 0; k < 5; ++k) {
      changed[begin + random() % (changed.size() - begin)] ^=
          static_cast<std::uint8_t>(1u << random() % 8);
    }
    write_bytes(folder.file("f"), changed);
    Bytes data;
    for (const NamedTensor& tensor : read_safetensors(folder.file("f"))) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(tensor.data.data());
      data.insert(data.end(), bytes, bytes + 4 * tensor.data.size());
    }
    ASSERT_EQ(data, Bytes(changed.begin() + static_cast<std::ptrdiff_t>(begin), changed.end()));
  }
}

}  // namespace
}  // namespace tandem
