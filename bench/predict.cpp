// SPDX-License-Identifier: Apache-2.0
// `tandem predict segment`: scores, and a sheet of pictures with truth and prediction.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <tandem/engine/error.hpp>
#include <tandem/engine/metrics.hpp>
#include <vector>

#include "common.hpp"
#include "png.hpp"

namespace tandem::program {
namespace {

/// A prediction hides what a loss would show: some class is always the largest, also among NaNs.
void require_finite(const Parameters& values, const std::string& path) {
  for (const NamedTensor& tensor : values) {
    for (const float value : tensor.data)
      if (!std::isfinite(value))
        throw Error(ErrorCode::non_finite,
                    fmt::format("{}: tensor {} holds {}", path, tensor.name, value));
  }
}

namespace fs = std::filesystem;

struct PredictOptions {
  DataChoice data;
  std::int64_t image = 0, classes = 0, count = 12, seed = 0, batch = 8, workers = 1;
  std::string weights, out, device = "auto", precision = "fp32", json;
};

using Colour = std::array<std::uint8_t, 3>;
struct NamedColour {
  const char* name;
  Colour colour;
};

/// Black for the background, then colours that are easy to tell apart (after Sasha Trubetskoy's
/// "20 simple, distinct colors"); with more classes they start again.
constexpr NamedColour kColours[] = {
    {"red", {230, 25, 75}},        {"green", {60, 180, 75}},    {"yellow", {255, 225, 25}},
    {"blue", {67, 99, 216}},       {"orange", {245, 130, 49}},  {"purple", {145, 30, 180}},
    {"cyan", {66, 212, 244}},      {"magenta", {240, 50, 230}}, {"brown", {154, 99, 36}},
    {"lavender", {220, 190, 255}}, {"teal", {70, 153, 144}},    {"olive", {128, 128, 0}},
};
NamedColour colour_of(std::int64_t c) {
  if (c == 0) return {"black", {0, 0, 0}};
  return kColours[static_cast<std::size_t>(c - 1) % std::size(kColours)];
}

/// A white sheet of tiles: three a scene (picture, truth, prediction), several scenes a row.
class Sheet {
 public:
  Sheet(std::int64_t image, std::int64_t scenes) : image_(image) {
    scale_ = std::max<std::int64_t>(1, kTile / image);
    per_row_ =
        std::clamp<std::int64_t>(kRow / (3 * image * scale_), 1, std::min<std::int64_t>(scenes, 4));
    const std::int64_t rows = (scenes + per_row_ - 1) / per_row_;
    width_ = per_row_ * scene_width() + kScenesApart;
    height_ = rows * (image_ * scale_ + kScenesApart) + kScenesApart;
    pixels_.assign(static_cast<std::size_t>(3 * width_ * height_), 255);
  }

  void add(std::int64_t scene, const std::uint8_t* picture, const std::uint8_t* truth,
           const std::uint8_t* prediction) {
    tile(scene, 0, [=](std::size_t pixel) {
      return Colour{picture[3 * pixel], picture[3 * pixel + 1], picture[3 * pixel + 2]};
    });
    tile(scene, 1, [=](std::size_t pixel) { return colour_of(truth[pixel]).colour; });
    tile(scene, 2, [=](std::size_t pixel) { return colour_of(prediction[pixel]).colour; });
  }

  void write(const std::string& path) const { write_png(path, width_, height_, 3, pixels_.data()); }

 private:
  static constexpr std::int64_t kTile = 128;  // wanted side of a tile, pixels
  static constexpr std::int64_t kRow = 1600;  // wanted width of the sheet
  static constexpr std::int64_t kTilesApart = 4, kScenesApart = 16;

  std::int64_t scene_width() const { return kScenesApart + 3 * image_ * scale_ + 2 * kTilesApart; }

  template <class ColourAt>
  void tile(std::int64_t scene, std::int64_t column, ColourAt colour_at) {
    const std::int64_t side = image_ * scale_;
    const std::int64_t left =
        scene % per_row_ * scene_width() + kScenesApart + column * (side + kTilesApart);
    const std::int64_t top = kScenesApart + scene / per_row_ * (side + kScenesApart);
    for (std::int64_t y = 0; y < side; ++y)
      for (std::int64_t x = 0; x < side; ++x) {
        const Colour colour = colour_at(static_cast<std::size_t>(y / scale_ * image_ + x / scale_));
        std::copy(colour.begin(), colour.end(),
                  pixels_.begin() + 3 * ((top + y) * width_ + left + x));
      }
  }

  std::int64_t image_, scale_ = 1, per_row_ = 1, width_ = 0, height_ = 0;
  std::vector<std::uint8_t> pixels_;
};

/// S from the encoder: log2(S) + 1 convolutions, each a weight and a bias.
std::int64_t image_of(const Parameters& encoder, const std::string& path) {
  for (std::int64_t image = 32; image <= 512; image *= 2)
    if (segmenter_config(image, 2, 1).frozen.parameters().size() == encoder.size()) return image;
  throw Error(ErrorCode::data,
              fmt::format("{}: {} tensors are no encoder for pictures of 32 to 512 pixels", path,
                          encoder.size()));
}

/// C from the decoder: its last bias.
std::int64_t classes_of(const Parameters& decoder, const std::string& path) {
  if (!decoder.empty() && decoder.back().shape.size() == 1) {
    const std::int64_t classes = decoder.back().shape[0];
    if (classes >= 2 && classes <= 254) return classes;
  }
  throw Error(ErrorCode::data,
              fmt::format("{}: the last tensor is no bias of 2 to 254 classes", path));
}

void run(const PredictOptions& options, const Options& declared) {
  const Device device = open_device(options.device);
  const Precision chosen_precision = precision(options.precision, device);
  check_writable("--out", options.out);
  if (!options.json.empty() && options.json != "-") check_writable("--json", options.json);
  const std::string encoder_path = (fs::path(options.weights) / "encoder.safetensors").string();
  const std::string decoder_path = (fs::path(options.weights) / "decoder.safetensors").string();
  const SegmenterWeights weights{read_safetensors(encoder_path), read_safetensors(decoder_path)};
  require_finite(weights.encoder, encoder_path);
  require_finite(weights.decoder, decoder_path);
  const std::int64_t image = image_of(weights.encoder, encoder_path);
  const std::int64_t classes = classes_of(weights.decoder, decoder_path);
  if (options.image != 0 && options.image != image)
    throw Error(ErrorCode::usage, fmt::format("--image is {}, but the weights in {} are for {}",
                                              options.image, options.weights, image));
  if (options.classes != 0 && options.classes != classes)
    throw Error(ErrorCode::usage, fmt::format("--classes is {}, but the weights in {} have {}",
                                              options.classes, options.weights, classes));
  EngineConfig config = segmenter_config(image, classes, std::min(options.batch, options.count));
  config.precision = chosen_precision;
  check_parameters(config.frozen, weights.encoder, encoder_path);
  check_parameters(config.trained, weights.decoder, decoder_path);
  const auto data = open_data(options.data, Split::held_out, image, classes,
                              static_cast<std::uint64_t>(options.seed));

  Sheet sheet(image, options.count);
  Confusion confusion(classes);
  watch_interrupt();
  const std::unique_ptr<Backend> backend = make_backend(device);
  predict_samples(*backend, config, weights, data, options.count, static_cast<int>(options.workers),
                  [&](std::int64_t index, const std::uint8_t* picture, const std::uint8_t* truth,
                      const std::uint8_t* prediction) {
                    confusion.add(truth, prediction, image * image);
                    sheet.add(index, picture, truth, prediction);
                  });
  sheet.write(options.out);

  Json json;
  json["schema"] = 1;
  json["environment"] = environment();
  json["workload"] = "segment";
  json["device"] = device.name;
  json["precision"] = options.precision;
  json["image"] = image;
  json["classes"] = classes;
  json["scenes"] = options.count;
  json["picture"] = options.out;
  json["pixel_accuracy"] = confusion.pixel_accuracy();
  json["miou"] = confusion.mean_iou();
  json["garment_miou"] = has_held_out(options.data) ? Json(confusion.mean_iou(1)) : Json(nullptr);
  json["config"] = declared.effective();
  write_json(options.json, json);
  if (options.json == "-") return;

  fmt::print("{} (picture | truth | prediction), {} x {} pixels, in {}\n",
             count_of(options.count, "scene"), image, image, options.out);
  fmt::print("pixel accuracy  {:.4f}\nmIoU            {:.4f}\n", confusion.pixel_accuracy(),
             confusion.mean_iou());
  if (has_held_out(options.data)) fmt::print("garment mIoU    {:.4f}\n", confusion.mean_iou(1));
  fmt::print("{:<14}{:<10}{}\n", "class", "colour", "IoU");
  for (std::int64_t c = 0; c < classes; ++c) {
    const std::optional<double> iou = confusion.iou(c);
    fmt::print("{:<14}{:<10}{}\n", data->class_names()[static_cast<std::size_t>(c)],
               colour_of(c).name, iou ? fmt::format("{:.4f}", *iou) : "none here");
  }
}

}  // namespace

void add_predict(CLI::App& root, Command& selected) {
  CLI::App* predict_app = root.add_subcommand("predict", "Applies trained weights");
  CLI::App* app = predict_app->add_subcommand("segment", "Pictures of predictions, and scores");
  for (const char* name : {"classify", "resnet18"}) add_later_command(*predict_app, name);

  auto values = std::make_shared<PredictOptions>();
  auto options = std::make_shared<Options>(*app);
  PredictOptions& o = *values;
  options->text("--weights", o.weights, "DIR", "folder that 'train --out' wrote")->required();
  options->text("--out", o.out, "FILE.png", "the sheet: picture, truth, prediction")->required();
  add_data_options(*options, o.data);
  options->image(o.image)->default_str("the weights'");
  options->number("--classes", o.classes, 2, 254, "classes")->default_str("the weights'");
  options->number("--count", o.count, 1, 400, "held-out scenes");
  options->number("--seed", o.seed, 0, INT64_MAX, "of the scenes");
  options->number("--batch", o.batch, 1, kMaxBatch, "samples at a time");
  add_device_option(*options, o.device);
  add_precision_option(*options, o.precision);
  options->number("--workers", o.workers, 1, 256, "loader threads");
  options->text("--json", o.json, "FILE|-", "scores with the environment, as JSON");
  app->callback(
      [&selected, values, options] { selected = [values, options] { run(*values, *options); }; });
}

}  // namespace tandem::program
