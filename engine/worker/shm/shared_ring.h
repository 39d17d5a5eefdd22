// SharedRing: messages from one writer to any number of readers through shared memory: slots, and a
// count of what was published. A view: the memory is somebody else's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

class SharedRing {
 public:
  struct Shape {
    int32_t slots = 0;
    int64_t slot_bytes = 0;
  };
  // Memory a ring takes, a multiple of 64; it begins at a multiple of 64, as zeros.
  static int64_t Bytes(const Shape& shape);

  SharedRing(std::byte* memory, const Shape& shape);

  // Where message `number` (counted from 0) lies, or will: the slot of message number - slots.
  std::span<std::byte> slot(uint64_t number) const;

  // The writer: the slot of the next message holds it; readers that sleep wake.
  void Publish();
  // Messages published; whoever reads n here may read the slots of messages below n. A reader in
  // another process should not believe that it only grows.
  uint64_t published() const { return head_->published.load(std::memory_order_acquire); }

  // A reader: returns published() once it differs from `seen`, or after kPatienceNs: a wake that
  // was lost costs latency, never a hang. Spins for `spin_ns` before it sleeps.
  uint64_t AwaitChange(uint64_t seen, int64_t spin_ns) const;

  static constexpr int64_t kPatienceNs = 100'000'000;

 private:
  // In cache lines of their own: the writer alone touches the first in the steady state.
  struct Head {
    alignas(64) std::atomic<uint64_t> published;
    alignas(64) std::atomic<uint32_t> sleepers;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  Head* head_;
  std::byte* slots_;
  Shape shape_;
};

}  // namespace quire
