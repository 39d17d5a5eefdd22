// Publishing with release, reading with acquire, sleeping on the low half of the count.
#include "engine/worker/shm/shared_ring.h"

#include <bit>

#include "engine/base/clock.h"
#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cpu_relax.h"
#include "kernels/futex.h"

namespace quire {
namespace {

constexpr int64_t kLine = 64;

int64_t Padded(int64_t bytes) { return RoundUp(bytes, kLine); }

// The futex is the half of the count that changes with every message.
const std::atomic<uint32_t>& LowHalf(const std::atomic<uint64_t>& count) {
  static_assert(std::endian::native == std::endian::little);
  return reinterpret_cast<const std::atomic<uint32_t>&>(count);
}

}  // namespace

int64_t SharedRing::Bytes(const Shape& shape) {
  return static_cast<int64_t>(sizeof(Head)) + shape.slots * Padded(shape.slot_bytes);
}

SharedRing::SharedRing(std::byte* memory, const Shape& shape)
    : head_(reinterpret_cast<Head*>(memory)), slots_(memory + sizeof(Head)), shape_(shape) {
  CHECK_GT(shape.slots, 0);
  CHECK_EQ(reinterpret_cast<uintptr_t>(memory) % kLine, 0u);
}

std::span<std::byte> SharedRing::slot(uint64_t number) const {
  const auto index = static_cast<int64_t>(number % static_cast<uint64_t>(shape_.slots));
  return {slots_ + index * Padded(shape_.slot_bytes), static_cast<size_t>(shape_.slot_bytes)};
}

void SharedRing::Publish() {
  head_->published.fetch_add(1, std::memory_order_seq_cst);
  // Either this sees the sleeper, or the sleeper, which counted itself first, sees the message.
  if (head_->sleepers.load(std::memory_order_seq_cst) != 0) FutexWake(LowHalf(head_->published));
}

uint64_t SharedRing::AwaitChange(uint64_t seen, int64_t spin_ns) const {
  if (spin_ns > 0) {
    const int64_t until_ns = SteadyNowNs() + spin_ns;
    do {
      for (int i = 0; i < 16; ++i) {
        if (const uint64_t now = published(); now != seen) return now;
        CpuRelax();
      }
    } while (SteadyNowNs() < until_ns);
  }
  head_->sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (head_->published.load(std::memory_order_seq_cst) == seen) {
    FutexWait(LowHalf(head_->published), static_cast<uint32_t>(seen), SteadyNowNs() + kPatienceNs);
  }
  head_->sleepers.fetch_sub(1, std::memory_order_relaxed);
  return published();
}

}  // namespace quire
