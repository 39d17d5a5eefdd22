// The drawing area is 1000 by 1000 units and stretched to its place; strokes keep their width
// (vector-effect), and all text lies over it at places given as percentages.
#include "clients/load/report/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/load/report/html_text.h"

namespace quire::load {
namespace {

constexpr int kWantedTicks = 5;  // a label of "100k" and its space fit five times in 280 px
constexpr int kTicksOfLowPlot = 4;

// The scale of one axis.
class Scale {
 public:
  Scale(const Axis& axis, double least, double most, int wanted) : log_(axis.log) {
    if (axis.high > axis.low) {
      low_ = axis.low;
      high_ = axis.high;
    } else if (log_) {
      low_ = axis.low > 0 ? axis.low : least > 0 ? least : 1;
      high_ = std::max(most, low_);
      if (high_ < low_ * 1.2) low_ /= 1.5, high_ *= 1.5;
    } else {
      FitLinear(axis, least, most, wanted);
    }
    ticks_ = RoundTicks(low_, high_, log_, wanted);
  }

  const std::vector<double>& ticks() const { return ticks_; }
  bool Has(double value) const { return std::isfinite(value) && (!log_ || value > 0); }
  bool Inside(double value) const { return Has(value) && value >= low_ && value <= high_; }
  // 0 at the low end, 1 at the high one.
  double At(double value) const {
    const double share =
        log_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
    return std::clamp(share, 0.0, 1.0);
  }

 private:
  // Ends on round values, so that the curve never touches the frame without a number beside it.
  void FitLinear(const Axis& axis, double least, double most, int wanted) {
    if (axis.from_zero || (least >= 0 && least < most / 2)) least = std::min(least, 0.0);
    if (!(most > least)) {
      most = least == 0 ? 1 : least + std::fabs(least) * 0.1;
      if (!axis.from_zero && least != 0) least -= std::fabs(least) * 0.1;
    }
    const std::vector<double> ticks = RoundTicks(least, most, false, wanted);
    const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : most - least;
    low_ = std::floor(least / step + 1e-9) * step;
    high_ = std::ceil(most / step - 1e-9) * step;
  }

  const bool log_;
  double low_ = 0, high_ = 1;
  std::vector<double> ticks_;
};

struct Extent {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  void Add(double value, bool log) {
    if (!std::isfinite(value) || (log && value <= 0)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  bool any() const { return least <= most; }
};

std::string Percent(double share) { return absl::StrFormat("%.2f%%", share * 100); }
std::string Unit(double share) { return absl::StrFormat("%.1f", share * 1000); }

// The pen is lifted at every gap; a point alone between two gaps is drawn as a dot.
std::string PathOf(const Series& series, const Scale& x, const Scale& y) {
  std::string path;
  bool down = false;
  for (size_t i = 0; i < series.points.size(); ++i) {
    const auto [px, py] = series.points[i];
    if (!x.Has(px) || !y.Has(py)) {
      down = false;
      continue;
    }
    const std::string at = absl::StrCat(Unit(x.At(px)), " ", Unit(1 - y.At(py)));
    absl::StrAppend(&path, down ? "L" : "M", at);
    const bool more = i + 1 < series.points.size() && x.Has(series.points[i + 1].first) &&
                      y.Has(series.points[i + 1].second);
    if (!down && !more) path += "h0";
    down = true;
  }
  return path;
}

std::string DotsOf(const Series& series, const Scale& x, const Scale& y) {
  std::string path;
  for (const auto& [px, py] : series.points) {
    if (!x.Has(px) || !y.Has(py)) continue;
    absl::StrAppend(&path, "M", Unit(x.At(px)), " ", Unit(1 - y.At(py)), "h0");
  }
  return path;
}

std::string GridOf(const Scale& x, const Scale& y) {
  std::string path;
  for (double tick : y.ticks()) absl::StrAppend(&path, "M0 ", Unit(1 - y.At(tick)), "h1000");
  for (double tick : x.ticks()) absl::StrAppend(&path, "M", Unit(x.At(tick)), " 0v1000");
  return absl::StrCat("<path class=\"grid\" d=\"", path, "\"/>");
}

std::string LimitsOf(const Plot& plot, const Scale& x, const Scale& y) {
  std::string out;
  for (const Limit& limit : plot.limits) {
    const Scale& scale = limit.vertical ? x : y;
    if (!scale.Inside(limit.value)) continue;
    const std::string at = Unit(limit.vertical ? x.At(limit.value) : 1 - y.At(limit.value));
    absl::StrAppend(
        &out, "<path class=\"limit\" d=\"",
        limit.vertical ? absl::StrCat("M", at, " 0v1000") : absl::StrCat("M0 ", at, "h1000"),
        "\"/>");
  }
  return out;
}

std::string LinesOf(const Plot& plot, const Scale& x, const Scale& y) {
  std::string out;
  for (const Series& series : plot.series) {
    const std::string path = PathOf(series, x, y);
    if (path.empty()) continue;
    absl::StrAppend(&out, "<path class=\"line", series.dashed ? " dashed" : "",
                    "\" style=\"stroke:", Escape(series.color), "\" d=\"", path, "\"/>");
    if (series.dots) {
      absl::StrAppend(&out, "<path class=\"dots\" style=\"stroke:", Escape(series.color), "\" d=\"",
                      DotsOf(series, x, y), "\"/>");
    }
  }
  if (!plot.marks.empty()) {
    Series marks;
    for (const Mark& mark : plot.marks) marks.points.emplace_back(mark.x, mark.y);
    absl::StrAppend(&out, "<path class=\"marks\" d=\"", DotsOf(marks, x, y), "\"/>");
  }
  return out;
}

// A span over the drawing; `kind` says to the style sheet on which side of the place it lies.
std::string Label(const std::string& kind, double left, double top, const std::string& text) {
  return absl::StrCat("<span class=\"", kind, "\" style=\"left:", Percent(left),
                      ";top:", Percent(top), "\">", Escape(text), "</span>");
}

// The place of a mark's name: a curve that rises leaves room to its upper left and lower right, and
// above the drawing.
const char* PlaceOf(double across, double up) {
  if (up > 0.9)
    return across > 0.8 ? "mark above end" : across < 0.2 ? "mark above" : "mark above mid";
  return across < 0.45 ? "mark after" : "mark before";
}

std::string LabelsOf(const Plot& plot, const Scale& x, const Scale& y) {
  std::string out;
  for (double tick : y.ticks()) out += Label("ytick", 0, 1 - y.At(tick), Compact(tick));
  for (double tick : x.ticks()) out += Label("xtick", x.At(tick), 1, Compact(tick));
  for (const Mark& mark : plot.marks) {
    if (!x.Has(mark.x) || !y.Has(mark.y)) continue;
    out += Label(PlaceOf(x.At(mark.x), y.At(mark.y)), x.At(mark.x), 1 - y.At(mark.y), mark.label);
  }
  return out;
}

std::string LegendOf(const Plot& plot) {
  if (plot.series.size() < 2) return "";
  std::string out = "<ul class=\"legend\">";
  for (const Series& series : plot.series) {
    absl::StrAppend(&out, "<li><svg viewBox=\"0 0 20 8\" aria-hidden=\"true\"><path class=\"line",
                    series.dashed ? " dashed" : "", "\" style=\"stroke:", Escape(series.color),
                    "\" d=\"M0 4h20\"/></svg>", Escape(series.name), "</li>");
  }
  return out + "</ul>";
}

std::string Drawing(const Plot& plot, const Extent& xs, const Extent& ys) {
  const Scale x(plot.x, xs.least, xs.most, kWantedTicks);
  const Scale y(plot.y, ys.least, ys.most, plot.wide ? kTicksOfLowPlot : kWantedTicks);
  return absl::StrCat("<div class=\"frame", plot.marks.empty() ? "" : " headroom",
                      "\" role=\"img\" aria-label=\"", Escape(plot.title), ". ",
                      Escape(plot.description), "\"><div class=\"area\">",
                      "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" "
                      "xmlns=\"http://www.w3.org/2000/svg\" aria-hidden=\"true\">",
                      GridOf(x, y), LimitsOf(plot, x, y), LinesOf(plot, x, y), "</svg>",
                      LabelsOf(plot, x, y), "</div></div>");
}

}  // namespace

std::vector<double> RoundTicks(double low, double high, bool log, int wanted) {
  std::vector<double> ticks;
  if (!std::isfinite(low) || !std::isfinite(high) || !(low < high) || (log && low <= 0))
    return ticks;
  if (log) {
    const int first = static_cast<int>(std::floor(std::log10(low)));
    const int last = static_cast<int>(std::floor(std::log10(high)));
    const double decades = std::log10(high / low);
    const int every = std::max(1, static_cast<int>(std::ceil(decades / wanted)));
    // 1, 2, 5 in each decade if there is room for them; or 1, 3; or the decades alone.
    const bool thirds = decades * 3 <= wanted + 1, halves = !thirds && decades * 2 <= wanted + 1;
    for (int e = first; e <= last; ++e) {
      for (int m : {1, 2, 3, 5}) {
        const bool shown = m == 1 ? e % every == 0 : m == 3 ? halves : thirds;
        const double tick = m * std::pow(10.0, e);
        if (shown && tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push_back(tick);
      }
    }
    // Less than an octave or two: the linear ticks are the round ones.
    return ticks.size() > 1 ? ticks : RoundTicks(low, high, false, wanted);
  }
  const double rough = (high - low) / wanted, power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power * 10;
  for (double m : {1.0, 2.0, 5.0}) {
    if (m * power >= rough * 0.8) {  // rather one tick more than two fewer
      step = m * power;
      break;
    }
  }
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) {
    ticks.push_back(i * step + 0.0);  // no -0
  }
  return ticks;
}

std::string Figure(const Plot& plot) {
  Extent xs, ys;
  for (const Series& series : plot.series) {
    for (const auto& [x, y] : series.points) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      xs.Add(x, plot.x.log);
      ys.Add(y, plot.y.log);
    }
  }
  const std::string head =
      absl::StrCat("<figure class=\"plot", plot.wide ? " wide" : "", "\"><figcaption><b>",
                   Escape(plot.title), "</b> <span>", Escape(plot.y.label));
  const std::string caption_end = "</span></figcaption>";
  if (!xs.any() || !ys.any()) {
    return absl::StrCat(head, caption_end,
                        "<p class=\"nothing\">Nothing was measured.</p></figure>\n");
  }
  std::string limits;
  for (const Limit& limit : plot.limits) {
    // A limit far from all values would press them into a corner; it is left out then.
    const Axis& axis = limit.vertical ? plot.x : plot.y;
    Extent& extent = limit.vertical ? xs : ys;
    const bool fixed = axis.high > axis.low;
    const double reach = axis.log ? 10 : 2;
    const double low = fixed ? axis.low : extent.least / reach;
    const double high = fixed ? axis.high : extent.most * reach;
    if (limit.value < low || limit.value > high) continue;
    extent.Add(limit.value, axis.log);
    absl::StrAppend(&limits, "; dotted: ", Escape(limit.label));
  }
  return absl::StrCat(head, limits, caption_end, LegendOf(plot), Drawing(plot, xs, ys),
                      "<p class=\"xlabel\">", Escape(plot.x.label), "</p></figure>\n");
}

}  // namespace quire::load
