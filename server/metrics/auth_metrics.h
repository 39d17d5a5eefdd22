// AuthMetrics: the metrics of callers that were refused, and of the key file. Part of
// ServerMetrics; uses its registry. Any thread.
#pragma once

#include <cstdint>
#include <memory>

namespace quire {

struct MetricRegistry;

class AuthMetrics {
 public:
  // `registry` outlives this.
  explicit AuthMetrics(MetricRegistry& registry);
  ~AuthMetrics();

  // A call was refused at the door; `reason` is a literal, one of a few.
  void Refused(const char* reason);
  int64_t refused() const;  // for all reasons
  void Reloaded(bool taken);
  void Keys(int64_t keys);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
