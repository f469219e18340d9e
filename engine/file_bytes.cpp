// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <tandem/engine/error.hpp>
#include <tandem/engine/file_bytes.hpp>

namespace tandem {

std::vector<std::uint8_t> read_file_bytes(const std::string& path) {
  const auto fail = [&path](const std::string& reason) {
    throw Error(ErrorCode::data, path + ": " + reason);
  };
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    fail(error ? error.message() : std::string("No such file or directory"));
  }
  if (!std::filesystem::is_regular_file(status)) fail("not a regular file");
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) fail(error.message());

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (!file) fail(std::generic_category().message(errno));
  std::vector<std::uint8_t> bytes(size);
  const std::size_t got = std::fread(bytes.data(), 1, bytes.size(), file.get());
  if (std::ferror(file.get())) fail(std::generic_category().message(errno));
  bytes.resize(got);  // it may have become shorter since its size was asked
  return bytes;
}

}  // namespace tandem
