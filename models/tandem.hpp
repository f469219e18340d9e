// SPDX-License-Identifier: Apache-2.0
// The public header: everything an application needs to train a network in overlapping stages.
// C++17, no third-party types. See docs/examples/own_network.cpp.
#pragma once

#include <tandem/engine/augment_draw.hpp>   // augmentation: what is drawn for a sample
#include <tandem/engine/backend_host.hpp>   // where it runs
#include <tandem/engine/backend_trace.hpp>  // where it is only listed, to prove the order
#include <tandem/engine/dataset.hpp>        // pictures with labels
#include <tandem/engine/error.hpp>          // the one exception
#include <tandem/engine/hazards.hpp>        // what has no order
#include <tandem/engine/loader.hpp>         // worker threads that fill the input slots
#include <tandem/engine/metrics.hpp>        // accuracy and IoU
#include <tandem/engine/safetensors.hpp>    // files of weights
#include <tandem/engine/scheduler.hpp>      // any list of stages
#include <tandem/models/classifier.hpp>     // the second network
#include <tandem/models/model_json.hpp>     // a network as a file
#include <tandem/models/parameters.hpp>     // values of weights
#include <tandem/models/segmenter.hpp>      // the first network
#include <tandem/models/sequential.hpp>     // a network of your own
#include <tandem/models/trainer.hpp>        // training and prediction
