// MetricRegistry: makes Prometheus metrics with the label model_name, one line each.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <string>

namespace quire {

struct MetricRegistry {
  using Counter = prometheus::Counter;
  using Gauge = prometheus::Gauge;
  using Histogram = prometheus::Histogram;
  using Buckets = Histogram::BucketBoundaries;
  template <typename T>
  using Family = prometheus::Family<T>;

  explicit MetricRegistry(const std::string& model_name) : labels{{"model_name", model_name}} {}

  Family<Gauge>& Gauges(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(labels).Register(registry);
  }
  Family<Counter>& Counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels).Register(registry);
  }
  Family<Histogram>& Histograms(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels).Register(registry);
  }
  Gauge& OneGauge(const char* name, const char* help) { return Gauges(name, help).Add({}); }
  Counter& OneCounter(const char* name, const char* help) { return Counters(name, help).Add({}); }
  Histogram& OneHistogram(const char* name, const char* help, const Buckets& buckets) {
    return Histograms(name, help).Add({}, buckets);
  }

  const prometheus::Labels labels;
  prometheus::Registry registry;
};

// Where vLLM has the same histogram, our edges are a superset of vLLM's, so queries written for
// vLLM work. The finer edges at the low end are for small models and fast devices.
inline MetricRegistry::Buckets FirstTokenBuckets() {
  return {.00025, .0005, .001, .002, .003, .005, .0075, .01, .02, .03, .04, .06, .08, .1,
          .25,    .5,    .75,  1,    2.5,  5,    7.5,   10,  20,  40,  80,  160, 640, 2560};
}

// Raises a counter to a total that is counted elsewhere. One thread at a time.
inline void RaiseTo(prometheus::Counter& counter, double total) {
  if (total > counter.Value()) counter.Increment(total - counter.Value());
}

}  // namespace quire
