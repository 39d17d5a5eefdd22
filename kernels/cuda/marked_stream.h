// MarkedStream: the stream of a backend's work, and the events of its last marks.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>

namespace quire::cuda {

class MarkedStream {
 public:
  MarkedStream();
  // Waits for the stream. Everything that uses it must be gone.
  ~MarkedStream();
  MarkedStream(const MarkedStream&) = delete;
  MarkedStream& operator=(const MarkedStream&) = delete;

  cudaStream_t get() const { return stream_; }
  // Marks count from 1; the events of the last 16 are kept.
  uint64_t Mark();
  uint64_t marks() const { return marks_; }
  void WaitFor(uint64_t mark) const;
  // With a time of the device; of one of the last 16 marks.
  cudaEvent_t event(uint64_t mark) const { return events_[mark % events_.size()]; }

 private:
  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, 16> events_{};
  uint64_t marks_ = 0;
};

}  // namespace quire::cuda
