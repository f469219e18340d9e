// SPDX-License-Identifier: Apache-2.0
// Rows of comma-separated numbers: what is read, what is held out, and that a broken row is named
// with its line. Synthetic rows, and rows in the loader.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/tests/support/files.hpp>
#include <vector>

namespace tandem::testing {
namespace {

void write_text(const std::string& path, const std::string& text) {
  write_bytes(path, Bytes(text.begin(), text.end()));
}

struct Row {
  std::vector<float> features;
  int label = -1;
};
bool operator==(const Row& a, const Row& b) {
  return a.features == b.features && a.label == b.label;
}

std::vector<Row> rows_of(const Dataset& data) {
  std::vector<Row> rows;
  for (std::int64_t i = 0; i < data.epoch_size(); ++i) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(data.sample_bytes()));
    std::uint8_t label = 255;
    data.sample(i, bytes.data(), &label);
    Row row{std::vector<float>(static_cast<std::size_t>(data.features())), label};
    std::memcpy(row.features.data(), bytes.data(), bytes.size());
    rows.push_back(row);
  }
  return rows;
}

class CsvFile : public ::testing::Test {
 protected:
  std::unique_ptr<Dataset> read(const std::string& text, Split split = Split::train) {
    write_text(folder_.file("it.csv"), text);
    return make_csv(folder_.file("it.csv"), split);
  }
  /// Refused as Error{data} in one line that names the file and says all the parts.
  void expect_refused(const std::string& text, const std::vector<std::string>& parts,
                      Split split = Split::train) {
    try {
      read(text, split);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_EQ(error.code(), ErrorCode::data) << what;
      EXPECT_EQ(what.rfind(folder_.file("it.csv") + ": ", 0), 0u) << what;
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
      for (const std::string& part : parts)
        EXPECT_NE(what.find(part), std::string::npos) << what << " does not say " << part;
    }
  }
  const TemporaryFolder folder_;
};

TEST_F(CsvFile, ColumnsAreFeaturesAndThenALabel) {
  const auto data = read("age,dose,effect\n0.5,-1e2,0\n+.25,3,2\n");
  EXPECT_EQ(data->features(), 2);
  EXPECT_EQ(data->image(), 1);
  EXPECT_EQ(data->label_count(), 1);
  EXPECT_EQ(data->sample_bytes(), 8);
  EXPECT_EQ(data->class_names(), (std::vector<std::string>{"effect 0", "effect 1", "effect 2"}));
  EXPECT_EQ(rows_of(*data), (std::vector<Row>{{{0.5f, -100}, 0}, {{0.25f, 3}, 2}}));
  EXPECT_EQ(data->record(5), 1);
}

TEST_F(CsvFile, SpacesLineEndsAndAByteOrderMarkDoNotMatter) {
  EXPECT_EQ(rows_of(*read("\xef\xbb\xbf x ,\ty\r\n 1 , 1 \r\n2,0\r\n\r\n\n")),
            (std::vector<Row>{{{1}, 1}, {{2}, 0}}));
  EXPECT_EQ(rows_of(*read("x,y\n3,1")), (std::vector<Row>{{{3}, 1}}));
}

TEST_F(CsvFile, EveryFifthRowOfAClassIsHeldOut) {
  std::string text = "x,y\n";
  for (int i = 1; i <= 20; ++i)
    text += std::to_string(i) + (i % 2 == 0 ? ",1\n" : ",0\n");  // ten of each
  const auto held_out = rows_of(*read(text, Split::held_out)), train = rows_of(*read(text));
  // The 5th and 10th odd number, and the 5th and 10th even one.
  EXPECT_EQ(held_out, (std::vector<Row>{{{9}, 0}, {{10}, 1}, {{19}, 0}, {{20}, 1}}));
  EXPECT_EQ(train.size(), 16u);
  std::map<float, int> seen;
  for (const Row& row : held_out) ++seen[row.features[0]];
  for (const Row& row : train) ++seen[row.features[0]];
  EXPECT_EQ(seen.size(), 20u);
  EXPECT_EQ(read("x,y\n1,0\n2,3\n", Split::train)->classes(), 4) << "of both parts";
  expect_refused("x,y\n1,0\n2,1\n3,0\n", {"no row to hold out", "every 5th"}, Split::held_out);
}

TEST_F(CsvFile, ABrokenRowIsNamedWithItsLine) {
  expect_refused("", {"line 1", "1 columns"});
  expect_refused("x\n1\n", {"line 1", "1 columns", "features and then a label"});
  expect_refused("1,0\n2,1\n", {"line 1", "numbers where the names"});
  expect_refused("x,\n1,0\n", {"line 1", "column 2 has no name"});
  expect_refused("x,y\n", {"no rows behind line 1"});
  expect_refused("x,y\n1,0\n2\n", {"line 3", "1 columns; line 1 names 2"});
  expect_refused("x,y\n1,0\n2,1,0\n", {"line 3", "3 columns"});
  expect_refused("x,y\n1,0\n\n2,1\n", {"line 3", "empty"});
  expect_refused("age,y\n1,0\ntwo,1\n", {"line 3", "age is 'two'", "finite numbers"});
  expect_refused("age,y\n,0\n", {"line 2", "age is ''"});
  expect_refused("age,y\n1.5x,0\n", {"line 2", "age is '1.5x'"});
  expect_refused("age,y\n1e39,0\n", {"line 2", "age is '1e39'"});
  expect_refused("age,y\nnan,0\n", {"line 2", "age is 'nan'"});
  expect_refused("age,y\ninf,0\n", {"line 2", "age is 'inf'"});
  expect_refused("age,y\n\"1\",0\n", {"line 2", "age is '\"1\"'"});
  expect_refused("age,y\n\x01\x80,0\n", {"line 2",
                                         "age is '?"
                                         "?'"});
  expect_refused("age,y\n1,-1\n", {"line 2", "y is '-1'", "whole numbers from 0 to 253"});
  expect_refused("age,y\n1,254\n", {"line 2", "y is '254'"});
  expect_refused("age,y\n1,0.5\n", {"line 2", "y is '0.5'"});
  expect_refused("age,y\n1,yes\n", {"line 2", "y is 'yes'"});
}

TEST_F(CsvFile, AFolderHasItsOwnHeldOutRows) {
  const std::string path = folder_.path();
  const auto missing = [&](const char* name) {
    try {
      make_csv(path, Split::train);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  };
  missing("there is no train.csv");
  write_text(folder_.file("train.csv"), "x,y\n1,0\n2,1\n");
  missing("there is no test.csv or val.csv");
  write_text(folder_.file("val.csv"), "x,z\n3,0\n");
  missing("line 1 of val.csv names other columns");
  write_text(folder_.file("val.csv"), "x,y\n3,2\n");
  EXPECT_EQ(rows_of(*make_csv(path, Split::train)), (std::vector<Row>{{{1}, 0}, {{2}, 1}}));
  EXPECT_EQ(rows_of(*make_csv(path, Split::held_out)), (std::vector<Row>{{{3}, 2}}));
  EXPECT_EQ(make_csv(path, Split::train)->classes(), 3) << "of both files";
  write_text(folder_.file("test.csv"), "x,y\n4,0\n");
  EXPECT_EQ(rows_of(*make_csv(path, Split::held_out)), (std::vector<Row>{{{4}, 0}}));
}

TEST_F(CsvFile, AMissingFileIsNamed) {
  try {
    make_csv(folder_.file("nothing.csv"), Split::train);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data);
    EXPECT_NE(std::string(error.what()).find("nothing.csv"), std::string::npos) << error.what();
  }
}

TEST(SyntheticRows, AreUniformAndAFunctionOfTheIndex) {
  const auto data = make_synthetic_rows(11, 3, 7);
  EXPECT_EQ(data->features(), 11);
  const std::vector<Row> rows = rows_of(*data), again = rows_of(*make_synthetic_rows(11, 3, 7));
  EXPECT_EQ(rows, again);
  EXPECT_FALSE(rows == rows_of(*make_synthetic_rows(11, 3, 8)));
  double sum = 0;
  std::map<int, int> labels;
  for (const Row& row : rows) {
    ++labels[row.label];
    for (const float value : row.features) {
      EXPECT_TRUE(value >= -1 && value < 1) << value;
      sum += static_cast<double>(value);
    }
  }
  // 110,000 numbers of standard deviation 1 / sqrt(3), and 10,000 labels of 3: six sigma.
  EXPECT_LT(std::abs(sum / 110'000), 6 * 0.58 / 331);
  for (const int label : {0, 1, 2}) EXPECT_NEAR(labels[label], 3333, 6 * 48);
  EXPECT_THROW(make_synthetic_rows(0, 3, 7), Error);
  EXPECT_THROW(make_synthetic_rows(1, 1, 7), Error);
}

/// Memory of one input slot for rows.
struct SlotMemory {
  SlotMemory(std::int64_t batch, std::int64_t features)
      : floats(static_cast<std::size_t>(batch * features), -1.0f),
        labels(static_cast<std::size_t>(batch)),
        header((batch_header_bytes(batch) + 7) / 8) {
    slot.images = reinterpret_cast<std::uint8_t*>(floats.data());
    slot.labels = labels.data();
    slot.header = reinterpret_cast<BatchHeader*>(header.data());
    slot.batch = batch;
    slot.image = 1;
    slot.features = features;
    slot.label_count = 1;
  }
  std::vector<float> floats;
  std::vector<std::uint8_t> labels;
  std::vector<std::uint64_t> header;
  InputSlot slot;
};

TEST_F(CsvFile, TheLoaderFillsBatchesWithRowsAndThePaddingWithZeros) {
  std::shared_ptr<const Dataset> data = read("a,b,y\n1,2,0\n3,4,1\n5,6,0\n");
  SlotMemory memory(2, 2);
  LoaderOptions options;
  options.batch = 2;
  options.steps = 2;
  options.samples = 3;
  options.classes = 2;
  Loader loader(data, options, {memory.slot}, [](int) {});
  ASSERT_EQ(loader.next(), 0);
  EXPECT_EQ(memory.floats, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(memory.labels, (std::vector<std::uint8_t>{0, 1}));
  loader.submitted(0);
  ASSERT_EQ(loader.next(), 0);
  EXPECT_EQ(memory.floats, (std::vector<float>{5, 6, 0, 0}));
  EXPECT_EQ(memory.labels, (std::vector<std::uint8_t>{0, 255}));
  EXPECT_EQ(memory.slot.header->valid_count, 1);
}

TEST_F(CsvFile, TheLoaderRefusesSlotsForPicturesOrOtherRows) {
  std::shared_ptr<const Dataset> data = read("a,b,y\n1,2,0\n");
  LoaderOptions options;
  options.batch = 1;
  options.steps = 1;
  options.classes = 2;
  for (const std::int64_t features : {0, 1, 3}) {
    SlotMemory memory(1, 3);
    memory.slot.features = features;
    try {
      Loader(data, options, {memory.slot}, [](int) {});
      ADD_FAILURE() << "accepted " << features;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("rows of 2 numbers"), std::string::npos)
          << error.what();
    }
  }
}

TEST_F(CsvFile, ShufflingKeepsRowsRows) {
  std::shared_ptr<const Dataset> data = read("a,b,y\n1,2,0\n3,4,1\n");
  EXPECT_EQ(shuffled(data, 1)->features(), 2);
  EXPECT_EQ(shuffled(data, 1)->sample_bytes(), 8);
}

}  // namespace
}  // namespace tandem::testing
