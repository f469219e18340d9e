// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <tandem/engine/safetensors.hpp>
#include <tandem/tests/support/files.hpp>

namespace tandem {
namespace {

using namespace testing;

/// A file of that header, followed by that many bytes of data.
Bytes file_of(const std::string& header, std::size_t data_bytes) {
  Bytes bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::uint8_t>(header.size() >> (8 * i)));
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.resize(bytes.size() + data_bytes, 0x3f);
  return bytes;
}

Bytes with_data(const std::string& header, const Bytes& data) {
  Bytes bytes = file_of(header, 0);
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

class Safetensors : public ::testing::Test {
 protected:
  std::vector<NamedTensor> read(const Bytes& bytes) {
    write_bytes(path_, bytes);
    return read_safetensors(path_);
  }
  void expect_refused(const Bytes& bytes, std::initializer_list<std::string> parts) {
    write_bytes(path_, bytes);
    expect_error(ErrorCode::data, parts, [&] { read_safetensors(path_); });
    expect_error(ErrorCode::data, {path_}, [&] { read_safetensors(path_); });
  }
  void expect_refused(const std::string& header, std::size_t data_bytes,
                      std::initializer_list<std::string> parts) {
    expect_refused(file_of(header, data_bytes), parts);
  }
  TemporaryFolder folder_;
  std::string path_ = folder_.file("x.safetensors");
};

TEST_F(Safetensors, WritesAndReadsBack) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<NamedTensor> tensors{
      {"0.weight", {2, 3}, {1, -2, 3.5f, 0, -0.0f, 1e-45f}},
      {"0.bias", {}, {7}},
      {"empty", {0, 5}, {}},
      {"a \"quoted\"\nname, \xc3\xa9", {2}, {nan, std::numeric_limits<float>::infinity()}}};
  write_safetensors(path_, tensors);
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"x.safetensors"});
  const auto back = read_safetensors(path_);
  ASSERT_EQ(back.size(), tensors.size());
  for (std::size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(back[i].name, tensors[i].name);
    EXPECT_EQ(back[i].shape, tensors[i].shape);
    ASSERT_EQ(back[i].data.size(), tensors[i].data.size());
    if (back[i].data.empty()) continue;
    EXPECT_EQ(std::memcmp(back[i].data.data(), tensors[i].data.data(), 4 * back[i].data.size()), 0);
  }
}

// The bytes themselves, written out by hand from the format's description.
TEST_F(Safetensors, WritesTheFormat) {
  write_safetensors(path_, {{"b", {2}, {1.0f, -2.0f}}, {"a", {1, 1}, {0.5f}}});
  std::string header = R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("a":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(read_bytes(path_), with_data(header, {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0, 0x3f}));
  write_safetensors(path_, {});
  EXPECT_EQ(read_bytes(path_), file_of("{}      ", 0));
  EXPECT_TRUE(read_safetensors(path_).empty());
}

TEST_F(Safetensors, ReadsInOrderOfOffsetsNotOfNames) {
  const auto tensors = read(with_data(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      {0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}));
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "b");
  EXPECT_EQ(tensors[0].data, std::vector<float>{1});
  EXPECT_EQ(tensors[1].name, "a");
  EXPECT_EQ(tensors[1].data, std::vector<float>{2});
}

TEST_F(Safetensors, WidensBf16) {
  const auto tensors = read(with_data(R"({"t":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})",
                                      {0x80, 0x3f, 0x49, 0xc0, 0x80, 0x7f, 0x01, 0x00}));
  EXPECT_EQ(tensors[0].data,
            (std::vector<float>{1, -3.140625f, std::numeric_limits<float>::infinity(), 0x1p-133f}));
}

// Every one of the 65,536 patterns, against the definition of the format with ldexp.
TEST_F(Safetensors, WidensEveryF16) {
  Bytes data;
  for (int bits = 0; bits < 65536; ++bits) {
    data.push_back(static_cast<std::uint8_t>(bits));
    data.push_back(static_cast<std::uint8_t>(bits >> 8));
  }
  const auto tensors =
      read(with_data(R"({"t":{"dtype":"F16","shape":[65536],"data_offsets":[0,131072]}})", data));
  int wrong = 0;
  for (int bits = 0; bits < 65536; ++bits) {
    const int exponent = bits / 1024 % 32, fraction = bits % 1024;
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    const float got = tensors[0].data[bits];
    bool right = std::signbit(got) == (bits >= 32768);
    if (exponent == 31) {
      right = right && (fraction == 0 ? std::isinf(got) : std::isnan(got));
    } else {
      right = right && std::abs(static_cast<double>(got)) == magnitude;
    }
    wrong += !right;
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(Safetensors, RefusesWhatIsNoFile) {
  expect_error(ErrorCode::data, {path_, "No such file"}, [&] { read_safetensors(path_); });
  expect_error(ErrorCode::data, {folder_.path(), "not a regular file"},
               [&] { read_safetensors(folder_.path()); });
}

TEST_F(Safetensors, RefusesBadLengths) {
  expect_refused(Bytes{}, {"truncated", "0 bytes"});
  expect_refused(Bytes{2, 0, 0, 0, 0, 0, 0}, {"truncated", "7 bytes"});
  expect_refused(Bytes{3, 0, 0, 0, 0, 0, 0, 0, '{', '}'}, {"truncated", "header of 3 bytes"});
  expect_refused(Bytes(8, 0xff), {"header of 18446744073709551615 bytes", "100000000"});
  expect_refused(Bytes{1, 0xe1, 0xf5, 5, 0, 0, 0, 0, '{'}, {"header of 100000001", "100000000"});
}

TEST_F(Safetensors, RefusesBadJson) {
  expect_refused("", 0, {"not JSON"});
  expect_refused("{", 0, {"not JSON"});
  expect_refused("{} x", 0, {"not JSON"});
  expect_refused(std::string("{\"a\xff\":1}"), 0, {"not JSON"});
  expect_refused("[]", 0, {"not a JSON object"});
  expect_refused("1", 0, {"not a JSON object"});
  expect_refused(R"({"a":1e999})", 0, {"too large"});
  expect_refused(std::string(1'000'000, '['), 0, {"nested too deeply"});
  expect_refused(R"({"a":{"shape":[[1]]}})", 0, {"nested too deeply"});
  expect_refused(R"({"__metadata__":{"a":1}})", 0, {"__metadata__"});
  expect_refused(R"({"__metadata__":[]})", 0, {"__metadata__"});
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  expect_refused("{\"a\":" + entry + ",\"a\":" + entry + "}", 4, {"\"a\" occurs twice"});
  expect_refused(R"({"a":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]}})", 4,
                 {"\"dtype\" occurs twice"});
}

TEST_F(Safetensors, RefusesBadEntries) {
  const auto refused = [&](const std::string& entry, std::initializer_list<std::string> parts) {
    expect_refused("{\"w\":" + entry + "}", 8, parts);
    expect_refused("{\"w\":" + entry + "}", 8, {"tensor \"w\""});
  };
  refused("3", {"not a JSON object"});
  refused("[]", {"not a JSON object"});
  refused(R"({"shape":[2],"data_offsets":[0,8]})", {"no dtype"});
  refused(R"({"dtype":"F32","data_offsets":[0,8]})", {"no shape"});
  refused(R"({"dtype":"F32","shape":[2]})", {"no data_offsets"});
  refused(R"({"dtype":1,"shape":[2],"data_offsets":[0,8]})", {"dtype is not a string"});
  refused(R"({"dtype":"I64","shape":[1],"data_offsets":[0,8]})", {"\"I64\"", "F32, BF16, F16"});
  refused(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})", {"shape is not a list"});
  for (const char* size : {"-2", "2.0", "\"2\"", "null", "9223372036854775808"}) {
    refused(std::string(R"({"dtype":"F32","data_offsets":[0,8],"shape":[)") + size + "]}",
            {"shape holds", "0 to 2^63 - 1"});
  }
  for (const char* pair : {"8", "[8]", "[0,4,8]", "[0,-8]", "[0,8.0]", "[\"0\",8]", "{}",
                           "[0,18446744073709551615]"}) {
    refused(std::string(R"({"dtype":"F32","shape":[2],"data_offsets":)") + pair + "}",
            {"data_offsets is not a pair"});
  }
  refused(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", {"0 to 4", "8 bytes"});
  refused(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", {"8 to 0", "8 bytes"});
  refused(R"({"dtype":"BF16","shape":[2],"data_offsets":[0,8]})", {"0 to 8", "4 bytes"});
  // 2^32 * 2^32 = 2^64 and 2^61 * 8 bytes = 2^64 + ... would wrap to something that fits.
  refused(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})",
          {"more than 2^63 - 1 elements"});
  refused(R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]})",
          {"more than 2^63 - 1 bytes"});
}

TEST_F(Safetensors, RefusesBadRanges) {
  const auto entry = [](int elements, int begin, int end) {
    return R"({"dtype":"F32","shape":[)" + std::to_string(elements) + R"(],"data_offsets":[)" +
           std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  expect_refused("{\"a\":" + entry(2, 0, 8) + "}", 7, {"truncated", "\"a\"", "ends at 8"});
  expect_refused("{\"a\":" + entry(2, 0, 8) + "}", 9, {"1 bytes follow"});
  expect_refused("{}", 1, {"1 bytes follow"});
  expect_refused("{\"a\":" + entry(2, 4, 12) + "}", 12, {"\"a\"", "gap"});
  expect_refused("{\"a\":" + entry(1, 0, 4) + ",\"b\":" + entry(1, 8, 12) + "}", 12,
                 {"\"b\"", "gap"});
  expect_refused("{\"a\":" + entry(2, 0, 8) + ",\"b\":" + entry(2, 4, 12) + "}", 12,
                 {"\"b\"", "overlapping"});
  expect_refused("{\"a\":" + entry(2, 0, 8) + ",\"b\":" + entry(2, 0, 8) + "}", 8,
                 {"\"b\"", "overlapping"});
  expect_refused(R"({"a":{"dtype":"F32","shape":[250000000000],"data_offsets":[0,1000000000000]}})",
                 8, {"truncated", "\"a\""});
}

TEST_F(Safetensors, KeepsHostileNamesToOneLine) {
  expect_refused("{\"a\\nb\\u001b[2J" + std::string(500, 'x') + "\":1}", 0, {"a\\nb\\u001b[2Jx"});
  write_bytes(path_, file_of("{\"" + std::string(100'000, 'x') + "\":1}", 0));
  EXPECT_LT(std::string(error_of([&] { read_safetensors(path_); }).what()).size(), 500u);
}

TEST_F(Safetensors, RefusesToWriteWhatCannotBeRead) {
  const auto refused = [&](const std::vector<NamedTensor>& tensors, const std::string& part) {
    expect_error(ErrorCode::data, {path_, part}, [&] { write_safetensors(path_, tensors); });
    EXPECT_TRUE(folder_.names().empty());
  };
  refused({{"a", {2}, {1}}}, "has 1 values, its shape 2");
  refused({{"a", {-1}, {}}}, "negative size -1");
  refused({{"a", {1}, {1}}, {"a", {1}, {2}}}, "occurs twice");
  refused({{"__metadata__", {1}, {1}}}, "reserved");
  refused({{"\xff", {1}, {1}}}, "not UTF-8");
  refused({{"a", {1LL << 32, 1LL << 32}, {}}}, "more than 2^63 - 1");
}

TEST_F(Safetensors, AMissingFolderIsNamedAndNotMade) {
  const std::string path = folder_.file("no/such/x.safetensors");
  expect_error(ErrorCode::data, {path, "No such file or directory"},
               [&] { write_safetensors(path, {}); });
  EXPECT_TRUE(folder_.names().empty());
}

TEST_F(Safetensors, RefusesToReplaceAFolder) {
  expect_error(ErrorCode::data, {folder_.path(), "not a plain file"},
               [&] { write_safetensors(folder_.path(), {}); });
  EXPECT_TRUE(std::filesystem::is_directory(folder_.path()));
}

// A limit on file sizes stands for a full disk: writing fails half-way, with a reason.
TEST_F(Safetensors, AFailedWriteLeavesTheOldFileAndNothingElse) {
  write_safetensors(path_, {{"old", {1}, {42}}});
  const Bytes old = read_bytes(path_);

  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100'000, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  // Fails within write() for the large one, within the last flush for the one just too large.
  for (const std::int64_t elements : {1'000'000, 25'000}) {
    const NamedTensor big{"new", {elements}, std::vector<float>(elements, 1.0f)};
    expect_error(ErrorCode::data, {path_, "File too large"},
                 [&] { write_safetensors(path_, {big}); });
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);

  EXPECT_EQ(read_bytes(path_), old);
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"x.safetensors"});
}

}  // namespace
}  // namespace tandem
