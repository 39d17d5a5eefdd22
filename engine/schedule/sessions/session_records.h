// SessionRecords: every session's record with the KV it keeps, and the basic changes that all
// operations on sessions use. Clients' operations, turns, time, tiers and transfers are separate
// classes above it (session_store.h). One thread.
//
// No call depends on the number of idle sessions, except by its logarithm.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/schedule/kv/prefix_tree.h"
#include "engine/schedule/sessions/pinned_nodes.h"
#include "engine/schedule/sessions/session_book.h"
#include "engine/schedule/tenants/tenant_accounts.h"
#include "engine/values/scheduler_config.h"
#include "engine/values/session.h"
#include "engine/values/session_operation.h"

namespace quire {

// A refusal with a reason for programs (kSessionReason).
absl::Status SessionRefusal(absl::StatusCode code, const char* reason, const std::string& message);

class SessionRecords {
 public:
  using Slot = SessionBook::Slot;

  // The findings of a walk along a session's chain.
  struct Survey {
    SessionState state = SessionState::kDropped;
    SessionTiers tiers;
    bool stored = true;      // all KV that exists is on the host
    bool has_pages = false;  // that could be dropped: no higher-ranked session keeps them
  };

  // `tree` outlives this.
  SessionRecords(const SessionConfig& config, int32_t block_size, PrefixTree& tree);
  // Null: none. The observer outlives this.
  void SetObserver(SessionObserver* observer) { observer_ = observer; }
  void SetAccounts(const TenantAccounts* accounts) { accounts_ = accounts; }
  // The server's bounds, or the tenant's own where they are smaller.
  int64_t MaxSessions(TenantId tenant) const;
  int64_t MaxTokens(TenantId tenant) const;

  const SessionConfig& config() const { return config_; }
  int32_t block_size() const { return block_size_; }
  PrefixTree& tree() { return tree_; }
  SessionBook& book() { return book_; }
  const SessionBook& book() const { return book_; }
  // Sessions and nodes examined since the beginning.
  int64_t work() const { return work_; }
  void CountWork() const { ++work_; }

  // --- Looking up. Errors as in engine/values/session_operation.h.
  absl::StatusOr<Slot> Find(TenantId tenant, const SessionName& name) const;
  // Likewise, and FAILED_PRECONDITION while the session is busy.
  absl::StatusOr<Slot> FindIdle(TenantId tenant, const SessionName& name) const;
  Slot SlotOf(uint64_t turn) const;  // kNoSlot if unknown
  NodeId Above(NodeId node) const;   // kNoNode: the root
  NodeId LastBlock(NodeId node, int32_t position) const;
  Survey Look(Slot slot) const;
  SessionInfo InfoOf(Slot slot) const;
  SessionBook::Wanted MostWantedAt(NodeId node) const;
  bool WantedByOthers(Slot slot, NodeId node) const;
  // When an idle session is due to be stored; kNoDeadline: never.
  int64_t OffloadTime(const SessionRecord& record, int64_t now_ns) const;
  // Whether a session of this name and with so many tokens may be made.
  absl::Status CheckNew(TenantId tenant, const SessionName& name, int64_t tokens) const;
  absl::Status CheckOptions(const SessionOptions& options) const;
  // Whether the pins may hold the chain to `node` too.
  absl::Status CheckPin(NodeId node) const;
  // Blocks that pins hold beside those of the chain to `node`; kNoNode: no chain.
  int32_t PinnedBeside(NodeId node) const { return pinned_.SizeBeside(node); }

  // --- Changing.
  Slot Add(TenantId tenant, const SessionName& name, const SessionOptions& options, int64_t now_ns);
  // Renews the lease.
  void Use(SessionRecord& record, int64_t now_ns) const;
  void KeepInstead(Slot slot, NodeId node);
  void MovePin(Slot slot, NodeId node);
  void ReleasePin(Slot slot);
  void Cut(Slot slot, int32_t position, int64_t now_ns);
  // Cuts the session behind so many tokens of the last turn's output, and tells. False, and nothing
  // done: it has no more.
  bool CutOutput(Slot slot, int32_t num_output, int64_t now_ns);
  // Makes the session busy. Returns the number of the turn.
  uint64_t StartTurn(Slot slot);
  void DropBlocks(Slot slot);
  // Closes the session.
  void End(Slot slot);
  // Tells the observer, and remembers the state that was told.
  SessionInfo Tell(Slot slot);
  // The same when the session's tokens have changed, except for the first `kept` ones.
  SessionInfo TellTokens(Slot slot, int32_t kept);

  void CheckInvariants() const;

 private:
  SessionInfo Tell(Slot slot, const SessionInfo& info);

  const SessionConfig config_;
  const int32_t block_size_;
  const int32_t max_pinned_;
  PrefixTree& tree_;
  SessionObserver* observer_ = nullptr;
  const TenantAccounts* accounts_ = nullptr;
  SessionBook book_;
  PinnedNodes pinned_;
  uint64_t last_turn_ = 0;
  mutable int64_t work_ = 0;
};

}  // namespace quire
