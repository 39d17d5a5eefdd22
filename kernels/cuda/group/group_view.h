// GroupView: a rank's group as its kernels see it: the memory of every rank that all may write.
//
// A call is one kernel on each rank, in the same order on all. Calls are numbered by `state`, in
// device memory, so that a captured call needs no argument that changes. A rank's inbox holds
// - two turns of one slot for each rank, which sums pass through (sum_rms_norm.cu);
// - the results of draws;
// - flags, one line for each block and rank: the number of the last call in which that rank's block
//   has written all it writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sampling.h"

namespace quire::cuda {

// Ranks that reach each other's memory; NCCL joins more.
inline constexpr int kMaxPeers = 8;
inline constexpr int kFlagBlocks = 64;
inline constexpr int kFlagBytes = 128;  // a line of its own each

// This rank's count of calls.
struct GroupState {
  uint32_t call = 0;
  uint32_t blocks_done = 0;  // of the running call; its last block sets it to 0
};

// Offsets in bytes from the beginning of an inbox.
struct InboxLayout {
  int64_t slot_bytes = 0;
  int64_t results = 0;
  int64_t flags = 0;
  int64_t bytes = 0;
};

struct GroupView {
  std::byte* inbox[kMaxPeers] = {};  // of each rank, as this rank reaches it
  InboxLayout layout;
  GroupState* state = nullptr;
  uint64_t* calls_begun = nullptr;  // of the host, for its watch over this rank; may be null
  int32_t rank = 0;
  int32_t ranks = 1;
};

}  // namespace quire::cuda
