// Copies on streams, waits by events, and pins by registration of host memory.
#include "kernels/cuda/block_copier.h"

#include "kernels/check.h"
#include "kernels/cuda/device/check.h"

namespace quire::cuda {

StreamBlockCopier::StreamBlockCopier(int ordinal) : ordinal_(ordinal) {
  CUDA_CHECK(cudaSetDevice(ordinal));
  int lowest = 0, highest = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  for (Lane& lane : lanes_) {
    CUDA_CHECK(cudaStreamCreateWithPriority(&lane.stream, cudaStreamNonBlocking, lowest));
    for (cudaEvent_t& event : lane.done) {
      CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
    }
  }
}

StreamBlockCopier::~StreamBlockCopier() {
  for (Lane& lane : lanes_) {
    cudaStreamSynchronize(lane.stream);
    for (cudaEvent_t event : lane.done) cudaEventDestroy(event);
    cudaStreamDestroy(lane.stream);
  }
  for (void* host : registered_) cudaHostUnregister(host);
}

bool StreamBlockCopier::Pin(void* host, size_t bytes) {
  auto* const begin = static_cast<std::byte*>(host);
  CHECK(pinned_begin_ == nullptr || pinned_end_ == begin);
  CUDA_CHECK(cudaSetDevice(ordinal_));
  {
    const std::lock_guard lock(unpinned_mutex_);
    if (cudaHostRegister(host, bytes, cudaHostRegisterPortable) != cudaSuccess) {
      cudaGetLastError();  // clears the error, or this thread's next call would report it
      return false;
    }
  }
  registered_.push_back(host);
  if (pinned_begin_ == nullptr) pinned_begin_ = begin;
  pinned_end_ = begin + bytes;
  return true;
}

bool StreamBlockCopier::Pinned(const void* host, size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(host);
  // The end is read first: the beginning that is read after it belongs to it.
  const std::byte* const end = pinned_end_;
  return pinned_begin_ <= begin && begin + bytes <= end;
}

uint64_t StreamBlockCopier::Begin(Direction direction, std::span<const Copy> copies, size_t bytes) {
  CUDA_CHECK(cudaSetDevice(ordinal_));
  Lane& lane = lanes_[static_cast<size_t>(direction)];
  lane.to.clear();
  lane.from.clear();
  for (const Copy& copy : copies) {
    const bool to_host = direction == Direction::kToHost;
    void* const to = to_host ? copy.host : copy.device;
    const void* const from = to_host ? copy.device : copy.host;
    if (!Pinned(copy.host, bytes)) {
      CopyUnpinned(lane, to, from, bytes);
      continue;
    }
    lane.to.push_back(to);
    lane.from.push_back(from);
  }
  lane.sizes.assign(lane.to.size(), bytes);
  if (!lane.to.empty()) CopyPinned(lane, direction);
  ++lane.begun;
  CUDA_CHECK(cudaEventRecord(lane.done[lane.begun % lane.done.size()], lane.stream));
  return lane.begun;
}

void StreamBlockCopier::CopyUnpinned(Lane& lane, void* to, const void* from, size_t bytes) {
  const std::lock_guard lock(unpinned_mutex_);
  CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, lane.stream));
  CUDA_CHECK(cudaStreamSynchronize(lane.stream));
}

void StreamBlockCopier::CopyPinned(Lane& lane, Direction direction) {
  cudaMemcpyAttributes attributes{};
  // A page is complete before its load is requested, and no earlier call of this stream writes it.
  attributes.srcAccessOrder = direction == Direction::kToHost ? cudaMemcpySrcAccessOrderStream
                                                              : cudaMemcpySrcAccessOrderAny;
  attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
  size_t first = 0;
  CUDA_CHECK(cudaMemcpyBatchAsync(lane.to.data(), lane.from.data(), lane.sizes.data(),
                                  lane.to.size(), &attributes, &first, 1, lane.stream));
}

void StreamBlockCopier::WaitFor(Direction direction, uint64_t batch) {
  Lane& lane = lanes_[static_cast<size_t>(direction)];
  CHECK(0 < batch && batch <= lane.begun && lane.begun - batch < lane.done.size());
  CUDA_CHECK(cudaEventSynchronize(lane.done[batch % lane.done.size()]));
}

}  // namespace quire::cuda
