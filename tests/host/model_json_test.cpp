// SPDX-License-Identifier: Apache-2.0
// Models as JSON: what is read, what is refused and how, and that writing gives it back. The schema
// is docs/model.md.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <tandem/engine/error.hpp>
#include <tandem/models/classifier.hpp>
#include <tandem/models/model_json.hpp>
#include <tandem/models/segmenter.hpp>
#include <tandem/models/trainer.hpp>
#include <tandem/tests/support/files.hpp>
#include <vector>

namespace tandem::testing {
namespace {

void expect_same(const Sequential& a, const Sequential& b) {
  EXPECT_EQ(a.in_channels(), b.in_channels());
  ASSERT_EQ(a.layers().size(), b.layers().size());
  for (std::size_t i = 0; i < a.layers().size(); ++i) {
    const Layer &x = a.layers()[i], &y = b.layers()[i];
    EXPECT_EQ(x.kind, y.kind) << i;
    EXPECT_EQ(x.in_channels, y.in_channels) << i;
    EXPECT_EQ(x.out_channels, y.out_channels) << i;
    EXPECT_EQ(x.kernel, y.kernel) << i;
    EXPECT_EQ(x.stride, y.stride) << i;
    EXPECT_EQ(x.padding, y.padding) << i;
    EXPECT_EQ(x.input, y.input) << i;
    EXPECT_EQ(x.l2, y.l2) << i;
  }
}

TEST(ModelJson, WritingAndReadingGivesTheSameModel) {
  const Model models[] = {
      {"segmenter", 64, segmenter_encoder(64), segmenter_decoder(64, 11)},
      {"classifier", 256, Sequential(3), classifier(256, 10)},
      {"\"odd\" \xc3\xa4\n", 7, Sequential(3), Sequential(3).conv(5, 3, 1, 1).relu().conv(2, 1)},
      {"not a chain", 4, Sequential(3).conv(8, 1),
       Sequential(8).conv(8, 1).relu().from(0).conv(4, 3, 1, 1).from(1).relu()},
      {"sigmoids", 4, Sequential(3).conv(8, 1).sigmoid(),
       Sequential(8)
           .conv(4, 3, 1, 1)
           .l2(0.01)
           .sigmoid()
           .flatten()
           .linear(64, 2)
           .l2(1e-30)
           .sigmoid()},
      {"rows", 0, Sequential(5).linear(5, 4), Sequential(4).relu().linear(4, 2), 5},
      {"features", 8, Sequential(3).conv(4, 2, 2).flatten(), Sequential(64).linear(64, 3)},
  };
  for (const Model& model : models) {
    const std::string text = to_json(model);
    const Model read = model_from_json(text, "it");
    EXPECT_EQ(read.name, model.name);
    EXPECT_EQ(read.image, model.image);
    EXPECT_EQ(read.features, model.features);
    expect_same(read.frozen, model.frozen);
    expect_same(read.trained, model.trained);
    EXPECT_EQ(to_json(read), text);
  }
}

std::string example() {
  std::ifstream file(TANDEM_SOURCE_DIR "/docs/model.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::size_t begin = page.find("```json\n") + 8;
  return page.substr(begin, page.find("```", begin) - begin);
}

TEST(ModelJson, TheExampleOfTheDocsCanBeTrained) {
  const Model model = model_from_json(example(), "docs/model.md");
  EXPECT_EQ(model.name, "small");
  EXPECT_EQ(model.frozen.layers().size(), 3u);
  EngineConfig config;
  config.frozen = model.frozen;
  config.trained = model.trained;
  config.image = model.image;
  EXPECT_EQ(plan_training(config).stages.size(), 3u);
  EXPECT_EQ(model_from_json(to_json(model), "it").trained.layers().size(), 5u);
}

/// A good file, in which a piece of text is replaced by another.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = example();
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

/// Refused as Error{data} in one line that names the source, and says the place and the rest.
void expect_refused(const std::string& text, const std::string& place, const std::string& rest) {
  try {
    model_from_json(text, "my file");
    ADD_FAILURE() << "accepted: " << text;
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), ErrorCode::data) << what;
    EXPECT_EQ(what.rfind("my file: " + place, 0), 0u) << what << " does not start with " << place;
    EXPECT_NE(what.find(rest), std::string::npos) << what << " does not say " << rest;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

TEST(ModelJson, TextThatIsNoJsonIsRefusedWithItsPlace) {
  expect_refused("", "is not JSON", "line 1, column 1");
  expect_refused("{\n  \"schema\": 1,\n  oops\n}", "is not JSON", "line 3, column 3");
  expect_refused(changed("\"relu\"}", "\"relu\"},,"), "is not JSON", "line 7");
  expect_refused(changed("\"small\"", "\"\xff\""), "is not JSON", "line 3");
  expect_refused(example() + "x", "is not JSON", "line");
  expect_refused(changed("\"image\": 32", "\"image\": 1e999"), "", "too large");
  expect_refused(changed("\"image\": 32", "\"image\": NaN"), "is not JSON", "line 4");
  expect_refused("[]", "is []; an object", "");
  expect_refused("3", "is 3; an object", "");
}

TEST(ModelJson, EveryFieldIsNeeded) {
  for (const char* field : {"schema", "name", "image", "frozen", "trained"})
    expect_refused(changed(std::string("\"") + field + "\"", "\"other\""),
                   field == std::string("schema") ? "schema" : "the file", "");
  expect_refused(R"({"schema": 1})", "name: ", "is missing");
  expect_refused(R"({"schema": 1, "name": "a"})", "image: ", "is missing");
  expect_refused(R"({"schema": 1, "name": "a", "image": 8})", "frozen: ", "is missing");
  expect_refused(R"({"schema": 1, "name": "a", "image": 8, "frozen": []})",
                 "trained: ", "is missing");
  expect_refused(changed("{\"layer\": \"relu\"}", "{}"), "frozen[1].layer: ", "is missing");
  expect_refused(changed("\"in_channels\": 3, ", ""), "frozen[0].in_channels: ", "is missing");
  expect_refused(changed("\"out_channels\": 16, ", ""), "frozen[0].out_channels: ", "is missing");
  expect_refused(changed("\"kernel\": 1, ", ""), "frozen[0].kernel: ", "is missing");
  expect_refused(changed("\"stride\": 1, ", ""), "frozen[0].stride: ", "is missing");
  expect_refused(changed(", \"padding\": 0", ""), "frozen[0].padding: ", "is missing");
  expect_refused(changed("\"in_features\": 2048, ", ""), "trained[4].in_features: ", "is missing");
  expect_refused(changed(", \"out_features\": 10", ""), "trained[4].out_features: ", "is missing");
}

TEST(ModelJson, WhatIsNotKnownIsRefused) {
  expect_refused(changed("\"name\"", "\"nmae\": 1, \"name\""), "the file: no such field: \"nmae\"",
                 "allowed: schema, name, image, features, frozen, trained");
  expect_refused(changed("\"kernel\": 1", "\"dilation\": 1, \"kernel\": 1"),
                 "frozen[0]: no such field: \"dilation\"", "padding");
  expect_refused(changed("{\"layer\": \"relu\"}", "{\"layer\": \"relu\", \"kernel\": 1}"),
                 "frozen[1]: no such field: \"kernel\"", "layer");
  expect_refused(changed("\"flatten\"", "\"Flatten\""), "trained[3].layer: is \"Flatten\"",
                 "allowed: conv, transposed_conv, relu, sigmoid, flatten, linear");
  expect_refused(changed("\"schema\": 1", "\"schema\": 2"), "schema: is 2", "from 1 to 1");
}

TEST(ModelJson, AFieldGivenTwiceIsRefusedWithItsPlace) {
  expect_refused(changed("\"image\": 32", "\"image\": 32, \"image\": 64"), "image: ", "twice");
  expect_refused(changed("\"out_features\": 10", "\"out_features\": 10, \"out_features\": 9"),
                 "trained[4].out_features: ", "twice");
  expect_refused(changed("\"in_channels\": 16", "\"stride\": 2, \"in_channels\": 16"),
                 "frozen[2].stride: ", "twice");
}

TEST(ModelJson, WrongTypesAndValuesAreRefusedWithTheirPlace) {
  expect_refused(changed("\"image\": 32", "\"image\": \"32\""), "image: is \"32\"",
                 "whole numbers");
  expect_refused(changed("\"image\": 32", "\"image\": 32.0"), "image: is 32.0", "whole numbers");
  expect_refused(changed("\"image\": 32", "\"image\": 0"), "image: is 0", "from 1 to 8192");
  expect_refused(changed("\"image\": 32", "\"image\": -1"), "image: is -1", "from 1 to 8192");
  expect_refused(changed("\"image\": 32", "\"image\": 8193"), "image: is 8193", "from 1 to 8192");
  expect_refused(changed("\"image\": 32", "\"image\": 18446744073709551615"), "image: is 1844", "");
  expect_refused(changed("\"image\": 32", "\"image\": true"), "image: is true", "");
  expect_refused(changed("\"small\"", "null"), "name: is null", "text");
  expect_refused(changed("\"small\"", "\"\""), "name: has 0 bytes", "1 .. 100");
  expect_refused(changed("\"small\"", '"' + std::string(101, 'n') + '"'), "name: has 101", "");
  expect_refused(changed("\"kernel\": 1", "\"kernel\": 5"), "frozen[0].kernel: is 5", "1 to 3");
  expect_refused(changed("\"kernel\": 1", "\"kernel\": null"), "frozen[0].kernel: is null", "");
  expect_refused(changed("\"out_channels\": 16", "\"out_channels\": 65537"),
                 "frozen[0].out_channels: is 65537", "65536");
  expect_refused(changed("\"stride\": 1", "\"stride\": 2"), "frozen[0]: ", "kernel 1, stride 2");
  expect_refused(changed("{\"layer\": \"relu\"}", "[]"), "frozen[1]: is []", "object");
  expect_refused(changed("\"relu\"", "7"), "frozen[1].layer: is 7", "text");
  expect_refused(R"({"schema": 1, "name": "a", "image": 8, "frozen": {}, "trained": []})",
                 "frozen: is {}", "list");
  expect_refused(R"({"schema": 1, "name": "a", "image": 8, "frozen": [], "trained": []})",
                 "trained: has no layers", "1 or more");
  std::string many = R"({"schema": 1, "name": "a", "image": 8, "frozen": [], "trained": [)";
  for (int i = 0; i < 1001; ++i) many += R"({"layer": "relu"},)";
  many.back() = ']';
  expect_refused(many + "}", "trained: has 1001 layers", "1000");
  expect_refused(changed("\"small\"", "[[[[[1]]]]]"), "name", "too deeply");
}

TEST(ModelJson, LayersThatDoNotFitAreRefusedWithTheirPlaceAndBothNumbers) {
  expect_refused(changed("\"in_channels\": 16", "\"in_channels\": 8"),
                 "frozen[2].in_channels: is 8", "16 channels of 32 x 32 pixels");
  expect_refused(changed("\"in_channels\": 3", "\"in_channels\": 1"), "frozen[0].in_channels: is 1",
                 "3 channels");
  // The trained part reads what the frozen one makes.
  expect_refused(changed("\"out_channels\": 32", "\"out_channels\": 64"),
                 "trained[1].in_channels: is 32", "64 channels of 16 x 16 pixels");
  expect_refused(changed("\"in_features\": 2048", "\"in_features\": 2047"),
                 "trained[4].in_features: is 2047", "2048 arrive");
  expect_refused(changed("\"image\": 32", "\"image\": 64"), "trained[4].in_features: is 2048",
                 "8192 arrive");
  expect_refused(changed("{\"layer\": \"flatten\"},\n", ""), "trained[3].in_features: is 2048",
                 "32 channels of 8 x 8 pixels");
  std::string unflattened = changed("{\"layer\": \"flatten\"},\n", "");
  unflattened.replace(unflattened.find("2048"), 4, "32");  // what a pixel has
  expect_refused(unflattened, "trained[3]: linear takes 32 features",
                 "32 channels of 8 x 8 pixels arrive, without a flatten");
  expect_refused(changed("\"image\": 32", "\"image\": 31"), "frozen[2]: ", "power of two");
  expect_refused(changed("\"flatten\"}",
                         "\"flatten\"}, {\"layer\": \"conv\", \"in_channels\": 4, "
                         "\"out_channels\": 4, \"kernel\": 1, \"stride\": 1, "
                         "\"padding\": 0}"),
                 "trained[4]: ", "features");
  expect_refused(changed("\"out_features\": 10", "\"out_features\": 255"),
                 "trained: its last layer", "classes is 255");
  expect_refused(changed("{\"layer\": \"relu\"}", "{\"layer\": \"relu\", \"from\": 1}"),
                 "frozen[1].from: is 1", "from 0 to 0");
  expect_refused(changed("{\"layer\": \"conv\"", "{\"from\": 0, \"layer\": \"conv\""),
                 "frozen[0].from: ", "first layer");
}

TEST(ModelJson, L2BelongsToTrainedLayersWithWeights) {
  const auto l2 = [](const std::string& value) {
    return changed("\"out_features\": 10", "\"out_features\": 10, \"l2\": " + value);
  };
  EXPECT_EQ(model_from_json(l2("0.01"), "it").trained.layers()[4].l2, 0.01);
  EXPECT_EQ(model_from_json(l2("0"), "it").trained.layers()[4].l2, 0);
  EXPECT_EQ(model_from_json(l2("1000"), "it").trained.layers()[4].l2, 1000);
  expect_refused(l2("-0.01"), "trained[4].l2: is -0.01", "numbers from 0 to 1000");
  expect_refused(l2("1001"), "trained[4].l2: is 1001", "numbers from 0 to 1000");
  expect_refused(l2("\"0.01\""), "trained[4].l2: is \"0.01\"", "numbers from 0 to 1000");
  expect_refused(l2("null"), "trained[4].l2: is null", "numbers");
  expect_refused(changed("{\"layer\": \"flatten\"}", "{\"layer\": \"flatten\", \"l2\": 0.1}"),
                 "trained[3]: no such field: \"l2\"", "allowed: layer, from");
  expect_refused(changed("\"padding\": 0}", "\"padding\": 0, \"l2\": 0.1}"),
                 "frozen[0].l2: ", "not trained");
}

TEST(ModelJson, ANetworkReadsPicturesOrRows) {
  const auto of = [](const std::string& input, int in_features) {
    return "{\"schema\": 1, \"name\": \"a\", " + input +
           "\"frozen\": [], \"trained\": [{\"layer\": \"linear\", \"in_features\": " +
           std::to_string(in_features) + ", \"out_features\": 2}]}";
  };
  const Model model = model_from_json(of("\"features\": 7, ", 7), "it");
  EXPECT_EQ(model.features, 7);
  EXPECT_EQ(model.image, 0);
  EXPECT_EQ(input_size(model).channels, 7);
  expect_refused(of("\"features\": 7, \"image\": 1, ", 7), "features: ", "image or features");
  expect_refused(of("", 7), "image: ", "is missing");
  expect_refused(of("\"features\": 0, ", 7), "features: is 0", "from 1 to 65536");
  expect_refused(of("\"features\": 65537, ", 7), "features: is 65537", "from 1 to 65536");
  expect_refused(of("\"features\": 7, ", 3), "trained[0].in_features: is 3", "7 arrive");
}

TEST(ModelJson, ASigmoidAloneIsRefused) {
  expect_refused(
      R"({"schema": 1, "name": "a", "image": 8, "frozen": [], "trained": [{"layer": "sigmoid"}]})",
      "trained[0]: a sigmoid alone", "layers before it");
}

TEST(ModelJson, AFileIsNamed) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& text) {
    write_bytes(folder.file("m.json"), Bytes(text.begin(), text.end()));
  };
  write(example());
  EXPECT_EQ(read_model(folder.file("m.json")).name, "small");
  const auto refused = [&](const std::string& path, const std::string& part) {
    try {
      read_model(path);
      ADD_FAILURE() << "accepted " << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data);
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  write(changed("\"kernel\": 1", "\"kernel\": 0"));
  refused(folder.file("m.json"), "frozen[0].kernel: is 0");
  refused(folder.file("missing.json"), "No such file");
  refused(folder.path(), "not a regular file");
}

}  // namespace
}  // namespace tandem::testing
