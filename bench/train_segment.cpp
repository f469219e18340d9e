// SPDX-License-Identifier: Apache-2.0
// `tandem train segment`: a frozen encoder, a trained decoder.
#include <tandem/engine/safetensors.hpp>
#include <utility>

#include "common.hpp"
#include "training.hpp"

namespace tandem::program {

TrainJob segment_job(SegmentOptions& options, bool eval_given) {
  TrainJob job;
  job.workload = "segment";
  DataRequest request;
  request.labels = Labels::pixels;
  request.image = options.image;
  request.classes = options.classes;
  request.who = job.workload;
  request.seed = static_cast<std::uint64_t>(options.seed);
  open_training_data(options, eval_given, options.data, request, job);
  options.classes = job.data->classes();

  job.config = segmenter_config(options.image, options.classes, options.batch);
  auto [encoder, decoder] =
      initial_segmenter(job.config, init_scheme(options.scheme), request.seed);
  if (!options.init.empty()) put_initial(options.init, {job.config.frozen}, encoder);
  job.frozen = encoder;
  job.trained = std::move(decoder);
  job.files = {{"encoder.safetensors",
                [encoder = std::move(encoder)](const std::string& path, const Parameters&) {
                  write_safetensors(path, encoder);
                }},
               {"decoder.safetensors", write_safetensors}};
  return job;
}

void add_train_segment(CLI::App& train, Command& selected) {
  CLI::App* app =
      train.add_subcommand("segment", "Labels every pixel: a frozen encoder, a trained decoder");
  auto values = std::make_shared<SegmentOptions>();
  auto options = std::make_shared<Options>(*app);
  SegmentOptions& o = *values;
  add_scene_options(*options, o.data);
  options->image(o.image);
  options->number("--classes", o.classes, 2, 254, "classes")->default_str("the data's, or 10");
  add_training_options(*options, o);
  options->text("--init", o.init, "FILE", "encoder weights, safetensors");
  options->number("--eval", o.held_out, 0, 1'000'000, "held-out scenes for the scores; 0: none");
  options->text("--out", o.out, "DIR",
                "folder for encoder.safetensors, decoder.safetensors and log.jsonl");
  app->callback([&selected, values, options] {
    selected = [values, options] { open_and_train(*values, *options, segment_job); };
  });
}

}  // namespace tandem::program
