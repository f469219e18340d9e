// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common.hpp"

namespace tandem::program {
namespace {
constexpr std::uint64_t kBarWidth = 24;
constexpr auto kRedraw = std::chrono::milliseconds(100);

/// https://no-color.org: set and not empty.
bool no_colour() {
  const char* value = std::getenv("NO_COLOR");
  return value != nullptr && *value != '\0';
}
}  // namespace

void say(const std::string& text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::fputs(printable(text.substr(begin, end - begin)).c_str(), stderr);
    if (end < text.size()) std::fputc('\n', stderr);
    begin = end + 1;
  }
}

Progress::Progress(std::string label, std::uint64_t total, bool quiet)
    : label_(std::move(label)),
      total_(total),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) == 1),
      colour_(!no_colour()) {}

Progress::~Progress() {
  if (drawn_) std::fputc('\n', stderr);
}

void Progress::update(std::uint64_t done, const std::string& text) {
  if (quiet_ || total_ == 0) return;
  if (terminal_) {
    const auto now = std::chrono::steady_clock::now();
    if (done != total_ && now - last_draw_ < kRedraw) return;
    last_draw_ = now;
    draw(done, text);
    return;
  }
  const std::uint64_t tenths = done * 10 / total_;
  if (tenths == tenths_) return;
  tenths_ = tenths;
  say(fmt::format("{} {}/{}{}{}\n", label_, done, total_, text.empty() ? "" : "  ", text));
}

void Progress::note(const std::string& text) {
  say(fmt::format("{}{}\n", drawn_ ? "\n" : "", text));
  drawn_ = false;
}

void Progress::draw(std::uint64_t done, const std::string& text) {
  const std::uint64_t filled = done * kBarWidth / total_;
  fmt::print(stderr, "\r{} [{}{:#<{}}{}{:.<{}}] {}/{}  {}  ", label_, colour_ ? "\x1b[32m" : "", "",
             filled, colour_ ? "\x1b[0m" : "", "", kBarWidth - filled, done, total_, text);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace tandem::program
