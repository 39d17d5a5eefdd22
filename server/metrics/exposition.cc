// One string grows; labels of a series are formatted once for all its lines.
#include "server/metrics/exposition.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "kernels/check.h"

namespace quire {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

void AppendNumber(double value, std::string* out) {
  if (std::isnan(value)) return void(*out += "NaN");
  if (std::isinf(value)) return void(*out += value > 0 ? "+Inf" : "-Inf");
  char text[32];
  // Shortest text that reads back as the value; an exponent for very small and large ones alone.
  const double size = std::abs(value);
  const auto end = value == 0 || (size >= 1e-4 && size < 1e15)
                       ? std::to_chars(text, text + sizeof text, value, std::chars_format::fixed)
                       : std::to_chars(text, text + sizeof text, value);
  out->append(text, end.ptr);
}

void AppendCount(uint64_t value, std::string* out) {
  char text[24];
  out->append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

void AppendEscaped(std::string_view text, bool quotes, std::string* out) {
  for (const char c : text) {
    switch (c) {
      case '\\': *out += "\\\\"; break;
      case '\n': *out += "\\n"; break;
      case '"': *out += quotes ? "\\\"" : "\""; break;
      default: *out += c;
    }
  }
}

// `a="b",c="d"`, without braces.
std::string Labels(const ClientMetric& metric) {
  std::string labels;
  for (const ClientMetric::Label& label : metric.label) {
    if (!labels.empty()) labels += ',';
    labels += label.name;
    labels += "=\"";
    AppendEscaped(label.value, /*quotes=*/true, &labels);
    labels += '"';
  }
  return labels;
}

// The line up to its value.
void AppendSeries(std::string_view name, std::string_view suffix, std::string_view labels,
                  std::string* out) {
  *out += name;
  *out += suffix;
  if (!labels.empty()) {
    *out += '{';
    *out += labels;
    *out += '}';
  }
  *out += ' ';
}

void AppendHistogram(std::string_view name, std::string_view labels,
                     const ClientMetric::Histogram& histogram, std::string* out) {
  AppendSeries(name, "_count", labels, out);
  AppendCount(histogram.sample_count, out);
  *out += '\n';
  AppendSeries(name, "_sum", labels, out);
  AppendNumber(histogram.sample_sum, out);
  *out += '\n';
  std::string bucket;
  bool infinite = false;
  const auto append = [&](double bound, uint64_t count) {
    bucket.assign(labels);
    bucket += bucket.empty() ? "le=\"" : ",le=\"";
    AppendNumber(bound, &bucket);
    bucket += '"';
    AppendSeries(name, "_bucket", bucket, out);
    AppendCount(count, out);
    *out += '\n';
  };
  for (const ClientMetric::Bucket& edge : histogram.bucket) {
    append(edge.upper_bound, edge.cumulative_count);
    infinite = std::isinf(edge.upper_bound);
  }
  if (!infinite) append(HUGE_VAL, histogram.sample_count);
}

const char* TypeName(MetricType type) {
  CHECK(type == MetricType::Counter || type == MetricType::Gauge || type == MetricType::Histogram);
  if (type == MetricType::Histogram) return "histogram";
  return type == MetricType::Counter ? "counter" : "gauge";
}

}  // namespace

std::string Exposition(const std::vector<prometheus::MetricFamily>& families) {
  std::string out;
  out.reserve(size_t{1} << 18);
  for (const prometheus::MetricFamily& family : families) {
    if (!family.help.empty()) {
      out += "# HELP " + family.name + " ";
      AppendEscaped(family.help, /*quotes=*/false, &out);
      out += '\n';
    }
    out += "# TYPE " + family.name + " " + TypeName(family.type) + "\n";
    for (const ClientMetric& metric : family.metric) {
      const std::string labels = Labels(metric);
      if (family.type == MetricType::Histogram) {
        AppendHistogram(family.name, labels, metric.histogram, &out);
        continue;
      }
      AppendSeries(family.name, "", labels, &out);
      const bool counter = family.type == MetricType::Counter;
      AppendNumber(counter ? metric.counter.value : metric.gauge.value, &out);
      out += '\n';
    }
  }
  return out;
}

}  // namespace quire
