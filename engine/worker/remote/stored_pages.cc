// Marks of pages. The caller has checked that the pages of a job exist.
#include "engine/worker/remote/stored_pages.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/status_macros.h"

namespace quire {
namespace {

std::span<const BlockCopy> CopiesOf(const CopyJobMessage& job) {
  return {job.copies, static_cast<size_t>(job.count)};
}

}  // namespace

absl::Status StoredPages::Renew(const std::string& leader_instance) {
  if (arena_ != nullptr && instance_ == leader_instance) return absl::OkStatus();
  ASSIGN_OR_RETURN(HostArena arena, HostArena::Create());
  arena_ = std::make_unique<HostArena>(std::move(arena));
  instance_ = leader_instance;
  stored_.clear();
  return absl::OkStatus();
}

absl::Status StoredPages::Allocate(const HostArena::Shape& shape) {
  const HostArena::Shape& mine = arena_->shape();
  if (mine.num_pages == 0) {
    RETURN_IF_ERROR(arena_->Allocate(shape));
    stored_.assign(static_cast<size_t>(shape.num_pages), false);
    return absl::OkStatus();
  }
  const bool same = mine.num_pages == shape.num_pages && mine.page_bytes == shape.page_bytes &&
                    mine.checksums == shape.checksums;
  return same ? absl::OkStatus()
              : absl::InvalidArgumentError("the leader changed the shape of host memory");
}

void StoredPages::Begin(CopyDirection direction, const CopyJobMessage& job) {
  if (direction != CopyDirection::kStore) return;
  for (const BlockCopy& copy : CopiesOf(job)) stored_[copy.page] = false;
}

void StoredPages::End(const CopyJobMessage& job, const CopyAck& ack) {
  if (ack.job != job.job || ack.status != CopyStatus::kOk || ack.num_good != job.count) return;
  for (const BlockCopy& copy : CopiesOf(job)) stored_[copy.page] = true;
}

bool StoredPages::Hold(const CopyJobMessage& job) const {
  const auto copies = CopiesOf(job);
  return std::all_of(copies.begin(), copies.end(),
                     [this](const BlockCopy& copy) { return stored_[copy.page]; });
}

}  // namespace quire
