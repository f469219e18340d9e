// SPDX-License-Identifier: Apache-2.0
// Both paths of the augmentation against the host twin, bit for bit. Pictures and outputs lie
// between guards, outputs are poisoned; every case runs with y on a boundary of 16 bytes and one
// element behind it.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <tandem/engine/augment_draw.hpp>
#include <tandem/kernels/augment.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/philox.hpp>
#include <tandem/tests/support/device_memory.hpp>
#include <tandem/tests/support/gpu_guard.hpp>
#include <utility>
#include <vector>

namespace tandem::test {
namespace {

constexpr ImageOrder kOrders[] = {ImageOrder::zorder, ImageOrder::nhwc, ImageOrder::nchw};
constexpr Border kBorders[] = {Border::reflect, Border::constant, Border::symmetric,
                               Border::replicate};

using Augment = GpuTest;
/// Apart, so that a run under a sanitizer can leave them out.
using AugmentLarge = GpuTest;

/// Numbers that depend on a seed alone.
class Random {
 public:
  explicit Random(std::uint64_t seed) : key_(philox_key(seed)) {}

  std::uint32_t word() { return philox4x32_10(philox_counter(count_++, 0), key_).word[0]; }
  std::int64_t whole(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(word() % static_cast<std::uint64_t>(high - low + 1));
  }
  float number(float low, float high) { return low + (high - low) * uniform_float(word()); }
  bool one_in(int chances) { return whole(1, chances) == 1; }
  template <class T, std::size_t N>
  T any_of(const T (&values)[N]) {
    return values[whole(0, N - 1)];
  }

 private:
  PhiloxKey key_;
  std::uint64_t count_ = 0;
};

/// Noise, with black parts in which the smallest weights show.
std::vector<std::uint8_t> pictures(const AugmentSpec& spec, std::int64_t n, std::uint64_t seed) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n * spec.in_h * spec.in_w * 3));
  const PhiloxKey key = philox_key(seed);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::uint32_t word = philox4x32_10(philox_counter(i, 1), key).word[0];
    bytes[i] = word % 4 == 0 ? 0 : static_cast<std::uint8_t>(word >> 8);
  }
  return bytes;
}

AugmentSpec whole(std::int64_t in, std::int64_t crop, std::int64_t out, int taps) {
  AugmentSpec spec;
  spec.in_h = spec.in_w = in;
  spec.crop_h = spec.crop_w = crop;
  spec.out_h = spec.out_w = out;
  spec.rotate = true;
  spec.blur_taps = taps;
  const float mean[] = {0.485f, 0.456f, 0.406f}, deviation[] = {0.229f, 0.224f, 0.225f};
  std::copy_n(mean, 3, spec.mean);
  std::copy_n(deviation, 3, spec.deviation);
  return spec;
}

/// Any crop, with the given angle and sigma.
AugmentDraw draw(const AugmentSpec& spec, Random& random, float degrees, float sigma) {
  AugmentDraw values;
  values.crop_y =
      static_cast<std::int32_t>(random.whole(0, spec.in_h + 2 * spec.padding - spec.crop_h));
  values.crop_x =
      static_cast<std::int32_t>(random.whole(0, spec.in_w + 2 * spec.padding - spec.crop_w));
  values.flip = static_cast<std::int32_t>(random.whole(0, 1));
  values.degrees = degrees;
  values.sigma = sigma;
  return force_augment(spec, values);
}

AugmentDraw any_draw(const AugmentSpec& spec, Random& random) {
  const float degrees[] = {0, 90, 180, 270, 360, -90, 45, -45, 1e-3f};
  const float sigmas[] = {0.05f, 0.1f, 0.15f, 0.17f, 0.5f, 1, 2, 50};
  return draw(spec, random, random.one_in(2) ? random.any_of(degrees) : random.number(-200, 200),
              random.any_of(sigmas));
}

std::vector<AugmentDraw> any_draws(const AugmentSpec& spec, std::int64_t n, Random& random) {
  std::vector<AugmentDraw> draws;
  for (std::int64_t i = 0; i < n; ++i) draws.push_back(any_draw(spec, random));
  return draws;
}

std::string describe(const AugmentSpec& s) {
  const auto size = [](std::int64_t h, std::int64_t w) {
    return std::to_string(h) + "x" + std::to_string(w);
  };
  return size(s.in_h, s.in_w) + " padded by " + std::to_string(s.padding) + ", crop " +
         size(s.crop_h, s.crop_w) + ", out " + size(s.out_h, s.out_w) +
         (s.antialias ? ", antialias" : "") + (s.rotate ? ", rotate" : "") +
         (s.rotation == Interpolation::bilinear ? " bilinear" : "") + ", taps " +
         std::to_string(s.blur_taps) + ", border " + std::to_string(static_cast<int>(s.border));
}

bool fits(ImageOrder order, const AugmentSpec& s) {
  return order != ImageOrder::zorder || (s.out_h == s.out_w && (s.out_h & (s.out_h - 1)) == 0);
}

/// A batch on both sides.
template <class T>
class Batch {
 public:
  Batch(const AugmentSpec& spec, std::vector<AugmentDraw> draws, std::vector<std::uint8_t> x)
      : spec_(spec),
        draws_(std::move(draws)),
        x_(std::move(x)),
        tables_(augment_table_bytes(spec)),
        device_draws_(draws_),
        device_x_(x_) {
    check_augment(spec);
    fill_augment_tables(spec, tables_.data());
    device_tables_ = std::make_unique<DeviceVector<unsigned char>>(tables_);
  }

  std::int64_t n() const { return static_cast<std::int64_t>(draws_.size()); }
  std::size_t size() const {
    return static_cast<std::size_t>(n() * spec_.out_h * spec_.out_w * kAugmentChannels);
  }

  std::vector<T> on_host(ImageOrder order) const {
    std::vector<T> y(size());
    host::augment(spec_, tables_.data(), n(), x_.data(), draws_.data(), order, y.data());
    return y;
  }

  /// By one kernel, or by one a part with poisoned scratch memory.
  std::vector<T> on_device(ImageOrder order, bool fused, std::size_t offset = 0) const {
    const auto y = GuardedVector<T>::poisoned(size(), offset);
    const TestStream stream;
    if (fused) {
      cuda::augment_fused(spec_, device_tables_->data(), n(), device_x_.data(),
                          device_draws_.data(), order, y.data(), stream.get());
      stream.wait();
    } else {
      const auto scratch = GuardedVector<float>::poisoned(augment_plain_bytes(spec_, n()) / 4);
      cuda::augment_plain(spec_, device_tables_->data(), n(), device_x_.data(),
                          device_draws_.data(), order, y.data(), scratch.data(), stream.get());
      stream.wait();
      EXPECT_TRUE(scratch.intact()) << "written beside the scratch memory";
    }
    EXPECT_TRUE(y.intact()) << "written beside y";
    EXPECT_TRUE(device_x_.intact()) << "written beside x";
    return y.to_host();
  }

 private:
  AugmentSpec spec_;
  std::vector<AugmentDraw> draws_;
  std::vector<std::uint8_t> x_;
  std::vector<unsigned char> tables_;
  DeviceVector<AugmentDraw> device_draws_;
  GuardedVector<std::uint8_t> device_x_;
  std::unique_ptr<DeviceVector<unsigned char>> device_tables_;
};

/// To the bit; both sides give numbers, so an element that nobody wrote, a NaN, is seen as well.
template <class T>
::testing::AssertionResult same_bits(const std::vector<T>& expected, const std::vector<T>& actual) {
  if (expected.size() != actual.size()) return ::testing::AssertionFailure() << "sizes differ";
  std::size_t different = 0, first = 0;
  for (std::size_t i = expected.size(); i-- > 0;) {
    if (std::memcmp(&expected[i], &actual[i], sizeof(T)) == 0) continue;
    ++different;
    first = i;
  }
  if (different == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << different << " of " << expected.size() << " values, first " << first << ": expected "
         << load(expected[first]) << ", is " << load(actual[first]);
}

template <class T>
void expect_twin(const AugmentSpec& spec, const std::vector<AugmentDraw>& draws) {
  const auto n = static_cast<std::int64_t>(draws.size());
  const Batch<T> batch(spec, draws, pictures(spec, n, 5));
  for (const ImageOrder order : kOrders) {
    if (!fits(order, spec)) continue;
    const std::vector<T> expected = batch.on_host(order);
    for (const bool fused : {true, false}) {
      if (fused && !augment_is_fused(spec)) continue;
      for (const std::size_t offset : {0, 1}) {
        SCOPED_TRACE(describe(spec) + ", order " + std::to_string(static_cast<int>(order)) +
                     (fused ? ", fused" : ", plain") + ", offset " + std::to_string(offset) +
                     ", first draw: " + to_text(draws.front()));
        EXPECT_TRUE(same_bits(expected, batch.on_device(order, fused, offset)));
      }
    }
  }
}

void expect_twins(const AugmentSpec& spec, const std::vector<AugmentDraw>& draws) {
  expect_twin<float>(spec, draws);
  expect_twin<bf16>(spec, draws);
}

TEST_F(Augment, AnglesAndSigmas) {
  const AugmentSpec spec = whole(50, 40, 64, 7);
  Random random(1);
  for (const float degrees : {0.0f, 90.0f, 180.0f, 270.0f, 360.0f, 45.0f, -45.0f, 1e-3f, 123.4f}) {
    for (const float sigma : {0.05f, 0.1f, 0.15f, 0.7f, 2.0f, 50.0f}) {
      expect_twin<float>(spec, {draw(spec, random, degrees, sigma)});
    }
    expect_twin<bf16>(spec, {draw(spec, random, degrees, 1.0f)});
  }
}

TEST_F(Augment, AnglesOfPicturesThatAreNoSquares) {
  AugmentSpec spec = whole(50, 40, 64, 5);
  spec.out_w = 91;
  spec.fill = 114;
  Random random(2);
  for (const float degrees : {0.0f, 90.0f, 180.0f, 270.0f, 45.0f, 30.0f}) {
    expect_twins(spec, {draw(spec, random, degrees, 1.0f)});
  }
}

TEST_F(Augment, TapsAndBorders) {
  Random random(3);
  for (int taps = 0; taps <= kMaxBlurTaps; taps += taps == 0 ? 3 : 2) {
    for (const Border border : kBorders) {
      AugmentSpec spec = whole(30, 20, 40, taps);
      spec.out_w = 67;
      spec.border = border;
      spec.fill = 200;
      expect_twins(spec, any_draws(spec, 2, random));
    }
  }
}

TEST_F(Augment, SmallestPictures) {
  Random random(4);
  for (const std::int64_t in : {1, 2}) {
    for (const std::int64_t out : {1, 2}) {
      for (const Border border : kBorders) {
        for (const int taps : {0, 3, 15}) {
          AugmentSpec spec = whole(in, in, out, taps);
          spec.border = border;
          if (border == Border::reflect && taps / 2 >= out) continue;
          expect_twins(spec, any_draws(spec, 3, random));
        }
      }
    }
  }
}

TEST_F(Augment, ResizesOfEveryKind) {
  const std::int64_t sizes[][3] = {
      // picture, crop, result: the whole picture, none, twice, a bit more and less, much more and
      // less (which the kernel reads from global memory)
      {64, 64, 64}, {64, 32, 32}, {64, 32, 64},   {64, 60, 64},
      {70, 70, 64}, {64, 3, 64},  {150, 150, 16}, {150, 149, 33}};
  Random random(6);
  for (const auto& [in, crop, out] : sizes) {
    for (const bool antialias : {true, false}) {
      for (const bool rotate : {true, false}) {
        AugmentSpec spec = whole(in, crop, out, 3);
        spec.antialias = antialias;
        spec.rotate = rotate;
        expect_twin<float>(spec, any_draws(spec, 2, random));
      }
    }
  }
}

TEST_F(Augment, PartsSwitchedOff) {
  Random random(7);
  for (const bool resize : {true, false}) {
    for (const bool rotate : {true, false}) {
      for (const int taps : {0, 7}) {
        AugmentSpec spec = whole(40, resize ? 24 : 32, 32, taps);
        spec.rotate = rotate;
        expect_twins(spec, any_draws(spec, 2, random));
        spec.scale = 1;
        std::fill_n(spec.mean, 3, 0.0f);
        std::fill_n(spec.deviation, 3, 1.0f);
        expect_twin<float>(spec, any_draws(spec, 2, random));
      }
    }
  }
}

TEST_F(Augment, PaddedCropAndBilinearRotation) {
  Random random(8);
  for (const Interpolation rotation : {Interpolation::nearest, Interpolation::bilinear}) {
    for (const std::int64_t padding : {0, 4}) {
      AugmentSpec spec = whole(32, 32, 32, 3);
      spec.padding = padding;
      spec.rotation = rotation;
      spec.fill = 99.5f;
      expect_twins(spec, any_draws(spec, 4, random));
    }
  }
}

TEST_F(Augment, AnySpec) {
  Random random(9);
  for (int repeat = 0; repeat < 60; ++repeat) {
    AugmentSpec spec;
    spec.in_h = random.whole(1, 90);
    spec.in_w = random.whole(1, 90);
    spec.padding = random.one_in(5) ? random.whole(1, 5) : 0;
    spec.crop_h = random.whole(1, spec.in_h + 2 * spec.padding);
    spec.crop_w = random.whole(1, spec.in_w + 2 * spec.padding);
    spec.out_h = random.one_in(3) ? spec.crop_h : random.whole(1, 150);
    spec.out_w = random.one_in(3) ? spec.crop_w : random.whole(1, 150);
    spec.antialias = random.one_in(2);
    spec.rotate = !random.one_in(4);
    spec.rotation = random.one_in(4) ? Interpolation::bilinear : Interpolation::nearest;
    spec.border = random.any_of(kBorders);
    spec.blur_taps = static_cast<int>(2 * random.whole(1, 7) + 1);
    if (spec.border == Border::reflect && spec.blur_taps / 2 >= std::min(spec.out_h, spec.out_w))
      spec.blur_taps = 0;
    spec.fill = random.one_in(2) ? 0 : random.number(0, 255);
    for (float& mean : spec.mean) mean = random.one_in(2) ? 0 : random.number(0, 1);
    for (float& deviation : spec.deviation) deviation = random.number(0.05f, 2);
    expect_twin<float>(spec, any_draws(spec, 2, random));
  }
}

/// The same sample at every place of batches of several sizes.
TEST_F(Augment, ASampleIsTheSameAnywhere) {
  const AugmentSpec spec = whole(40, 20, 64, 7);
  Random random(10);
  const AugmentDraw one = draw(spec, random, 17, 0.8f);
  const std::vector<std::uint8_t> x = pictures(spec, 1, 11);
  for (const bool fused : {true, false}) {
    const std::vector<float> alone =
        Batch<float>(spec, {one}, x).on_device(ImageOrder::zorder, fused);
    constexpr std::int64_t kBatch = 5;
    for (std::int64_t place = 0; place < kBatch; ++place) {
      std::vector<AugmentDraw> draws = any_draws(spec, kBatch, random);
      std::vector<std::uint8_t> all = pictures(spec, kBatch, 12);
      draws[static_cast<std::size_t>(place)] = one;
      std::copy(x.begin(), x.end(), all.begin() + place * static_cast<std::int64_t>(x.size()));
      const std::vector<float> y =
          Batch<float>(spec, draws, all).on_device(ImageOrder::zorder, fused);
      const auto first = y.begin() + place * static_cast<std::int64_t>(alone.size());
      EXPECT_TRUE(same_bits(
          alone, std::vector<float>(first, first + static_cast<std::int64_t>(alone.size()))))
          << "place " << place;
    }
  }
}

TEST_F(Augment, ABatchOfNothing) {
  const AugmentSpec spec = whole(40, 20, 64, 7);
  const TestStream stream;
  float* nothing = nullptr;
  EXPECT_NO_THROW(cuda::augment_fused(spec, nullptr, 0, nullptr, nullptr, ImageOrder::zorder,
                                      nothing, stream.get()));
  EXPECT_NO_THROW(cuda::augment_plain(spec, nullptr, 0, nullptr, nullptr, ImageOrder::zorder,
                                      nothing, nullptr, stream.get()));
}

// The short forms of AugmentLarge, for the sanitizers.
TEST_F(Augment, BatchOf300SmallPictures) {
  const AugmentSpec spec = whole(10, 6, 8, 3);
  Random random(13);
  expect_twin<float>(spec, any_draws(spec, 300, random));
}

TEST_F(Augment, PublishedShapeOfOnePicture) {
  const AugmentSpec spec = whole(256, 128, 256, 7);
  Random random(14);
  expect_twin<float>(spec, any_draws(spec, 1, random));
  expect_twin<bf16>(spec, any_draws(spec, 1, random));
}

TEST_F(Augment, SeveralTilesASide) {
  AugmentSpec spec = whole(200, 140, 1, 15);
  spec.out_h = 131;
  spec.out_w = 257;
  spec.border = Border::constant;
  Random random(15);
  expect_twin<float>(spec, any_draws(spec, 1, random));
}

TEST_F(AugmentLarge, BatchOf300) {
  const AugmentSpec spec = whole(48, 30, 64, 7);
  Random random(13);
  expect_twins(spec, any_draws(spec, 300, random));
}

TEST_F(AugmentLarge, PublishedShape) {
  const AugmentSpec spec = whole(256, 128, 256, 7);
  Random random(14);
  expect_twins(spec, any_draws(spec, 32, random));
}

TEST_F(AugmentLarge, PictureOfManyTiles) {
  AugmentSpec spec = whole(1000, 700, 1, 15);
  spec.out_h = 1201;
  spec.out_w = 1537;
  spec.border = Border::constant;
  Random random(15);
  expect_twin<float>(spec, any_draws(spec, 2, random));
}

}  // namespace
}  // namespace tandem::test
