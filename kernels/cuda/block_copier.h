// StreamBlockCopier: blocks moved by the device's copy engines, on a stream for each direction: no
// kernel, and nothing on the stream of the steps.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <vector>

#include "kernels/block_copier.h"

namespace quire::cuda {

class StreamBlockCopier final : public BlockCopier {
 public:
  explicit StreamBlockCopier(int ordinal);
  // Waits for what has begun, and lets go of what is pinned.
  ~StreamBlockCopier() override;
  StreamBlockCopier(const StreamBlockCopier&) = delete;
  StreamBlockCopier& operator=(const StreamBlockCopier&) = delete;

  // Small, so that the first pages are soon pinned and what waits for one call waits little: the
  // driver does nothing else meanwhile.
  size_t pin_bytes() const override { return size_t{128} << 20; }
  bool Pin(void* host, size_t bytes) override;
  uint64_t Begin(Direction direction, std::span<const Copy> copies, size_t bytes) override;
  void WaitFor(Direction direction, uint64_t batch) override;

 private:
  // One direction's.
  struct Lane {
    cudaStream_t stream = nullptr;
    std::array<cudaEvent_t, kMaxBegun> done{};  // a ring
    uint64_t begun = 0;
    std::vector<void*> to;
    std::vector<const void*> from;
    std::vector<size_t> sizes;
  };

  bool Pinned(const void* host, size_t bytes) const;
  void CopyUnpinned(Lane& lane, void* to, const void* from, size_t bytes);
  void CopyPinned(Lane& lane, Direction direction);

  const int ordinal_;
  std::array<Lane, 2> lanes_;  // by direction
  std::vector<void*> registered_;
  // What is pinned is one run of memory that grows at its end.
  std::atomic<std::byte*> pinned_begin_{nullptr}, pinned_end_{nullptr};
  // The system is not asked to pin memory that is being copied.
  std::mutex unpinned_mutex_;
};

}  // namespace quire::cuda
