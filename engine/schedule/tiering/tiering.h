// Tiering: decides which blocks are copied when. Pure: jobs out, acks in. A store and a load are
// the same thing in two directions: a chain of nodes held until the last copy's end, a page and a
// block each. Eviction never copies (prefix_tree.h), so nothing here is on the way of an
// allocation.
//
// Loads go before stores. Stores are for sessions whose idle time has come, for those a client
// asked to offload, for sequences that were preempted, and, when lossless blocks fall below the low
// watermark, for the longest idle and for running turns until the high one is reached. A restore is
// done if it is expected to cost less than computing again; both costs are measured as the server
// runs.
//
// Whatever becomes of those who wait for a copy, its block and its page stay out of anybody's reach
// until its ack comes or the workers are gone. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/schedule/kv/prefix_tree.h"
#include "engine/schedule/sessions/session_pressure.h"
#include "engine/schedule/sessions/session_store.h"
#include "engine/schedule/tiering/measured_rate.h"
#include "engine/values/cache_stats.h"
#include "engine/values/copy_plan.h"
#include "engine/values/scheduler_config.h"

namespace quire {

class Tiering {
 public:
  // All outlive this.
  Tiering(const TieringConfig& config, BlockPool& pool, PrefixTree& tree, SessionStore& sessions);

  // --- Restores, for a sequence that waits. A ticket is > 0.
  struct Restore {
    uint64_t ticket = 0;
    int32_t blocks = 0;  // to be loaded
  };
  // What loading all of the chain to `node` (held by the caller) that is on the host alone needs of
  // blocks; 0: others load it already. nullopt: there is nothing to wait for, or computing `tokens`
  // again is expected to be faster.
  std::optional<int32_t> BlocksToRestore(NodeId node, int32_t tokens, int64_t now_ns);
  // Begins; the blocks are taken from those reserved by the caller in the pool. Requires that
  // BlocksToRestore had a value, and nothing since.
  Restore BeginRestore(NodeId node, int64_t now_ns);
  // Done, failed or late alike: the sequence looks at what the tree then has. The ticket ends; of
  // one that is unknown this is true.
  bool Finished(uint64_t ticket, int64_t now_ns);
  // Ends the ticket. Copies not yet sent are not sent any more.
  void Abandon(uint64_t ticket);

  // --- Once a turn of the scheduler's loop, bounded work. Fills `job`; false: nothing to send now.
  bool NextJob(int64_t now_ns, CopyJob& job);
  // Acks of unknown jobs are ignored.
  void OnAck(const CopyAck& ack, int64_t now_ns);
  // A running turn's KV has grown to `node`, which is held. Under pressure it is copied at once:
  // when the turn ends others may take its blocks before its idle time has come.
  void OnGrowth(NodeId node);
  // A sequence that is to come back has given up its KV, the chain to `node`. It is copied before
  // others take its blocks, but for the end, which they may have at once, and for what copies that
  // are slower than they need blocks leave (GiveUpStore).
  void OnPreempt(NodeId node);
  // A sequence that runs needs a block: the newest store that holds some for copies not yet sent
  // lets go of them. False: there is none.
  bool GiveUpStore() { return GiveUpStore(now_ns_); }
  // The same for a request that waits to be admitted: of stores that should have been sent by now.
  bool GiveUpSlowStore(int64_t now_ns) { return GiveUpStore(now_ns - kSlowStoreNs); }
  // Prefill's measured speed: that so many tokens took so long.
  void OnPrefill(int32_t tokens, int64_t ns);
  // The workers are gone: every job has failed, every ticket has ended. Before
  // PrefixTree::ForgetDevice.
  void ForgetJobs();
  int64_t NextTimer() const;
  bool HasWork() const;  // jobs in flight or waiting to be sent

  const TieringStats& stats() const { return stats_; }
  void CheckInvariants() const;

 private:
  // Longer than a whole pool takes to be copied at the speed of a bus: copies to memory that is
  // still being pinned, say, are slower by far, and whoever waits for blocks need not wait for
  // them.
  static constexpr int64_t kSlowStoreNs = 2'000'000'000;

  // A chain on its way.
  struct Task {
    NodeId node = kNoNode;       // held
    std::vector<NodeId> todo;    // parents first; those of a load are `loading` from the beginning
    size_t sent = 0;             // of `todo`
    int32_t in_flight = 0;       // of those sent
    int32_t cost = 0;            // blocks that its hold made unavailable
    std::vector<NodeId> others;  // of the chain, loaded by other tasks
    int64_t begun_ns = 0;
    bool awaited = false;  // a ticket has not ended yet
    bool failed = false;
    int64_t deadline_ns = kNoDeadline;
    bool all_sent() const { return sent == todo.size(); }
  };
  using Tasks = std::map<uint64_t, Task>;  // by ticket: oldest first
  struct Piece {
    NodeId node = kNoNode;
    Tasks* tasks = nullptr;  // one of the three below
    uint64_t ticket = 0;
  };
  struct Flight {
    CopyDirection direction = CopyDirection::kStore;
    std::vector<Piece> pieces;  // in the job's order; those of a task are neighbours
    int64_t deadline_ns = 0;
    bool late = false;
  };

  bool CanSend(CopyDirection direction) const;
  bool IsLate(CopyDirection direction) const;
  bool TakesStores() const;
  bool Pays(int32_t blocks, int32_t tokens, int64_t now_ns);
  void FindMissing(NodeId node);
  uint64_t Begin(Tasks& tasks, NodeId node, const std::vector<NodeId>& todo);
  void BeginPrefetches();
  uint64_t BeginStore(NodeId node);
  void GiveUpUnsent(uint64_t ticket);
  bool GiveUpStore(int64_t begun_by_ns);
  bool UnderPressure();
  void Send(Tasks& tasks, uint64_t ticket);
  void SendLoads(Tasks& tasks);
  void SendStores(int64_t now_ns);
  bool SendStore(uint64_t ticket);
  int32_t Room() const;  // copies that the job being made may still take
  void Lapse(int64_t now_ns);
  void EndPiece(const Flight& flight, const Piece& piece, bool ok, bool page_bad);
  void Fail(Task& task, bool load);
  void EndIfDone(Tasks& tasks, uint64_t ticket);
  void Measure(const Flight& flight, const CopyAck& ack, int32_t good, int64_t now_ns);
  void CountUse();

  const TieringConfig config_;
  const int32_t max_copies_;  // of a job
  const int64_t timeout_ns_;
  BlockPool& pool_;
  PrefixTree& tree_;
  SessionPressure& sessions_;
  Tasks restores_, prefetches_, stores_;
  std::map<uint64_t, Flight> flights_;  // by job
  uint64_t last_ticket_ = 0;
  uint64_t last_job_ = 0;
  int32_t loading_ = 0;      // blocks not there yet, of all loads
  int32_t store_costs_ = 0;  // of all stores
  bool pressed_ = false;
  int64_t now_ns_ = 0;         // of the last NextJob
  int64_t no_room_until_ = 0;  // when to try again to store under pressure
  int32_t declined_ = 0;       // in a row
  MeasuredRate prefill_, store_rate_, load_rate_;
  TieringStats stats_;
  // Reused: the chain looked at, what of it is to be loaded, what others load; the job being made.
  std::vector<NodeId> chain_, missing_, loading_by_others_;
  std::vector<Piece> pieces_;
  std::vector<BlockCopy> copies_;
};

}  // namespace quire
