// SPDX-License-Identifier: Apache-2.0
// A folder a class: which files belong to which class and split, and what broken ones do.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <tandem/engine/dataset.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/tests/support/files.hpp>
#include <tandem/tests/support/picture_bytes.hpp>
#include <thread>

namespace tandem {
namespace {

using namespace testing;

constexpr int kSide = 8;

/// A picture of one grey value: a PNG, or a JPEG that comes back exactly.
Bytes grey_file(std::uint8_t value, bool jpeg, int width = 8, int height = 8) {
  const Bytes pixels(static_cast<std::size_t>(width * height), value);
  return jpeg ? jpeg_bytes(width, height, JCS_GRAYSCALE, JCS_GRAYSCALE, pixels)
              : png_bytes(width, height, PNG_COLOR_TYPE_GRAY, 8, pixels);
}

class FolderData : public ::testing::Test {
 protected:
  void write(const std::string& name, const Bytes& bytes) {
    const std::string path = folder_.file(name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_bytes(path, bytes);
  }
  FolderOptions options(Split split = Split::train) const {
    FolderOptions result;
    result.directory = folder_.path();
    result.image = kSide;
    result.split = split;
    return result;
  }
  void refused(std::initializer_list<std::string> parts, Split split = Split::train) {
    expect_error(ErrorCode::data, parts, [&] { make_folder(options(split)); });
  }
  TemporaryFolder folder_;
};

struct Sample {
  int value, label;  ///< value -1: more than one in the picture
  bool operator==(const Sample& other) const {
    return value == other.value && label == other.label;
  }
  friend std::ostream& operator<<(std::ostream& out, const Sample& s) {
    return out << "{value " << s.value << ", label " << s.label << "}";
  }
};
Sample sample(const Dataset& data, std::int64_t index) {
  const auto bytes = static_cast<std::size_t>(3 * data.image() * data.image());
  Bytes picture(bytes + 1, 0xaa), labels(2, 0xaa);
  data.sample(index, picture.data(), labels.data());
  EXPECT_EQ(picture.back(), 0xaa);
  EXPECT_EQ(labels[1], 0xaa);
  picture.pop_back();
  const bool even = picture == Bytes(bytes, picture[0]);
  return {even ? picture[0] : -1, labels[0]};
}
/// The samples of the first epoch.
std::vector<Sample> epoch_of(const Dataset& data) {
  std::vector<Sample> result;
  for (std::int64_t i = 0; i < data.epoch_size(); ++i) result.push_back(sample(data, i));
  return result;
}

TEST_F(FolderData, EveryFifthFileOfAClassIsHeldOut) {
  // Created in another order than that of their names.
  for (int i = 10; i >= 0; --i) {
    write("dog/p" + std::to_string(10 + i) + (i % 2 ? ".PNG" : ".Jpeg"),
          grey_file(static_cast<std::uint8_t>(100 + i), i % 2 == 0));
  }
  for (const int i : {2, 0, 1}) {
    write("cat/" + std::to_string(i) + ".jpg", grey_file(static_cast<std::uint8_t>(i), true));
  }
  write("cat/.hidden", {1, 2, 3});
  write(".cache/x.txt", {1});
  write("README.md", {1});

  const auto train = make_folder(options());
  EXPECT_EQ(train->class_names(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(train->image(), kSide);
  EXPECT_EQ(train->label_count(), 1);
  std::vector<Sample> expected{{0, 0}, {1, 0}, {2, 0}};
  for (const int i : {0, 1, 2, 3, 5, 6, 7, 8, 10}) expected.push_back({100 + i, 1});
  EXPECT_EQ(epoch_of(*train), expected);
  EXPECT_EQ(train->record(12 + 5), 5);
  EXPECT_EQ(sample(*train, 12 + 5), expected[5]);

  const auto held_out = make_folder(options(Split::held_out));
  EXPECT_EQ(held_out->class_names(), train->class_names());
  EXPECT_EQ(epoch_of(*held_out), (std::vector<Sample>{{104, 1}, {109, 1}}));
  expect_error(ErrorCode::usage, {"sample index -1"}, [&] { sample(*train, -1); });
}

TEST_F(FolderData, FoldersTrainAndTestOrValAreTheSplits) {
  write("train/a/1.png", grey_file(1, false));
  write("train/b/1.png", grey_file(2, false));
  write("train/b/2.png", grey_file(3, false));
  write("train/c/1.png", grey_file(4, false));
  write("val/c/1.png", grey_file(5, false));
  write("val/b/1.png", grey_file(6, false));
  EXPECT_EQ(epoch_of(*make_folder(options())),
            (std::vector<Sample>{{1, 0}, {2, 1}, {3, 1}, {4, 2}}));
  const auto held_out = make_folder(options(Split::held_out));
  EXPECT_EQ(held_out->classes(), 3);  // also where one has no picture
  EXPECT_EQ(epoch_of(*held_out), (std::vector<Sample>{{6, 1}, {5, 2}}));
  write("test/a/1.png", grey_file(7, false));  // before val
  EXPECT_EQ(epoch_of(*make_folder(options(Split::held_out))), (std::vector<Sample>{{7, 0}}));
  write("test/cow/1.png", grey_file(7, false));
  refused({folder_.file("test/cow"), "no class of that name", folder_.file("train")},
          Split::held_out);
}

TEST_F(FolderData, PicturesOfAnySizeAreCutAndResized) {
  write("a/tall.png", grey_file(50, false, 5, 90));
  write("b/wide.jpg", grey_file(60, true, 121, 33));
  EXPECT_EQ(epoch_of(*make_folder(options())), (std::vector<Sample>{{50, 0}, {60, 1}}));
}

TEST_F(FolderData, RefusesWhatDoesNotBelong) {
  refused({folder_.path(), "0 folders", "2 to 254"});
  write("a/1.png", grey_file(1, false));
  refused({folder_.path(), "1 folders", "2 to 254"});
  write("c/1.png", grey_file(1, false));
  refused({folder_.path(), "no picture is held out", "at least 5"}, Split::held_out);
  write("a/notes.txt", {1});
  refused({folder_.file("a/notes.txt"), "no JPEG or PNG"});
  std::filesystem::remove(folder_.file("a/notes.txt"));
  write("a/more/1.png", grey_file(1, false));
  refused({folder_.file("a/more"), "a folder in the folder of a class"});
  std::filesystem::remove_all(folder_.file("a/more"));
  write("1.png", grey_file(1, false));
  refused({folder_.file("1.png"), "beside the folders"});
  std::filesystem::remove(folder_.file("1.png"));
  std::filesystem::create_directory(folder_.file("b"));
  refused({folder_.file("b"), "no picture"});
  std::filesystem::remove(folder_.file("b"));
  EXPECT_EQ(make_folder(options())->epoch_size(), 2);

  for (int c = 2; c < 254; ++c) write("class" + std::to_string(c) + "/1.png", Bytes{1});
  EXPECT_EQ(make_folder(options())->classes(), 254);
  write("class254/1.png", Bytes{1});
  refused({folder_.path(), "255 folders", "2 to 254"});

  FolderOptions o = options();
  o.directory = folder_.file("none");
  expect_error(ErrorCode::data, {o.directory, "No such file"}, [&] { make_folder(o); });
  o.directory = folder_.file("a/1.png");
  expect_error(ErrorCode::data, {o.directory, "not a folder"}, [&] { make_folder(o); });
  o = options();
  for (const int side : {7, 4097}) {
    o.image = side;
    expect_error(ErrorCode::usage, {"image side " + std::to_string(side), "8 to 4096"},
                 [&] { make_folder(o); });
  }
}

/// Classes a (4 files, 2 of them broken) and b (2 files, both broken).
class BrokenFiles : public FolderData {
 protected:
  BrokenFiles() {
    Bytes half = grey_file(9, true);
    half.resize(half.size() / 2);
    write("a/0.png", grey_file(10, false));
    write("a/1.jpg", half);
    write("a/2.png", {});
    write("a/3.png", grey_file(13, false));
    write("b/0.png", {1, 2, 3});
    write("b/1.png", {1, 2, 3});
  }
};

TEST_F(BrokenFiles, EndTheRunByName) {
  const auto data = make_folder(options());
  EXPECT_EQ(sample(*data, 0), (Sample{10, 0}));
  expect_error(ErrorCode::data, {folder_.file("a/1.jpg") + ": broken JPEG file ("},
               [&] { sample(*data, 1); });
  expect_error(ErrorCode::data, {folder_.file("a/2.png") + ": an empty file"},
               [&] { sample(*data, 2); });
}

TEST_F(BrokenFiles, OrAreReplacedByTheNextGoodOneOfTheirClassAndNamedOnce) {
  std::map<std::string, std::string> named;
  FolderOptions o = options();
  o.broken_is_fatal = false;
  o.on_broken = [&](const std::string& file, const std::string& reason) {
    EXPECT_TRUE(named.emplace(file, reason).second) << file << " named twice";
  };
  const auto data = make_folder(o);
  EXPECT_EQ(data->epoch_size(), 6);
  EXPECT_TRUE(named.empty());
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(sample(*data, 6 * round + 2), (Sample{13, 0}));
    EXPECT_EQ(sample(*data, 6 * round + 1), (Sample{13, 0}));
    EXPECT_EQ(sample(*data, 6 * round + 0), (Sample{10, 0}));
    EXPECT_EQ(sample(*data, 6 * round + 3), (Sample{13, 0}));
    EXPECT_EQ(data->record(6 * round + 1), 1);
    expect_error(ErrorCode::data, {folder_.file("b") + ": none of its 2 pictures"},
                 [&] { sample(*data, 6 * round + 5); });
  }
  ASSERT_EQ(named.size(), 4u);
  EXPECT_EQ(named[folder_.file("a/2.png")], "an empty file");
  EXPECT_EQ(named[folder_.file("a/1.jpg")].find("broken JPEG file ("), 0u);
  EXPECT_EQ(named[folder_.file("b/1.png")], "neither JPEG nor PNG, by its first bytes");

  // The last of a class is replaced by its first, and a file that is gone is a broken one.
  o.on_broken = {};
  const auto unnamed = make_folder(o);
  std::filesystem::remove(folder_.file("a/3.png"));
  EXPECT_EQ(sample(*unnamed, 3), (Sample{10, 0}));
}

// One good and three broken files of class a, a good one of b: two samples count, each once.
TEST_F(FolderData, ABrokenFileThatIsHeldOutDoesNotCount) {
  write("train/a/0.png", grey_file(1, false));
  write("train/b/0.png", grey_file(2, false));
  for (const int i : {0, 1, 3}) write("test/a/" + std::to_string(i) + ".png", {1, 2, 3});
  write("test/a/2.png", grey_file(12, false));
  write("test/b/0.png", grey_file(20, false));
  int named = 0;
  FolderOptions o = options(Split::held_out);
  o.broken_is_fatal = false;
  o.on_broken = [&](const std::string&, const std::string&) { ++named; };
  const std::shared_ptr<const Dataset> data = make_folder(o);
  const Sample ignored{0, 255};
  const std::vector<Sample> expected{ignored, ignored, {12, 0}, ignored, {20, 1}};
  for (int round = 0; round < 2; ++round) EXPECT_EQ(epoch_of(*data), expected);
  EXPECT_EQ(named, 3);
  EXPECT_EQ(data->record(3), 3);

  constexpr std::int64_t kBatch = 5;
  Bytes images(kBatch * 3 * kSide * kSide), labels(kBatch);
  std::vector<std::int64_t> header(batch_header_bytes(kBatch) / sizeof(std::int64_t));
  InputSlot slot;
  slot.images = images.data();
  slot.labels = labels.data();
  slot.header = reinterpret_cast<BatchHeader*>(header.data());
  slot.batch = kBatch;
  slot.image = kSide;
  slot.label_count = 1;
  LoaderOptions of_loader;
  of_loader.batch = kBatch;
  of_loader.steps = 1;
  of_loader.classes = data->classes();
  Loader loader(data, of_loader, {slot}, [](int) {});
  ASSERT_EQ(loader.next(), 0);
  EXPECT_EQ(slot.header->valid_count, 2);
}

TEST_F(FolderData, SomethingHeldOutHasToBeReadable) {
  write("train/a/0.png", grey_file(1, false));
  write("train/b/0.png", grey_file(2, false));
  write("test/a/0.png", {1, 2, 3});
  write("test/b/0.png", {});
  FolderOptions o = options(Split::held_out);
  o.broken_is_fatal = false;
  const auto data = make_folder(o);
  EXPECT_EQ(sample(*data, 0), (Sample{0, 255}));
  expect_error(ErrorCode::data, {folder_.file("test"), "none of its 2 held out pictures"},
               [&] { sample(*data, 1); });
}

// What a sample shows does not depend on which thread came first, and no file is named twice.
TEST_F(BrokenFiles, FromManyThreads) {
  std::multiset<std::string> named;
  FolderOptions o = options();
  o.broken_is_fatal = false;
  o.on_broken = [&](const std::string& file, const std::string&) { named.insert(file); };
  const auto data = make_folder(o);
  std::vector<std::vector<Sample>> seen(8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) seen[t].push_back(sample(*data, 6 * i + (i + t) % 4));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 8; ++t) {
    for (int i = 0; i < 40; ++i) {
      EXPECT_EQ(seen[t][i], (Sample{(i + t) % 4 == 0 ? 10 : 13, 0}));
    }
  }
  EXPECT_EQ(named, (std::multiset<std::string>{folder_.file("a/1.jpg"), folder_.file("a/2.png")}));
}

// Both find it broken at the same time: it takes long to read, and they start together.
TEST_F(BrokenFiles, TwoThreadsAtOneFileNameItOnce) {
  Bytes large = grey_file(9, true, 700, 700);
  large.pop_back();
  write("a/1.jpg", large);
  for (int round = 0; round < 20; ++round) {
    int named = 0;
    FolderOptions o = options();
    o.broken_is_fatal = false;
    o.on_broken = [&](const std::string&, const std::string&) { ++named; };
    const auto data = make_folder(o);
    std::atomic<int> ready{0};
    const auto read = [&] {
      ++ready;
      while (ready < 2) std::this_thread::yield();
      EXPECT_EQ(sample(*data, 1), (Sample{13, 0}));
    };
    std::thread other(read);
    read();
    other.join();
    EXPECT_EQ(named, 2) << "a/1.jpg and a/2.png, once each";
  }
}

/// Bytes that the program has allocated and not freed.
std::size_t bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// A leak of 64 bytes a file would show. Sanitizer builds find leaks in another way, at the end.
TEST_F(BrokenFiles, MemoryStaysFlatOverThousandsOfThem) {
  constexpr int kReads = 5000;
  FolderOptions o = options();
  const auto fatal = make_folder(o);
  o.broken_is_fatal = false;
  const auto skipping = make_folder(o);
  std::size_t after_100 = 0;
  int errors = 0;
  for (int i = 0; i < kReads; ++i) {
    try {
      sample(*fatal, 1 + i % 2);
    } catch (const Error&) {
      ++errors;
    }
    EXPECT_EQ(sample(*skipping, 1 + i % 2).value, 13);
    if (i == 99) after_100 = bytes_in_use();
  }
  EXPECT_EQ(errors, kReads);
  EXPECT_LT(bytes_in_use(), after_100 + (kReads - 100) * 64);
}

}  // namespace
}  // namespace tandem
