// SPDX-License-Identifier: Apache-2.0
// The loader with a label a picture: last batches, shuffled data, and the augmentation, drawn and
// carried out by the workers.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tandem/engine/loader.hpp>
#include <tandem/tests/support/files.hpp>
#include <thread>

namespace tandem {
namespace {

using namespace testing;

constexpr std::int64_t kSide = 12;
constexpr std::int64_t kPictureBytes = 3 * kSide * kSide;
constexpr std::int64_t kRecords = 10;

std::uint8_t picture_byte(std::int64_t record, std::int64_t i) {
  return static_cast<std::uint8_t>(record * 131 + i * 7 + i / 36 * 5);
}
std::uint8_t label_of(std::int64_t record) { return static_cast<std::uint8_t>(record % 4); }

/// Ten records that come back every epoch. Record `bad` has label 9.
class Records final : public Dataset {
 public:
  explicit Records(std::int64_t bad = -1, std::int64_t count = kRecords)
      : bad_(bad), count_(count) {}
  std::int64_t image() const noexcept override { return kSide; }
  std::int64_t epoch_size() const noexcept override { return count_; }
  const std::vector<std::string>& class_names() const noexcept override { return names_; }
  std::int64_t label_count() const noexcept override { return 1; }
  std::int64_t record(std::int64_t index) const override { return index % count_; }
  void sample(std::int64_t index, std::uint8_t* picture, std::uint8_t* labels) const override {
    const std::int64_t r = record(index);
    for (std::int64_t i = 0; i < kPictureBytes; ++i) picture[i] = picture_byte(r, i);
    labels[0] = r == bad_ ? 9 : label_of(r);
  }

 private:
  std::int64_t bad_, count_;
  std::vector<std::string> names_{"a", "b", "c", "d"};
};

AugmentSpec some_spec() {
  AugmentSpec spec;
  spec.in_h = spec.in_w = kSide;
  spec.crop_h = 8, spec.crop_w = 7;
  spec.out_h = 10, spec.out_w = 9;
  spec.padding = 1;
  spec.rotate = true;
  spec.blur_taps = 3;
  spec.mean[1] = 0.5f, spec.deviation[2] = 0.25f;
  return spec;
}
LoaderAugment some_augmentation(bool on_cpu) {
  LoaderAugment augment;
  augment.spec = some_spec();
  augment.ranges.flip_probability = 0.5;
  augment.seed = 17;
  augment.on_cpu = on_cpu;
  return augment;
}

/// Memory of slots, full of rubbish; pictures or floats.
class Slots {
 public:
  Slots(int count, std::int64_t batch, std::int64_t floats = 0)
      : images_(count, Bytes(floats ? 0 : batch * kPictureBytes, 0xee)),
        floats_(count, std::vector<float>(batch * floats, -7.0f)),
        labels_(count, Bytes(batch, 0xee)),
        headers_(count, std::vector<std::int64_t>(batch_header_bytes(batch) / 8, -7)) {
    for (int s = 0; s < count; ++s) {
      InputSlot slot;
      if (floats) {
        slot.floats = floats_[s].data();
      } else {
        slot.images = images_[s].data();
      }
      slot.labels = labels_[s].data();
      slot.header = reinterpret_cast<BatchHeader*>(headers_[s].data());
      slot.batch = batch;
      slot.image = kSide;
      slot.label_count = 1;
      slots_.push_back(slot);
    }
  }
  const std::vector<InputSlot>& slots() const { return slots_; }
  const InputSlot& operator[](int slot) const { return slots_[slot]; }

 private:
  std::vector<Bytes> images_;
  std::vector<std::vector<float>> floats_;
  std::vector<Bytes> labels_;
  std::vector<std::vector<std::int64_t>> headers_;
  std::vector<InputSlot> slots_;
};

LoaderOptions options_for(int workers, std::int64_t batch, std::int64_t samples, LastBatch last) {
  LoaderOptions o;
  o.workers = workers;
  o.batch = batch;
  o.samples = samples;
  o.last_batch = last;
  o.steps = batches_of(samples, batch, last);
  o.classes = 4;
  return o;
}

/// A batch, copied out of its slot.
struct Batch {
  BatchHeader header;
  std::vector<std::int64_t> ids;
  std::vector<std::string> draws;  ///< their bytes
  std::vector<Bytes> pictures;
  std::vector<std::vector<float>> floats;
  Bytes labels;
};
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}
bool operator==(const Batch& a, const Batch& b) {
  bool same = std::memcmp(&a.header, &b.header, sizeof(BatchHeader)) == 0 && a.ids == b.ids &&
              a.draws == b.draws && a.pictures == b.pictures && a.labels == b.labels &&
              a.floats.size() == b.floats.size();
  for (std::size_t i = 0; same && i < a.floats.size(); ++i) {
    same = same_bits(a.floats[i], b.floats[i]);
  }
  return same;
}

std::string bytes_of(const AugmentDraw& draw) {
  return std::string(reinterpret_cast<const char*>(&draw), sizeof draw);
}

std::int64_t floats_a_picture(const LoaderOptions& o) {
  if (!o.augment || !o.augment->on_cpu) return 0;
  return 3 * o.augment->spec.out_h * o.augment->spec.out_w;
}

std::vector<Batch> load(const std::shared_ptr<const Dataset>& data, const LoaderOptions& o,
                        int slots = 2) {
  const std::int64_t floats = floats_a_picture(o);
  Slots memory(slots, o.batch, floats);
  Loader loader(data, o, memory.slots(), [](int) {});
  std::vector<Batch> batches;
  for (int s = loader.next(); s >= 0; s = loader.next()) {
    const InputSlot& slot = memory[s];
    Batch batch;
    batch.header = *slot.header;
    batch.ids.assign(sample_ids(slot.header), sample_ids(slot.header) + o.batch);
    batch.labels.assign(slot.labels, slot.labels + o.batch);
    for (std::int64_t row = 0; row < o.batch; ++row) {
      batch.draws.push_back(bytes_of(augment_draws(slot.header)[row]));
      if (floats) {
        batch.floats.emplace_back(slot.floats + row * floats, slot.floats + (row + 1) * floats);
      } else {
        batch.pictures.emplace_back(slot.images + row * kPictureBytes,
                                    slot.images + (row + 1) * kPictureBytes);
      }
    }
    batches.push_back(batch);
    loader.submitted(s);
  }
  EXPECT_EQ(batches.size(), o.steps);
  return batches;
}

Bytes picture_of(std::int64_t record) {
  Bytes picture;
  for (std::int64_t i = 0; i < kPictureBytes; ++i) picture.push_back(picture_byte(record, i));
  return picture;
}

// --- last batches ---

TEST(BatchesOf, CountsAndRefusesNone) {
  EXPECT_EQ(batches_of(10, 4, LastBatch::partial), 3u);
  EXPECT_EQ(batches_of(10, 4, LastBatch::pad), 3u);
  EXPECT_EQ(batches_of(10, 4, LastBatch::drop), 2u);
  EXPECT_EQ(batches_of(8, 4, LastBatch::partial), 2u);
  EXPECT_EQ(batches_of(8, 4, LastBatch::drop), 2u);
  EXPECT_EQ(batches_of(3, 4, LastBatch::pad), 1u);
  expect_error(ErrorCode::usage, {"no step", "3 samples", "batch of 4", "dropped"},
               [] { batches_of(3, 4, LastBatch::drop); });
  for (const LastBatch last : {LastBatch::partial, LastBatch::pad, LastBatch::drop}) {
    expect_error(ErrorCode::usage, {"0 samples", "batch of 4"}, [&] { batches_of(0, 4, last); });
    expect_error(ErrorCode::usage, {"-1 samples"}, [&] { batches_of(-1, 4, last); });
    expect_error(ErrorCode::usage, {"batch 0", "at least 1"}, [&] { batches_of(5, 0, last); });
  }
}

TEST(LastBatches, EveryIndexOnceAnEpochAndTheRestIsIgnored) {
  for (const LastBatch last : {LastBatch::partial, LastBatch::pad, LastBatch::drop}) {
    for (const std::int64_t batch : {1, 3, 4, 7, 10, 16}) {
      for (const bool shuffle : {false, true}) {
        if (last == LastBatch::drop && batch > kRecords) continue;
        std::shared_ptr<const Dataset> data = std::make_shared<Records>();
        if (shuffle) data = shuffled(data, 5);
        for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
          LoaderOptions o = options_for(3, batch, kRecords, last);
          o.first_sample = epoch * kRecords;
          const std::vector<Batch> batches = load(data, o);
          std::multiset<std::int64_t> seen;
          std::int64_t index = o.first_sample;
          for (const Batch& b : batches) {
            ASSERT_LE(b.header.samples, batch);
            EXPECT_EQ(b.header.valid_count, b.header.samples);
            EXPECT_EQ(b.header.capacity, batch);
            EXPECT_EQ(b.header.epoch, static_cast<std::uint64_t>(epoch));
            for (std::int64_t row = 0; row < batch; ++row) {
              if (row < b.header.samples) {
                EXPECT_EQ(b.ids[row], data->record(index++));
                EXPECT_EQ(b.labels[row], label_of(b.ids[row]));
                EXPECT_EQ(b.pictures[row], picture_of(b.ids[row]));
                seen.insert(b.ids[row]);
                continue;
              }
              EXPECT_EQ(b.labels[row], 255);
              if (last == LastBatch::pad) {  // the batch's records in order, and again
                const std::int64_t again = row % b.header.samples;
                EXPECT_EQ(b.ids[row], b.ids[again]);
                EXPECT_EQ(b.pictures[row], b.pictures[again]);
              } else {
                EXPECT_EQ(b.ids[row], -1);
                EXPECT_EQ(b.pictures[row], Bytes(kPictureBytes, 0));
              }
            }
          }
          const bool all = last != LastBatch::drop || kRecords % batch == 0;
          EXPECT_EQ(seen.size(),
                    static_cast<std::size_t>(all ? kRecords : kRecords / batch * batch));
          EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), seen.size());
        }
      }
    }
  }
}

TEST(LastBatches, RunOverEpochs) {
  const auto data = std::make_shared<Records>();
  const auto batches = load(data, options_for(2, 4, 25, LastBatch::partial));
  ASSERT_EQ(batches.size(), 7u);
  EXPECT_EQ(batches[2].ids, (std::vector<std::int64_t>{8, 9, 0, 1}));
  EXPECT_EQ(batches[2].header.epoch, 0u);  // that of its first sample
  EXPECT_EQ(batches[3].header.epoch, 1u);
  EXPECT_EQ(batches[6].ids, (std::vector<std::int64_t>{4, -1, -1, -1}));
}

// --- augmentation ---

TEST(LoaderAugmentation, EveryRowHasTheDrawOfItsRecordAndEpoch) {
  const std::shared_ptr<const Dataset> data = shuffled(std::make_shared<Records>(), 3);
  for (const LastBatch last : {LastBatch::partial, LastBatch::pad}) {
    LoaderOptions o = options_for(3, 4, 25, last);
    o.augment = some_augmentation(false);
    std::int64_t index = 0;
    for (const Batch& b : load(data, o)) {
      for (std::int64_t row = 0; row < 4; ++row) {
        if (b.ids[row] < 0) {
          EXPECT_EQ(b.draws[row], bytes_of(identity_augment(some_spec())));
          continue;
        }
        const std::int64_t of =
            row < b.header.samples ? index++ : index - b.header.samples + row % b.header.samples;
        const AugmentDraw expected =
            draw_augment(some_spec(), o.augment->ranges, 17, static_cast<std::uint64_t>(of / 10),
                         data->record(of));
        EXPECT_EQ(b.draws[row], bytes_of(expected)) << "row " << row;
        EXPECT_EQ(b.pictures[row], picture_of(b.ids[row]));  // untouched
      }
    }
    EXPECT_EQ(index, 25);
  }
}

TEST(LoaderAugmentation, IdentityForEvaluation) {
  LoaderOptions o = options_for(2, 4, 10, LastBatch::pad);
  o.augment = some_augmentation(false);
  o.augment->identity = true;
  for (const Batch& b : load(std::make_shared<Records>(), o)) {
    for (const std::string& draw : b.draws)
      EXPECT_EQ(draw, bytes_of(identity_augment(some_spec())));
  }
}

/// What the CPU makes of one picture.
std::vector<float> augmented(const AugmentSpec& spec, const Bytes& picture,
                             const std::string& draw) {
  std::vector<std::byte> tables(augment_table_bytes(spec));
  fill_augment_tables(spec, tables.data());
  AugmentDraw values;
  std::memcpy(&values, draw.data(), sizeof values);
  std::vector<float> result(static_cast<std::size_t>(3 * spec.out_h * spec.out_w));
  host::augment(spec, tables.data(), 1, picture.data(), &values, ImageOrder::nhwc, result.data());
  return result;
}

TEST(LoaderAugmentation, OnTheCpuIsTheTwinOnEachPictureWithItsDraw) {
  const auto data = std::make_shared<Records>();
  for (const LastBatch last : {LastBatch::partial, LastBatch::pad, LastBatch::drop}) {
    LoaderOptions o = options_for(4, 4, 30, last);
    o.augment = some_augmentation(false);
    const std::vector<Batch> drawn = load(data, o);
    o.augment->on_cpu = true;
    const std::vector<Batch> done = load(data, o);
    ASSERT_EQ(drawn.size(), done.size());
    for (std::size_t b = 0; b < done.size(); ++b) {
      EXPECT_EQ(done[b].draws, drawn[b].draws);
      EXPECT_EQ(done[b].ids, drawn[b].ids);
      EXPECT_EQ(done[b].labels, drawn[b].labels);
      for (std::size_t row = 0; row < 4; ++row) {
        const auto expected = augmented(some_spec(), drawn[b].pictures[row], drawn[b].draws[row]);
        EXPECT_TRUE(same_bits(done[b].floats[row], expected)) << "batch " << b << " row " << row;
      }
    }
  }
}

TEST(LoaderAugmentation, ContentDoesNotDependOnWorkersOrSlots) {
  const std::shared_ptr<const Dataset> data = shuffled(std::make_shared<Records>(), 3);
  for (const LastBatch last : {LastBatch::partial, LastBatch::pad, LastBatch::drop}) {
    for (const bool on_cpu : {false, true}) {
      LoaderOptions o = options_for(1, 4, 37, last);
      o.augment = some_augmentation(on_cpu);
      const std::vector<Batch> alone = load(data, o, 1);
      for (const int workers : {2, 8}) {
        o.workers = workers;
        const std::vector<Batch> many = load(data, o, 3);
        ASSERT_EQ(many.size(), alone.size());
        for (std::size_t b = 0; b < many.size(); ++b) EXPECT_TRUE(many[b] == alone[b]);
      }
    }
  }
}

/// Draws of each record, by epoch, as they lie in the header.
std::map<std::pair<std::int64_t, std::int64_t>, std::string> draws_by_record(
    const std::shared_ptr<const Dataset>& data, LoaderOptions o) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> result;
  std::int64_t index = 0;
  for (const Batch& b : load(data, o)) {
    for (std::int64_t row = 0; row < b.header.samples; ++row, ++index) {
      result[{index / data->epoch_size(), b.ids[row]}] = b.draws[row];
    }
  }
  return result;
}

// Workers that all draw the same, or the same every epoch, are a known fault of loaders.
TEST(LoaderAugmentation, WorkersAndEpochsDrawDifferently) {
  const auto data = std::make_shared<Records>(-1, 16);
  LoaderOptions o = options_for(8, 16, 32, LastBatch::partial);
  o.augment = some_augmentation(false);
  const auto draws = draws_by_record(data, o);
  std::set<std::string> different;
  for (const auto& [key, draw] : draws) different.insert(draw);
  EXPECT_EQ(draws.size(), 32u);
  EXPECT_EQ(different.size(), 32u);  // 16 samples, in two epochs
  EXPECT_EQ(draws_by_record(data, o), draws);

  // The same record at another place, in another batch size, by other workers: the same draw.
  o = options_for(3, 5, 32, LastBatch::pad);
  o.augment = some_augmentation(false);
  EXPECT_EQ(draws_by_record(shuffled(data, 9), o), draws);
  o.augment->seed = 18;
  EXPECT_NE(draws_by_record(data, o), draws);
}

TEST(LoaderAugmentation, AConsumerMayStopAnywhere) {
  for (const LastBatch last : {LastBatch::partial, LastBatch::pad, LastBatch::drop}) {
    for (int taken = 0; taken < 6; ++taken) {
      for (const bool submits : {false, true}) {
        LoaderOptions o = options_for(4, 4, 30, last);
        o.augment = some_augmentation(true);
        Slots memory(2, 4, floats_a_picture(o));
        Loader loader(std::make_shared<Records>(), o, memory.slots(), [](int) {});
        for (int b = 0; b < taken; ++b) {
          const int slot = loader.next();
          ASSERT_EQ(slot, b % 2);
          if (submits || b + 1 < taken) loader.submitted(slot);
        }
      }
    }
  }
}

// --- what is refused ---

TEST(LoaderLabels, APictureWithABadLabelIsNamed) {
  for (const int workers : {1, 4}) {
    const LoaderOptions o = options_for(workers, 4, 10, LastBatch::pad);
    Slots memory(2, 4);
    Loader loader(std::make_shared<Records>(6), o, memory.slots(), [](int) {});
    loader.submitted(loader.next());
    expect_error(ErrorCode::data, {"sample 6: label 9; allowed are 0 to 3, and 255 for ignore"},
                 [&] { loader.next(); });
    EXPECT_EQ(loader.next(), -1);
  }
}

TEST(LoaderAugmentation, RefusesOptionsThatDoNotFit) {
  const auto refused = [](const std::function<void(LoaderOptions&, InputSlot&)>& change,
                          std::initializer_list<std::string> parts) {
    LoaderOptions o = options_for(1, 4, 10, LastBatch::drop);
    o.augment = some_augmentation(true);
    Slots memory(1, 4, floats_a_picture(o));
    InputSlot slot = memory[0];
    change(o, slot);
    expect_error(ErrorCode::usage, parts,
                 [&] { Loader(std::make_shared<Records>(), o, {slot}, [](int) {}); });
  };
  refused([](auto& o, auto&) { o.steps = 3; }, {"10 samples", "3 batches of 4"});
  refused([](auto& o, auto&) { o.last_batch = LastBatch::pad; }, {"10 samples", "2 batches of 4"});
  refused([](auto& o, auto&) { o.samples = 12; }, {"12 samples", "2 batches of 4"});
  refused([](auto&, auto& s) { s.floats = nullptr; }, {"no memory"});
  refused([](auto& o, auto&) { o.augment->on_cpu = false; }, {"no memory"});
  refused([](auto&, auto& s) { s.label_count = 144; }, {"1 labels a sample", "hold 144"});
  refused([](auto& o, auto&) { o.augment->spec.in_w = 13; }, {"12 pixels a side", "12 x 13"});
  refused([](auto& o, auto&) { o.augment->spec.crop_h = 99; }, {"crop_h is 99"});
  refused([](auto& o, auto&) { o.augment->ranges.min_sigma = 0; }, {"sigma from 0"});
}

}  // namespace
}  // namespace tandem
