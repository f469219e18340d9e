// SPDX-License-Identifier: Apache-2.0
// One page of results: advice, tables, charts.
#pragma once

#include <string>
#include <vector>

#include "result_file.hpp"

namespace tandem::program {

/// The whole page, which needs no other file. The same results give the same bytes.
std::string report_page(const std::vector<Result>& results);

}  // namespace tandem::program
