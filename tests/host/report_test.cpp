// SPDX-License-Identifier: Apache-2.0
// The parts of `tandem report` and `compare` that neither read nor print. The page as a whole is
// read back by tests/scripts/report_test.py.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tandem/bench/chart.hpp>
#include <tandem/bench/comparison.hpp>
#include <tandem/bench/html.hpp>
#include <tandem/tests/support/files.hpp>
#include <utility>
#include <vector>

namespace tandem::program {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct SpeedCase {
  Spread a, b;
  Verdict verdict;
};

TEST(CompareSpeeds, FollowsTheRule) {
  const SpeedCase cases[] = {
      // The medians differ by 5 %, the windows of the two do not meet.
      {{100, 99, 101}, {105, 104, 106}, Verdict::faster},
      {{105, 104, 106}, {100, 99, 101}, Verdict::slower},
      // The windows meet.
      {{100, 99, 104}, {105, 104, 106}, Verdict::ambiguous},
      {{105, 104, 106}, {100, 99, 104}, Verdict::ambiguous},
      // Also where both are steady.
      {{100, 98.2, 102}, {103, 101.5, 104}, Verdict::ambiguous},
      {{103, 101.5, 104}, {100, 98.2, 102}, Verdict::ambiguous},
      // They do not meet, but what lies between is no difference.
      {{100, 99.9, 100.1}, {101.5, 101.4, 101.6}, Verdict::same},
      {{101.5, 101.4, 101.6}, {100, 99.9, 100.1}, Verdict::same},
      // The medians are the same, and the windows say it, or do not.
      {{100, 98, 102}, {100, 98, 102}, Verdict::same},
      {{100, 97.9, 102}, {100, 99, 101}, Verdict::ambiguous},
      {{100, 99, 101}, {100, 98, 102.1}, Verdict::ambiguous},
      // A slow outlier on the faster side hides what it is.
      {{100, 99, 101}, {120, 90, 121}, Verdict::ambiguous},
  };
  for (const SpeedCase& c : cases)
    EXPECT_EQ(compare_speeds(c.a, c.b, 0.02), c.verdict)
        << name_of(c.verdict) << ": " << c.a.median << " and " << c.b.median;
}

TEST(CompareSpeeds, OneWindowAloneDecidesNothing) {
  const Spread three{100, 99, 101}, one{120, 120, 120, /*alone=*/true};
  EXPECT_EQ(compare_speeds(three, one, 0.02), Verdict::ambiguous);
  EXPECT_EQ(compare_speeds(one, three, 0.02), Verdict::ambiguous);
  EXPECT_EQ(compare_speeds(three, {101, 101, 101, true}, 0.02), Verdict::same);
}

// Numbers that are exact in binary, so that the edge is one.
TEST(CompareSpeeds, TheToleranceItselfIsTheSame) {
  const Spread a{64, 64, 64};
  EXPECT_EQ(compare_speeds(a, {80, 80, 80}, 0.25), Verdict::same);
  EXPECT_EQ(compare_speeds({80, 80, 80}, a, 0.25), Verdict::same);
  EXPECT_EQ(compare_speeds(a, {80.5, 80.5, 80.5}, 0.25), Verdict::faster);
  EXPECT_EQ(compare_speeds({80.5, 80.5, 80.5}, a, 0.25), Verdict::slower);
}

TEST(CompareSpeeds, ANanIsNeverAnAnswer) {
  const Spread good{100, 99, 101};
  for (const Spread& bad : {Spread{kNan, 99, 101}, Spread{100, kNan, 101}, Spread{100, 99, kNan}}) {
    EXPECT_EQ(compare_speeds(good, bad, 0.02), Verdict::ambiguous);
    EXPECT_EQ(compare_speeds(bad, good, 0.02), Verdict::ambiguous);
  }
}

TEST(Html, EscapesWhatMeansSomethingThere) {
  EXPECT_EQ(html::escape("a <b> & \"c\" 'd'\t\n"),
            "a &lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;\t\n");
  EXPECT_EQ(html::escape("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
}

TEST(Html, ReplacesWhatIsNoText) {
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(html::escape(std::string("a\0b\x1b\x7f", 5)), "a" + bad + "b" + bad + bad);
  EXPECT_EQ(html::escape("\xff<"), bad + "&lt;");
  EXPECT_EQ(html::escape("\xc3<"), bad + "&lt;");                      // its second byte is missing
  EXPECT_EQ(html::escape("\xe2\x82"), bad + bad);                      // cut at the end
  EXPECT_EQ(html::escape("\xc0\xbc"), bad + bad);                      // '<', longer than needed
  EXPECT_EQ(html::escape("\xe0\x80\xbc"), bad + bad + bad);            // again
  EXPECT_EQ(html::escape("\xed\xa0\x80"), bad + bad + bad);            // a surrogate
  EXPECT_EQ(html::escape("\xf4\x90\x80\x80"), bad + bad + bad + bad);  // above U+10FFFF
}

TEST(Html, ANumberKeepsItsValue) {
  EXPECT_EQ(html::number(0.1 + 0.2, 2), "<data value=\"0.30000000000000004\">0.30</data>");
  EXPECT_EQ(html::number(8, 0), "<data value=\"8\">8</data>");
  EXPECT_EQ(html::number(std::nullopt, 2), "-");
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

void expect_finite(const std::string& drawing) {
  for (const char* word : {"nan", "inf"}) EXPECT_EQ(count(drawing, word), 0u) << drawing;
}

TEST(LineChart, DrawsOnePointAndNothingButZero) {
  LineChart chart;
  chart.unit = "s";
  chart.series = {{"a", 0, {{8, 0, std::nullopt}}}};
  const std::string drawing = render(chart);
  EXPECT_EQ(count(drawing, "data-x=\"8\" data-y=\"0\""), 1u);
  expect_finite(drawing);
}

TEST(LineChart, SmallAndLargeValuesHaveAnAxis) {
  for (const double y : {1e-9, 0.3, 7.0, 99999.0, 1e15}) {
    LineChart chart;
    chart.series = {{"a", 0, {{1, y, std::nullopt}, {65535, y / 2, std::pair(y / 4, y)}}}};
    const std::string drawing = render(chart);
    expect_finite(drawing);
    const std::size_t lines = count(drawing, "class=\"grid\"");
    EXPECT_GE(lines, 3u) << y;
    EXPECT_LE(lines, 6u) << y;
  }
}

// The upper end of a range, and a limit, fit into the drawing.
TEST(LineChart, EverythingIsInside) {
  LineChart chart;
  chart.series = {{"a", 1, {{2, 10, std::pair(9.0, 40.0)}, {4, 11, std::nullopt}}}};
  chart.limit = ChartLine{"limit", 77};
  chart.chosen = ChartLine{"chosen", 4};
  const std::string drawing = render(chart);
  EXPECT_EQ(count(drawing, "y1=\"-"), 0u) << drawing;
  EXPECT_EQ(count(drawing, "class=\"limit\""), 2u);  // and in the legend
  EXPECT_EQ(count(drawing, "class=\"chosen\""), 2u);
}

TEST(LineChart, LabelsDoNotTouch) {
  LineChart chart;
  std::vector<ChartPoint> points;
  for (int x = 1000; x < 1100; ++x) points.push_back({static_cast<double>(x), 1, std::nullopt});
  chart.series = {{"a", 0, points}};
  const std::string drawing = render(chart);
  EXPECT_EQ(count(drawing, "class=\"tick\""), 100u);
  EXPECT_LE(count(drawing, "text-anchor=\"middle\""), 14u);
}

/// [x, text] of the labels with this anchor.
std::vector<std::pair<double, std::string>> labels_of(const std::string& drawing,
                                                      const std::string& anchor) {
  std::vector<std::pair<double, std::string>> labels;
  const std::string begin = "<text text-anchor=\"" + anchor + "\" x=\"";
  for (std::size_t at = 0; (at = drawing.find(begin, at)) != std::string::npos;) {
    at += begin.size();
    const std::size_t text = drawing.find('>', at) + 1;
    labels.emplace_back(std::stod(drawing.substr(at)),
                        drawing.substr(text, drawing.find('<', text) - text));
  }
  return labels;
}

// A character is at most 6.5 units wide: 0.59 of a font of 11.
TEST(LineChart, LabelsOfSizesHaveRoom) {
  LineChart chart;
  std::vector<ChartPoint> points;
  for (const int x : {1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 768, 1024, 2048, 4096, 65535})
    points.push_back({static_cast<double>(x), 1, std::nullopt});
  chart.series = {{"a", 0, points}};
  double end = 0;
  const auto labels = labels_of(render(chart), "middle");
  EXPECT_GE(labels.size(), 8u);
  for (const auto& [x, label] : labels) {
    const double half = 6.5 * static_cast<double>(label.size()) / 2;
    EXPECT_GT(x - half, end + 3) << label;
    end = x + half;
  }
  EXPECT_LT(end, 360);
}

TEST(LineChart, LabelsOfTheAxisAreNotCutOff) {
  for (double y = 0.3; y < 1e15; y *= 1.7) {
    LineChart chart;
    chart.series = {{"a", 0, {{1, y, std::nullopt}}}};
    for (const auto& [x, label] : labels_of(render(chart), "end"))
      EXPECT_GT(x - 6.5 * static_cast<double>(label.size()), 0) << label << " for " << y;
  }
  LineChart chart;
  chart.series = {{"a", 0, {{1, 1e7, std::nullopt}}}};
  EXPECT_EQ(labels_of(render(chart), "end")[5].second, "10M");
}

TEST(ShareChart, EscapesNames) {
  const ShareChart chart{"<l>", "ms", {"<p>", "q"}, {{"<n>", {1, 3}}}};
  const std::string drawing = render(chart);
  for (const char* name : {"<l>", "<p>", "<n>"}) EXPECT_EQ(count(drawing, name), 0u);
  EXPECT_EQ(count(drawing, "class=\"part"), 4u);
  EXPECT_EQ(count(drawing, "75.0 %"), 1u);
}

TEST(ShareChart, ManyPartsAreDrawnAsFew) {
  const ShareChart chart{
      "l", "ms", {"a", "b", "c", "d"}, {{"1", {1, 5, 3, 1}}, {"2", {0, 2, 2, 6}}}};
  const ShareChart few = with_few_parts(chart, 3);
  EXPECT_EQ(few.parts, (std::vector<std::string>{"b", "d", "others"}));  // 0.7 and 0.7, c has 0.5
  EXPECT_EQ(few.bars[0].values, (std::vector<double>{5, 1, 4}));
  EXPECT_EQ(few.bars[1].values, (std::vector<double>{2, 6, 2}));
  EXPECT_EQ(few.bars[1].name, "2");
  EXPECT_EQ(with_few_parts(chart, 4).parts, chart.parts);
}

}  // namespace
}  // namespace tandem::program
