// SPDX-License-Identifier: Apache-2.0
// Flatten and linear layers, the classifier, and what an engine without a frozen part or with an
// augmentation asks of its configuration and of its input slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tandem/engine/backend_host.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/tests/support/small_classifier.hpp>
#include <tandem/tests/support/small_segmenter.hpp>
#include <vector>

namespace tandem::test {
namespace {

template <class Call>
void expect_refused(Call call, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << error.what() << " does not say " << part;
  }
}

// --- the model ---

TEST(Classifier, IsTheEncoderWithALinearLayer) {
  const std::vector<ParameterSpec> encoder = segmenter_encoder(64).parameters();
  const std::vector<ParameterSpec> specs = classifier(64, 10).parameters();
  ASSERT_EQ(specs.size(), encoder.size() + 2);
  for (std::size_t i = 0; i < encoder.size(); ++i) {
    EXPECT_EQ(specs[i].name, encoder[i].name);
    EXPECT_EQ(specs[i].shape, encoder[i].shape);
  }
  const ParameterSpec& weight = specs[encoder.size()];
  EXPECT_EQ(weight.name, "14.weight");  // 13 layers of the encoder, then flatten
  EXPECT_EQ(weight.shape, (std::vector<std::int64_t>{10, 1024}));
  EXPECT_EQ(weight.fan_in, 1024);
  EXPECT_EQ(weight.elements, 10240);
  EXPECT_EQ(specs.back().name, "14.bias");
  EXPECT_EQ(specs.back().shape, std::vector<std::int64_t>{10});
  EXPECT_EQ(classifier(64, 10).out_channels(), 10);
  expect_refused([] { classifier(48, 10); }, {"image size is 48"});
  expect_refused([] { classifier(64, 1); }, {"classes is 1"});
}

TEST(Classifier, ALinearWeightHasOneOrder) {
  const Sequential model = Sequential(6).linear(6, 4);
  const ParameterSpec spec = model.parameters().front();
  std::vector<float> values(24);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  EXPECT_EQ(to_channels_last(spec, values), values);
  EXPECT_EQ(from_channels_last(spec, values), values);
  // PyTorch's default: uniform in +-1 / sqrt(features), weights and biases.
  const Sequential large = Sequential(400).linear(400, 50);
  for (const NamedTensor& tensor : initialise(large, InitScheme::torch, 3, 0)) {
    const auto [low, high] = std::minmax_element(tensor.data.begin(), tensor.data.end());
    EXPECT_GE(*low, -0.05f) << tensor.name;
    EXPECT_LE(*high, 0.05f) << tensor.name;
    EXPECT_GT(*high - *low, 0.08f) << tensor.name;
  }
}

TEST(Classifier, SizesFollowThePicture) {
  const Sequential model = Sequential(3).conv(8, 2, 2).transposed_conv(4, 2, 2).relu().flatten();
  const std::vector<PictureSize> sizes = picture_sizes(model, 8, 8);
  const PictureSize expected[] = {{3, 8, 8}, {8, 4, 4}, {4, 8, 8}, {4, 8, 8}, {256, 1, 1}};
  ASSERT_EQ(sizes.size(), std::size(expected));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(sizes[i].channels, expected[i].channels) << i;
    EXPECT_EQ(sizes[i].height, expected[i].height) << i;
    EXPECT_EQ(sizes[i].width, expected[i].width) << i;
  }
}

TEST(Classifier, LayersThatDoNotFitAreRefusedByName) {
  expect_refused([] { Sequential(3).flatten().conv(4, 1); }, {"layer 1", "features"});
  expect_refused([] { Sequential(3).flatten().relu().transposed_conv(4, 2, 2); }, {"layer 2"});
  expect_refused([] { Sequential(3).linear(0, 4); }, {"layer 0", "0 features"});
  expect_refused([] { Sequential(3).l2(0.1); }, {"layer 0", "without weights"});
  expect_refused([] { Sequential(3).conv(4, 1).relu().l2(0.1); }, {"layer 1", "without weights"});
  expect_refused([] { Sequential(3).conv(4, 1).l2(-0.1); }, {"layer 0", "l2 is -0.1", "0 .. 1000"});
  expect_refused([] { Sequential(3).conv(4, 1).l2(NAN); }, {"layer 0", "l2 is nan"});
  expect_refused([] { Sequential(3).linear(3, 0); }, {"layer 0", "output channels is 0"});
  expect_refused([] { picture_sizes(Sequential(3).conv(4, 2, 2), 6, 6); },
                 {"layer 0", "6 x 6", "power of two"});
  expect_refused([] { picture_sizes(Sequential(3).conv(4, 2, 2).conv(4, 2, 2), 2, 2); },
                 {"layer 1", "1 x 1", "at least 2"});
  expect_refused([] { picture_sizes(Sequential(3).conv(4, 2, 2), 4, 8); }, {"4 x 8", "squares"});
  Sequential doubling(3);
  for (int i = 0; i < 70; ++i) doubling.transposed_conv(3, 2, 2);
  expect_refused([&] { picture_sizes(doubling, 1, 1); }, {"layer 16", "at most 65536"});
}

// --- flatten and linear in an engine ---

EngineConfig config_of(const Sequential& trained, std::int64_t image, std::int64_t batch) {
  EngineConfig config;
  config.trained = trained;
  config.image = image;
  config.batch = batch;
  config.input_scale = 1;
  return config;
}

/// Feature (c * H + y) * W + x, as PyTorch's nn.Flatten numbers them, whatever the order of pixels
/// inside: a picture with one bright byte is of class 1 if and only if the weight of that feature
/// is positive.
TEST(Classifier, FlattenHasPyTorchsOrder) {
  for (const std::int64_t image : {1, 2, 3, 4}) {  // 3 has no Z-order
    const std::int64_t features = 3 * image * image;
    const EngineConfig config =
        config_of(Sequential(3).flatten().linear(features, 2), image, features);
    const auto backend = make_host_backend();
    std::vector<std::uint8_t> predicted;
    Predictor predictor(*backend, config, [&](std::uint64_t, const std::uint8_t* classes) {
      predicted.assign(classes, classes + features);
    });
    const InputSlot slot = predictor.inputs().front();
    std::fill_n(slot.images, features * features, std::uint8_t{0});
    for (std::int64_t f = 0; f < features; ++f) {
      const std::int64_t c = f / (image * image), pixel = f % (image * image);
      slot.images[f * features + pixel * 3 + c] = 255;
    }
    for (std::int64_t f = 0; f < features; ++f) {
      Parameters weights = initialise(config.trained, InitScheme::he, 0, 0);
      for (NamedTensor& tensor : weights) std::fill(tensor.data.begin(), tensor.data.end(), 0.0f);
      weights[0].data[static_cast<std::size_t>(features + f)] = 1;  // of class 1
      predictor.set_trained(weights);
      predictor.predict(0);
      predictor.finish();
      std::vector<std::uint8_t> expected(static_cast<std::size_t>(features), 0);
      expected[static_cast<std::size_t>(f)] = 1;
      EXPECT_EQ(predicted, expected) << "feature " << f << " of pictures of " << image;
    }
  }
}

struct Outcome {
  double loss = 0;
  Parameters gradients;
};

/// One step on a picture of small whole numbers.
Outcome first_step(const EngineConfig& config, const Parameters& weights) {
  const auto backend = make_host_backend();
  Outcome outcome;
  Trainer trainer(*backend, config, [&](const StepResult& r) { outcome.loss = r.loss; });
  trainer.set_trained(weights);
  const InputSlot slot = trainer.inputs().front();
  EXPECT_EQ(slot.label_count, 1);
  for (std::int64_t i = 0; i < slot.batch * config.image * config.image * 3; ++i)
    slot.images[i] = static_cast<std::uint8_t>(splitmix64(static_cast<std::uint64_t>(i)) % 8);
  *slot.header = {};
  slot.header->samples = slot.header->capacity = static_cast<std::int32_t>(slot.batch);
  slot.header->valid_count = slot.batch;
  std::fill_n(slot.labels, slot.batch, std::uint8_t{1});
  finish_header(*slot.header);
  trainer.step(0);
  trainer.finish();
  outcome.gradients = trainer.gradients();
  return outcome;
}

/// On 2 x 2 pixels a flatten with a linear layer is a convolution with one window: the weights are
/// the same memory in PyTorch, and so must the gradients be, of every layer. Weights are eighths,
/// and a bias makes both logits equal, so that p - y is a half: then every number is exact, and
/// whatever order a sum has gives the same bits.
TEST(Classifier, ALinearLayerOfFourPixelsIsAConvolution) {
  Sequential linear(3), convolution(3);
  linear.conv(4, 2, 2).relu().conv(5, 1).relu().flatten().linear(20, 2);
  convolution.conv(4, 2, 2).relu().conv(5, 1).relu().conv(2, 2, 2);
  Parameters weights = initialise(linear, InitScheme::he, 1, 0);
  for (NamedTensor& tensor : weights)
    for (float& value : tensor.data) value = std::round(4 * value) / 8;
  // The gradient of the first bias is p, of which the difference of the logits follows: a multiple
  // of 1 / 512.
  const double p = first_step(config_of(linear, 4, 1), weights).gradients[5].data[0];
  const double difference = std::round(std::log(p / (1 - p)) * 512) / 512;
  weights[5].data[1] += static_cast<float>(difference);

  Parameters others = weights;
  others[4].name = "4.weight";
  others[4].shape = {2, 5, 2, 2};
  others[5].name = "4.bias";
  const Outcome got = first_step(config_of(linear, 4, 1), weights);
  const Outcome expected = first_step(config_of(convolution, 4, 1), others);
  EXPECT_EQ(got.gradients[5].data, (std::vector<float>{0.5f, -0.5f})) << "p = " << p;
  EXPECT_EQ(got.loss, expected.loss);
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (std::size_t t = 0; t < got.gradients.size(); ++t) {
    const std::vector<float>& data = got.gradients[t].data;
    EXPECT_EQ(data, expected.gradients[t].data) << got.gradients[t].name;
    EXPECT_NE(data, std::vector<float>(data.size())) << got.gradients[t].name << " is 0";
  }
}

/// Whatever order the pixels have in front of a flatten: the same bits. An identity in raster order
/// multiplies by 1 and adds zeros.
TEST(Classifier, TheOrderInsideDoesNotMatterToAFlatten) {
  constexpr std::int64_t kChannels = 3;
  Sequential plain(3), raster(3);
  plain.conv(kChannels, 2, 2).flatten().linear(48, 2);
  raster.conv(kChannels, 2, 2).conv(kChannels, 3, 1, 1).flatten().linear(48, 2);
  const Parameters weights = initialise(plain, InitScheme::he, 4, 0);
  Parameters more = initialise(raster, InitScheme::he, 4, 0);
  for (std::size_t t = 0; t < 2; ++t) {
    more[t].data = weights[t].data;
    more[t + 4].data = weights[t + 2].data;
    std::fill(more[t + 2].data.begin(), more[t + 2].data.end(), 0.0f);
  }
  for (std::size_t k = 0; k < kChannels; ++k) more[2].data[(k * kChannels + k) * 9 + 4] = 1;
  const Outcome got = first_step(config_of(plain, 8, 2), weights);
  const Outcome expected = first_step(config_of(raster, 8, 2), more);
  EXPECT_EQ(got.loss, expected.loss);
  for (std::size_t t = 0; t < 2; ++t) {
    EXPECT_EQ(got.gradients[t].data, expected.gradients[t].data);
    EXPECT_EQ(got.gradients[t + 2].data, expected.gradients[t + 4].data);
  }
}

TEST(Classifier, AReluMayComeFirst) {
  // In place it would write over what the stage before has handed on.
  EngineConfig config = config_of(Sequential(4).relu().flatten().linear(16, 3), 4, 2);
  config.frozen = Sequential(3).conv(4, 2, 2);
  EXPECT_NO_THROW(plan_training(config));
  EXPECT_NO_THROW(plan_prediction(config));
  config.precision = Precision::bf16;
  EXPECT_NO_THROW(plan_training(config));
}

TEST(Classifier, EndsInWhateverLayerInEveryPrecision) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const Sequential& trained :
         {Sequential(3).conv(3, 2, 2).flatten(), Sequential(3).conv(12, 2, 2).relu().flatten(),
          Sequential(3).flatten().linear(48, 4).relu(), Sequential(3).conv(4, 1).relu(),
          Sequential(3).conv(4, 3, 1, 1)}) {
      EngineConfig config = config_of(trained, 4, 2);
      config.precision = precision;
      EXPECT_NO_THROW(plan_training(config)) << name_of(precision);
    }
  }
}

TEST(Classifier, ALinearLayerThatDoesNotFitIsRefusedByNameWithBothNumbers) {
  const auto plan = [](const Sequential& trained, std::int64_t image) {
    plan_training(config_of(trained, image, 2));
  };
  expect_refused([&] { plan(Sequential(3).flatten().linear(48, 2), 8); },
                 {"model", "layer 1", "takes 48 features", "192 arrive"});
  expect_refused([&] { plan(Sequential(3).conv(4, 2, 2).linear(4, 2), 8); },
                 {"layer 1", "takes 4 features", "4 channels of 4 x 4 pixels", "flatten"});
  expect_refused([&] { plan(Sequential(3).conv(4, 2, 2).linear(5, 2), 2); },
                 {"layer 1", "takes 5 features", "4 arrive"});
  EXPECT_NO_THROW(plan(Sequential(3).conv(4, 2, 2).linear(4, 2), 2));
}

// --- configurations ---

TEST(Classifier, ConfigurationsThatDoNotFitAreRefused) {
  const auto refused = [](auto change, const std::vector<std::string>& parts) {
    EngineConfig config = small_classifier_config();
    change(config);
    expect_refused([&] { plan_training(config); }, parts);
    expect_refused([&] { plan_prediction(config); }, parts);
  };
  refused([](EngineConfig& c) { c.trained = Sequential(3); }, {"trained part", "0 layers"});
  refused([](EngineConfig& c) { c.trained = Sequential(4).conv(2, 1); },
          {"trained part", "4 channels", "3"});
  refused([](EngineConfig& c) { c.frozen = Sequential(4).conv(3, 1); },
          {"frozen part", "4 channels", "3"});
  refused([](EngineConfig& c) { c.frozen = Sequential(3).conv(5, 1); }, {"5 channels", "with 3"});
  refused([](EngineConfig& c) { c.image = 0; }, {"image is 0", "1 .. 8192"});
  refused([](EngineConfig& c) { c.image = 64; }, {"layer 12", "takes 512 features", "2048 arrive"});
  refused([](EngineConfig& c) { c.trained = classifier(32, 254).relu().linear(254, 257); },
          {"257 channels", "1 .. 256"});
  refused([](EngineConfig& c) { c.features = -1; }, {"features is -1", "0 .. 65536"});
  refused([](EngineConfig& c) { c.features = 3; }, {"augment is set", "3 features"});
  refused([](EngineConfig& c) { c.frozen = Sequential(3).conv(3, 1).l2(0.5); },
          {"layer 0", "l2 is 0.5", "not trained"});
  refused([](EngineConfig& c) { c.trained = Sequential(3).sigmoid(); }, {"a sigmoid alone"});
  refused([](EngineConfig& c) { c.augment->out_h = 31; }, {"out_h is 31", "32"});
  refused([](EngineConfig& c) { c.augment->out_w = 16; }, {"out_w is 16", "32"});
  refused([](EngineConfig& c) { c.augment->in_w = 40; }, {"in_h is 32", "in_w is 40", "squares"});
  refused([](EngineConfig& c) { c.augment->crop_h = 33; }, {"crop_h is 33"});
  refused([](EngineConfig& c) { c.augment->blur_taps = 6; }, {"blur_taps is 6"});
  refused(
      [](EngineConfig& c) {
        c.augment.reset();
        c.augment_on_cpu = true;
      },
      {"augment_on_cpu", "augment is not set"});
}

TEST(Classifier, InputSlotsSayWhatBelongsIntoThem) {
  const auto backend = make_host_backend();
  const auto slot_of = [&](const EngineConfig& config) {
    return Trainer(*backend, config).inputs().front();
  };
  EngineConfig config = small_classifier_config();
  config.augment->in_h = config.augment->in_w = 48;
  InputSlot slot = slot_of(config);
  EXPECT_NE(slot.images, nullptr);
  EXPECT_EQ(slot.floats, nullptr);
  EXPECT_EQ(slot.batch, 4);
  EXPECT_EQ(slot.image, 48);
  EXPECT_EQ(slot.label_count, 1);
  config.augment_on_cpu = true;
  slot = slot_of(config);
  EXPECT_EQ(slot.images, nullptr);
  EXPECT_NE(slot.floats, nullptr);
  EXPECT_EQ(slot.image, 48);
  slot = slot_of(small_config());
  EXPECT_NE(slot.images, nullptr);
  EXPECT_EQ(slot.image, 32);
  EXPECT_EQ(slot.label_count, 32 * 32);
}

// --- plans ---

TEST(Classifier, ThePlansHashKnowsTheAugmentation) {
  const EngineConfig config = small_classifier_config();
  std::vector<std::string> hashes{plan_hash(plan_training(config))};
  EXPECT_EQ(plan_hash(plan_training(config)), hashes[0]);
  const auto with = [&](auto change) {
    EngineConfig changed = config;
    change(*changed.augment);
    hashes.push_back(plan_hash(plan_training(changed)));
  };
  with([](AugmentSpec& a) { a.crop_h = 15; });
  with([](AugmentSpec& a) { a.crop_w = 15; });
  with([](AugmentSpec& a) { a.padding = 2; });
  with([](AugmentSpec& a) { a.antialias = false; });
  with([](AugmentSpec& a) { a.rotate = false; });
  with([](AugmentSpec& a) { a.rotation = Interpolation::bilinear; });
  with([](AugmentSpec& a) { a.blur_taps = 5; });
  with([](AugmentSpec& a) { a.border = Border::constant; });
  with([](AugmentSpec& a) { a.fill = 1; });
  with([](AugmentSpec& a) { a.scale = 1; });
  for (int c = 0; c < kAugmentChannels; ++c) {
    with([&](AugmentSpec& a) { a.mean[c] = 0.5f; });
    with([&](AugmentSpec& a) { a.deviation[c] = 0.5f; });
  }
  EngineConfig plain = config;
  plain.plain_augment = true;
  hashes.push_back(plan_hash(plan_training(plain)));
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::unique(hashes.begin(), hashes.end()), hashes.end()) << "two hashes are the same";
}

TEST(Classifier, PredictsAClassAPicture) {
  EngineConfig config = small_classifier_config();
  config.augment.reset();
  const auto backend = make_host_backend();
  std::vector<std::vector<std::uint8_t>> predicted;
  Predictor predictor(*backend, config, [&](std::uint64_t, const std::uint8_t* classes) {
    predicted.emplace_back(classes, classes + config.batch);
  });
  Parameters weights = make_parameters(config.trained, 0, 0);
  for (float& value : weights[weights.size() - 2].data) value = 0;  // the bias alone decides
  std::vector<float>& bias = weights.back().data;
  const InputSlot slot = predictor.inputs().front();
  std::fill_n(slot.images, config.batch * 32 * 32 * 3, std::uint8_t{9});
  for (const std::size_t winner : {0, 7}) {
    std::fill(bias.begin(), bias.end(), 0.0f);
    bias[winner] = 1;
    predictor.set_trained(weights);
    predictor.predict(0);
    predictor.finish();
    EXPECT_EQ(predicted.back(), std::vector<std::uint8_t>(4, static_cast<std::uint8_t>(winner)));
  }
  EXPECT_EQ(predicted.size(), 2u);
}

}  // namespace
}  // namespace tandem::test
