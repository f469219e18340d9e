// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/sha256.hpp>
#include <tandem/tests/support/files.hpp>
#include <thread>

namespace tandem {
namespace {

using namespace testing;

constexpr const char* kFashion = "/usr/share/datasets/fashion-mnist";

struct Scene {
  Bytes picture, labels;
};
Scene scene(const Dataset& data, std::int64_t index) {
  const auto pixels = static_cast<std::size_t>(data.image() * data.image());
  Scene result{Bytes(3 * pixels, 0xaa), Bytes(pixels, 0xaa)};
  data.sample(index, result.picture.data(), result.labels.data());
  return result;
}

/// A folder with 23 noisy garments a split, by the formula that make_scenes.py has too.
class Scenes : public ::testing::Test {
 protected:
  Scenes() {
    for (std::uint64_t salt = 0; salt < 2; ++salt) {
      Bytes pixels, labels;
      for (std::uint64_t n = 0; n < 23; ++n) {
        labels.push_back(static_cast<std::uint8_t>((n * 3 + salt) % 10));
        for (std::uint64_t p = 0; p < 784; ++p) {
          const std::uint64_t product = ((n + 100 * salt) * 7919 + p * 131 + 17) * 2654435761u;
          pixels.push_back(static_cast<std::uint8_t>(product >> 24));
        }
      }
      write(salt ? "t10k" : "train", idx_bytes({23, 28, 28}, pixels), idx_bytes({23}, labels));
    }
  }
  void write(const std::string& prefix, const Bytes& pictures, const Bytes& labels) {
    write_bytes(folder_.file(prefix + "-images-idx3-ubyte"), pictures);
    write_bytes(folder_.file(prefix + "-labels-idx1-ubyte"), labels);
  }
  FashionScenesOptions options() const {
    FashionScenesOptions result;
    result.directory = folder_.path();
    result.image = 32;
    return result;
  }
  TemporaryFolder folder_;
};

// Every bit of sixteen scenes in each of several settings, against an implementation in Python that
// shares nothing with this one.
TEST_F(Scenes, AgreeWithAnIndependentImplementation) {
  std::ifstream golden(std::string(TANDEM_SOURCE_DIR) + "/tests/golden/scenes/scenes.txt");
  std::string line;
  int compared = 0;
  bool skipped = false;
  while (std::getline(golden, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string data_name, split, expected;
    FashionScenesOptions options;
    fields >> data_name >> split >> options.image >> options.seed >> options.garments >>
        options.min_scale >> expected;
    ASSERT_TRUE(fields) << line;
    options.directory = data_name == "formula" ? folder_.path() : kFashion;
    options.split = split == "train" ? Split::train : Split::held_out;
    if (!std::filesystem::exists(options.directory)) {
      skipped = true;
      continue;
    }
    const auto data = make_fashion_scenes(options);
    Sha256 hash;
    for (int i = 0; i < 16; ++i) {
      const Scene s = scene(*data, i);
      hash.update(s.picture.data(), s.picture.size());
      hash.update(s.labels.data(), s.labels.size());
    }
    EXPECT_EQ(hash.hex(), expected) << line;
    ++compared;
  }
  EXPECT_GE(compared, 5);
  if (skipped) GTEST_SKIP() << "the rows on Fashion-MNIST: it is not in " << kFashion;
}

TEST_F(Scenes, DescribeThemselves) {
  const auto data = make_fashion_scenes(options());
  EXPECT_EQ(data->image(), 32);
  EXPECT_EQ(data->epoch_size(), 10'000);
  EXPECT_EQ(data->classes(), 11);
  EXPECT_EQ(data->class_names()[0], "background");
  EXPECT_EQ(data->class_names()[10], "Ankle boot");
}

TEST_F(Scenes, AreAFunctionOfSeedSplitAndIndexAlone) {
  const auto data = make_fashion_scenes(options());
  const Scene third = scene(*data, 3);
  scene(*data, 9);
  EXPECT_EQ(scene(*data, 3).picture, third.picture);

  // The same garments in both splits, so that only the draws differ.
  auto held_out = options();
  held_out.split = Split::held_out;
  for (const char* kind : {"images-idx3", "labels-idx1"}) {
    const std::string end = std::string("-") + kind + "-ubyte";
    write_bytes(folder_.file("t10k" + end), read_bytes(folder_.file("train" + end)));
  }
  auto seeded = options();
  seeded.seed = 1ULL << 32;
  EXPECT_NE(scene(*make_fashion_scenes(held_out), 3).picture, third.picture);
  EXPECT_NE(scene(*make_fashion_scenes(seeded), 3).picture, third.picture);
  EXPECT_NE(scene(*data, 3 + (1LL << 32)).picture, third.picture);
  EXPECT_NE(scene(*data, 4).picture, third.picture);

  std::vector<Scene> parallel(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&, i] { parallel[i] = scene(*data, i % 4); });
  for (auto& thread : threads) thread.join();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(parallel[i].labels, scene(*data, i % 4).labels);
}

// At scale 1 and S = 28 the garment is the picture itself.
TEST_F(Scenes, FullScaleIsTheGarmentItself) {
  auto full = options();
  full.image = 28;
  full.min_scale = 1;
  const auto data = make_fashion_scenes(full);
  const Bytes file = read_bytes(folder_.file("train-images-idx3-ubyte"));
  const Bytes classes = read_bytes(folder_.file("train-labels-idx1-ubyte"));
  for (int i = 0; i < 50; ++i) {
    const Scene s = scene(*data, i);
    int garment = -1;
    for (int n = 0; n < 23; ++n) {
      bool same = true;
      for (int p = 0; p < 784; ++p) same = same && s.picture[3 * p] == file[16 + 784 * n + p];
      if (same) garment = n;
    }
    ASSERT_GE(garment, 0) << "scene " << i;
    for (int p = 0; p < 784; ++p) {
      const std::uint8_t value = s.picture[3 * p];
      ASSERT_EQ(s.picture[3 * p + 1], value);
      ASSERT_EQ(s.picture[3 * p + 2], value);
      ASSERT_EQ(s.labels[p], value >= 32 ? classes[8 + garment] + 1 : 0);
    }
  }
}

// One white garment: its rectangle shows scale and place. Both must reach their whole range.
TEST_F(Scenes, ScaleAndPlaceCoverTheirRange) {
  write("train", idx_bytes({1, 28, 28}, Bytes(784, 255)), idx_bytes({1}, {4}));
  const auto data = make_fashion_scenes(options());
  std::map<int, int> sides;
  bool at_left = false, at_right = false, at_top = false, at_bottom = false;
  for (int i = 0; i < 2000; ++i) {
    const Scene s = scene(*data, i);
    int count = 0, left = 32, right = -1, top = 32, bottom = -1;
    for (int p = 0; p < 32 * 32; ++p) {
      ASSERT_EQ(s.labels[p], s.picture[3 * p] == 255 ? 5 : 0);
      if (s.labels[p] == 0) continue;
      ++count;
      left = std::min(left, p % 32), right = std::max(right, p % 32);
      top = std::min(top, p / 32), bottom = std::max(bottom, p / 32);
    }
    ASSERT_EQ(count, (right - left + 1) * (bottom - top + 1));
    ASSERT_EQ(right - left, bottom - top);
    const int side = right - left + 1;
    ++sides[side];
    if (side < 32) {
      at_left |= left == 0, at_right |= right == 31, at_top |= top == 0, at_bottom |= bottom == 31;
    }
  }
  // U(0.8, 1) * 32 = U(25.6, 32), rounded: 26 to 32, the two ends half as often or less.
  EXPECT_EQ(sides.begin()->first, 26);
  EXPECT_EQ(sides.rbegin()->first, 32);
  EXPECT_EQ(sides.size(), 7u);
  EXPECT_TRUE(at_left && at_right && at_top && at_bottom);
}

// A garment that is dark (31) everywhere but in one bright corner.
TEST_F(Scenes, TheDarkFringeIsDrawnAsBackground) {
  Bytes pixels(784, 31);
  for (int y = 0; y < 14; ++y) std::memset(&pixels[28 * y], 200, 14);
  write("train", idx_bytes({1, 28, 28}, pixels), idx_bytes({1}, {0}));
  auto o = options();
  o.min_scale = 1;
  o.image = 28;
  const Scene s = scene(*make_fashion_scenes(o), 0);
  EXPECT_EQ(s.picture[3 * 783], 31);
  EXPECT_EQ(s.labels[783], 0);
  EXPECT_EQ(s.picture[0], 200);
  EXPECT_EQ(s.labels[0], 1);
}

TEST_F(Scenes, LaterGarmentsCoverEarlierOnesAndOnlyWhereTheyAreBright) {
  auto several = options();
  several.garments = 4;
  several.min_scale = 0.3;
  auto single = several;
  single.garments = 1;
  const auto four = make_fashion_scenes(several);
  const auto one = make_fashion_scenes(single);
  std::int64_t kept = 0, covered = 0, labels = 0;
  for (int i = 0; i < 100; ++i) {
    const Scene all = scene(*four, i), first = scene(*one, i);
    for (std::size_t p = 0; p < all.labels.size(); ++p) {
      labels += all.labels[p] != 0;
      if (first.labels[p] == 0) continue;
      ASSERT_NE(all.labels[p], 0) << "a garment was erased";
      const bool same = all.picture[3 * p] == first.picture[3 * p];
      (same ? kept : covered) += 1;
      // What is bright belongs to a garment.
      ASSERT_GE(all.picture[3 * p], 32);
    }
  }
  EXPECT_GT(kept, 1000);
  EXPECT_GT(covered, 1000);
  EXPECT_GT(labels, kept + covered);
}

TEST_F(Scenes, ReadGzippedFilesToo) {
  const Scene plain = scene(*make_fashion_scenes(options()), 5);
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}) {
    const std::string path = folder_.file(name);
    write_bytes(path + ".gz", gzipped(read_bytes(path)));
    std::filesystem::remove(path);
  }
  EXPECT_EQ(scene(*make_fashion_scenes(options()), 5).picture, plain.picture);
}

TEST_F(Scenes, RefuseBadFilesByName) {
  const auto refused = [&](std::initializer_list<std::string> parts) {
    expect_error(ErrorCode::data, parts, [&] { make_fashion_scenes(options()); });
  };
  const Bytes pictures = idx_bytes({2, 28, 28}, Bytes(2 * 784, 9));
  write("train", pictures, idx_bytes({2}, {3, 10}));
  refused({"train-labels-idx1-ubyte", "label 10", "picture 1", "0 to 9"});
  write("train", pictures, idx_bytes({3}, {3, 1, 1}));
  refused({"train-labels-idx1-ubyte", "2 pictures"});
  write("train", pictures, pictures);
  refused({"train-labels-idx1-ubyte", "2 pictures"});
  write("train", idx_bytes({2, 27, 28}, Bytes(2 * 27 * 28, 9)), idx_bytes({2}, {3, 1}));
  refused({"train-images-idx3-ubyte", "28 x 28"});
  write("train", idx_bytes({0, 28, 28}, {}), idx_bytes({0}, {}));
  refused({"train-images-idx3-ubyte", "28 x 28"});
  write("train", Bytes(pictures.begin(), pictures.end() - 1), idx_bytes({2}, {3, 1}));
  refused({"train-images-idx3-ubyte", "truncated"});
}

TEST_F(Scenes, AMissingFolderSaysHowToGetTheData) {
  auto absent = options();
  absent.directory = folder_.file("absent");
  const Error error = error_of([&] { make_fashion_scenes(absent); });
  EXPECT_EQ(error.code(), ErrorCode::data);
  EXPECT_NE(std::string(error.what()).find(absent.directory), std::string::npos) << error.what();
  EXPECT_NE(error.hint().find("dataset-fashion-mnist"), std::string::npos) << error.hint();
  std::filesystem::remove(folder_.file("train-labels-idx1-ubyte"));
  expect_error(ErrorCode::data, {"train-labels-idx1-ubyte", folder_.path()},
               [&] { make_fashion_scenes(options()); });
}

TEST_F(Scenes, RefuseOptionsOutOfRange) {
  const auto refused = [&](FashionScenesOptions o, std::initializer_list<std::string> parts) {
    expect_error(ErrorCode::usage, parts, [&] { make_fashion_scenes(o); });
  };
  auto o = options();
  for (const int side : {7, 4097}) {
    o.image = side;
    refused(o, {"image side " + std::to_string(side), "8 to 4096"});
  }
  o = options();
  for (const int garments : {0, 5}) {
    o.garments = garments;
    refused(o, {std::to_string(garments) + " garments", "1 to 4"});
  }
  o = options();
  for (const double scale : {0.0, -0.5, 1.01, std::numeric_limits<double>::quiet_NaN()}) {
    o.min_scale = scale;
    refused(o, {"garment scale", "above 0, up to 1"});
  }
  expect_error(ErrorCode::usage, {"sample index -1"},
               [&] { scene(*make_fashion_scenes(options()), -1); });
}

}  // namespace
}  // namespace tandem
