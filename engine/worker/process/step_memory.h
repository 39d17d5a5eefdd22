// StepMemory: the memory that the server and the ranks of one worker group share: a ring of plans
// and a board of masks that all ranks read, and for each rank a heartbeat, a ring of results and
// the rings of its copies.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/values/mask_board.h"
#include "engine/worker/process/plan_codec.h"
#include "engine/worker/shm/copy_rings.h"
#include "engine/worker/shm/shared_memory.h"
#include "engine/worker/shm/shared_ring.h"

namespace quire {

// The progress of a rank; written by the rank, read by the supervisor.
struct Heartbeat {
  alignas(64) std::atomic<uint64_t> launched;  // steps begun
  std::atomic<uint64_t> finished;              // steps whose result is published
  std::atomic<uint64_t> collectives;           // exchanges with the other ranks begun
  std::atomic<int64_t> at_ns;                  // the steady clock, at the last change of the above
};

class StepMemory {
 public:
  struct Shape {
    int32_t ranks = 0;
    int32_t depth = 0;  // steps in flight
    PlanBounds bounds;
    bool late_masks = false;  // plans may have masks that come late
    int32_t num_pages = 0;    // of host memory; 0: no copies
    int64_t block_bytes = 0;  // of one rank

    bool operator==(const Shape&) const = default;
  };

  // Allocates the memory of a descriptor from SharedMemory::Create.
  static absl::StatusOr<StepMemory> Create(SharedMemory memory, const Shape& shape);
  // Attaches to memory that a process created with the same shape.
  static absl::StatusOr<StepMemory> Attach(SharedMemory memory, const Shape& shape);

  const Shape& shape() const { return shape_; }
  // One slot more than steps in flight, for the plan that ends the ranks.
  SharedRing plans() const;
  // Empty without late masks.
  MaskBoard masks() const;
  SharedRing results(int32_t rank) const;
  CopyRings copies(int32_t rank) const;
  Heartbeat& heartbeat(int32_t rank) const;

 private:
  StepMemory(SharedMemory memory, const Shape& shape) : memory_(std::move(memory)), shape_(shape) {}
  SharedRing::Shape PlanRing() const;
  SharedRing::Shape ResultRing() const;
  MaskBoard::Shape BoardShape() const;
  int64_t BoardBytes() const;
  int64_t RankBytes() const;
  int64_t TotalBytes() const;
  std::byte* RankMemory(int32_t rank) const;

  SharedMemory memory_;
  Shape shape_;
};

}  // namespace quire
