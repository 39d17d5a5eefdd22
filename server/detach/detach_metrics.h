// DetachMetrics: the metrics of requests that outlive their calls. Any thread.
#pragma once

#include <cstdint>
#include <memory>

namespace quire {

struct MetricRegistry;

class DetachMetrics {
 public:
  // The end of an Attach call's search for its answer.
  enum class Attach : uint8_t { kResumed, kTookOver, kNotFound, kNotDetachable, kOutOfRange };

  // `registry` outlives this.
  explicit DetachMetrics(MetricRegistry& registry);
  ~DetachMetrics();

  // A request, or its answer, lost its reader, or got one or was forgotten.
  void Detached();
  void Returned();
  int detached() const;
  // Its time without a reader was over.
  void Expired();
  // Kept answers have so many bytes.
  void Keeps(int64_t bytes);
  void Attached(Attach result);
  // A request was refused because the server keeps too much.
  void Refused();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
