// SPDX-License-Identifier: Apache-2.0
// Thousands of damaged models. Each is read, or refused with Error{data} in one line; nothing else
// happens. The damage comes from a seeded generator, so that a failure repeats.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <tandem/engine/error.hpp>
#include <tandem/models/classifier.hpp>
#include <tandem/models/model_json.hpp>
#include <tandem/models/segmenter.hpp>
#include <tandem/tests/support/files.hpp>
#include <tandem/tests/support/mutate.hpp>

namespace tandem {
namespace {

using namespace testing;

/// True if it was read; then writing it gives a text that reads as the same.
bool read_or_refuse(const std::string& text) {
  try {
    const std::string written = to_json(model_from_json(text, "model"));
    EXPECT_EQ(to_json(model_from_json(written, "written")), written);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
    EXPECT_EQ(std::string(error.what()).rfind("model: ", 0), 0u) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return false;
  }
}

std::string good() {
  return to_json({"good", 32, segmenter_encoder(32), segmenter_decoder(32, 4)});
}

TEST(ModelJsonFuzz, DamagedTextIsReadOrRefused) {
  std::mt19937 random(1);
  const std::string text = good();
  int refused = 0;
  for (int i = 0; i < 6000; ++i) {
    Bytes damaged(text.begin(), text.end());
    mutate(damaged, 0, damaged.size(), random);
    refused += !read_or_refuse({damaged.begin(), damaged.end()});
  }
  EXPECT_GT(refused, 3000);
}

// Damage that leaves it JSON, so that it is the fields that are judged.
TEST(ModelJsonFuzz, ChangedFieldsAreReadOrRefused) {
  std::mt19937 random(2);
  const std::string text = good();
  const std::vector<std::string> values = {"0",        "1",          "2",    "3",
                                           "4",        "-1",         "16",   "31",
                                           "64",       "65536",      "1e3",  "0.5",
                                           "\"\"",     "null",       "[]",   "{}",
                                           "true",     "[[1]]",      "1e99", "9223372036854775808",
                                           "\"relu\"", "\"flatten\""};
  int refused = 0, read = 0;
  for (int i = 0; i < 6000; ++i) {
    (read_or_refuse(testing::with_other_values(text, values, random)) ? read : refused) += 1;
  }
  EXPECT_GT(refused, 3000);
  EXPECT_GT(read, 10);  // the same value, or another picture size
}

TEST(ModelJsonFuzz, LayersInAnyOrderAreReadOrRefused) {
  std::mt19937 random(3);
  const std::string layers[] = {
      R"({"layer": "relu"})",
      R"({"layer": "flatten"})",
      R"({"layer": "conv", "in_channels": 3, "out_channels": 3, "kernel": 3, "stride": 1, "padding": 1})",
      R"({"layer": "conv", "in_channels": 3, "out_channels": 3, "kernel": 2, "stride": 2, "padding": 0})",
      R"({"layer": "transposed_conv", "in_channels": 3, "out_channels": 3, "kernel": 2, "stride": 2})",
      R"({"layer": "linear", "in_features": 12, "out_features": 3})",
      R"({"layer": "linear", "in_features": 3, "out_features": 12})",
      R"({"layer": "relu", "from": 0})",
  };
  int refused = 0, read = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = R"({"schema": 1, "name": "n", "image": 4, "frozen": [)";
    for (const char* part : {"], \"trained\": [", "]}"}) {
      for (std::size_t k = random() % 5; k > 0; --k)
        text += layers[random() % std::size(layers)] + (k > 1 ? ", " : "");
      text += part;
    }
    (read_or_refuse(text) ? read : refused) += 1;
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(read, 500);
}

}  // namespace
}  // namespace tandem
