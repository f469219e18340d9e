// SPDX-License-Identifier: Apache-2.0
#include "chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "html.hpp"

namespace tandem::program {
namespace {

using html::escape;

// In the units of the drawing, which a phone shows at about one a pixel.
constexpr double kWidth = 360, kHeight = 224;
constexpr double kLeft = 44, kRight = 342, kTop = 20, kBottom = 188;
constexpr double kEndRoom = 12;             // for half a label at both ends of an axis
constexpr double kDigit = 6.5, kSpace = 6;  // widths of a character of a label, and between labels
constexpr double kBarStep = 26, kBar = 16;
/// The first is larger, so that it shows behind others where they have the same values.
constexpr double kPoints[] = {5, 3.75, 2.5};

std::string open_svg(double height, const std::string& label) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth, height,
                     escape(label));
}

std::string line(const std::string& kind, double x1, double y1, double x2, double y2) {
  return fmt::format(
      "<line class=\"{}\" x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\"/>\n", kind, x1,
      y1, x2, y2);
}

std::string text(const char* anchor, double x, double y, const std::string& words) {
  return fmt::format("<text text-anchor=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\">{}</text>\n", anchor, x, y,
                     escape(words));
}

/// Of series 0, 1, 2: a circle, a square, a diamond, and again. `title` is what a mark stands for;
/// `attributes` are its values.
std::string mark(std::size_t series, double x, double y, const std::string& attributes,
                 const std::string& title) {
  const double r = kPoints[series % 3];
  std::string shape;
  switch (series % 3) {
    case 0:
      shape = fmt::format("M{:.2f} {:.2f}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z", x - r, y,
                          fmt::arg("r", r), fmt::arg("d", 2 * r));
      break;
    case 1:
      shape = fmt::format("M{:.2f} {:.2f}h{d}v{d}h-{d}z", x - r, y - r, fmt::arg("d", 2 * r));
      break;
    default:
      shape = fmt::format("M{:.2f} {:.2f}l{e} {e}l-{e} {e}l-{e} -{e}z", x, y - 1.3 * r,
                          fmt::arg("e", 1.3 * r));
  }
  return fmt::format("<path class=\"mark s{}\"{} d=\"{}\"><title>{}</title></path>\n", series,
                     attributes, shape, escape(title));
}

struct LegendEntry {
  std::string name;
  std::string swatch;  // html, inside a drawing of 12 x 12
};

std::string legend(const std::vector<LegendEntry>& entries) {
  std::string out = "<ul class=\"legend\">";
  for (const LegendEntry& entry : entries)
    out += fmt::format(
        "<li><svg viewBox=\"0 0 12 12\" width=\"12\" height=\"12\" aria-hidden=\"true\">{}</svg> "
        "{}</li>",
        entry.swatch, escape(entry.name));
  return out + "</ul>\n";
}

/// Distance of the lines of an axis from 0 to `top`: 1, 2 or 5 times a power of ten, at most five.
double nice_step(double top) {
  const double power = std::pow(10, std::floor(std::log10(top / 5)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power * 5 >= top) return factor * power;
  return 10 * power;
}

/// "0.25", "40"; in thousands and so on, "12k", "2.5M", where the axis goes far.
std::string axis_label(double value, double axis_top) {
  if (value > 0)
    for (const auto& [size, name] :
         {std::pair(1e12, 'T'), std::pair(1e9, 'G'), std::pair(1e6, 'M')})
      if (axis_top >= size) return fmt::format("{:g}{}", value / size, name);
  return axis_top >= 10'000 && value > 0 ? fmt::format("{:g}k", value / 1000)
                                         : fmt::format("{:g}", value);
}

}  // namespace

std::string render(const LineChart& chart) {
  double top = chart.limit ? chart.limit->at : 0;
  std::set<double> xs;
  for (const Series& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      xs.insert(point.x);
      top = std::max(top, point.range ? point.range->second : point.y);
    }
  }
  top = top > 0 ? top / chart.unit_size : 1;
  const double step = nice_step(top);
  const double axis_top = step * std::ceil(top / step - 1e-9);
  const double first = std::log2(*xs.begin()), last = std::log2(*xs.rbegin());
  const double x_begin = kLeft + kEndRoom, x_end = kRight - kEndRoom;
  const auto at_x = [&](double x) {
    return first == last ? (x_begin + x_end) / 2
                         : x_begin + (x_end - x_begin) * (std::log2(x) - first) / (last - first);
  };
  const auto at_y = [&](double y) {
    return kBottom - (kBottom - kTop) * (y / chart.unit_size) / axis_top;
  };

  std::string out = open_svg(kHeight, chart.label);
  out += text("start", 4, 11, chart.unit);
  const int lines = static_cast<int>(std::lround(axis_top / step));
  for (int i = 0; i <= lines; ++i) {
    const double y = at_y(i * step * chart.unit_size);
    out += line("grid", kLeft, y, kRight, y);
    out += text("end", kLeft - 5, y + 4, axis_label(i * step, axis_top));
  }
  if (chart.chosen)
    out += line("chosen", at_x(chart.chosen->at), kTop, at_x(chart.chosen->at), kBottom);
  double labelled = 0;  // up to where
  for (const double x : xs) {
    out += line("tick", at_x(x), kBottom, at_x(x), kBottom + 4);
    const std::string label = fmt::format("{:g}", x);
    const double half = kDigit * static_cast<double>(label.size()) / 2;
    if (at_x(x) - half < labelled + kSpace) continue;
    labelled = at_x(x) + half;
    out += text("middle", at_x(x), kBottom + 16, label);
  }
  out += text("end", kRight, kBottom + 31, "batch");
  if (chart.limit)
    out += line("limit", kLeft, at_y(chart.limit->at), kRight, at_y(chart.limit->at));

  std::vector<LegendEntry> entries;
  for (const Series& series : chart.series) {
    std::string path;
    for (const ChartPoint& point : series.points)
      path +=
          fmt::format("{}{:.2f} {:.2f}", path.empty() ? "M" : "L", at_x(point.x), at_y(point.y));
    out += fmt::format("<path class=\"line s{}\" d=\"{}\"/>\n", series.colour, path);
    for (const ChartPoint& point : series.points) {
      const double x = at_x(point.x), y = at_y(point.y);
      std::string title = fmt::format("{}, batch {:g}: {:.2f} {}", series.name, point.x,
                                      point.y / chart.unit_size, chart.unit);
      if (point.range) {
        const auto [low, high] = *point.range;
        title += fmt::format(" ({:.2f} .. {:.2f})", low / chart.unit_size, high / chart.unit_size);
        out += line(fmt::format("range s{}", series.colour), x, at_y(low), x, at_y(high));
      }
      out += mark(series.colour, x, y,
                  fmt::format(" data-series=\"{}\" data-x=\"{}\" data-y=\"{}\" data-at=\"{:.2f}\"",
                              escape(series.name), point.x, point.y, y),
                  title);
    }
    entries.push_back({series.name, mark(series.colour, 6, 6, "", series.name)});
  }
  if (chart.limit) entries.push_back({chart.limit->name, line("limit", 0, 6, 12, 6)});
  if (chart.chosen) entries.push_back({chart.chosen->name, line("chosen", 6, 0, 6, 12)});
  return out + "</svg>\n" + legend(entries);
}

std::string render(const ShareChart& chart) {
  const double height = kBarStep * static_cast<double>(chart.bars.size()) + 24;
  std::string out = open_svg(height, chart.label);
  for (const int percent : {0, 25, 50, 75, 100}) {
    const double x = kLeft + (kRight - kLeft) * percent / 100;
    out += line("grid", x, 2, x, height - 20);
    out += text("middle", x, height - 6, fmt::format("{}%", percent));
  }
  double y = 6;
  for (const ShareChart::Bar& bar : chart.bars) {
    const double whole = std::accumulate(bar.values.begin(), bar.values.end(), 0.0);
    out += text("end", kLeft - 5, y + kBar - 4, bar.name);
    double x = kLeft;
    for (std::size_t part = 0; part < bar.values.size(); ++part) {
      const double width = (kRight - kLeft) * bar.values[part] / whole;
      out += fmt::format(
          "<rect class=\"part s{}\" data-series=\"{}\" data-x=\"{}\" data-y=\"{}\" x=\"{:.2f}\" "
          "y=\"{:.2f}\" width=\"{:.2f}\" height=\"{}\"><title>{}</title></rect>\n",
          part % kPartColours, escape(chart.parts[part]), escape(bar.name), bar.values[part], x, y,
          width, kBar,
          escape(fmt::format("{}, batch {}: {:.3f} {}, {:.1f} %", chart.parts[part], bar.name,
                             bar.values[part], chart.unit, 100 * bar.values[part] / whole)));
      x += width;
    }
    y += kBarStep;
  }
  std::vector<LegendEntry> entries;
  for (std::size_t part = 0; part < chart.parts.size(); ++part)
    entries.push_back(
        {chart.parts[part], fmt::format("<rect class=\"part s{}\" width=\"12\" height=\"12\"/>",
                                        part % kPartColours)});
  return out + "</svg>\n" + legend(entries);
}

ShareChart with_few_parts(const ShareChart& chart, std::size_t most) {
  if (chart.parts.size() <= most) return chart;
  std::vector<double> shares(chart.parts.size(), 0.0);
  for (const ShareChart::Bar& bar : chart.bars)
    for (std::size_t part = 0; part < shares.size(); ++part)
      shares[part] += bar.values[part] / std::accumulate(bar.values.begin(), bar.values.end(), 0.0);
  std::vector<std::size_t> kept(shares.size());
  std::iota(kept.begin(), kept.end(), std::size_t{0});
  std::stable_sort(kept.begin(), kept.end(),
                   [&](std::size_t a, std::size_t b) { return shares[a] > shares[b]; });
  kept.resize(most - 1);
  std::sort(kept.begin(), kept.end());

  ShareChart few{chart.label, chart.unit, {}, {}};
  for (const std::size_t part : kept) few.parts.push_back(chart.parts[part]);
  few.parts.push_back("others");
  for (const ShareChart::Bar& bar : chart.bars) {
    ShareChart::Bar& fewer = few.bars.emplace_back(ShareChart::Bar{bar.name, {}});
    for (const std::size_t part : kept) fewer.values.push_back(bar.values[part]);
    double others = 0;
    for (std::size_t part = 0; part < bar.values.size(); ++part)
      if (!std::binary_search(kept.begin(), kept.end(), part)) others += bar.values[part];
    fewer.values.push_back(others);
  }
  return few;
}

}  // namespace tandem::program
