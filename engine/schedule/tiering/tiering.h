// Tiering: decides which blocks are copied between device and host, and when. Pure: jobs out, acks
// in. Start here; the parts are TieringPolicy (is a copy worth it), CopyTasks (chains on their way)
// and JobsInFlight (what was sent).
//
// A store and a load are the same in two directions: a chain of nodes, held until its last copy has
// ended, with a page and a block for each. Loads go before stores. Stores are made for sessions
// whose idle time has come, for sessions that a client offloads, for preempted sequences, and,
// while lossless blocks are below the watermark, for the longest idle sessions and for running
// turns. A restore is made if it is expected to be fast enough, beside computing the KV again.
//
// A tenant whose share of host memory is full (HostTier) stores in place of its own pages or not at
// all, and holds up no other tenant's stores.
//
// Eviction never copies (prefix_tree.h), so no allocation waits for this. The block and the page of
// a copy are given to no other use until its ack arrives or the workers are gone, even when no
// sequence waits for it any more. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/schedule/tiering/copy_tasks.h"
#include "engine/schedule/tiering/jobs_in_flight.h"
#include "engine/schedule/tiering/store_pauses.h"
#include "engine/schedule/tiering/tiering_policy.h"
#include "engine/values/cache_stats.h"
#include "engine/values/copy_plan.h"
#include "engine/values/scheduler_config.h"

namespace quire {

class PrefixTree;
class SessionPressure;
class SessionStore;

class Tiering {
 public:
  // `pool`, `tree` and `sessions` outlive this.
  Tiering(const TieringConfig& config, BlockPool& pool, PrefixTree& tree, SessionStore& sessions);

  // --- Restores, for a sequence that waits. Times are of one steady clock.
  struct Restore {
    uint64_t ticket = 0;  // > 0
    int32_t blocks = 0;   // that are loaded for it
  };
  // The blocks needed to load the part of the chain to `node` (held by the caller) that is on the
  // host alone; 0: other tasks load it already. nullopt: there is nothing to wait for, or computing
  // `tokens` again is expected to be faster. Counts a declined restore.
  std::optional<int32_t> BlocksToRestore(NodeId node, int32_t tokens, int64_t now_ns);
  // Begins the restore with blocks that the caller has reserved in the pool. Requires that
  // BlocksToRestore has just returned a number for the same tokens.
  Restore BeginRestore(NodeId node, int32_t tokens, int64_t now_ns);
  // Ends the ticket if the restore is done, failed, or takes longer than the sequence has patience:
  // it goes on with the KV that the tree then has. True if the ticket has ended, now or before.
  bool EndRestoreIfDone(uint64_t ticket, int64_t now_ns);
  // The same of all restores whose time is over, also while no plan can be made: their time must
  // not stay the next timer.
  void EndLateRestores(int64_t now_ns);
  // Ends the ticket. Copies not yet sent are not sent any more.
  void AbandonRestore(uint64_t ticket) { tasks_.AbandonRestore(ticket); }

  // --- Once a turn of the scheduler's loop, bounded work. Fills `job`; false: nothing to send now.
  bool NextJob(int64_t now_ns, CopyJob& job);
  // Acks of unknown jobs are ignored.
  void OnAck(const CopyAck& ack, int64_t now_ns);
  // A running turn's KV has grown to `node`, which is held. Under pressure it is copied at once:
  // when the turn ends, its blocks may be evicted before its idle time has come.
  void OnGrowth(NodeId node);
  // A preempted sequence has given up its KV, the chain to `node`. The chain is copied before its
  // blocks are evicted, except for its end: a share of the pool remains available.
  void OnPreempt(NodeId node);
  // A running sequence needs a block: takes it from the newest store that holds blocks for copies
  // not yet sent. False: there is no such store.
  bool GiveUpStore() { return tasks_.GiveUpStore(kNoDeadline); }
  // The same for a request that waits to be admitted, from stores that take longer than computing
  // their KV again.
  bool GiveUpSlowStore(int64_t now_ns) { return tasks_.GiveUpStore(now_ns); }
  // Prefill computed `tokens` within `ns`.
  void OnPrefill(int32_t tokens, int64_t ns) {
    policy_.OnPrefill(tokens, ns);
    stats_.prefill_tokens_per_second = policy_.PrefillTokensPerSecond();
  }
  // The workers are gone: every job has failed, every ticket has ended. Call it before
  // PrefixTree::ForgetDevice.
  void ForgetJobs();
  // When NextJob, EndRestoreIfDone or GiveUpSlowStore may have more to do; kNoDeadline: never.
  int64_t NextTimer() const;
  // Copies are in flight or wait to be sent.
  bool HasWork() const { return jobs_.size() > 0 || tasks_.HasUnsent(); }

  TieringStats stats() const;
  // Recounts everything; aborts on a difference.
  void CheckInvariants() const;

 private:
  bool AwaitsPages() const;
  bool MakesRoomInShare(NodeId node);
  bool TakesStores() const;
  void FindMissing(NodeId node);
  void BeginPrefetches();
  NodeId NextUnsaved(int64_t now_ns) const;
  void PauseStores(NodeId node, int64_t now_ns);
  uint64_t BeginStore(NodeId node);
  bool UpdatePressure();
  void SendNext(TaskKind kind, uint64_t ticket);
  void SendLoads(TaskKind kind);
  void SendStores(int64_t now_ns);
  bool SendStore(uint64_t ticket);
  int32_t Room() const;  // copies that the job being made can still take
  void MarkLate(int64_t now_ns);
  void EndCopies(const JobInFlight& job, int32_t good, bool corrupt);
  void CountJob(const JobInFlight& job, const CopyAck& ack, int32_t good, int64_t now_ns);
  void CountUse();

  const TieringConfig config_;
  const int32_t max_copies_;  // of a job
  const int64_t timeout_ns_;
  BlockPool& pool_;
  PrefixTree& tree_;
  SessionPressure& sessions_;
  TieringPolicy policy_;
  CopyTasks tasks_;
  JobsInFlight jobs_;
  int64_t now_ns_ = 0;         // of the last NextJob
  int64_t no_room_until_ = 0;  // when to try again to store under pressure
  StorePauses pauses_;         // the same of single tenants
  TieringStats stats_;
  // Reused: the chain looked at, its nodes to be copied, its nodes that other tasks load; the job
  // being made.
  std::vector<NodeId> chain_, missing_, loaded_elsewhere_;
  std::vector<TaskCopy> sending_;
  std::vector<BlockCopy> copies_;
};

}  // namespace quire
