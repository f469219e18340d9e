// SPDX-License-Identifier: Apache-2.0
// `tandem train --model FILE`: a network of the user's, as docs/model.md describes it.
#include <fmt/format.h>

#include <tandem/engine/error.hpp>
#include <tandem/engine/safetensors.hpp>
#include <tandem/models/model_json.hpp>
#include <utility>

#include "augmentation.hpp"
#include "common.hpp"
#include "training.hpp"

namespace tandem::program {
namespace {

/// Rows of numbers are no pictures.
void refuse_augmentation(const ModelOptions& options) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::usage, fmt::format("{}: {} reads rows of numbers, which are no pictures",
                                              what, options.model));
  };
  const AugmentChoice& choice = options.augment;
  const AugmentChoice none;
  if (choice.where != none.where) refuse("--augment " + choice.where);
  resize_only(choice, 1, 1);  // refuses what does nothing without an augmentation
  if (choice.mean != none.mean) refuse("--mean");
  if (choice.deviation != none.deviation) refuse("--std");
}

}  // namespace

TrainJob model_job(ModelOptions& options, bool eval_given) {
  const Model model = read_model(options.model);
  DataRequest request;
  request.labels = labels_of(model, options.model);
  request.image = model.image;
  request.features = model.features;
  request.classes = model.trained.out_channels();
  request.who = options.model;
  request.says_classes = fmt::format("the number of classes of {} is", options.model);
  request.seed = static_cast<std::uint64_t>(options.seed);
  if (options.data.data.empty() && model.features == 0)
    options.data.data = request.labels == Labels::pixels ? "fashion-scenes" : "fashion-mnist";
  if (options.held_out < 0 && is_generated(options.data)) options.held_out = 512;
  TrainJob job;
  job.workload = model.name;
  open_training_data(options, eval_given, options.data, request, job);

  job.config.frozen = model.frozen;
  job.config.trained = model.trained;
  job.config.image = model.image;
  if (model.features > 0)
    refuse_augmentation(options);
  else if (request.labels == Labels::pictures)
    job.augment = set_augmentation(job.config, options.augment, data_name(options.data),
                                   job.data->image(), request.seed);
  else if (options.augment.where != "none")
    throw Error(ErrorCode::usage,
                fmt::format("--augment {}: labels of pixels would not move with the pictures; "
                            "allowed with {}: none",
                            options.augment.where, options.model));
  const InitScheme scheme = init_scheme(options.scheme);
  const bool freezes = !model.frozen.layers().empty();
  if (freezes) job.frozen = initialise(model.frozen, scheme, request.seed, 0);
  job.trained = initialise(model.trained, scheme, request.seed, 1);
  if (!options.init.empty())
    put_initial(options.init, {freezes ? model.frozen : model.trained},
                freezes ? job.frozen : job.trained);

  job.files = {
      {"model.json", [text = to_json(model)](const std::string& path,
                                             const Parameters&) { write_file(path, text); }},
      {"trained.safetensors", write_safetensors}};
  if (freezes)
    job.files.push_back(
        {"frozen.safetensors", [frozen = job.frozen](const std::string& path, const Parameters&) {
           write_safetensors(path, frozen);
         }});
  return job;
}

Labels labels_of(const Model& model, const std::string& path) {
  const PictureSize input = input_size(model);
  const PictureSize features = picture_sizes(model.frozen, input.height, input.width).back();
  const std::int64_t side =
      picture_sizes(model.trained, features.height, features.width).back().height;
  if (model.features > 0 && side != 1)
    throw Error(ErrorCode::data,
                fmt::format("{}: the result of a row is {} x {} pixels; allowed: 1 x 1, a class a "
                            "row",
                            path, side, side));
  if (model.features == 0 && side == model.image) return Labels::pixels;
  if (side == 1) return Labels::pictures;
  throw Error(ErrorCode::data,
              fmt::format("{}: the result is {} x {} pixels; allowed: {} x {}, a class a pixel, or "
                          "1 x 1, a class a picture",
                          path, side, side, model.image, model.image));
}

void choose_model(CLI::App& app, CLI::Option* model, Command& selected, Command run) {
  app.callback([&selected, &app, model, run = std::move(run)] {
    const std::vector<CLI::App*> named = app.get_subcommands();
    if (model->count() == 0) {
      if (!named.empty()) return;  // it is what runs
      for (const CLI::Option* option : app.get_options())
        if (option->count() > 0)
          throw Error(
              ErrorCode::usage,
              fmt::format("{} needs --model FILE, or a workload before it", option->get_name()));
      return;
    }
    if (!named.empty())
      throw Error(ErrorCode::usage, fmt::format("--model and '{}' are two networks; allowed: one",
                                                named.front()->get_name()));
    selected = run;
  });
}

void add_train_model(CLI::App& train, Command& selected) {
  auto values = std::make_shared<ModelOptions>();
  auto options = std::make_shared<Options>(train);
  ModelOptions& o = *values;
  CLI::Option* model = options->text("--model", o.model, "FILE",
                                     "a network of your own, as JSON, in place of a name");
  add_all_data_options(*options, o.data);
  add_training_options(*options, o, o.augment);
  options->text("--init", o.init, "FILE",
                "weights of the frozen part, or of all where nothing is frozen, safetensors");
  options
      ->number("--eval", o.held_out, 0, 1'000'000'000,
               "held-out samples to score after each epoch; 0: none")
      ->default_str("all; 512 scenes");
  options->text("--out", o.out, "DIR",
                "folder for model.json, trained.safetensors, frozen.safetensors and log.jsonl");
  choose_model(train, model, selected,
               [values, options] { open_and_train(*values, *options, model_job); });
}

}  // namespace tandem::program
