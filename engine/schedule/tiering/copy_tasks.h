// CopyTasks: the chains of nodes on their way between device and host. A task holds its chain from
// its beginning to the end of its last copy; its copies are sent one after the other, in jobs that
// Tiering makes. A task fails as a whole: copies not yet sent are not sent any more, and those in
// flight end with their acks. One thread.
//
// Tasks are known by tickets > 0, which are never used twice.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "engine/schedule/kv/node_record.h"
#include "engine/values/request.h"

namespace quire {

class PrefixTree;
class SessionPressure;

enum class TaskKind : uint8_t {
  kRestore,   // loads that a sequence waits for
  kPrefetch,  // loads that a client asked for
  kStore,
};

struct CopyTask {
  NodeId node = kNoNode;                 // the deepest of the chain, held
  std::vector<NodeId> todo;              // to be copied, parents first; those of a load are
                                         // `loading` from the beginning
  size_t sent = 0;                       // of `todo`
  int32_t in_flight = 0;                 // of those sent
  int32_t cost = 0;                      // blocks that its hold made unavailable
  std::vector<NodeId> loaded_elsewhere;  // nodes of the chain that other tasks load
  bool awaited = false;                  // a restore whose sequence has not ended the ticket
  bool failed = false;
  // Of a restore: its sequence waits no longer. Of a store: a request that waits for blocks takes
  // those held for copies not yet sent.
  int64_t deadline_ns = kNoDeadline;
  bool all_sent() const { return sent == todo.size(); }
};

// A copy in flight.
struct TaskCopy {
  NodeId node = kNoNode;
  TaskKind kind = TaskKind::kStore;
  uint64_t ticket = 0;  // of its task
};

class CopyTasks {
 public:
  using Tasks = std::map<uint64_t, CopyTask>;  // by ticket: oldest first

  // All outlive this. Tells `sessions` when a task ends.
  CopyTasks(BlockPool& pool, PrefixTree& tree, SessionPressure& sessions)
      : pool_(pool), tree_(tree), sessions_(sessions) {}

  const Tasks& all(TaskKind kind) const { return tasks_[static_cast<size_t>(kind)]; }
  CopyTask* Find(TaskKind kind, uint64_t ticket);  // null if it has ended
  bool HasUnsent() const;
  // Blocks that loads have not filled yet.
  int32_t num_loading() const { return num_loading_; }
  // Blocks that the holds of stores made unavailable.
  int32_t store_costs() const { return store_costs_; }
  int64_t num_given_up() const { return num_given_up_; }  // stores

  // Holds the chain to `node`, of which `todo` (not empty, unless other tasks load the rest) is to
  // be copied. Loads take their blocks from those that the pool has reserved, or else available.
  uint64_t BeginLoad(TaskKind kind, NodeId node, const std::vector<NodeId>& todo, bool reserved);
  uint64_t BeginStore(NodeId node, const std::vector<NodeId>& todo, int64_t deadline_ns);
  // Sends the next copy of a task. Requires that it is not all sent.
  TaskCopy SendNext(TaskKind kind, uint64_t ticket);
  // Drops the next copy of a store, whose node has a page by now.
  void SkipNext(uint64_t ticket);
  // A copy in flight has ended, as its ack says. EndIfDone follows.
  void EndCopy(const TaskCopy& copy, bool ok, bool page_bad);
  // Nothing more of the task is sent. EndIfDone follows.
  void Fail(TaskKind kind, uint64_t ticket);
  // Ends a task that is all sent, has no copy in flight, and is not awaited: releases its chain.
  void EndIfDone(TaskKind kind, uint64_t ticket);
  // The sequence that waits for a restore waits no longer. Unknown tickets are ignored.
  void AbandonRestore(uint64_t ticket);
  // The newest store with a deadline by then that holds blocks for copies not yet sent gives those
  // up, and so on until a block is available. False: no store is left to give any up.
  bool GiveUpStore(int64_t deadline_by_ns);
  void GiveUpUnsentStores();
  // Ends all tasks. Requires that EndCopy was called for all copies in flight.
  void EndAll();

  // Aborts when a count is wrong; `in_flight` has the copies in flight by ticket. O(tasks).
  void CheckInvariants(std::map<uint64_t, int32_t>& in_flight) const;

 private:
  Tasks& of(TaskKind kind) { return tasks_[static_cast<size_t>(kind)]; }
  CopyTask& Begin(TaskKind kind, NodeId node, const std::vector<NodeId>& todo);
  void GiveUpUnsent(uint64_t ticket);

  BlockPool& pool_;
  PrefixTree& tree_;
  SessionPressure& sessions_;
  std::array<Tasks, 3> tasks_;  // by TaskKind
  uint64_t last_ticket_ = 0;
  int32_t num_loading_ = 0;
  int32_t store_costs_ = 0;
  int64_t num_given_up_ = 0;
};

}  // namespace quire
