// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <tandem/engine/error.hpp>
#include <tandem/engine/idx.hpp>

namespace tandem {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::data, fmt::format("IDX file {}: {}", path, what));
}

/// Size on disk; fails unless the file is there and a plain file.
std::uint64_t file_size(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    fail(path, error ? error.message() : std::string("No such file or directory"));
  }
  if (!std::filesystem::is_regular_file(status)) fail(path, "not a regular file");
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error) fail(path, error.message());
  return size;
}

/// A file read through zlib, which passes files that are not gzipped through as they are.
class GzipReader {
 public:
  explicit GzipReader(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (!file_) fail(path_, std::generic_category().message(errno));
  }

  /// Reads up to `bytes`; fewer only at the end of the file. Fails where the compressed stream is
  /// damaged or ends early.
  std::uint64_t read(std::uint8_t* target, std::uint64_t bytes) {
    std::uint64_t done = 0;
    while (done < bytes) {
      const auto part = static_cast<unsigned>(std::min<std::uint64_t>(bytes - done, 1u << 30));
      const int got = gzread(file_.get(), target + done, part);
      int code = Z_OK;
      const char* text = gzerror(file_.get(), &code);
      if (code == Z_BUF_ERROR) fail(path_, "truncated: the gzip stream ends early");
      if (code == Z_ERRNO) fail(path_, std::generic_category().message(errno));
      if (got < 0) fail(path_, fmt::format("damaged gzip stream ({})", text));
      if (got == 0) break;
      done += static_cast<std::uint64_t>(got);
    }
    return done;
  }

  bool compressed() { return gzdirect(file_.get()) == 0; }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace

IdxArray read_idx(const std::string& path) {
  const std::uint64_t on_disk = file_size(path);
  GzipReader file(path);

  // Header: two zero bytes, the element type, the number of dimensions, then the dimensions as
  // big-endian 32-bit numbers.
  std::uint8_t magic[4];
  if (file.read(magic, 4) != 4)
    fail(path, "truncated: shorter than the 4 bytes of the magic number");
  if (magic[0] != 0 || magic[1] != 0) {
    fail(path, fmt::format("not IDX: it starts with bytes {:#04x} {:#04x} instead of 0 0", magic[0],
                           magic[1]));
  }
  if (magic[2] != 0x08) {
    fail(path, fmt::format("element type {:#04x}; only 0x08 (unsigned byte) is read", magic[2]));
  }
  if (magic[3] < 1 || magic[3] > 4) {
    fail(path, fmt::format("{} dimensions; the allowed range is 1 to 4", magic[3]));
  }
  std::uint8_t dimensions[4 * 4];
  const std::uint64_t header_bytes = 4u * magic[3];
  if (file.read(dimensions, header_bytes) != header_bytes) {
    fail(path, fmt::format("truncated: it ends within the {} dimensions", magic[3]));
  }

  // No more can come out of the file than its own size, or 1032 times that if it is compressed
  // (the limit of deflate). Whatever claims more is refused before memory is taken for it.
  const std::uint64_t limit = file.compressed() ? on_disk * 1032 : on_disk;
  IdxArray array;
  std::uint64_t elements = 1;
  for (int i = 0; i < magic[3]; ++i) {
    const std::uint8_t* p = dimensions + 4 * i;
    const std::uint64_t size = std::uint64_t{p[0]} << 24 | std::uint64_t{p[1]} << 16 |
                               std::uint64_t{p[2]} << 8 | std::uint64_t{p[3]};
    array.shape.push_back(static_cast<std::int64_t>(size));
    if (size != 0 && elements > limit / size) {
      fail(path, fmt::format("truncated: its header claims more elements than a file of {} bytes "
                             "can hold",
                             on_disk));
    }
    elements *= size;
  }

  array.data.resize(elements);
  const std::uint64_t got = file.read(array.data.data(), elements);
  if (got != elements) {
    fail(path, fmt::format("truncated: {} of the {} bytes that its header claims", got, elements));
  }
  std::uint8_t extra;  // also makes zlib read and check the checksum at the end
  if (file.read(&extra, 1) != 0) {
    fail(path, fmt::format("longer than the {} bytes that its header claims", elements));
  }
  return array;
}

}  // namespace tandem
