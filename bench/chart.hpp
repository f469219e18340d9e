// SPDX-License-Identifier: Apache-2.0
// Charts as inline SVG. Every mark carries its values as data-x, data-y and, to be pointed at, as
// a title. Colours are classes s0 to s7 that the page defines; shapes tell series apart too.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::program {

struct ChartPoint {
  double x = 0, y = 0;
  std::optional<std::pair<double, double>> range;  // lowest and highest y
};

struct Series {
  std::string name;
  std::size_t colour = 0;
  std::vector<ChartPoint> points;  // ascending x
};

struct ChartLine {
  std::string name;
  double at = 0;
};

/// A value over batch sizes: powers of two lie equally far apart, y begins at 0.
struct LineChart {
  std::string label;  ///< what it shows, for those who hear it
  std::string unit;
  double unit_size = 1;  ///< of y, in one of the axis' units
  std::vector<Series> series;
  std::optional<ChartLine> limit;   ///< across, at a y
  std::optional<ChartLine> chosen;  ///< upright, at an x
};
/// Of at least one point, all x above 0. HTML: the drawing and its legend.
std::string render(const LineChart& chart);

/// What a whole is made of, a bar for each whole, as shares of it.
struct ShareChart {
  std::string label;
  std::string unit;
  std::vector<std::string> parts;
  struct Bar {
    std::string name;
    std::vector<double> values;  ///< as many as parts, from 0, not all 0
  };
  std::vector<Bar> bars;
};
std::string render(const ShareChart& chart);
/// With at most `most` parts: if there are more, the `most` - 1 with the largest shares, in their
/// order, and "others". `most` is at least 2.
ShareChart with_few_parts(const ShareChart& chart, std::size_t most);
/// So many parts have a colour each.
inline constexpr std::size_t kPartColours = 8;

}  // namespace tandem::program
