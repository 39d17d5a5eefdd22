// The bounded queue, its order and its threads.
#include "server/call/text_pool.h"

#include <algorithm>

#include "engine/base/timeline.h"
#include "server/call/status_codec.h"

namespace quire {
namespace {

// The work of a job without text, in bytes of text.
constexpr uint64_t kJobBytes = 1024;

}  // namespace

TextPool::TextPool(int threads, size_t max_jobs, size_t max_bytes)
    : max_jobs_(max_jobs), max_bytes_(max_bytes) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { Work(i); });
}

void TextPool::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

int64_t TextPool::unfinished() const {
  std::lock_guard lock(mutex_);
  return unfinished_;
}

bool TextPool::HasRoom(const Share& share, size_t bytes) const {
  // An empty queue takes a job of any size: messages have their own bound.
  if (jobs_.empty()) return true;
  if (jobs_.size() < max_jobs_ && bytes_ + bytes <= max_bytes_) return true;
  const size_t tenants = shares_.size();
  return share.waiting < max_jobs_ / tenants && share.bytes + bytes <= max_bytes_ / tenants &&
         jobs_.size() < 2 * max_jobs_ && bytes_ + bytes <= 2 * max_bytes_;
}

absl::Status TextPool::Run(TenantId tenant, size_t bytes, std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    Share& share = shares_[tenant];
    if (!HasRoom(share, bytes)) {
      if (share.unfinished == 0) shares_.erase(tenant);
      return Refusal(absl::StatusCode::kUnavailable, "QUEUE_FULL",
                     "too much text waits to be tokenised; retry later", 1);
    }
    const uint64_t turn = std::max(turn_, share.next_turn);
    share.next_turn = turn + kJobBytes + bytes;
    ++share.waiting;
    ++share.unfinished;
    ++unfinished_;
    share.bytes += bytes;
    bytes_ += bytes;
    jobs_.try_emplace({turn, numbers_++}, Job{tenant, bytes, std::move(job)});
  }
  wake_.notify_one();
  return absl::OkStatus();
}

void TextPool::Forget(TenantId tenant, size_t bytes) {
  bytes_ -= bytes;
  --unfinished_;
  const auto share = shares_.find(tenant);
  share->second.bytes -= bytes;
  if (--share->second.unfinished == 0) shares_.erase(share);
}

void TextPool::Work(int thread) {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const auto first = jobs_.begin();
    turn_ = first->first.first;
    Job job = std::move(first->second);
    jobs_.erase(first);
    --shares_[job.tenant].waiting;
    lock.unlock();
    {
      const TimelineSpan span({.track = Timeline::Track::kText,
                               .lane = thread,
                               .name = "text",
                               .args = {{{"bytes", static_cast<int64_t>(job.bytes)}}}});
      job.run();
      job.run = nullptr;  // what it holds goes outside the lock
    }
    lock.lock();
    Forget(job.tenant, job.bytes);
  }
}

}  // namespace quire
