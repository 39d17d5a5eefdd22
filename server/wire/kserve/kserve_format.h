// The formats of inference.GRPCInferenceService: ModelInfer, and one request of ModelStreamInfer
// (proto/field/kserve.proto). docs/protocols.md lists the tensors.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "server/generate/wire_format.h"

namespace quire {

// What ModelStatistics reports, since the start. Any thread.
struct InferCounters {
  std::atomic<uint64_t> succeeded{0};
  std::atomic<uint64_t> failed{0};
  // Sums over the requests that succeeded: waiting, computing, both.
  std::atomic<uint64_t> queue_ns{0};
  std::atomic<uint64_t> compute_ns{0};
  std::atomic<uint64_t> total_ns{0};
  std::atomic<uint64_t> last_unix_ms{0};
};

// `model` and `counters` outlive the calls.
std::unique_ptr<WireFormat> ModelInferFormat(const ServingModel& model, InferCounters* counters);
std::unique_ptr<WireFormat> ModelStreamInferFormat(const ServingModel& model,
                                                   InferCounters* counters);

}  // namespace quire
