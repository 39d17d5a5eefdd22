// Rows and blocks for requests, from work that has time.
#include "engine/schedule/background_claims.h"

#include <algorithm>

#include "engine/schedule/part_claims.h"

namespace quire {

BackgroundClaims::BackgroundClaims(const SchedulerConfig& config, LiveSequences& sequences,
                                   FairWalk& walk)
    : config_(config), sequences_(sequences), walk_(walk) {}

// Rows and blocks that already drain count as given up, so a request that waits for them takes no
// more in the next step.
int32_t BackgroundClaims::MakeRoom(int64_t now_ns) {
  if (Victim() == nullptr) return 0;
  int32_t preempted = 0, rows = 0, blocks = 0;
  walk_.Restart();
  for (int32_t i = 0; i < kLookAhead; ++i) {
    const Sequence* claimant = walk_.Peek();
    if (claimant == nullptr || claimant->background()) break;
    ++rows;
    blocks += BlocksToReserve(config_, *claimant);
    walk_.Leave();
    walk_.Passed();
    while (Lacks(rows, blocks)) {
      Sequence* victim = Victim();
      if (victim == nullptr) return preempted;
      sequences_.Preempt(*victim);
      victim->timings.preempted_ns = now_ns;
      ++preempted;
    }
  }
  return preempted;
}

bool BackgroundClaims::Lacks(int32_t rows, int32_t blocks) const {
  const int32_t rows_to_come =
      config_.max_num_seqs - static_cast<int32_t>(sequences_.running().size());
  const int32_t blocks_to_come = sequences_.pool().available() + sequences_.draining_blocks();
  return rows_to_come < rows || blocks_to_come - BlockWatermark(sequences_) < blocks;
}

// The running are in the order of priority.
void BackgroundClaims::ShareBudget(int64_t now_ns, int32_t budget) {
  const std::vector<Sequence*>& running = sequences_.running();
  if (!running.empty() && !running.front()->background()) shared_until_ns_ = now_ns + kSharedNs;
  const bool shared = now_ns < shared_until_ns_;
  budget_ = shared ? std::max(1, config_.max_num_batched_tokens / kPart) : budget;
}

// The last in order; null if it is no background sequence, and then none is.
Sequence* BackgroundClaims::Victim() const {
  const std::vector<Sequence*>& running = sequences_.running();
  if (running.empty() || !running.back()->background()) return nullptr;
  return running.back();
}

}  // namespace quire
