// SPDX-License-Identifier: Apache-2.0
// A file that appears under its name only when it is complete.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace tandem {

/// Writes to a temporary name in the same folder; commit() renames it. Without commit() the
/// temporary file is removed and whatever had the name before is untouched. Of a link the file it
/// points to is replaced, and the link stays.
/// All functions throw Error{data} that names the file and the system's reason.
class AtomicFile {
 public:
  /// The folder must exist. Refuses a name that belongs to anything but a plain file.
  explicit AtomicFile(std::string path);
  ~AtomicFile();

  std::FILE* get() const noexcept { return file_; }
  void write(const void* data, std::size_t bytes);
  void commit();

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

 private:
  std::string path_;
  std::string target_;  // the path, or where a link of that name leads
  std::string temporary_;
  std::FILE* file_ = nullptr;
};

/// Where a chain of links leads, also if nothing is there; the path itself if it is no link.
std::string end_of_links(const std::string& path);

}  // namespace tandem
