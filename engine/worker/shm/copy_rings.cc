// Loads, then stores; jobs, then acks. At the end, on a line of its own, the pages that are ready.
#include "engine/worker/shm/copy_rings.h"

#include <type_traits>

namespace quire {
namespace {

static_assert(std::is_trivially_copyable_v<CopyJobMessage>);
static_assert(std::is_trivially_copyable_v<CopyAck>);

// One slot more than jobs in flight, for the last message.
constexpr SharedRing::Shape kJobs = {.slots = CopyJob::kMaxInFlight + 1,
                                     .slot_bytes = sizeof(CopyJobMessage)};
constexpr SharedRing::Shape kAcks = {.slots = CopyJob::kMaxInFlight, .slot_bytes = sizeof(CopyAck)};

constexpr int64_t kLineBytes = 64;

int64_t DirectionBytes() { return SharedRing::Bytes(kJobs) + SharedRing::Bytes(kAcks); }

int64_t Offset(CopyDirection direction) {
  return direction == CopyDirection::kLoad ? 0 : DirectionBytes();
}

}  // namespace

int64_t CopyRings::Bytes() { return 2 * DirectionBytes() + kLineBytes; }

SharedRing CopyRings::jobs(CopyDirection direction) const {
  return {memory_ + Offset(direction), kJobs};
}

SharedRing CopyRings::acks(CopyDirection direction) const {
  return {memory_ + Offset(direction) + SharedRing::Bytes(kJobs), kAcks};
}

std::atomic<int32_t>& CopyRings::ready_pages() const {
  return *reinterpret_cast<std::atomic<int32_t>*>(memory_ + 2 * DirectionBytes());
}

}  // namespace quire
