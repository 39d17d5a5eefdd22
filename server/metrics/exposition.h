// Exposition: metric families in Prometheus' text format, version 0.0.4. The library's own
// serializer writes through a stream, value by value, and takes 2 ms for this server's page.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

namespace quire {

// Takes counters, gauges and histograms.
std::string Exposition(const std::vector<prometheus::MetricFamily>& families);

}  // namespace quire
