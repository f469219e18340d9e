// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <new>
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

/// A file, inflated if it is gzipped. Not zlib's own reader of files, which passes over what
/// follows the gzip stream.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rb")) {
    if (!file_) fail(path_, std::generic_category().message(errno));
    gzipped_ = read_file(input_, 2) == 2 && input_[0] == kGzip[0] && input_[1] == kGzip[1];
    std::rewind(file_.get());
    // 16: with the header and the checksum of gzip.
    if (gzipped_ && inflateInit2(&stream_, MAX_WBITS + 16) != Z_OK) throw std::bad_alloc();
  }
  ~Reader() {
    if (gzipped_) inflateEnd(&stream_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  bool gzipped() const { return gzipped_; }

  /// Reads up to `bytes`; fewer only at the end of the file. Fails where the gzip stream is
  /// damaged, ends early, or is followed by something else than another one.
  std::uint64_t read(std::uint8_t* target, std::uint64_t bytes) {
    return gzipped_ ? inflate_file(target, bytes) : read_file(target, bytes);
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  static constexpr std::uint8_t kGzip[] = {0x1f, 0x8b};

  std::size_t read_file(std::uint8_t* target, std::uint64_t bytes) {
    const std::size_t got = std::fread(target, 1, bytes, file_.get());
    if (std::ferror(file_.get())) fail(path_, std::generic_category().message(errno));
    return got;
  }

  std::uint64_t inflate_file(std::uint8_t* target, std::uint64_t bytes) {
    std::uint64_t done = 0;
    while (done < bytes) {
      if (stream_.avail_in == 0) {
        stream_.next_in = input_;
        stream_.avail_in = static_cast<unsigned>(read_file(input_, sizeof(input_)));
      }
      if (stream_.avail_in == 0) {
        if (!stream_ended_) fail(path_, "truncated: the gzip stream ends early");
        break;
      }
      if (stream_ended_) {
        if (*stream_.next_in != kGzip[0]) fail(path_, "bytes after the end of the gzip stream");
        inflateReset(&stream_);
      }
      const auto part = static_cast<unsigned>(std::min<std::uint64_t>(bytes - done, 1u << 30));
      stream_.next_out = target + done;
      stream_.avail_out = part;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code != Z_OK && code != Z_STREAM_END)
        fail(path_, fmt::format("damaged gzip stream ({})",
                                stream_.msg == nullptr ? zError(code) : stream_.msg));
      stream_ended_ = code == Z_STREAM_END;
      done += part - stream_.avail_out;
    }
    return done;
  }

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::uint8_t input_[1 << 14];
  bool gzipped_ = false, stream_ended_ = false;
  z_stream stream_{};
};

}  // namespace

IdxArray read_idx(const std::string& path) {
  const std::uint64_t on_disk = file_size(path);
  Reader file(path);

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
  const std::uint64_t limit = file.gzipped() ? on_disk * 1032 : on_disk;
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
  std::uint8_t extra;  // also makes zlib check the checksum, and finds what follows the stream
  if (file.read(&extra, 1) != 0) {
    fail(path, fmt::format("longer than the {} bytes that its header claims", elements));
  }
  return array;
}

}  // namespace tandem
