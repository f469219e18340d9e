// SPDX-License-Identifier: Apache-2.0
// `tandem train classify`: one label a picture; the whole network is trained.
#include <tandem/engine/safetensors.hpp>
#include <tandem/models/segmenter.hpp>
#include <utility>

#include "augmentation.hpp"
#include "common.hpp"
#include "training.hpp"

namespace tandem::program {

TrainJob classify_job(ClassifyOptions& options, bool eval_given) {
  TrainJob job;
  job.workload = "classify";
  DataRequest request;
  request.labels = Labels::pictures;
  request.image = options.image;
  request.classes = options.classes;
  request.who = job.workload;
  request.seed = static_cast<std::uint64_t>(options.seed);
  open_training_data(options, eval_given, options.data, request, job);
  options.classes = job.data->classes();

  job.config = classifier_config(options.image, options.classes, options.batch);
  job.augment = set_augmentation(job.config, options.augment, data_name(options.data),
                                 job.data->image(), request.seed);
  // As a segmenter's encoder and decoder are drawn, so that a seed means one encoder.
  const Sequential encoder = segmenter_encoder(options.image);
  const std::size_t encoder_tensors = encoder.parameters().size();
  job.trained = initialise(job.config.trained, init_scheme(options.scheme), request.seed, 0);
  if (!options.init.empty()) put_initial(options.init, {encoder, job.config.trained}, job.trained);
  job.files = {{"encoder.safetensors",
                [encoder_tensors](const std::string& path, const Parameters& trained) {
                  write_safetensors(
                      path, {trained.begin(),
                             trained.begin() + static_cast<std::ptrdiff_t>(encoder_tensors)});
                }},
               {"classifier.safetensors", write_safetensors}};
  return job;
}

void add_train_classify(CLI::App& train, Command& selected) {
  CLI::App* app = train.add_subcommand("classify", "One label a picture: all of it is trained");
  auto values = std::make_shared<ClassifyOptions>();
  auto options = std::make_shared<Options>(*app);
  ClassifyOptions& o = *values;
  add_picture_options(*options, o.data);
  options->image(o.image);
  options->number("--classes", o.classes, 2, 254, "classes")->default_str("the data's, or 10");
  add_training_options(*options, o, o.augment);
  options->text("--init", o.init, "FILE",
                "weights of an encoder or of the whole classifier, safetensors");
  options
      ->number("--eval", o.held_out, 0, 1'000'000'000,
               "held-out pictures to score after each epoch; 0: none")
      ->default_str("all");
  options->text("--out", o.out, "DIR",
                "folder for encoder.safetensors, classifier.safetensors and log.jsonl");
  app->callback([&selected, values, options] {
    selected = [values, options] { open_and_train(*values, *options, classify_job); };
  });
}

}  // namespace tandem::program
