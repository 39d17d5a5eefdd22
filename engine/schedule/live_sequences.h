// LiveSequences: every sequence and its holdings: a place in the queue, or a row, blocks and a
// reservation. Each transition of a sequence's life is one function here; no other code takes or
// releases holdings.
//
//   Add -> queued -----------> Admit -> running -> Finish -> finishing -> gone
//           ^   ^ +- restoring -+          |
//           |   +- Withdraw -+             |
//           +- Preempt / Requeue / Pause, Resume
//
// A sequence keeps its row and blocks until its last step in flight has retired (ReleaseIfDrained),
// because such a step may still write there.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/schedule/containers/id_index.h"
#include "engine/schedule/containers/recycling_set.h"
#include "engine/schedule/kv/block_pool.h"
#include "engine/schedule/request_queue.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/sequence.h"
#include "engine/schedule/sequence_kv.h"
#include "engine/schedule/tenants/tenant_accounts.h"
#include "engine/schedule/waiting_line.h"

namespace quire {

class LiveSequences {
 public:
  explicit LiveSequences(const SchedulerConfig& config);

  // Queues a request whose tokens end at `hard_end` at the latest; `turn` as in Sequence.
  Sequence& Add(std::unique_ptr<Request> request, int32_t hard_end, uint64_t turn);
  // A sequence that was just added waits for the prompt of another one (waiting_line.h).
  void Follow(Sequence& follower, Sequence& leader) { line_.Follow(follower, leader); }
  Sequence* Find(RequestId id) const { return ids_.Find(id); }
  // Queued to running, with a row, the KV that was found, and a reservation of `blocks` more
  // blocks. Requires that row and blocks are available.
  void Admit(Sequence& sequence, const SequenceKv::Found& found, int32_t blocks);
  // Queued to restoring, if the KV on the host is worth a restore and there is room for `blocks` in
  // all.
  SequenceKv::Restore BeginRestore(Sequence& sequence, const SequenceKv::Found& found,
                                   int32_t blocks, int32_t room, int64_t now_ns);
  // Restoring to queue, with nothing held.
  void Withdraw(Sequence& sequence);
  // Running to queue, because other sequences need its blocks.
  void Preempt(Sequence& sequence);
  // Running or preempted to queue with nothing held: the worker died and forgot it.
  void Requeue(Sequence& sequence);
  // Takes it out of queue or running order until Resume queues it again; it keeps only its tokens.
  void Pause(Sequence& sequence);
  void Resume(Sequence& sequence);
  // Any live state to finishing; the caller calls ReleaseIfDrained next.
  void Finish(Sequence& sequence);
  // Releases the holdings of a preempted or finishing sequence once no step in flight knows it,
  // and the record of a finishing sequence.
  void ReleaseIfDrained(Sequence& sequence);

  // Takes one more block for a running sequence, from its reservation or else from the unreserved
  // blocks; false if there is none.
  bool TakeBlock(Sequence& sequence);
  // Appends a finite sample's token to a sequence that is running or was preempted meanwhile.
  void AppendToken(Sequence& sequence, int32_t token);

  SequenceKv& kv() { return kv_; }
  const SequenceKv& kv() const { return kv_; }
  const BlockPool& pool() const { return kv_.pool(); }
  int32_t num_free_rows() const { return static_cast<int32_t>(free_rows_.size()); }
  // Blocks that return when steps in flight retire.
  int32_t draining_blocks() const { return draining_blocks_; }
  const std::vector<Sequence*>& running() const { return running_; }      // first in order first
  const std::vector<Sequence*>& restoring() const { return restoring_; }  // likewise
  int64_t running_tokens() const { return running_tokens_; }  // known tokens of the running
  const RequestQueue& queue() const { return queue_; }
  size_t num_waiting() const { return queue_.size() + line_.num_following(); }
  TenantAccounts& accounts() { return accounts_; }
  size_t num_live() const { return ids_.size(); }
  size_t num_paused() const { return num_paused_; }  // of the live
  // The live sequence with the earliest deadline; null: no sequence has a deadline.
  Sequence* EarliestDeadline() const;
  // All records, unused ones too.
  std::deque<Sequence>& records() { return records_; }
  const std::deque<Sequence>& records() const { return records_; }

  void CheckInvariants() const;

 private:
  struct Deadline {
    int64_t deadline_ns = 0;
    uint64_t order = 0;
    Sequence* sequence = nullptr;
    bool operator<(const Deadline& other) const {
      return deadline_ns != other.deadline_ns ? deadline_ns < other.deadline_ns
                                              : order < other.order;
    }
  };

  void Suspend(Sequence& sequence);
  void ReleaseRowAndBlocks(Sequence& sequence);
  void TakeOutputBuffer(Sequence& sequence);
  void GiveBackOutputBuffer(Sequence& sequence);
  void CheckHoldings(const Sequence& sequence) const;
  void CheckContainers() const;
  void CheckQueue() const;
  void CheckAccounts() const;

  const int32_t block_size_;
  const int32_t max_num_seqs_;
  const int32_t max_output_;
  SequenceKv kv_;
  std::vector<int32_t> free_rows_;
  std::vector<std::vector<BlockId>> block_tables_;   // of free rows: empty, with their capacity
  std::vector<std::vector<int32_t>> spare_outputs_;  // empty, with capacity for max_output_
  std::deque<Sequence> records_;                     // addresses are stable
  std::vector<Sequence*> free_records_;
  IdIndex ids_;                       // the live ones
  RecyclingSet<Deadline> deadlines_;  // of the live ones that have one
  RequestQueue queue_;
  TenantAccounts accounts_;
  WaitingLine line_;
  std::vector<Sequence*> running_;
  std::vector<Sequence*> restoring_;
  int64_t running_tokens_ = 0;
  size_t num_paused_ = 0;
  int32_t draining_blocks_ = 0;
  uint64_t next_order_ = 1;
};

}  // namespace quire
