// PoolCopies: copies between the blocks of one rank's KV pool and the pages of its host arena.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "engine/model/kv_cache.h"
#include "engine/worker/copy/copy_runner.h"
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
  void Prepare(const std::atomic<bool>& stop) override;
  void Begin(CopyDirection direction, std::span<const BlockCopy> copies) override;
  Outcome Finish(CopyDirection direction) override;

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

  int32_t PagesToPin() const;

  const KvCache& cache_;
  const std::shared_ptr<HostArena> arena_;
  const bool checksum_;
  std::array<Lane, 2> lanes_;                  // by direction
  std::atomic<PageId> last_used_{-1};          // the highest page of any copy so far
  int32_t num_pinned_ = 0;                     // the first pages; Prepare's thread
  bool pin_refused_ = false;                   // Prepare's thread
  const std::unique_ptr<BlockCopier> copier_;  // its destructor waits for the copies it began
};

}  // namespace quire
