// Hand-over of plans and results between the scheduler thread and the rank threads of one process.
#include "engine/worker/in_process_transport.h"

#include <utility>

#include "engine/worker/rank_mismatch.h"
#include "kernels/check.h"

namespace quire {

InProcessTransport::InProcessTransport(std::vector<std::unique_ptr<StepRunner>> runners, int depth,
                                       const MaskBoard::Shape& board)
    : board_memory_(static_cast<size_t>(MaskBoard::Bytes(board)) / sizeof(Line)),
      masks_(reinterpret_cast<std::byte*>(board_memory_.data()), board),
      plans_(depth) {
  CHECK(!runners.empty());
  CHECK_GE(depth, 1);
  for (auto& runner : runners) {
    auto rank = std::make_unique<Rank>();
    rank->runner = std::move(runner);
    rank->results.resize(depth);
    CHECK(rank->runner->AttachMasks(masks_));
    ranks_.push_back(std::move(rank));
  }
  StartCopies();
  for (auto& rank : ranks_) {
    rank->thread = std::thread([this, &rank = *rank] { RunRank(rank); });
  }
}

void InProcessTransport::StartCopies() {
  std::vector<CopyRings> rings;
  int64_t block_bytes = 0;
  for (auto& rank : ranks_) {
    CopyRunner* const runner = rank->runner->copies();
    CHECK_EQ(runner == nullptr, ranks_.front()->runner->copies() == nullptr);
    if (runner == nullptr) continue;
    block_bytes = runner->block_bytes();
    rank->ring_memory.resize(static_cast<size_t>(CopyRings::Bytes()) / sizeof(Line));
    rings.emplace_back(rank->ring_memory.front().bytes);
    rank->copies = std::make_unique<CopyEngine>(*runner, rings.back(), [this] { Notify(); });
  }
  copies_ = std::make_unique<CopyDispatch>(rings, block_bytes);
}

void InProcessTransport::EndCopies() {
  copies_->End();
  for (auto& rank : ranks_) rank->copies.reset();
}

InProcessTransport::~InProcessTransport() {
  if (!forgotten_) EndCopies();
  if (!shutdown_sent_) {
    // Steps whose results were not polled must finish before a slot is free for the last plan.
    for (uint32_t done = released_; done != published_count_; ++done) {
      for (auto& rank : ranks_) {
        uint32_t finished = rank->finished.load(std::memory_order_acquire);
        while (static_cast<int32_t>(finished - done) <= 0) {
          rank->finished.wait(finished, std::memory_order_acquire);
          finished = rank->finished.load(std::memory_order_acquire);
        }
      }
    }
    released_ = published_count_;
    StepPlan* last = NextSlot();
    last->Clear();
    last->shutdown = true;
    Publish();
  }
  for (auto& rank : ranks_) rank->thread.join();
}

StepPlan* InProcessTransport::NextSlot() {
  if (in_flight() == static_cast<int>(plans_.size())) return nullptr;
  return &plan(published_count_);
}

void InProcessTransport::Publish() {
  CHECK(!shutdown_sent_);
  shutdown_sent_ = plan(published_count_).shutdown;
  ++published_count_;
  published_.store(published_count_, std::memory_order_release);
  published_.notify_all();
}

bool InProcessTransport::Recover() {
  if (!std::exchange(forgotten_, true)) EndCopies();
  return false;
}

const StepResult* InProcessTransport::Poll() {
  if (in_flight() == 0) return nullptr;
  for (auto& rank : ranks_) {
    const uint32_t finished = rank->finished.load(std::memory_order_acquire);
    if (static_cast<int32_t>(finished - released_) <= 0) return nullptr;
  }
  const size_t slot = released_ % plans_.size();
  StepResult& first = ranks_.front()->results[slot];
  for (size_t i = 1; i < ranks_.size() && fault_.empty(); ++i) {
    const StepResult& other = ranks_[i]->results[slot];
    JoinReadings(other, first);
    if (other.checksum == first.checksum) continue;
    fault_ = DescribeMismatch(first, static_cast<int32_t>(i), other);
    ++rank_mismatches_;
  }
  return &first;
}

const StepResult* InProcessTransport::ResultOf(int32_t rank) {
  if (rank >= static_cast<int32_t>(ranks_.size())) return nullptr;
  return &ranks_[static_cast<size_t>(rank)]->results[released_ % plans_.size()];
}

void InProcessTransport::Release() {
  CHECK_GT(in_flight(), 0);
  ++released_;
}

void InProcessTransport::RunRank(Rank& rank) {
  for (uint32_t step = 0;; ++step) {
    uint32_t published = published_.load(std::memory_order_acquire);
    while (static_cast<int32_t>(published - step) <= 0) {
      published_.wait(published, std::memory_order_acquire);
      published = published_.load(std::memory_order_acquire);
    }
    const StepPlan& next = plan(step);
    if (next.shutdown) return;
    rank.runner->Run(next, rank.results[step % rank.results.size()]);
    rank.finished.store(step + 1, std::memory_order_release);
    rank.finished.notify_all();
    Notify();
  }
}

void InProcessTransport::Notify() {
  if (WakeEvent* wake = wake_.load(std::memory_order_acquire)) wake->Notify();
}

}  // namespace quire
