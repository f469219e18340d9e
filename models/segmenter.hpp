// SPDX-License-Identifier: Apache-2.0
// The segmenter: a frozen encoder and a trained decoder of 2x2 layers, and a 3x3 head.
#pragma once

#include <cstdint>
#include <tandem/models/sequential.hpp>

namespace tandem {

/// Throws Error{usage} unless `image` is a power of two from 32 to 512.
void check_image_size(std::int64_t image);
/// Throws Error{usage} unless 2 <= classes <= 254.
void check_classes(std::int64_t classes);

/// Conv1x1 3 -> 16, ReLU, then log2(S) times Conv2x2 stride 2 doubling the channels, with ReLU
/// between them and none after the last. Input 3 x S x S, output 16 S x 1 x 1.
Sequential segmenter_encoder(std::int64_t image);

/// log2(S) times [ConvTranspose2x2 stride 2 halving the channels, ReLU], then Conv3x3 16 ->
/// classes.
Sequential segmenter_decoder(std::int64_t image, std::int64_t classes);

}  // namespace tandem
