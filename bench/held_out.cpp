// SPDX-License-Identifier: Apache-2.0
#include "held_out.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tandem/engine/error.hpp>
#include <utility>

#include "common.hpp"

namespace tandem::program {
namespace {

EngineConfig with_batch(EngineConfig config, std::int64_t count) {
  config.batch = std::min(config.batch, count);
  return config;
}

/// Share of class c's samples that are predicted right; nothing if there are none.
std::optional<double> class_accuracy(const Confusion& confusion, std::int64_t c) {
  std::int64_t all = 0;
  for (std::int64_t p = 0; p < confusion.classes(); ++p) all += confusion.count(c, p);
  if (all == 0) return std::nullopt;
  return static_cast<double>(confusion.count(c, c)) / static_cast<double>(all);
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json pixel_scores(const Confusion& confusion) {
  const Confusion background = confusion.all_background();
  Json json;
  json["pixel_accuracy"] = confusion.pixel_accuracy();
  json["miou"] = confusion.mean_iou();
  json["garment_miou"] = confusion.mean_iou(1);
  json["background_pixel_accuracy"] = background.pixel_accuracy();
  json["background_miou"] = background.mean_iou();
  json["background_garment_miou"] = background.mean_iou(1);
  json["garment_iou"] = Json::array();
  for (std::int64_t c = 1; c < confusion.classes(); ++c)
    json["garment_iou"].push_back(or_null(confusion.iou(c)));
  return json;
}

Json picture_scores(const Confusion& confusion) {
  Json classes = Json::array(), rows = Json::array();
  double sum = 0;
  int present = 0;
  for (std::int64_t c = 0; c < confusion.classes(); ++c) {
    const std::optional<double> accuracy = class_accuracy(confusion, c);
    if (accuracy) sum += *accuracy, ++present;
    classes.push_back(or_null(accuracy));
    Json row = Json::array();
    for (std::int64_t p = 0; p < confusion.classes(); ++p) row.push_back(confusion.count(c, p));
    rows.push_back(row);
  }
  Json json;
  json["accuracy"] = confusion.pixel_accuracy();
  json["mean_class_accuracy"] = present == 0 ? 0.0 : sum / present;
  json["class_accuracy"] = classes;
  json["confusion"] = rows;
  return json;
}

/// "0.8123", or `none` for null.
std::string number(const Json& value, const char* none = "none here") {
  return value.is_null() ? none : fmt::format("{:.4f}", value.get<double>());
}

void print_pixel_scores(const Json& scores, const std::vector<std::string>& class_names) {
  const std::pair<const char*, std::string> lines[] = {
      {"pixel accuracy", "pixel_accuracy"}, {"mIoU", "miou"}, {"garment mIoU", "garment_miou"}};
  for (const auto& [name, key] : lines)
    fmt::print("  {:<16}{}   ({})\n", name, number(scores[key]),
               number(scores["background_" + key]));
  for (std::size_t i = 0; i < scores["garment_iou"].size(); ++i)
    fmt::print("    {:<14}{}\n", printable(class_names[i + 1]), number(scores["garment_iou"][i]));
}

void print_picture_scores(const Json& scores, const std::vector<std::string>& class_names) {
  fmt::print("  {:<16} {}\n", "accuracy", number(scores["accuracy"]));
  fmt::print("  {:<16} {}\n", "mean of classes", number(scores["mean_class_accuracy"]));
  for (std::size_t i = 0; i < class_names.size(); ++i)
    fmt::print("    {:<14} {}\n", printable(class_names[i]), number(scores["class_accuracy"][i]));
}

}  // namespace

// --- predictions ---

SamplePredictor::SamplePredictor(Backend& backend, EngineConfig config, Samples samples)
    : config_(with_batch(std::move(config), samples.count)),
      samples_(std::move(samples)),
      predictor_(backend, config_,
                 [this](std::uint64_t, const std::uint8_t* classes) { deliver(classes); }) {
  if (samples_.augment) samples_.augment->identity = true;
}

void SamplePredictor::deliver(const std::uint8_t* classes) {
  const std::vector<std::uint8_t> truth = std::move(truths_.front());
  truths_.pop_front();
  const std::int64_t labels = samples_.data->label_count();
  const std::int64_t rows = std::min(config_.batch, samples_.count - delivered_);
  for (std::int64_t row = 0; row < rows; ++row)
    (*on_sample_)(delivered_ + row, truth.data() + row * labels, classes + row * labels);
  delivered_ += rows;
}

void SamplePredictor::run(const Parameters& frozen, const Parameters& trained,
                          const OnSample& on_sample) {
  on_sample_ = &on_sample;
  truths_.clear();
  delivered_ = 0;
  predictor_.set_frozen(frozen);
  predictor_.set_trained(trained);
  const std::vector<InputSlot> inputs = predictor_.inputs();
  LoaderOptions options;
  options.workers = samples_.workers;
  options.batch = config_.batch;
  options.samples = samples_.count;
  options.steps = batches_of(samples_.count, config_.batch, LastBatch::partial);
  options.augment = samples_.augment;
  options.classes = samples_.data->classes();
  Loader loader(samples_.data, options, inputs,
                [this](int slot) { predictor_.wait_input_free(slot); });
  for (int slot; (slot = loader.next()) >= 0;) {
    if (interrupted()) throw Error(ErrorCode::interrupted, "interrupted while predicting");
    const InputSlot& input = inputs[static_cast<std::size_t>(slot)];
    truths_.emplace_back(input.labels, input.labels + input.batch * input.label_count);
    predictor_.predict(slot);
    loader.submitted(slot);
  }
  predictor_.finish();
}

Confusion SamplePredictor::score(const Parameters& frozen, const Parameters& trained) {
  Confusion confusion(samples_.data->classes());
  run(frozen, trained,
      [&](std::int64_t, const std::uint8_t* truth, const std::uint8_t* prediction) {
        confusion.add(truth, prediction, samples_.data->label_count());
      });
  return confusion;
}

// --- scores ---

Json scores(Labels labels, const std::optional<Confusion>& confusion) {
  const auto of = [labels](const Confusion& counts) {
    return labels == Labels::pixels ? pixel_scores(counts) : picture_scores(counts);
  };
  if (confusion) return of(*confusion);
  Json json = of(Confusion(2));
  for (auto& [key, value] : json.items()) value = nullptr;
  return json;
}

std::int64_t scored_samples(Labels labels, const Confusion& confusion, std::int64_t asked) {
  return labels == Labels::pictures ? confusion.total() : asked;
}

KeyScores key_scores(Labels labels) {
  return labels == Labels::pixels ? KeyScores{"pixel_accuracy", "miou"}
                                  : KeyScores{"accuracy", "mean_class_accuracy"};
}

void print_scores(Labels labels, const Json& scores, const std::vector<std::string>& class_names,
                  const std::string& counted) {
  fmt::print("held out    {}{}\n", counted,
             labels == Labels::pixels ? "   (background everywhere)" : "");
  if (labels == Labels::pixels)
    print_pixel_scores(scores, class_names);
  else
    print_picture_scores(scores, class_names);
}

}  // namespace tandem::program
