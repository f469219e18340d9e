// SPDX-License-Identifier: Apache-2.0
// The kernels in the source are those of tests/gpu/kernel_list.txt: the list to which a run on a
// GPU under a sanitizer holds the kernels it saw.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

namespace tandem::test {
namespace {

using Names = std::vector<std::string>;

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Names of the functions marked __global__, launch bounds or not.
Names kernels_in(const std::string& source) {
  static const std::regex kernel(
      R"(__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s+)?(\w+)\s*\()");
  Names names;
  for (std::sregex_iterator match(source.begin(), source.end(), kernel), end; match != end; ++match)
    names.push_back((*match)[1]);
  return names;
}

std::size_t occurrences(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++count;
  return count;
}

TEST(KernelList, IsThatOfTheSource) {
  const std::filesystem::path root = TANDEM_SOURCE_DIR;
  Names in_source;
  for (const auto& entry : std::filesystem::directory_iterator(root / "kernels")) {
    if (entry.path().extension() != ".cu") continue;
    const std::string source = read_text(entry.path());
    const Names names = kernels_in(source);
    EXPECT_EQ(names.size(), occurrences(source, "__global__"))
        << entry.path() << ": a kernel is written in a way that this test does not read";
    in_source.insert(in_source.end(), names.begin(), names.end());
  }
  std::sort(in_source.begin(), in_source.end());

  std::ifstream list(root / "tests/gpu/kernel_list.txt");
  Names listed;
  for (std::string line; std::getline(list, line);) {
    if (!line.empty() && line[0] != '#') listed.push_back(line);
  }
  EXPECT_FALSE(listed.empty());
  EXPECT_EQ(listed, in_source) << "tests/gpu/kernel_list.txt, in the order of the alphabet";
}

TEST(KernelList, ReadsKernelsWithAndWithoutLaunchBounds) {
  EXPECT_EQ(kernels_in("template <int N>\n__global__ void a_kernel(int x) {}\n"
                       "__global__ void __launch_bounds__(kBlock)\n    b_kernel(float* y) {}\n"
                       "__device__ void c(int x) {}\n"),
            (Names{"a_kernel", "b_kernel"}));
}

}  // namespace
}  // namespace tandem::test
