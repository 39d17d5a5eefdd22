// Rows and blocks for a tenant below its part, from tenants above theirs.
#include "engine/schedule/part_claims.h"

#include <algorithm>

#include "kernels/ceil_div.h"

namespace quire {

int32_t BlocksToReserve(const SchedulerConfig& config, const Sequence& sequence) {
  const int32_t last = sequence.hard_end - 1;  // the last token is never computed
  const int32_t grown =
      sequence.preemptions >= PartClaims::kMaxPreemptions
          ? last
          : std::min(last - sequence.known(), config.growth_horizon) + sequence.known();
  return CeilDiv(grown, config.block_size);
}

int32_t BlockWatermark(const LiveSequences& sequences) {
  const int32_t num_running = static_cast<int32_t>(sequences.running().size());
  return num_running == 0 ? 0 : std::max(sequences.pool().total() / 100, num_running);
}

bool FitsBesidePins(const SchedulerConfig& config, LiveSequences& sequences,
                    const Sequence& sequence) {
  SequenceKv& kv = sequences.kv();
  const int32_t room = kv.pool().total() - BlocksToReserve(config, sequence);
  return kv.sessions().PinnedBeside(kNoNode) <= room ||
         kv.sessions().PinnedBeside(kv.Look(sequence).node) <= room;
}

const Sequence* FirstBesidePins(const SchedulerConfig& config, LiveSequences& sequences,
                                FairWalk& walk) {
  const Sequence* sequence = walk.Peek();
  int32_t passed = 0;
  while (sequence != nullptr && !FitsBesidePins(config, sequences, *sequence)) {
    walk.Leave();
    walk.Passed();
    sequence = ++passed < PartClaims::kLookAhead ? walk.Peek() : nullptr;
  }
  if (passed > 0) walk.Restart();
  return sequence;
}

PartClaims::PartClaims(const SchedulerConfig& config, LiveSequences& sequences, FairWalk& walk)
    : config_(config), sequences_(sequences), accounts_(sequences.accounts()), walk_(walk) {}

// Of the sequences that come next, those of tenants below their part may begin at once: tenants
// that were served more and are above their part give up their newest sequences for them. Rows and
// blocks that already drain count as given up. A tenant that gives up keeps its part, so no two
// tenants preempt each other in turn.
int32_t PartClaims::MakeRoom(int64_t now_ns) {
  int32_t preempted = 0;
  rows_ = blocks_ = 0;
  walk_.Restart();
  bool counted = false;
  for (int32_t i = 0; i < kLookAhead; ++i) {
    const Sequence* claimant = walk_.Peek();
    if (claimant == nullptr) break;
    const AccountId id = claimant->account;
    const int32_t passed = walk_.passed();
    walk_.Leave();
    walk_.Passed();
    if (accounts_[id].running + passed >= accounts_.PartOf(id, config_.max_num_seqs)) continue;
    if (!counted) CountHoldings();
    counted = true;
    if (!Claim(*claimant, passed)) continue;
    while (Sequence* victim = Victim(*claimant)) {
      TenantAccount& account = accounts_.Scratch(victim->account);
      account.blocks -= static_cast<int32_t>(victim->blocks.size()) + victim->reserved;
      --account.rows;
      sequences_.Preempt(*victim);
      victim->timings.preempted_ns = now_ns;
      ++preempted;
    }
  }
  return preempted;
}

// A tenant above its part of the rows does not grow at the cost of a tenant within its part. Such a
// tenant has more sequences than one, so either one of them can be preempted, or it runs on with
// all its blocks and ends.
bool PartClaims::IsSheltered(const Sequence& sequence, const Sequence& beneficiary) const {
  if (sequence.account == beneficiary.account) return false;
  const int32_t rows = config_.max_num_seqs;
  const auto above = [&](AccountId id) {
    return accounts_[id].running > accounts_.PartOf(id, rows);
  };
  return above(beneficiary.account) && !above(sequence.account);
}

// False: its tenant has enough prefills under way, or the sequence is larger than its tenant's
// part. It then waits until it fits.
bool PartClaims::Claim(const Sequence& claimant, int32_t passed) {
  TenantAccount& account = accounts_.Scratch(claimant.account);
  if (account.prefills + passed >= config_.max_partial_prefills) return false;
  const int32_t blocks = BlocksToReserve(config_, claimant);
  const int32_t part = accounts_.PartOf(claimant.account, sequences_.pool().total());
  if (account.blocks + blocks > part) return false;
  account.blocks += blocks;
  blocks_ += blocks;
  ++rows_;
  return true;
}

// The rows, blocks and prefills of each tenant's running sequences; shared blocks count for each.
void PartClaims::CountHoldings() {
  const auto clear = [this](AccountId id) {
    TenantAccount& account = accounts_.Scratch(id);
    account.rows = account.blocks = account.prefills = 0;
  };
  for (const AccountId id : accounts_.contenders()) clear(id);
  for (const Sequence* sequence : sequences_.running()) clear(sequence->account);
  for (const Sequence* sequence : sequences_.running()) {
    TenantAccount& account = accounts_.Scratch(sequence->account);
    account.blocks += static_cast<int32_t>(sequence->blocks.size()) + sequence->reserved;
    ++account.rows;
    account.prefills += sequence->remaining() > 1;
  }
}

// The last sequence in order that gives up something that the claims lack; null if they lack
// nothing, or no tenant is above its part.
Sequence* PartClaims::Victim(const Sequence& claimant) const {
  const std::vector<Sequence*>& running = sequences_.running();
  const int32_t rows_to_come = config_.max_num_seqs - static_cast<int32_t>(running.size());
  const bool lacks_rows = rows_to_come < rows_;
  const int32_t blocks_to_come = sequences_.pool().available() + sequences_.draining_blocks();
  const bool lacks_blocks = blocks_to_come - BlockWatermark(sequences_) < blocks_;
  if (!lacks_rows && !lacks_blocks) return nullptr;
  for (auto victim = running.rbegin(); victim != running.rend(); ++victim) {
    const AccountId id = (*victim)->account;
    const TenantAccount& account = accounts_[id];
    if (id == claimant.account) continue;
    if ((*victim)->request->priority > claimant.request->priority) continue;
    if (account.served < accounts_[claimant.account].served) continue;
    // A tenant's only row stays, or two large sequences would preempt each other in turn.
    if (account.rows == 1) continue;
    const bool above = lacks_rows
                           ? account.rows > accounts_.PartOf(id, config_.max_num_seqs)
                           : account.blocks > accounts_.PartOf(id, sequences_.pool().total());
    if (above) return *victim;
  }
  return nullptr;
}

}  // namespace quire
