// Finding, sharing, committing and releasing the KV of sequences.
#include "engine/schedule/sequence_kv.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace quire {

SequenceKv::SequenceKv(const SchedulerConfig& config)
    : block_size_(config.block_size),
      prefix_cache_(config.prefix_cache),
      pool_(config.num_blocks),
      tree_(pool_, config.block_size, config.num_pages),
      sessions_(config.sessions, config.block_size, tree_),
      tiering_(config.tiering, pool_, tree_, sessions_) {
  if (config.pages_arrive) tree_.host().Withhold();
  tokens_.reserve(config.max_model_len);
  chain_.reserve(config.max_model_len / block_size_ + 2);
}

void SequenceKv::SetAccounts(TenantAccounts* accounts) {
  tree_.SetAccounts(accounts);
  sessions_.SetAccounts(accounts);
}

// A session exists to keep KV, so its turns use the tree even if the prefix cache is off.
bool SequenceKv::UsesCache(const Sequence& sequence) const {
  return (prefix_cache_ || sequence.turn != 0) && !sequence.request->bypass_cache;
}

int32_t SequenceKv::MostBlocks(const Sequence& sequence) const {
  if (!UsesCache(sequence)) return 0;
  return (sequence.known() - 1) / block_size_ + (sequence.turn != 0);
}

// The known tokens in one piece.
std::span<const int32_t> SequenceKv::Known(const Sequence& sequence) {
  const std::vector<int32_t>& prompt = sequence.request->prompt;
  if (sequence.output.empty()) return prompt;
  tokens_.assign(prompt.begin(), prompt.end());
  tokens_.insert(tokens_.end(), sequence.output.begin(), sequence.output.end());
  return tokens_;
}

// The tokens of block `index`, which are known, in one piece.
std::span<const int32_t> SequenceKv::BlockTokens(const Sequence& sequence, int32_t index) {
  const std::vector<int32_t>& prompt = sequence.request->prompt;
  const int32_t begin = index * block_size_;
  const int32_t end = begin + block_size_;
  if (end <= sequence.num_prompt) return std::span(prompt).subspan(begin, block_size_);
  const int32_t output_end = end - sequence.num_prompt;
  if (begin >= sequence.num_prompt) {
    return std::span(sequence.output).subspan(output_end - block_size_, block_size_);
  }
  tokens_.assign(prompt.begin() + begin, prompt.end());
  tokens_.insert(tokens_.end(), sequence.output.begin(), sequence.output.begin() + output_end);
  return tokens_;
}

// The number of tokens that the prompt of a turn has in common with its session.
int32_t SequenceKv::SharedWithSession(const Sequence& sequence) const {
  const std::span<const int32_t> tokens = sessions_.TokensOf(sequence.turn);
  const std::vector<int32_t>& prompt = sequence.request->prompt;
  const auto end = std::mismatch(tokens.begin(), tokens.end(), prompt.begin(), prompt.end()).first;
  return static_cast<int32_t>(end - tokens.begin());
}

// The deepest node of the chain to `node` such that all KV up to it can be read.
NodeId SequenceKv::Readable(NodeId node) const {
  NodeId readable = node;
  for (; tree_.Depth(node) > 0; node = tree_.Parent(node)) {
    if (!tree_.Kv(node).on_device()) readable = tree_.Parent(node);
  }
  return readable;
}

// The number of tokens in its session's last block that a turn can continue: its prompt and session
// have them in common, and one token is left to compute. Requires that all KV before is found.
int32_t SequenceKv::TailTokens(const Sequence& sequence, NodeId tail, int32_t known) const {
  const int32_t begin = (tree_.Depth(tail) - 1) * block_size_;
  return std::min({tree_.NumTokens(tail), SharedWithSession(sequence), known - 1}) - begin;
}

SequenceKv::Found SequenceKv::Look(const Sequence& sequence) {
  Found found;
  if (!UsesCache(sequence)) return found;
  const std::span<const int32_t> tokens = Known(sequence);
  // One token at least is left to compute, or all of them: then new KV begins at the root.
  const size_t most = sequence.request->reading.of_prompt() ? 0 : tokens.size() - 1;
  NodeId deepest = tree_.Find(sequence.request->tenant, tokens.first(most));
  const int32_t whole = tree_.Depth(deepest) * block_size_;
  const NodeId tail = sessions_.KeptBy(sequence.turn);
  int32_t tail_tokens = 0;
  if (tail != kNoNode && tree_.Parent(tail) == deepest && tree_.HasKv(tail)) {
    tail_tokens = TailTokens(sequence, tail, static_cast<int32_t>(tokens.size()));
  }
  if (tail_tokens > 0) deepest = tail;
  const NodeId readable = Readable(deepest);
  found.hold_cost = tree_.HoldCost(readable);
  if (readable != deepest) found.target = deepest;
  found.to_tail = tail_tokens > 0;
  if (tail_tokens > 0 && readable == tail) {
    found.tail = tail;
    found.node = tree_.Parent(tail);
    found.num_tokens = whole + tail_tokens;
    // Sessions that keep it, stores and sequences that clone it may still read it.
    found.clones = !tree_.IsTail(tail) || tree_.NumKeepers(tail) > 1 || tree_.Held(tail);
    found.num_blocks = tree_.Depth(found.node) + !found.clones;
  } else {
    found.node = readable;
    found.num_blocks = tree_.Depth(readable);
    found.num_tokens = found.num_blocks * block_size_;
  }
  return found;
}

SequenceKv::Found SequenceKv::WithoutClone(Found found) const {
  if (!found.clones) return found;
  found.tail = kNoNode;
  found.clones = false;
  found.num_tokens = found.num_blocks * block_size_;
  found.hold_cost = tree_.HoldCost(found.node);
  return found;
}

void SequenceKv::Share(Sequence& sequence, const Found& found, int32_t blocks) {
  CHECK(sequence.blocks.empty());
  const NodeId held_before = std::exchange(sequence.node, found.node);
  pool_.Unreserve(sequence.reserved);
  if (found.node != kNoNode) {
    tree_.Hold(found.node);
    tree_.Chain(found.node, chain_);
    for (const NodeId node : chain_) sequence.blocks.push_back(tree_.Kv(node).block);
  }
  if (found.tail != kNoNode) tree_.Hold(found.tail);
  if (found.tail != kNoNode && !found.clones) {
    sequence.blocks.push_back(tree_.TakeTail(found.tail));
    CHECK_NE(sequence.blocks.back(), kNullBlock);
    sequence.tail_tokens = found.num_tokens;
  }
  if (held_before != kNoNode) tree_.Release(held_before);
  CHECK(pool_.Reserve(blocks));
  sequence.reserved = blocks;
  if (found.clones) {
    sequence.cloned = found.tail;
    sequence.blocks.push_back(pool_.TakeReserved());
    --sequence.reserved;
  }
  sequence.planned = sequence.computed = sequence.proved = found.num_tokens;
}

void SequenceKv::EndClone(Sequence& sequence) {
  if (sequence.cloned == kNoNode) return;
  tree_.Release(std::exchange(sequence.cloned, kNoNode));
}

void SequenceKv::Account(Sequence& sequence, const Found& found) {
  Residency& residency = sequence.residency;
  const bool restored = sequence.restore_begin_ns != 0;
  residency.host_tokens =
      restored ? std::max(0, found.num_tokens - sequence.found_before_restore) : 0;
  residency.device_tokens = found.num_tokens - residency.host_tokens;
  stats_.queried_tokens += sequence.num_prompt;
  stats_.device_tokens += residency.device_tokens;
  stats_.host_tokens += residency.host_tokens;
  stats_.computed_tokens += sequence.num_prompt - found.num_tokens;
  if (!UsesCache(sequence)) return;
  // The last token of a session has never been computed.
  const int32_t session = static_cast<int32_t>(sessions_.TokensOf(sequence.turn).size());
  const int32_t known_before = std::clamp(SharedWithSession(sequence), 0, std::max(0, session - 1));
  residency.recomputed_tokens = std::max(0, known_before - found.num_tokens);
  using enum Residency::Outcome;
  if (residency.recomputed_tokens > 0) {
    residency.outcome = found.num_tokens > 0 ? kPartial : kRecomputed;
  } else if (found.num_tokens > 0) {
    residency.outcome = residency.host_tokens > 0 ? kRestored : kDevice;
  }
}

void SequenceKv::Commit(Sequence& sequence) {
  const int32_t full = sequence.proved / block_size_;
  if (full == sequence.offered) return;
  sequence.offered = full;
  CommitBlocks(sequence, /*leaving=*/false);
  if (sequence.turn != 0 && sequence.node != kNoNode) tiering_.OnGrowth(sequence.node);
}

// If another sequence holds an equal node with its own block, this sequence shares no more until it
// leaves. Otherwise it would hold both blocks, and a pool that fits it could be too small.
void SequenceKv::CommitBlocks(Sequence& sequence, bool leaving) {
  if (sequence.node == kNoNode) return;
  const int32_t full = sequence.proved / block_size_;
  for (int32_t depth = tree_.Depth(sequence.node); depth < full; ++depth) {
    const NodeId parent = sequence.node;
    const PrefixTree::Inserted inserted =
        tree_.Insert(parent, BlockTokens(sequence, depth), sequence.blocks[depth]);
    if (!inserted.adopted && !leaving) return tree_.Release(inserted.node);
    sequence.node = inserted.node;
    tree_.Release(parent);
  }
}

// Whether block `index` of the table belongs to the tree; `chain_` is the sequence's.
bool SequenceKv::IsShared(const Sequence& sequence, size_t index) const {
  return index < chain_.size() && tree_.Kv(chain_[index]).block == sequence.blocks[index];
}

void SequenceKv::Release(Sequence& sequence) {
  EndClone(sequence);
  CommitBlocks(sequence, /*leaving=*/true);
  chain_.clear();
  if (sequence.node != kNoNode) tree_.Chain(sequence.node, chain_);
  for (; !sequence.blocks.empty(); sequence.blocks.pop_back()) {
    const BlockId block = sequence.blocks.back();
    const bool given_away = block == kNullBlock || IsShared(sequence, sequence.blocks.size() - 1);
    if (!given_away) pool_.Release(block);
  }
  if (const NodeId left = std::exchange(sequence.node, kNoNode); left != kNoNode) {
    tree_.Release(left);
    const bool comes_back = sequence.state == SequenceState::kPreempted && !sequence.paused;
    if (comes_back) tiering_.OnPreempt(left);
  }
  sequence.proved = sequence.offered = sequence.tail_tokens = 0;
}

// Makes a held tail of the partly filled block in which the first `kv_tokens` tokens end. kNoNode
// if they fill their last block, or if that block is full by now and in the tree already.
NodeId SequenceKv::KeepTail(Sequence& sequence, int32_t kv_tokens) {
  const int32_t full = kv_tokens / block_size_;
  const int32_t filled = kv_tokens % block_size_;
  if (filled == 0 || tree_.Depth(sequence.node) != full) return kNoNode;
  const BlockId block = std::exchange(sequence.blocks[full], kNullBlock);
  return tree_.InsertTail(sequence.node, filled, block);
}

SequenceKv::Left SequenceKv::LeaveToSession(Sequence& sequence, int32_t kv_tokens) {
  CommitBlocks(sequence, /*leaving=*/true);
  Left left;
  if (sequence.node != kNoNode) left.tail = KeepTail(sequence, kv_tokens);
  left.node = left.tail == kNoNode ? sequence.node : left.tail;
  while (left.node != kNoNode && (tree_.Depth(left.node) - 1) * block_size_ >= kv_tokens) {
    left.node = tree_.Parent(left.node);
  }
  return left;
}

void SequenceKv::ReleaseTail(const Left& left) {
  if (left.tail != kNoNode) tree_.Release(left.tail);
}

SequenceKv::Restore SequenceKv::BeginRestore(Sequence& sequence, const Found& found, int32_t blocks,
                                             int32_t room, int64_t now_ns) {
  const int32_t hold_cost = tree_.HoldCost(found.target);
  if (hold_cost > room) return Restore::kNoRoom;
  tree_.Hold(found.target);
  const int32_t tokens = tree_.NumTokens(found.target) - found.num_tokens;
  const auto loads = tiering_.BlocksToRestore(found.target, tokens, now_ns);
  // Blocks that are on the device, or that another restore loads, need no block.
  const int32_t needed = blocks - tree_.Depth(found.target) + loads.value_or(0);
  if (!loads.has_value() || hold_cost + needed > room) {
    tree_.Release(found.target);
    return loads.has_value() ? Restore::kNoRoom : Restore::kCompute;
  }
  CHECK(pool_.Reserve(needed));
  const Tiering::Restore restore = tiering_.BeginRestore(found.target, tokens, now_ns);
  sequence.node = found.target;
  sequence.restore = restore.ticket;
  sequence.reserved = needed - restore.blocks;
  sequence.awaits_tail = found.to_tail;
  sequence.restore_begin_ns = now_ns;
  if (sequence.timings.restore_asked_ns == 0) sequence.timings.restore_asked_ns = now_ns;
  sequence.found_before_restore = found.num_tokens;
  return Restore::kBegun;
}

bool SequenceKv::EndRestore(Sequence& sequence, int32_t blocks, int64_t now_ns) {
  sequence.restore = 0;
  const bool first = sequence.timings.admitted_ns == 0;
  if (first) sequence.residency.restore_ns = now_ns - sequence.restore_begin_ns;
  if (sequence.timings.restored_ns == 0) sequence.timings.restored_ns = now_ns;
  // The sequence takes over or clones a tail only when it begins; until then the session keeps it.
  const NodeId target = sequence.node;
  const NodeId readable = Readable(target);
  const bool has_tail = sequence.awaits_tail && readable == target;
  sequence.node = has_tail ? tree_.Parent(readable) : readable;
  sequence.computes = readable != target;
  tree_.Hold(sequence.node);
  tree_.Release(target);
  const int32_t needed = blocks - tree_.Depth(sequence.node);
  if (needed > sequence.reserved && !pool_.Reserve(needed - sequence.reserved)) return false;
  if (needed < sequence.reserved) pool_.Unreserve(sequence.reserved - needed);
  sequence.reserved = needed;
  return true;
}

void SequenceKv::AbandonRestore(Sequence& sequence) {
  if (sequence.restore != 0) tiering_.AbandonRestore(sequence.restore);
  sequence.restore = 0;
  pool_.Unreserve(sequence.reserved);
  sequence.reserved = 0;
  tree_.Release(sequence.node);
  sequence.node = kNoNode;
}

void SequenceKv::ForgetDevice() {
  tiering_.ForgetJobs();
  tree_.ForgetDevice();
  CHECK_EQ(pool_.num_free(), pool_.total());
}

CacheStats SequenceKv::stats() const {
  CacheStats stats = stats_;
  stats.evicted_blocks = tree_.evictions().num_evicted();
  stats.kept_lost = tree_.evictions().num_kept_lost();
  stats.cached_blocks = pool_.num_cached();
  stats.host_pages = tree_.host().num_pages();
  stats.host_pages_ready = tree_.host().num_ready_pages();
  stats.host_pages_used = tree_.host().num_used_pages();
  stats.sessions = sessions_.num_sessions();
  stats.session_tokens = sessions_.num_tokens();
  std::ranges::copy(sessions_.CountByState(), stats.sessions_by_state.begin());
  return stats;
}

void SequenceKv::CheckHoldings(const Sequence& sequence, std::vector<int32_t>& owners) const {
  chain_.clear();
  if (sequence.node != kNoNode) {
    CHECK(tree_.Held(sequence.node));
    tree_.Chain(sequence.node, chain_);
  }
  if (sequence.cloned != kNoNode) {
    CHECK(tree_.Held(sequence.cloned) && tree_.Kv(sequence.cloned).on_device());
    CHECK_GT(sequence.steps_in_flight, 0);
  }
  if (sequence.state == SequenceState::kRestoring) return;  // no table yet
  CHECK_LE(chain_.size(), sequence.blocks.size());
  for (size_t i = 0; i < sequence.blocks.size(); ++i) {
    const bool shared = IsShared(sequence, i);
    CHECK_EQ(shared, i < chain_.size());  // it holds no block that is not in its table
    if (!shared) ++owners[sequence.blocks[i]];
  }
}

void SequenceKv::CheckInvariants(const std::vector<int32_t>& owners) const {
  pool_.CheckIntegrity();
  tree_.CheckInvariants();
  sessions_.CheckInvariants();
  tiering_.CheckInvariants();
  CHECK_EQ(owners[kNullBlock], 0);
  for (BlockId block = kNullBlock; block <= pool_.total(); ++block) {
    CHECK_LE(owners[block], 1);
    CHECK(owners[block] == 0 || pool_.state(block) == BlockState::kTaken);
  }
}

}  // namespace quire
