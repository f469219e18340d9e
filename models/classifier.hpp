// SPDX-License-Identifier: Apache-2.0
// The classifier: the segmenter's encoder with a linear layer on top, all of it trained.
#pragma once

#include <cstdint>
#include <tandem/models/sequential.hpp>

namespace tandem {

/// segmenter_encoder(image), Flatten, Linear 16 S -> classes. Its first parameters are those of the
/// encoder, under the same names. Throws Error{usage} as the segmenter does.
Sequential classifier(std::int64_t image, std::int64_t classes);

}  // namespace tandem
