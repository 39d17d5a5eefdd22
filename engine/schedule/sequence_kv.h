// SequenceKv: where the KV of sequences comes from and where it goes. A block of a sequence's table
// is its own, or belongs to the prefix tree, which shares it; the sequence holds the deepest node
// of the chain that its full blocks make. Its full blocks become nodes when a finite sample has
// proved them; where others hold the equal of one, it and all behind it stay the sequence's own
// until it leaves, because a table in flight is never rewritten. What it leaves stays cached, and a
// turn's session gets the partly filled block as well.
//
// The block that a session ends in, its tail, is continued by the session's turn: taken over if
// nobody else wants it, else cloned, on the device and before the turn's first step, into a block
// of the turn's own. So nothing that two have is ever written, and what continues a fork or a cut
// reads the bits that its origin wrote.
//
// LiveSequences says when, this says what. Owns all that knows of KV: pool, tree, sessions,
// tiering. One thread; in the steady state it allocates nothing.
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

  // What of a waiting sequence's tokens is there, at least one of them left to compute.
  struct Found {
    NodeId node = kNoNode;    // the deepest that can be read; kNoNode: the cache is not used
    NodeId tail = kNoNode;    // behind it
    bool clones = false;      // the tail, into one of its own blocks, instead of taking it over
    int32_t num_tokens = 0;   // of both
    int32_t num_blocks = 0;   // that it need not take: of a cloned tail none
    int32_t hold_cost = 0;    // blocks of both that others could have until they are held
    NodeId target = kNoNode;  // when there is more, on the host: its deepest node
    bool to_tail = false;     // which is the session's tail
  };
  // Valid until pool or tree change.
  Found Look(const Sequence& sequence);
  // The same without a tail to be cloned, which takes one block more than computing it again.
  Found WithoutClone(Found found) const;
  // The most blocks that Look could find.
  int32_t MostBlocks(const Sequence& sequence) const;

  // The sequence holds what was found and begins behind it, with the promise of `blocks` more in
  // place of what it was promised before.
  void Share(Sequence& sequence, const Found& found, int32_t blocks);
  // Requires a sequence that clones: the block that its first step copies.
  BlockId ClonedBlock(const Sequence& sequence) const { return tree_.Kv(sequence.cloned).block; }
  // A step of the sequence has retired: what it cloned is copied.
  void EndClone(Sequence& sequence);
  // What the sequence's client and the stats are told of its first admission.
  void Account(Sequence& sequence, const Found& found);
  // What a finite sample has proved is there for others.
  void Commit(Sequence& sequence);
  // Gives back all blocks, deepest first: the beginning of a prefix is the last to be taken. Those
  // of a preempted sequence are copied to the host, as far as others can spare them meanwhile.
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

  // --- Restores: what is found on the host comes back before the sequence begins.
  enum class Restore { kBegun, kNoRoom, kCompute };
  // The sequence needs `blocks` in all, and may make `room` blocks unavailable. Begun: it holds the
  // target, and is promised the rest of its blocks.
  Restore BeginRestore(Sequence& sequence, const Found& found, int32_t blocks, int32_t room,
                       int64_t now_ns);
  // The restore's ticket has ended: the sequence holds what came, and is promised the rest of
  // `blocks`. False if something did not come and there are no blocks to compute it with.
  bool EndRestore(Sequence& sequence, int32_t blocks, int64_t now_ns);
  // Gives up what a restoring sequence holds.
  void AbandonRestore(Sequence& sequence);

  // The workers are gone with all blocks. Requires that no sequence has any.
  void ForgetDevice();

  BlockPool& pool() { return pool_; }
  const BlockPool& pool() const { return pool_; }
  SessionStore& sessions() { return sessions_; }
  const SessionStore& sessions() const { return sessions_; }
  Tiering& tiering() { return tiering_; }
  const Tiering& tiering() const { return tiering_; }
  CacheStats stats() const;

  // Adds the blocks that are the sequence's own to `owners`, by block; aborts when it does not hold
  // those that are not.
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
  CacheStats stats_;                   // what is counted here
  std::vector<int32_t> tokens_;        // room for a sequence's
  mutable std::vector<NodeId> chain_;  // of the sequence looked at
};

}  // namespace quire
