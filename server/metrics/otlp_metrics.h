// OtlpMetrics: the metrics of spans and their export. Part of ServerMetrics; uses its registry. Any
// thread.
#pragma once

#include <cstdint>
#include <memory>

namespace quire {

struct MetricRegistry;

class OtlpMetrics {
 public:
  // Sent: the collector took them. Dropped: the queue was full, or the server ended. Failed: the
  // collector refused them, or did not answer for a minute.
  enum class Outcome : uint8_t { kSent, kDropped, kFailed };

  // `registry` outlives this.
  explicit OtlpMetrics(MetricRegistry& registry);
  ~OtlpMetrics();

  void Count(Outcome outcome, int64_t spans);
  int64_t Total(Outcome outcome) const;
  // A call's `traceparent` was ignored.
  void InvalidTraceparent();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
