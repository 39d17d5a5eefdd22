// The layout: the masks, in pages of their own because devices read them in place; the plans; then
// rank by rank a heartbeat, the results and the copies.
#include "engine/worker/process/step_memory.h"

#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "kernels/ceil_div.h"
#include "kernels/check.h"

namespace quire {

absl::StatusOr<StepMemory> StepMemory::Create(SharedMemory memory, const Shape& shape) {
  CHECK(shape.ranks > 0 && shape.depth > 0);
  StepMemory steps(std::move(memory), shape);
  RETURN_IF_ERROR(steps.memory_.Allocate(steps.TotalBytes()));
  return steps;
}

absl::StatusOr<StepMemory> StepMemory::Attach(SharedMemory memory, const Shape& shape) {
  StepMemory steps(std::move(memory), shape);
  if (steps.memory_.bytes() != steps.TotalBytes()) {
    return absl::InternalError("the shared memory has " + std::to_string(steps.memory_.bytes()) +
                               " bytes, not the " + std::to_string(steps.TotalBytes()) +
                               " of its shape: server and worker are of different builds");
  }
  return steps;
}

SharedRing::Shape StepMemory::PlanRing() const {
  return {.slots = shape_.depth + 1, .slot_bytes = shape_.bounds.PlanBytes()};
}

SharedRing::Shape StepMemory::ResultRing() const {
  return {.slots = shape_.depth, .slot_bytes = shape_.bounds.ResultBytes()};
}

int64_t StepMemory::RankBytes() const {
  return static_cast<int64_t>(sizeof(Heartbeat)) + SharedRing::Bytes(ResultRing()) +
         CopyRings::Bytes();
}

MaskBoard::Shape StepMemory::BoardShape() const {
  const PlanBounds& bounds = shape_.bounds;
  if (!shape_.late_masks) return {};
  return {.depth = shape_.depth,
          .masks = bounds.max_rows,
          .words = static_cast<int32_t>(MaskWords(bounds.vocab_size))};
}

int64_t StepMemory::BoardBytes() const {
  constexpr int64_t kPage = 4096;
  return RoundUp(MaskBoard::Bytes(BoardShape()), kPage);
}

int64_t StepMemory::TotalBytes() const {
  return BoardBytes() + SharedRing::Bytes(PlanRing()) + shape_.ranks * RankBytes();
}

std::byte* StepMemory::RankMemory(int32_t rank) const {
  CHECK(0 <= rank && rank < shape_.ranks);
  return memory_.data() + BoardBytes() + SharedRing::Bytes(PlanRing()) + rank * RankBytes();
}

SharedRing StepMemory::plans() const { return {memory_.data() + BoardBytes(), PlanRing()}; }

MaskBoard StepMemory::masks() const { return {memory_.data(), BoardShape()}; }

SharedRing StepMemory::results(int32_t rank) const {
  return {RankMemory(rank) + sizeof(Heartbeat), ResultRing()};
}

CopyRings StepMemory::copies(int32_t rank) const {
  return CopyRings(RankMemory(rank) + sizeof(Heartbeat) + SharedRing::Bytes(ResultRing()));
}

Heartbeat& StepMemory::heartbeat(int32_t rank) const {
  return *reinterpret_cast<Heartbeat*>(RankMemory(rank));
}

}  // namespace quire
