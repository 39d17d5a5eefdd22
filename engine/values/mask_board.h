// MaskBoard: masks that are made while their step runs. The plan of a step may say that a draw's
// mask comes late: it then comes to an entry of this board, which the engine writes and the devices
// of all ranks of one host read in place. A view: it does not own the memory.
//
// An entry is a word and a mask. The word is kMaskAwaited until the mask is there, then the length
// of the row that the mask is for, or kMaskWithheld if no mask will come (SampleJob::mask_for).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/futex.h"
#include "kernels/sampling.h"

namespace quire {

class MaskBoard {
 public:
  struct Shape {
    int32_t depth = 0;  // steps in flight
    int32_t masks = 0;  // of a step
    int32_t words = 0;  // of a mask

    bool operator==(const Shape&) const = default;
  };
  // Bytes of a board, a multiple of 64. Its memory begins at a multiple of 64.
  static int64_t Bytes(const Shape& shape) {
    return int64_t{shape.depth} * shape.masks * EntryBytes(shape.words);
  }

  // A board without entries: no mask comes late.
  MaskBoard() = default;
  MaskBoard(std::byte* memory, const Shape& shape) : memory_(memory), shape_(shape) {}

  bool empty() const { return Bytes(shape_) == 0; }
  std::span<std::byte> bytes() const { return {memory_, static_cast<size_t>(Bytes(shape_))}; }

  // --- The engine's thread. Entry `index` of step `step`, which is in flight.
  // Before the plan is published.
  void Open(uint64_t step, int32_t index) const { Store(step, index, kMaskAwaited); }
  // The mask of the draw behind `num_known` tokens; once for each Open.
  void Post(uint64_t step, int32_t index, int32_t num_known, std::span<const uint32_t> mask) const {
    CHECK_EQ(mask.size(), static_cast<size_t>(shape_.words));
    std::memcpy(Entry(step, index) + kHeadBytes, mask.data(), mask.size_bytes());
    Store(step, index, static_cast<uint32_t>(num_known));
  }
  void Withhold(uint64_t step, int32_t index) const { Store(step, index, kMaskWithheld); }
  // A mask was posted since Open.
  bool IsPosted(uint64_t step, int32_t index) const {
    const std::atomic_ref value(*word(step, index));
    const uint32_t now = value.load(std::memory_order_relaxed);
    return now != kMaskAwaited && now != kMaskSleeping && now != kMaskWithheld;
  }

  // --- Readers.
  uint32_t* word(uint64_t step, int32_t index) const {
    return reinterpret_cast<uint32_t*>(Entry(step, index));
  }
  const uint32_t* mask(uint64_t step, int32_t index) const {
    return reinterpret_cast<const uint32_t*>(Entry(step, index) + kHeadBytes);
  }

 private:
  static constexpr int64_t kHeadBytes = 64;
  static int64_t EntryBytes(int32_t words) {
    return kHeadBytes + RoundUp<int64_t>(int64_t{words} * 4, 64);
  }

  std::byte* Entry(uint64_t step, int32_t index) const {
    CHECK(0 <= index && index < shape_.masks);
    const auto slot = static_cast<int64_t>(step % static_cast<uint64_t>(shape_.depth));
    return memory_ + (slot * shape_.masks + index) * EntryBytes(shape_.words);
  }
  void Store(uint64_t step, int32_t index, uint32_t value) const {
    auto& atomic = *reinterpret_cast<std::atomic<uint32_t>*>(word(step, index));
    if (atomic.exchange(value, std::memory_order_acq_rel) == kMaskSleeping) FutexWake(atomic);
  }

  std::byte* memory_ = nullptr;
  Shape shape_;
};

}  // namespace quire
