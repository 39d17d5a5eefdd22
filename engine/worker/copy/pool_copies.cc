// Blocks and pages as addresses, checksums, and pinning.
#include "engine/worker/copy/pool_copies.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "kernels/check.h"

namespace quire {
namespace {

// Pinned before the first copy.
constexpr int64_t kPinAhead = int64_t{1} << 30;

BlockCopier::Direction DeviceDirection(CopyDirection direction) {
  return direction == CopyDirection::kStore ? BlockCopier::Direction::kToHost
                                            : BlockCopier::Direction::kToDevice;
}

}  // namespace

PoolCopies::PoolCopies(const KvCache& cache, std::shared_ptr<HostArena> arena,
                       std::unique_ptr<BlockCopier> copier, bool checksum)
    : cache_(cache), arena_(std::move(arena)), checksum_(checksum), copier_(std::move(copier)) {
  CHECK_EQ(cache_.layout().block_bytes(), arena_->shape().page_bytes);
}

// The scheduler takes pages in order from the first. The pages in use are therefore at the
// beginning; as many again, and some GiB more, will be used soon.
int32_t PoolCopies::PagesToPin() const {
  const int64_t ahead = kPinAhead / arena_->stride() + 1;
  const int64_t used = last_used_.load(std::memory_order_acquire) + int64_t{1};
  return static_cast<int32_t>(std::min<int64_t>(2 * used + ahead, arena_->shape().num_pages));
}

// Pinning slows the device while it runs, so unused pages are not pinned.
void PoolCopies::Prepare(const std::atomic<bool>& stop) {
  if (copier_->pin_bytes() == 0 || pin_refused_ || num_pinned_ >= PagesToPin()) return;
  const int64_t begin_ns = SteadyNowNs();
  const int64_t stride = arena_->stride();
  const auto pin_bytes = static_cast<int64_t>(copier_->pin_bytes());
  const auto at_once = static_cast<int32_t>(std::max<int64_t>(1, pin_bytes / stride));
  while (num_pinned_ < PagesToPin() && !stop.load(std::memory_order_acquire)) {
    const int32_t count = std::min(at_once, arena_->shape().num_pages - num_pinned_);
    arena_->Touch(num_pinned_, count);
    pin_refused_ =
        !copier_->Pin(arena_->page(num_pinned_).data(), static_cast<size_t>(count * stride));
    if (pin_refused_) {
      Log(Severity::kWarning, "host memory for KV is not all pinned: the rest is copied slowly",
          {{"pinned_bytes", num_pinned_ * stride}});
      return;
    }
    num_pinned_ += count;
  }
  Log(Severity::kInfo, "host memory for KV is pinned as far as it is used",
      {{"bytes", num_pinned_ * stride},
       {"seconds", static_cast<double>(SteadyNowNs() - begin_ns) * 1e-9}});
}

void PoolCopies::Begin(CopyDirection direction, std::span<const BlockCopy> copies) {
  Lane& lane = lanes_[static_cast<size_t>(direction)];
  CHECK_LT(lane.begun - lane.finished, lane.batches.size());
  Batch& batch = lane.batches[lane.begun++ % lane.batches.size()];
  batch.number = 0;
  batch.outcome = {};
  batch.unsigned_pages.clear();
  lane.copies.clear();
  for (const BlockCopy& copy : copies) {
    CHECK(0 < copy.block && copy.block < cache_.num_blocks());
    if (checksum_ && direction == CopyDirection::kLoad && !arena_->Intact(copy.page)) {
      batch.outcome.status = CopyStatus::kCorrupt;
      break;
    }
    PageId last = last_used_.load(std::memory_order_relaxed);
    while (last < copy.page && !last_used_.compare_exchange_weak(last, copy.page)) {
    }
    lane.copies.push_back({cache_.block_data(copy.block), arena_->page(copy.page).data()});
    if (checksum_ && direction == CopyDirection::kStore) batch.unsigned_pages.push_back(copy.page);
  }
  batch.outcome.num_good = static_cast<int32_t>(lane.copies.size());
  if (lane.copies.empty()) return;
  batch.number =
      copier_->Begin(DeviceDirection(direction), lane.copies, static_cast<size_t>(block_bytes()));
}

CopyRunner::Outcome PoolCopies::Finish(CopyDirection direction) {
  Lane& lane = lanes_[static_cast<size_t>(direction)];
  CHECK_LT(lane.finished, lane.begun);
  const Batch& batch = lane.batches[lane.finished++ % lane.batches.size()];
  if (batch.number > 0) copier_->WaitFor(DeviceDirection(direction), batch.number);
  for (const PageId page : batch.unsigned_pages) arena_->Sign(page);
  return batch.outcome;
}

}  // namespace quire
