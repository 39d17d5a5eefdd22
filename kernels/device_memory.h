// DeviceMemory: takes memory of one rank's device and of the host, and moves bytes between them.
//
// Copies are enqueued on the device's CommandQueue. Host memory that a copy reads or writes must
// stay valid, and untouched by the host, until a WaitFor or Synchronize of that queue has returned;
// the bytes of CopyToHost are visible from then on.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/block_copier.h"
#include "kernels/buffer.h"

namespace quire {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Zeroed device memory, 256-byte aligned. Empty when the device has too little left, counting the
  // memory of every backend in this process.
  virtual Buffer Allocate(size_t bytes) = 0;
  // As Allocate, for tensors that the other ranks write (kernels/collectives.h). Every rank of the
  // group makes the same calls in the same order. Must outlive all of the group's collectives.
  virtual Buffer AllocateShared(size_t bytes) = 0;
  // Zeroed host memory that the device reads and writes in place and copies at full speed. Empty
  // when the host has too little left.
  virtual Buffer AllocateHost(size_t bytes) = 0;
  // Lets operations read and write [host, host + bytes), host memory of another owner, in place;
  // that owner may write to it meanwhile. It outlives this. False if the device cannot.
  virtual bool UseInPlace(void* /*host*/, size_t /*bytes*/) { return true; }
  virtual void CopyToDevice(void* device, const void* host, size_t bytes) = 0;
  virtual void CopyToHost(void* host, const void* device, size_t bytes) = 0;
  // Both ranges are device memory and do not overlap. Must not be captured.
  virtual void CopyOnDevice(void* to, const void* from, size_t bytes) = 0;
  // A copier that works beside the CommandQueue, on its callers' threads. Takes no device memory.
  // Destroy it before this.
  virtual std::unique_ptr<BlockCopier> MakeBlockCopier() = 0;
};

}  // namespace quire
