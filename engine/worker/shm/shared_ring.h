// SharedRing: messages from one writer to any number of readers through shared memory: slots and a
// count of published messages. A view: it does not own the memory.
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
  // Bytes a ring takes, a multiple of 64. Its memory begins zeroed, at a multiple of 64.
  static int64_t Bytes(const Shape& shape);

  SharedRing(std::byte* memory, const Shape& shape);

  // The slot of message `number`, counted from 0: also that of message number - slots.
  std::span<std::byte> slot(uint64_t number) const;

  // Writer: publishes the next message, which its slot holds, and wakes sleeping readers.
  void Publish();
  // Messages published; a thread that reads n here may read the slots of messages below n. A reader
  // must not rely on a writer in another process to only increase it.
  uint64_t published() const { return head_->published.load(std::memory_order_acquire); }

  // Reader: returns published() once it differs from `seen`, or after kPatienceNs, so that a lost
  // wake costs latency and never hangs. Spins for `spin_ns` before it sleeps.
  uint64_t AwaitChange(uint64_t seen, int64_t spin_ns) const;

  static constexpr int64_t kPatienceNs = 100'000'000;

 private:
  // On cache lines of their own: in the steady state only the writer touches the first.
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
