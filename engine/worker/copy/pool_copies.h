// PoolCopies: copies between the blocks of one rank's KV pool and the pages of its host arena. On a
// device that copies pinned memory faster, a page is ready when it is pinned. Pages are pinned in
// small pieces, each after its memory was touched and while no step is launched: the driver does
// not launch while it pins.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "engine/model/kv_cache.h"
#include "engine/worker/copy/copy_runner.h"
#include "engine/worker/copy/launch_gate.h"
#include "engine/worker/shm/arena_toucher.h"
#include "engine/worker/shm/host_arena.h"
#include "kernels/block_copier.h"

namespace quire {

class PoolCopies final : public CopyRunner {
 public:
  // `cache` outlives this; its blocks are as large as the arena's pages. With `checksum` a stored
  // page is signed, and a page is loaded only if it is intact.
  PoolCopies(const KvCache& cache, std::shared_ptr<HostArena> arena,
             std::unique_ptr<BlockCopier> copier, bool checksum);

  int64_t block_bytes() const override { return cache_.layout().block_bytes(); }
  int32_t PrepareNext() override;
  void Begin(CopyDirection direction, std::span<const BlockCopy> copies) override;
  Outcome Finish(CopyDirection direction) override;

  // The thread that launches steps says so here.
  LaunchGate& launch_gate() { return launch_gate_; }

 private:
  struct Batch {
    uint64_t number = 0;  // the copier's; 0: nothing was begun
    Outcome outcome;
    std::vector<PageId> unsigned_pages;  // being stored
  };
  // Used by one direction's thread only.
  struct Lane {
    std::array<Batch, kMaxBegun> batches;  // a ring
    uint64_t begun = 0;
    uint64_t finished = 0;
    std::vector<BlockCopier::Copy> copies;
  };

  const KvCache& cache_;
  const std::shared_ptr<HostArena> arena_;
  const bool checksum_;
  std::array<Lane, 2> lanes_;            // by direction
  std::optional<ArenaToucher> toucher_;  // unless all pages were ready from the start
  int32_t num_ready_ = 0;                // PrepareNext's thread
  int64_t begin_ns_ = 0;                 // of the preparation
  int64_t pinning_ns_ = 0;               // its share in the driver
  LaunchGate launch_gate_;
  const std::unique_ptr<BlockCopier> copier_;  // its destructor waits for the copies it began
};

}  // namespace quire
