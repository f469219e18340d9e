// SPDX-License-Identifier: Apache-2.0
// Data sets with a label a picture, read from files that the tests make, and shuffling.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tandem/engine/dataset.hpp>
#include <tandem/tests/support/files.hpp>
#include <thread>

namespace tandem {
namespace {

using namespace testing;

struct Sample {
  Bytes picture;
  std::uint8_t label;
};
Sample sample(const Dataset& data, std::int64_t index) {
  const auto bytes = static_cast<std::size_t>(3 * data.image() * data.image());
  Sample result{Bytes(bytes + 1, 0xaa), 0xaa};
  std::uint8_t labels[2] = {0xaa, 0xaa};
  data.sample(index, result.picture.data(), labels);
  EXPECT_EQ(result.picture.back(), 0xaa) << "wrote behind the picture";
  EXPECT_EQ(labels[1], 0xaa) << "wrote behind the label";
  result.picture.pop_back();
  result.label = labels[0];
  return result;
}

// --- CIFAR-10 ---

/// Value of colour c at pixel p of record r.
std::uint8_t cifar_value(std::int64_t r, std::int64_t c, std::int64_t p) {
  return static_cast<std::uint8_t>(37 * r + 85 * c + 7 * p + p / 32);
}
Bytes cifar_file(std::int64_t first, std::int64_t records) {
  Bytes bytes;
  for (std::int64_t r = first; r < first + records; ++r) {
    bytes.push_back(static_cast<std::uint8_t>(r % 10));
    for (std::int64_t c = 0; c < 3; ++c) {
      for (std::int64_t p = 0; p < 1024; ++p) bytes.push_back(cifar_value(r, c, p));
    }
  }
  return bytes;
}

/// Records 0 .. 10 in the five files of train, 100 .. 103 in the one of test.
class Cifar : public ::testing::Test {
 protected:
  Cifar() {
    for (int i = 1; i <= 5; ++i) {
      write("data_batch_" + std::to_string(i) + ".bin", cifar_file(2 * i - 2, i == 5 ? 3 : 2));
    }
    write("test_batch.bin", cifar_file(100, 4));
  }
  void write(const std::string& name, const Bytes& bytes) {
    write_bytes(folder_.file(name), bytes);
  }
  void refused(std::initializer_list<std::string> parts) {
    expect_error(ErrorCode::data, parts, [&] { make_cifar10(folder_.path(), Split::train); });
  }
  TemporaryFolder folder_;
};

TEST_F(Cifar, ReadsItsRecordsInOrder) {
  for (const Split split : {Split::train, Split::held_out}) {
    const auto data = make_cifar10(folder_.path(), split);
    const std::int64_t first = split == Split::train ? 0 : 100;
    const std::int64_t records = split == Split::train ? 11 : 4;
    EXPECT_EQ(data->epoch_size(), records);
    EXPECT_EQ(data->image(), 32);
    EXPECT_EQ(data->label_count(), 1);
    ASSERT_EQ(data->classes(), 10);
    EXPECT_EQ(data->class_names()[0], "airplane");
    EXPECT_EQ(data->class_names()[9], "truck");
    for (std::int64_t i = 0; i < 2 * records + 1; ++i) {
      EXPECT_EQ(data->record(i), i % records);
      const std::int64_t r = first + i % records;
      const Sample s = sample(*data, i);
      EXPECT_EQ(s.label, r % 10);
      int wrong = 0;
      for (std::int64_t p = 0; p < 1024; ++p) {
        for (std::int64_t c = 0; c < 3; ++c) wrong += s.picture[3 * p + c] != cifar_value(r, c, p);
      }
      EXPECT_EQ(wrong, 0) << "sample " << i;
    }
    expect_error(ErrorCode::usage, {"sample index -1"}, [&] { sample(*data, -1); });
  }
}

TEST_F(Cifar, TheFilesAreReadOnce) {
  const auto data = make_cifar10(folder_.path(), Split::train);
  const Sample before = sample(*data, 10);
  std::filesystem::remove(folder_.file("data_batch_5.bin"));
  EXPECT_EQ(sample(*data, 10).picture, before.picture);
}

TEST_F(Cifar, RefusesBadFilesByName) {
  Bytes file = cifar_file(4, 2);
  file[3073] = 10;
  write("data_batch_3.bin", file);
  refused({"data_batch_3.bin", "label 10 of record 1", "0 to 9"});
  file.pop_back();
  write("data_batch_3.bin", file);
  refused({"data_batch_3.bin", "6145 bytes", "multiple of 3073"});
  write("data_batch_3.bin", {});
  refused({"data_batch_3.bin", "0 bytes", "at least one"});
  std::filesystem::remove(folder_.file("data_batch_3.bin"));
  refused({"data_batch_3.bin", "there is no"});
  std::filesystem::create_directory(folder_.file("data_batch_3.bin"));
  refused({"data_batch_3.bin", "not a regular file"});
  EXPECT_EQ(make_cifar10(folder_.path(), Split::held_out)->epoch_size(), 4);
  const Error error = error_of([&] { make_cifar10(folder_.file("none"), Split::held_out); });
  EXPECT_NE(error.hint().find("binary version"), std::string::npos) << error.hint();
}

// --- Fashion-MNIST ---

class FashionMnist : public ::testing::Test {
 protected:
  FashionMnist() {
    Bytes pixels;
    for (int i = 0; i < 3 * 784; ++i) pixels.push_back(static_cast<std::uint8_t>(i * 11 + i / 784));
    write("train", idx_bytes({3, 28, 28}, pixels), idx_bytes({3}, {9, 0, 4}));
    write("t10k", idx_bytes({1, 28, 28}, Bytes(784, 7)), idx_bytes({1}, {2}));
  }
  void write(const std::string& prefix, const Bytes& pictures, const Bytes& labels) {
    write_bytes(folder_.file(prefix + "-images-idx3-ubyte"), pictures);
    write_bytes(folder_.file(prefix + "-labels-idx1-ubyte.gz"), gzipped(labels));
  }
  TemporaryFolder folder_;
};

TEST_F(FashionMnist, GreyBecomesThreeEqualChannels) {
  const auto data = make_fashion_mnist(folder_.path(), Split::train);
  EXPECT_EQ(data->image(), 28);
  EXPECT_EQ(data->epoch_size(), 3);
  EXPECT_EQ(data->label_count(), 1);
  ASSERT_EQ(data->classes(), 10);
  EXPECT_EQ(data->class_names()[0], "T-shirt/top");
  EXPECT_EQ(data->class_names()[9], "Ankle boot");
  const std::uint8_t labels[] = {9, 0, 4};
  for (int i = 0; i < 7; ++i) {
    const int r = i % 3;
    const Sample s = sample(*data, i);
    EXPECT_EQ(data->record(i), r);
    EXPECT_EQ(s.label, labels[r]);
    int wrong = 0;
    for (int k = 0; k < 3 * 784; ++k) {
      wrong += s.picture[k] != static_cast<std::uint8_t>((784 * r + k / 3) * 11 + r);
    }
    EXPECT_EQ(wrong, 0) << "sample " << i;
  }
  const auto held_out = make_fashion_mnist(folder_.path(), Split::held_out);
  EXPECT_EQ(held_out->epoch_size(), 1);
  EXPECT_EQ(sample(*held_out, 0).label, 2);
  expect_error(ErrorCode::usage, {"sample index -1"}, [&] { sample(*data, -1); });
}

TEST_F(FashionMnist, RefusesBadFilesByName) {
  std::filesystem::remove(folder_.file("train-images-idx3-ubyte"));
  const Error error = error_of([&] { make_fashion_mnist(folder_.path(), Split::train); });
  EXPECT_EQ(error.code(), ErrorCode::data);
  EXPECT_NE(std::string(error.what()).find("fashion-mnist: neither train-images"),
            std::string::npos)
      << error.what();
  EXPECT_NE(error.hint().find("fashion-mnist:DIR"), std::string::npos) << error.hint();
  write("t10k", idx_bytes({1, 28, 28}, Bytes(784, 7)), idx_bytes({1}, {10}));
  expect_error(ErrorCode::data, {"t10k-labels-idx1-ubyte.gz", "label 10", "0 to 9"},
               [&] { make_fashion_mnist(folder_.path(), Split::held_out); });
}

// --- shuffled ---

/// Picture and label tell the index; each epoch shows the same records.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::int64_t count) : count_(count) {}
  std::int64_t image() const noexcept override { return 2; }
  std::int64_t epoch_size() const noexcept override { return count_; }
  const std::vector<std::string>& class_names() const noexcept override { return names_; }
  std::int64_t label_count() const noexcept override { return 1; }
  std::int64_t record(std::int64_t index) const override { return index % count_; }
  void sample(std::int64_t index, std::uint8_t* picture, std::uint8_t* labels) const override {
    for (int i = 0; i < 12; ++i) picture[i] = static_cast<std::uint8_t>(index >> (8 * (i % 4)));
    labels[0] = static_cast<std::uint8_t>(index % 7);
  }

 private:
  std::int64_t count_;
  std::vector<std::string> names_{"a", "b", "c", "d", "e", "f", "g"};
};

std::vector<std::int64_t> records_of(const Dataset& data, std::int64_t epoch) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < data.epoch_size(); ++i) {
    result.push_back(data.record(epoch * data.epoch_size() + i));
  }
  return result;
}

TEST(Shuffled, EveryRecordOnceAnEpochInAnOrderOfItsOwn) {
  for (const std::int64_t count : {1, 2, 3, 10, 1000}) {
    const auto data = shuffled(std::make_shared<Numbers>(count), 7);
    EXPECT_EQ(data->epoch_size(), count);
    EXPECT_EQ(data->classes(), 7);
    EXPECT_EQ(data->label_count(), 1);
    std::set<std::vector<std::int64_t>> orders;
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
      std::vector<std::int64_t> records = records_of(*data, epoch);
      orders.insert(records);
      for (std::int64_t i = 0; i < count; i += 1 + count / 10) {
        // The sample shown is that of the record, and of this epoch.
        const std::int64_t below = epoch * count + records[i];
        const Sample s = sample(*data, epoch * count + i);
        EXPECT_EQ(s.label, below % 7);
        EXPECT_EQ(s.picture[0] + 256 * s.picture[1], below);
      }
      std::sort(records.begin(), records.end());
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(records[i], i);
    }
    if (count >= 10) {
      EXPECT_EQ(orders.size(), 5u);
    }
  }
}

TEST(Shuffled, IsAFunctionOfSeedAndEpoch) {
  const auto numbers = std::make_shared<Numbers>(100);
  const auto data = shuffled(numbers, 7);
  const auto third = records_of(*data, 3);
  for (const std::int64_t epoch : {5, 4, 1, 0, 3 << 20}) records_of(*data, epoch);
  EXPECT_EQ(records_of(*data, 3), third);
  EXPECT_EQ(records_of(*shuffled(numbers, 7), 3), third);
  EXPECT_NE(records_of(*shuffled(numbers, 8), 3), third);
  EXPECT_NE(records_of(*shuffled(numbers, 7 + (1ULL << 32)), 3), third);
}

// All 24 orders of four records come equally often: 23 degrees of freedom, mean 23, variance 46.
TEST(Shuffled, EveryOrderIsEquallyLikely) {
  const auto data = shuffled(std::make_shared<Numbers>(4), 1);
  std::vector<std::int64_t> order{0, 1, 2, 3};
  std::vector<std::vector<std::int64_t>> all;
  do all.push_back(order);
  while (std::next_permutation(order.begin(), order.end()));
  std::vector<double> counts(all.size());
  constexpr int kEpochs = 24'000;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto at = std::find(all.begin(), all.end(), records_of(*data, epoch));
    ++counts[static_cast<std::size_t>(at - all.begin())];
  }
  double chi_square = 0;
  for (const double count : counts) chi_square += (count - 1000) * (count - 1000) / 1000;
  EXPECT_LT(chi_square, 23 + 6 * std::sqrt(46.0));
}

TEST(Shuffled, ManyThreadsSeeTheSameOrders) {
  const auto numbers = std::make_shared<Numbers>(50);
  const auto data = shuffled(numbers, 3), alone = shuffled(numbers, 3);
  std::vector<std::vector<std::int64_t>> seen(8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t i = 0; i < 400; ++i) seen[t].push_back(data->record((i * 7 + t) % 400));
    });
  }
  for (std::thread& thread : threads) thread.join();
  int wrong = 0;
  for (int t = 0; t < 8; ++t) {
    for (std::int64_t i = 0; i < 400; ++i) wrong += seen[t][i] != alone->record((i * 7 + t) % 400);
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Shuffled, RefusesWhatItCannotShuffle) {
  expect_error(ErrorCode::usage, {"no data set"}, [] { shuffled(nullptr, 0); });
  expect_error(ErrorCode::usage, {"epoch of 0 samples", "1 to"},
               [] { shuffled(std::make_shared<Numbers>(0), 0); });
  expect_error(ErrorCode::usage, {"sample index -1"},
               [] { shuffled(std::make_shared<Numbers>(3), 0)->record(-1); });
}

}  // namespace
}  // namespace tandem
