// One stream that does not wait for the default stream.
#include "kernels/cuda/marked_stream.h"

#include "kernels/cuda/device/check.h"

namespace quire::cuda {

MarkedStream::MarkedStream() {
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  for (cudaEvent_t& event : events_) CUDA_CHECK(cudaEventCreate(&event));
}

MarkedStream::~MarkedStream() {
  cudaStreamSynchronize(stream_);
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
  cudaStreamDestroy(stream_);
}

uint64_t MarkedStream::Mark() {
  ++marks_;
  CUDA_CHECK(cudaEventRecord(event(marks_), stream_));
  return marks_;
}

void MarkedStream::WaitFor(uint64_t mark) const { CUDA_CHECK(cudaEventSynchronize(event(mark))); }

}  // namespace quire::cuda
