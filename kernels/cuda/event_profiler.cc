// Stamps are events with a time of the device.
#include "kernels/cuda/event_profiler.h"

#include <cuda_profiler_api.h>

#include <utility>

#include "kernels/cuda/device/check.h"

namespace quire::cuda {

EventProfiler::EventProfiler(const MarkedStream& stream) : stream_(stream), events_(kMaxParts + 1) {
  for (cudaEvent_t& event : events_) CUDA_CHECK(cudaEventCreate(&event));
}

EventProfiler::~EventProfiler() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

// A profiler that cannot record is no reason to stop serving.
void EventProfiler::Record(bool on) {
  if ((on ? cudaProfilerStart() : cudaProfilerStop()) != cudaSuccess) cudaGetLastError();
}

void EventProfiler::Stamp(int index) {
  CUDA_CHECK(cudaEventRecord(events_[static_cast<size_t>(index)], stream_.get()));
}

void EventProfiler::StampEnd(bool keep_last) {
  const uint64_t last = std::exchange(last_end_, stream_.marks() + 1);
  if (keep_last) kept_end_ = last;
}

int64_t EventProfiler::NsBetween(int from, int to) {
  if (from < 0 && kept_end_ == 0) return 0;  // no step came before
  const cudaEvent_t begin =
      from < 0 ? stream_.event(kept_end_) : events_[static_cast<size_t>(from)];
  float ms = 0;
  CUDA_CHECK(cudaEventElapsedTime(&ms, begin, events_[static_cast<size_t>(to)]));
  return static_cast<int64_t>(static_cast<double>(ms) * 1e6);
}

}  // namespace quire::cuda
