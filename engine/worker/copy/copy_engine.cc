// Each direction's thread.
#include "engine/worker/copy/copy_engine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "engine/base/clock.h"
#include "kernels/check.h"

namespace quire {

// One direction. A job is begun in two batches: when the first is done, jobs that arrived meanwhile
// are begun before the second is waited for, so that the device does not run out of work.
class CopyEngine::Lane {
 public:
  Lane(CopyEngine& engine, CopyDirection direction)
      : engine_(engine),
        direction_(direction),
        jobs_(engine.rings_.jobs(direction)),
        acks_(engine.rings_.acks(direction)) {}

  void Run() {
    while (AwaitJob()) {
      Begun& oldest = begun_[num_acked_ % begun_.size()];
      while (oldest.batches > 0) {
        FinishBatch(oldest);
        BeginArrived();
      }
      Acknowledge(oldest);
    }
  }

 private:
  // A job whose batches are not all done; `ack` grows with each.
  struct Begun {
    CopyAck ack;
    int32_t batches = 0;
    int64_t at_ns = 0;
  };

  // False once there will be none.
  bool AwaitJob() {
    BeginArrived();
    while (num_begun_ == num_acked_ && !ended_ && !engine_.stop_.load(std::memory_order_acquire)) {
      jobs_.AwaitChange(num_begun_, /*spin_ns=*/0);
      BeginArrived();
    }
    return num_begun_ > num_acked_;
  }

  void BeginArrived() {
    while (!ended_ && jobs_.published() > num_begun_) {
      std::memcpy(&message_, jobs_.slot(num_begun_).data(), sizeof message_);
      CHECK(0 <= message_.count && message_.count <= CopyJob::kMaxCopies);
      ended_ = message_.count == 0;
      if (!ended_) Begin();
    }
  }

  void Begin() {
    CHECK_LT(num_begun_ - num_acked_, begun_.size());
    const auto count = static_cast<size_t>(message_.count);
    const std::span<const BlockCopy> copies(message_.copies, count);
    Begun& job = begun_[num_begun_ % begun_.size()];
    job = {.ack = {.job = message_.job}, .batches = count == 1 ? 1 : 2, .at_ns = SteadyNowNs()};
    engine_.acked_.load(std::memory_order_acquire);
    engine_.runner_.Begin(direction_, copies.first((count + 1) / 2));
    if (count > 1) engine_.runner_.Begin(direction_, copies.subspan((count + 1) / 2));
    ++num_begun_;
  }

  void FinishBatch(Begun& job) {
    const CopyRunner::Outcome outcome = engine_.runner_.Finish(direction_);
    --job.batches;
    // Copies behind the first bad one do not count.
    if (job.ack.status == CopyStatus::kOk) job.ack.num_good += outcome.num_good;
    job.ack.status = Worse(job.ack.status, outcome.status);
  }

  void Acknowledge(Begun& job) {
    if (job.ack.status == CopyStatus::kFailed) job.ack.num_good = 0;
    job.ack.bytes = job.ack.num_good * engine_.runner_.block_bytes();
    const int64_t now_ns = SteadyNowNs();
    job.ack.ns = now_ns - std::max(job.at_ns, idle_since_ns_);
    idle_since_ns_ = now_ns;
    std::memcpy(acks_.slot(num_acked_).data(), &job.ack, sizeof job.ack);
    ++num_acked_;
    engine_.acked_.fetch_add(1, std::memory_order_release);
    acks_.Publish();
    engine_.notify_();
  }

  CopyEngine& engine_;
  const CopyDirection direction_;
  SharedRing jobs_;
  SharedRing acks_;
  CopyJobMessage message_;
  std::array<Begun, CopyJob::kMaxInFlight> begun_;  // a ring
  uint64_t num_begun_ = 0;
  uint64_t num_acked_ = 0;
  int64_t idle_since_ns_ = 0;  // when the last job ended
  bool ended_ = false;         // the last message has come
};

CopyEngine::CopyEngine(CopyRunner& runner, const CopyRings& rings, std::function<void()> notify)
    : runner_(runner), rings_(rings), notify_(std::move(notify)) {
  const bool all_ready = PrepareNext() == CopyRunner::kAllPages;
  for (const CopyDirection direction : kCopyDirections) {
    threads_.emplace_back([this, direction] { Lane(*this, direction).Run(); });
  }
  if (!all_ready) threads_.emplace_back([this] { PreparePages(); });
}

CopyEngine::~CopyEngine() {
  stop_.store(true, std::memory_order_release);
  for (std::thread& thread : threads_) thread.join();
}

int32_t CopyEngine::PrepareNext() {
  const int32_t ready = runner_.PrepareNext();
  rings_.ready_pages().store(ready, std::memory_order_release);
  return ready;
}

void CopyEngine::PreparePages() {
  while (PrepareNext() != CopyRunner::kAllPages && !stop_.load(std::memory_order_acquire)) {
  }
}

}  // namespace quire
