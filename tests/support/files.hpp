// SPDX-License-Identifier: Apache-2.0
// Temporary folders, files as bytes, and errors as values, for tests of readers and writers.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <tandem/engine/error.hpp>
#include <vector>

namespace tandem::testing {

using Bytes = std::vector<std::uint8_t>;

/// A folder of its own, removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tandem_test_XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// Names of what is in the folder, for tests that nothing is left behind.
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      result.push_back(entry.path().filename().string());
    }
    return result;
  }

 private:
  std::string path_;
};

inline void write_bytes(const std::string& path, const Bytes& bytes) {
  std::filesystem::remove(path);  // some file systems write a truncated file back to disk first
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

inline Bytes read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

inline Bytes gzipped(const Bytes& bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2 failed");
  }
  Bytes result(deflateBound(&stream, bytes.size()));
  stream.next_in = const_cast<std::uint8_t*>(bytes.data());
  stream.avail_in = static_cast<unsigned>(bytes.size());
  stream.next_out = result.data();
  stream.avail_out = static_cast<unsigned>(result.size());
  const int code = deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  if (code != Z_STREAM_END) throw std::runtime_error("deflate failed");
  return result;
}

/// An IDX file of unsigned bytes. The shape need not fit the data.
inline Bytes idx_bytes(const std::vector<std::uint32_t>& shape, const Bytes& data) {
  Bytes result{0, 0, 8, static_cast<std::uint8_t>(shape.size())};
  for (const std::uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      result.push_back(static_cast<std::uint8_t>(size >> shift));
    }
  }
  result.insert(result.end(), data.begin(), data.end());
  return result;
}

/// The Error that the body throws; a failure of the test if it throws none.
inline Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return Error(ErrorCode::run_failed, "no Error was thrown");
}

/// The body throws an Error of that code whose message is one line and holds every one of `parts`.
inline void expect_error(ErrorCode code, std::initializer_list<std::string> parts,
                         const std::function<void()>& body) {
  const Error error = error_of(body);
  const std::string message = error.what();
  EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
  }
}

}  // namespace tandem::testing
