// SPDX-License-Identifier: Apache-2.0
// `tandem train`: what can be trained.
#include "common.hpp"
#include "training.hpp"

namespace tandem::program {

void add_train(CLI::App& root, Command& selected) {
  CLI::App* app = root.add_subcommand("train", "Trains a model");
  add_train_segment(*app, selected);
  add_train_classify(*app, selected);
  add_train_model(*app, selected);
  add_later_command(*app, "resnet18");
}

}  // namespace tandem::program
