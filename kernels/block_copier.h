// BlockCopier: copies runs of bytes between a device's memory and the host's, outside of the order
// of the Backend that made it: no step waits for a copy, and no copy for a step. Whoever asks for a
// copy knows that nobody writes what it reads, or reads what it writes, until it is done.
//
// The two directions know nothing of each other, and each belongs to one thread. Ends before its
// Backend does.
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
  // Batches of one direction that may be begun and not waited for.
  static constexpr int kMaxBegun = 8;

  virtual ~BlockCopier() = default;
  // How much host memory to Pin at a time; 0: this device copies from any memory as fast.
  virtual size_t pin_bytes() const { return 0; }
  // Makes host memory one that the device copies at full speed; takes about a tenth of a second a
  // GiB. Each call continues where the one before ended. False: the system refuses, and this memory
  // is copied more slowly. One thread, beside those of the directions.
  virtual bool Pin(void* host, size_t bytes) = 0;
  // Begins copies of `bytes` each, in any order among themselves, behind those begun before.
  // Returns the batch's number, counted from 1 in its direction.
  virtual uint64_t Begin(Direction direction, std::span<const Copy> copies, size_t bytes) = 0;
  // Blocks until this batch, and all before it, are done.
  virtual void WaitFor(Direction direction, uint64_t batch) = 0;
};

}  // namespace quire
