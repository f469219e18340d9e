// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <tandem/engine/atomic_file.hpp>
#include <tandem/engine/error.hpp>
#include <utility>

namespace tandem {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw Error(ErrorCode::data, fmt::format("cannot write {}: {}", path, reason));
}
std::string last_error() { return std::generic_category().message(errno); }

}  // namespace

std::string end_of_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel follows
  std::filesystem::path end = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(end, error); ++i) {
    const std::filesystem::path next = std::filesystem::read_symlink(end, error);
    if (error) break;
    end = next.is_absolute() ? next : end.parent_path() / next;
  }
  return end.string();
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)),
      target_(end_of_links(path_)),
      temporary_(fmt::format("{}.{}.partial", target_, getpid())) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path_, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail(path_, "there is something of that name that is not a plain file");
  }
  file_ = std::fopen(temporary_.c_str(), "wb");
  if (!file_) fail(path_, last_error());
}

AtomicFile::~AtomicFile() {
  if (file_) {
    std::fclose(file_);
    std::remove(temporary_.c_str());
  }
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  if (bytes > 0 && std::fwrite(data, 1, bytes, file_) != bytes) fail(path_, last_error());
}

void AtomicFile::commit() {
  if (std::fflush(file_) != 0 || std::ferror(file_)) fail(path_, last_error());
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail(path_, last_error());
  // Flushed before the rename: closing has nothing left to write.
  std::fclose(std::exchange(file_, nullptr));
}

}  // namespace tandem
