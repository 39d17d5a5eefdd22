// EventProfiler: times the parts of a step by events on the backend's stream.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/marked_stream.h"
#include "kernels/cuda/profile_ranges.h"
#include "kernels/step_profiler.h"

namespace quire::cuda {

class EventProfiler final : public StepProfiler {
 public:
  // `stream` outlives this. Creates all events, so that service creates none.
  explicit EventProfiler(const MarkedStream& stream);
  ~EventProfiler() override;

  void BeginRange(const char* name, int64_t number) override { ranges_.Begin(name, number); }
  void EndRange() override { ranges_.End(); }
  void Record(bool on) override;

 protected:
  void Stamp(int index) override;
  // The step's mark, which follows at once, is its end.
  void StampEnd(bool keep_last) override;
  int64_t NsBetween(int from, int to) override;

 private:
  const MarkedStream& stream_;
  std::vector<cudaEvent_t> events_;  // [kMaxParts + 1]
  uint64_t last_end_ = 0;            // mark
  uint64_t kept_end_ = 0;
  ProfileRanges ranges_;
};

}  // namespace quire::cuda
