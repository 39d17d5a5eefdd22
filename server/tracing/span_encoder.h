// SpanEncoder: from a request's record to the spans of OTLP.
#pragma once

#include <cstdint>
#include <string>

#include "server/tracing/request_record.h"

namespace opentelemetry::proto::collector::trace::v1 {
class ScopeSpans;
}

namespace quire {

class SpanEncoder {
 public:
  // Requests carry the name of the model that answered.
  explicit SpanEncoder(std::string model) : model_(std::move(model)) {}

  // Appends NumSpans(record) spans: the server's, then one for each stage. `unix_offset_ns` is the
  // Unix time at 0 of the steady clock: one for all spans of a trace, so that they nest.
  void Append(const RequestRecord& record, int64_t unix_offset_ns,
              opentelemetry::proto::collector::trace::v1::ScopeSpans* out) const;

 private:
  const std::string model_;
};

}  // namespace quire
