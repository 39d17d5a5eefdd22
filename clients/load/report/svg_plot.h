// Plots for report pages: an SVG that stretches with its place, with axes in HTML text, so that
// letters have the same size on a phone and on a wide screen.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace quire::load {

struct Axis {
  std::string label;       // "time, s"
  bool log = false;        // only values above 0 are drawn then
  bool from_zero = false;  // starts at 0 in any case
  // Both ends when high is above low; low alone, where a log axis begins; otherwise from the data.
  double low = 0, high = 0;
};

struct Series {
  std::string name;                               // in the legend, drawn for two series or more
  std::string color;                              // a CSS value, "var(--blue)"
  std::vector<std::pair<double, double>> points;  // a NaN makes a gap in the line
  bool dashed = false;
  bool dots = false;  // a dot on each point
};

// A point worth a name.
struct Mark {
  double x, y;
  std::string label;
};

// A line across the plot to compare values with.
struct Limit {
  double value;
  bool vertical;
  std::string label;
};

struct Plot {
  std::string title;
  std::string description;  // for readers who cannot see it: the data and its meaning
  Axis x, y;
  std::vector<Series> series;
  std::vector<Mark> marks;
  std::vector<Limit> limits;
  bool wide = false;  // low and across the page, for data over time
};

// A <figure> for the page's style sheet. All coordinates in it are finite for any data; without
// data it says so.
std::string Figure(const Plot& plot);

// Round values inside [low, high], about `wanted` of them: 1, 2, 5 times powers of ten; on a log
// axis the decades, with 2 and 5 or 3 of each where there is room. Empty unless low < high, and
// both are finite.
std::vector<double> RoundTicks(double low, double high, bool log, int wanted);

}  // namespace quire::load
