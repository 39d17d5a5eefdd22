// BlockCopier: copies runs of bytes between device memory and host memory beside the CommandQueue
// of the Backend that made it: no step waits for a copy and no copy for a step. The caller ensures
// that until a copy has ended no step and no other copy writes its source or touches its
// destination.
//
// The two directions are independent, and each belongs to one thread. Destroy a BlockCopier before
// its Backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

class BlockCopier {
 public:
  enum class Direction : uint8_t { kToHost, kToDevice };
  struct Copy {
    void* device = nullptr;
    void* host = nullptr;
  };
  // The most batches of one direction that are begun and not waited for.
  static constexpr int kMaxBegun = 8;

  virtual ~BlockCopier() = default;
  // Bytes of host memory to Pin at a time; 0: this device copies any memory at the same speed.
  virtual size_t pin_bytes() const { return 0; }
  // Pins host memory, so that the device copies it at full speed. Memory that was touched takes
  // 0.04 s a GiB, other memory ten times as long. Each call continues where the one before ended.
  // False: the system refuses, and this memory is copied more slowly. One thread calls it, beside
  // the threads of the directions.
  virtual bool Pin(void* host, size_t bytes) = 0;
  // Begins a batch of copies of `bytes` each, behind the batches begun before; the order within a
  // batch is open. Returns the batch's number, counted from 1 in its direction.
  virtual uint64_t Begin(Direction direction, std::span<const Copy> copies, size_t bytes) = 0;
  // Blocks until this batch and all before it have ended.
  virtual void WaitFor(Direction direction, uint64_t batch) = 0;
};

}  // namespace quire
