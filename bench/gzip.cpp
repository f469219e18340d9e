// SPDX-License-Identifier: Apache-2.0
#include "gzip.hpp"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>

namespace tandem::program {

std::string gzip(const std::string& text) {
  constexpr int kGzip = 16;  // beside the window's bits: a gzip header, not zlib's
  constexpr int kMemory = 8;
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, MAX_WBITS + kGzip, kMemory,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  struct End {
    z_stream* stream;
    ~End() { deflateEnd(stream); }
  } const end{&stream};
  std::string packed;
  std::size_t taken = 0;
  char part[1 << 16];
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    // zlib counts in 32 bits, and does not write to its input.
    const std::size_t most = std::numeric_limits<uInt>::max();
    const std::size_t left = std::min(text.size() - taken, most);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data() + taken));
    stream.avail_in = static_cast<uInt>(left);
    stream.next_out = reinterpret_cast<Bytef*>(part);
    stream.avail_out = sizeof part;
    status = deflate(&stream, taken + left == text.size() ? Z_FINISH : Z_NO_FLUSH);
    taken += left - stream.avail_in;
    packed.append(part, sizeof part - stream.avail_out);
  }
  return packed;
}

}  // namespace tandem::program
