// SequenceKv: where the KV of sequences comes from and where it goes. A block of a sequence's table
// is its own, or belongs to the prefix tree, which shares it; the sequence holds the deepest node
// of the chain that its full blocks make. Its full blocks become nodes when a finite sample has
// proved them. Where another sequence holds an equal node, that block and all behind it stay the
// sequence's own until it leaves, because a table in flight is never rewritten. The blocks that it
// leaves stay cached, and a turn's session gets the partly filled block too.
//
// A turn continues the block that its session ends in, the tail. It takes the tail over if no other
// session or copy uses it. Otherwise it clones the tail on the device, before the turn's first
// step, into a block of its own. So no shared block is ever written, and the continuation of a fork
// or a cut reads the bits that its origin wrote.
//
// LiveSequences decides when a sequence takes and releases KV; this class decides which KV. Owns
// pool, tree, sessions and tiering. One thread; allocates nothing in the steady state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule/kv/block_pool.h"
#include "engine/schedule/kv/prefix_tree.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/sequence.h"
#include "engine/schedule/sessions/session_store.h"
#include "engine/schedule/tiering/tiering.h"

namespace quire {

class SequenceKv {
 public:
  explicit SequenceKv(const SchedulerConfig& config);
  // The limits of tenants; before anything else. It outlives this.
  void SetAccounts(TenantAccounts* accounts);

  // KV that already exists for a waiting sequence; leaves at least one token to compute.
  struct Found {
    NodeId node = kNoNode;    // the deepest readable node; kNoNode: the cache is not used
    NodeId tail = kNoNode;    // behind it
    bool clones = false;      // copies the tail into a block of its own, else takes it over
    int32_t num_tokens = 0;   // of both
    int32_t num_blocks = 0;   // that it need not take; a cloned tail does not count
    int32_t hold_cost = 0;    // blocks of both that stop being available when they are held
    NodeId target = kNoNode;  // the deepest node of more KV on the host; kNoNode: none
    bool to_tail = false;     // `target` is the session's tail
  };
  // Valid until pool or tree change.
  Found Look(const Sequence& sequence);
  // The same without a tail that would be cloned; a clone takes one block more than computing it.
  Found WithoutClone(Found found) const;
  // The most blocks that Look could find.
  int32_t MostBlocks(const Sequence& sequence) const;

  // The sequence holds the found KV and begins behind it. A reservation of `blocks` replaces its
  // previous one.
  void Share(Sequence& sequence, const Found& found, int32_t blocks);
  // The block that the sequence's first step copies. Requires a sequence that clones.
  BlockId ClonedBlock(const Sequence& sequence) const { return tree_.Kv(sequence.cloned).block; }
  // A step of the sequence has retired, so its clone is complete.
  void EndClone(Sequence& sequence);
  // Counts the sequence's first admission, for its client and the stats.
  void Account(Sequence& sequence, const Found& found);
  // Shares the blocks that a finite sample has proved.
  void Commit(Sequence& sequence);
  // Gives back all blocks, deepest first, so that the beginning of a prefix is evicted last. Blocks
  // of a preempted sequence are copied to the host unless they are needed first.
  void Release(Sequence& sequence);
  // The KV that a turn leaves to its session.
  struct Left {
    NodeId node = kNoNode;  // the deepest node, a tail or not; kNoNode: none
    NodeId tail = kNoNode;  // held until ReleaseTail
  };
  // Makes nodes of the sequence's first `kv_tokens` tokens, the partly filled block included.
  // Requires that no step in flight knows the sequence. ReleaseTail and Release follow, once the
  // session keeps the node.
  Left LeaveToSession(Sequence& sequence, int32_t kv_tokens);
  void ReleaseTail(const Left& left);
  // The known tokens in one piece, valid until the next call of this object.
  std::span<const int32_t> Known(const Sequence& sequence);

  // --- Restores: KV found on the host comes back before the sequence begins.
  enum class Restore { kBegun, kNoRoom, kCompute };
  // The sequence needs `blocks` in all, and may make `room` blocks unavailable. kBegun: it holds
  // the target, and the rest of its blocks is reserved.
  Restore BeginRestore(Sequence& sequence, const Found& found, int32_t blocks, int32_t room,
                       int64_t now_ns);
  // The restore's ticket has ended: the sequence holds the loaded KV, and the rest of `blocks` is
  // reserved. False if KV is missing and there are no blocks to compute it in.
  bool EndRestore(Sequence& sequence, int32_t blocks, int64_t now_ns);
  // Releases the holdings of a restoring sequence.
  void AbandonRestore(Sequence& sequence);

  // The workers died with all blocks. Requires that no sequence has a block.
  void ForgetDevice();

  // See Scheduler::OnPagesReady.
  void ProvidePages(int32_t count) { tree_.host().Provide(count); }
  // The limits have changed.
  void GiveBackExcess() { tree_.host().GiveBackExcess(); }

  // See PrefixTree.
  KvEventSource& events() { return tree_.events(); }
  FlushedCache Flush(const CacheFlush& flush) { return tree_.Flush(flush); }

  BlockPool& pool() { return pool_; }
  const BlockPool& pool() const { return pool_; }
  const PrefixTree& tree() const { return tree_; }
  SessionStore& sessions() { return sessions_; }
  const SessionStore& sessions() const { return sessions_; }
  Tiering& tiering() { return tiering_; }
  const Tiering& tiering() const { return tiering_; }
  CacheStats stats() const;

  // Adds the sequence's own blocks to `owners`, by block; aborts if it does not hold its shared
  // ones.
  void CheckHoldings(const Sequence& sequence, std::vector<int32_t>& owners) const;
  // `owners` of all sequences.
  void CheckInvariants(const std::vector<int32_t>& owners) const;

 private:
  bool UsesCache(const Sequence& sequence) const;
  void CommitBlocks(Sequence& sequence, bool leaving);
  bool IsShared(const Sequence& sequence, size_t index) const;
  std::span<const int32_t> BlockTokens(const Sequence& sequence, int32_t index);
  int32_t SharedWithSession(const Sequence& sequence) const;
  NodeId Readable(NodeId node) const;
  int32_t TailTokens(const Sequence& sequence, NodeId tail, int32_t known) const;
  NodeId KeepTail(Sequence& sequence, int32_t kv_tokens);

  const int32_t block_size_;
  const bool prefix_cache_;
  BlockPool pool_;
  PrefixTree tree_;
  SessionStore sessions_;
  Tiering tiering_;
  CacheStats stats_;                   // the counts of this class
  std::vector<int32_t> tokens_;        // room for a sequence's
  mutable std::vector<NodeId> chain_;  // of the sequence looked at
};

}  // namespace quire
