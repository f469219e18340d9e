// SPDX-License-Identifier: Apache-2.0
// `tandem predict segment`: scores, and a sheet of pictures with truth and prediction.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tandem/engine/metrics.hpp>
#include <vector>

#include "canvas.hpp"
#include "common.hpp"
#include "data.hpp"
#include "held_out.hpp"
#include "weights.hpp"

namespace tandem::program {
namespace {

struct PredictOptions {
  DataChoice data{"fashion-scenes"};
  std::int64_t image = 0, classes = 0, count = 12, seed = 0, batch = 8, workers = 1;
  std::string weights, out, device = "auto", precision = "fp32", json;
};

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

/// Tiles: three a scene (picture, truth, prediction), several scenes a row.
class Sheet {
 public:
  Sheet(std::int64_t image, std::int64_t scenes)
      : image_(image),
        scale_(std::max<std::int64_t>(1, kTile / image)),
        per_row_(
            std::clamp<std::int64_t>(kRow / (3 * side()), 1, std::min<std::int64_t>(scenes, 4))),
        canvas_(per_row_ * scene_width() + kScenesApart,
                (scenes + per_row_ - 1) / per_row_ * (side() + kScenesApart) + kScenesApart) {}

  void add(std::int64_t scene, const std::uint8_t* picture, const std::uint8_t* truth,
           const std::uint8_t* prediction) {
    tile(scene, 0, [=](std::size_t pixel) {
      return Colour{picture[3 * pixel], picture[3 * pixel + 1], picture[3 * pixel + 2]};
    });
    tile(scene, 1, [=](std::size_t pixel) { return colour_of(truth[pixel]).colour; });
    tile(scene, 2, [=](std::size_t pixel) { return colour_of(prediction[pixel]).colour; });
  }

  void write(const std::string& path) const { canvas_.write(path); }

 private:
  static constexpr std::int64_t kTile = 128;  // wanted side of a tile, pixels
  static constexpr std::int64_t kRow = 1600;  // wanted width of the sheet
  static constexpr std::int64_t kTilesApart = 4, kScenesApart = 16;

  std::int64_t side() const { return image_ * scale_; }
  std::int64_t scene_width() const { return kScenesApart + 3 * side() + 2 * kTilesApart; }

  template <class ColourAt>
  void tile(std::int64_t scene, std::int64_t column, ColourAt colour_at) {
    canvas_.square(
        scene % per_row_ * scene_width() + kScenesApart + column * (side() + kTilesApart),
        kScenesApart + scene / per_row_ * (side() + kScenesApart), image_, scale_, colour_at);
  }

  std::int64_t image_, scale_, per_row_;
  Canvas canvas_;
};

void run(const PredictOptions& options, const Options& declared) {
  const Device device = open_device(options.device);
  const Precision chosen_precision = precision(options.precision, device);
  check_replaceable("--out", options.out);
  check_json(options.json);
  TrainedNetwork network = read_segmenter(options.weights, std::min(options.batch, options.count));
  check_asked(network, options.weights, options.image, options.classes);
  network.config.precision = chosen_precision;
  const std::int64_t image = network.config.image, classes = network.classes;
  DataRequest request;
  request.split = Split::held_out;
  request.image = image;
  request.classes = classes;
  request.who = options.weights;
  request.says_classes =
      fmt::format("the number of classes of the weights in {} is", options.weights);
  request.seed = static_cast<std::uint64_t>(options.seed);
  const auto data = open_data(options.data, request);

  Sheet sheet(image, options.count);
  Confusion confusion(classes);
  std::vector<std::uint8_t> picture(static_cast<std::size_t>(3 * image * image));
  std::vector<std::uint8_t> labels(static_cast<std::size_t>(image * image));
  watch_interrupt();
  const std::unique_ptr<Backend> backend = make_backend(device);
  SamplePredictor predictor(*backend, network.config,
                            {data, options.count, static_cast<int>(options.workers), {}});
  predictor.run(network.frozen, network.trained,
                [&](std::int64_t index, const std::uint8_t* truth, const std::uint8_t* prediction) {
                  confusion.add(truth, prediction, image * image);
                  data->sample(index, picture.data(), labels.data());
                  sheet.add(index, picture.data(), truth, prediction);
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
  add_scene_options(*options, o.data);
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
