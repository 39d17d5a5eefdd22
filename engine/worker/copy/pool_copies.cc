// Blocks and pages as addresses, checksums, and the preparation of pages.
#include "engine/worker/copy/pool_copies.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "kernels/check.h"

namespace quire {
namespace {

BlockCopier::Direction DeviceDirection(CopyDirection direction) {
  return direction == CopyDirection::kStore ? BlockCopier::Direction::kToHost
                                            : BlockCopier::Direction::kToDevice;
}

}  // namespace

PoolCopies::PoolCopies(const KvCache& cache, std::shared_ptr<HostArena> arena,
                       std::unique_ptr<BlockCopier> copier, bool checksum)
    : cache_(cache),
      arena_(std::move(arena)),
      checksum_(checksum),
      begin_ns_(SteadyNowNs()),
      copier_(std::move(copier)) {
  CHECK_EQ(cache_.layout().block_bytes(), arena_->shape().page_bytes);
  CHECK(!checksum || arena_->shape().checksums);
  if (copier_->pin_bytes() > 0) toucher_.emplace(*arena_);
}

int32_t PoolCopies::PrepareNext() {
  const int32_t num_pages = arena_->shape().num_pages;
  if (num_ready_ == num_pages || !toucher_.has_value()) return kAllPages;
  const int64_t stride = arena_->stride();
  const auto pin_bytes = static_cast<int64_t>(copier_->pin_bytes());
  const auto at_once = static_cast<int32_t>(std::max<int64_t>(1, pin_bytes / stride));
  const int32_t count = std::min(at_once, num_pages - num_ready_);
  toucher_->Await(num_ready_ + count);
  launch_gate_.Await();
  const int64_t pin_ns = SteadyNowNs();
  if (!copier_->Pin(arena_->page(num_ready_).data(), static_cast<size_t>(count * stride))) {
    Log(Severity::kWarning, "host memory for KV is not all pinned: the rest is copied slowly",
        {{"pinned_bytes", num_ready_ * stride}});
    return kAllPages;
  }
  pinning_ns_ += SteadyNowNs() - pin_ns;
  num_ready_ += count;
  if (num_ready_ == num_pages) {
    Log(Severity::kInfo, "host memory for KV is ready",
        {{"bytes", num_ready_ * stride},
         {"seconds", static_cast<double>(SteadyNowNs() - begin_ns_) * 1e-9},
         {"pinning_seconds", static_cast<double>(pinning_ns_) * 1e-9}});
  }
  return num_ready_;
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
