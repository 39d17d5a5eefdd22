// SessionStore: every session of every tenant: its tokens, its lease, and the node of the prefix
// tree that it keeps. On the scheduler thread alone, between two steps; other threads come through
// Engine::Ask. No call depends on how many sessions are idle but by a logarithm; List is a page.
//
// A turn is a transaction. BeginTurn makes the session busy and gives its tokens; the request that
// follows carries the turn's number and a prompt that begins with them (or, when a whole
// conversation was rendered anew, with as much of them as is still true). Its end appends the
// prompt and the tokens delivered (CommitTurn), or leaves the session where it was (AbortTurn): a
// turn that was cancelled or failed can be sent again as it was.
//
// Errors: NOT_FOUND for a name that this tenant does not have (a foreign session looks the same);
// ALREADY_EXISTS; FAILED_PRECONDITION for a busy session and, with the true position in the
// message, for a wrong one; INVALID_ARGUMENT for what can never be right (a position beyond the
// end, values out of range); RESOURCE_EXHAUSTED for a quota. The session is unharmed by each. A
// refusal's reason for machines is its payload "quire.session/reason": SESSION_NOT_FOUND,
// SESSION_EXISTS, SESSION_BUSY, SESSION_FULL, WRONG_POSITION, POSITION_BEYOND_END,
// TOO_MANY_SESSIONS, TOO_MANY_SESSION_TOKENS, PIN_QUOTA; none for names and options.
//
// Memory: kBytesPerSession and 4 bytes a token for each idle session, beside its nodes in the tree.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/schedule/kv/prefix_tree.h"
#include "engine/schedule/sessions/pinned_nodes.h"
#include "engine/schedule/sessions/session_book.h"
#include "engine/values/scheduler_config.h"
#include "engine/values/session.h"
#include "engine/values/session_operation.h"

namespace quire {

class SessionStore final : public NodeKeeper {
 public:
  // At most, without its tokens, its name beyond 15 bytes and its nodes.
  static constexpr int64_t kBytesPerSession = 768;

  // `tree` outlives this, which becomes its keeper.
  SessionStore(const SessionConfig& config, int32_t block_size, PrefixTree& tree);
  // Null: none. The observer outlives this.
  void SetObserver(SessionObserver* observer) { observer_ = observer; }

  // --- What clients ask for.
  absl::StatusOr<SessionInfo> Create(TenantId tenant, const SessionName& name,
                                     const SessionOptions& options, int64_t now_ns);
  absl::StatusOr<SessionInfo> Get(TenantId tenant, const SessionName& name) const;
  // In the order of names, behind `after`, at most `limit`.
  std::vector<SessionInfo> List(TenantId tenant, const SessionName& after, int32_t limit) const;
  // A new session with the first `position` tokens (nullopt: all) of another and with its options;
  // shares its blocks, copies nothing.
  absl::StatusOr<SessionInfo> Fork(TenantId tenant, const SessionName& from,
                                   const SessionName& name, std::optional<int64_t> position,
                                   int64_t now_ns);
  // Forgets the tokens from `position` on.
  absl::StatusOr<SessionInfo> Truncate(TenantId tenant, const SessionName& name, int64_t position,
                                       int64_t now_ns);
  // Renews the lease, and changes the options that are given.
  absl::StatusOr<SessionInfo> Touch(TenantId tenant, const SessionName& name,
                                    const SessionOperation::Touch& changes, int64_t now_ns);
  // Asks for the KV to go to the host and off the device, but for what other sessions keep there,
  // or to come back: accepted here, done by Tiering.
  absl::StatusOr<SessionInfo> Offload(TenantId tenant, const SessionName& name, int64_t now_ns);
  // Asks for a copy on the host, and leaves the device's where it is.
  absl::StatusOr<SessionInfo> Save(TenantId tenant, const SessionName& name, int64_t now_ns);
  absl::StatusOr<SessionInfo> Prefetch(TenantId tenant, const SessionName& name, int64_t now_ns);
  // Keeps what is on the device there, and as much of what later turns add as the quota allows.
  absl::StatusOr<SessionInfo> Pin(TenantId tenant, const SessionName& name, int64_t now_ns);
  absl::StatusOr<SessionInfo> Unpin(TenantId tenant, const SessionName& name, int64_t now_ns);
  absl::Status Close(TenantId tenant, const SessionName& name);

  // --- Turns. `expected_position` as the client knows it; nullopt: whatever it is.
  struct BegunTurn {
    uint64_t turn = 0;
    std::vector<int32_t> tokens;  // of the session so far
  };
  // `request`: by which CutTurn finds the turn.
  absl::StatusOr<BegunTurn> BeginTurn(TenantId tenant, const SessionName& name,
                                      std::optional<int64_t> expected_position, int64_t now_ns,
                                      RequestId request = 0);
  // The session keeps at most `num_output` tokens of the output of this request's turn, which runs
  // or was the last to change the session's tokens. Other requests are ignored.
  void CutTurn(RequestId request, int32_t num_output, int64_t now_ns);
  // As CutTurn said of a running turn; kKeepAll: it did not.
  int32_t MaxOutput(uint64_t turn) const;
  // A turn whose request was never accepted. Unknown turns are ignored, here as below.
  void AbortTurn(uint64_t turn, int64_t now_ns) { AbortTurn(turn, kNoNode, now_ns); }

  // --- Sessions as bytes. Busy until AbortTurn(turn); until then the pages are held: page i has
  // the KV of block i, `kv_tokens` in all (the last may be a tail).
  absl::StatusOr<SessionTransfer> BeginExport(TenantId tenant, const SessionName& name,
                                              int64_t now_ns);
  // Makes a session, busy until EndImport; by then the pages must be filled. Page i is to have the
  // KV of block i; kNoPage: it is there already, or there is no room for it and all behind it.
  struct Import {
    SessionName name;
    SessionOptions options;
    std::vector<int32_t> tokens;
    int32_t kv_tokens = 0;
  };
  absl::StatusOr<SessionTransfer> BeginImport(TenantId tenant, Import import, int64_t now_ns);
  // Not ok: the session is gone again.
  absl::StatusOr<SessionInfo> EndImport(uint64_t turn, bool ok, int64_t now_ns);

  // --- The scheduler's.
  // The deepest node that the session of a turn keeps, a tail or not; kNoNode if none. Other
  // sessions may keep it as well, and it may have more tokens than the session, of which it is the
  // last block then: what it has in common with a prompt, and TokensOf has, is valid.
  NodeId KeptBy(uint64_t turn) const;
  // Of the turn's session, while the turn runs: what a prompt has behind them is new.
  std::span<const int32_t> TokensOf(uint64_t turn) const;
  // The turn's end: the session's tokens are now `tokens`, its KV the chain to `node`, a tail or
  // not (held by the caller; kNoNode or a root: it has none), of whose last block it may have the
  // beginning alone. The output begins behind `num_prompt` tokens.
  void CommitTurn(uint64_t turn, std::vector<int32_t> tokens, NodeId node, int64_t now_ns,
                  int32_t num_prompt = 0);
  // The turn failed; its session keeps `node` as above, or, kNoNode, what it kept.
  void AbortTurn(uint64_t turn, NodeId node, int64_t now_ns);
  void OnLost(uint64_t keeper, NodeId parent) override;

  // --- Time. Leases that have run out end; at most `limit` a call. Also looks whether sessions
  // changed their state unseen (eviction tells nobody), a bounded number of nodes a call.
  void Expire(int64_t now_ns, int32_t limit);
  // The earliest lease end or idle offload that Expire has not seen; kNoDeadline if none.
  int64_t NextTimer() const;

  // --- Tiering's.
  // The idle session whose KV should go to the host next because its time has come; its deepest
  // node (a tail included), kNoNode if none. Asked again it gives the next. One that is not stored
  // after all comes again, ever later.
  NodeId NextIdle(int64_t now_ns);
  // The deepest node that a client asked to fetch; likewise.
  NodeId NextPrefetch();
  // Host pages are wanted, to store `node`: drops at most `pages`, of sessions with a lower
  // priority than those that keep `node`, or the same and longer unused; each loses its end first.
  // Returns how many.
  int32_t MakeRoom(int32_t pages, NodeId node);
  // Copies of the chain to `node`, the deepest of a session, have begun or ended.
  void OnTierChange(NodeId node);

  int64_t num_sessions() const { return book_.size(); }
  int64_t num_tokens() const { return book_.num_tokens(); }  // of all sessions
  // Sessions by state, indexed by SessionState, as far as Expire has looked.
  const std::vector<int64_t>& CountByState() const { return book_.by_state(); }
  // Sessions and nodes looked at since the beginning.
  int64_t work() const { return work_; }

  void CheckInvariants() const;

 private:
  using Slot = SessionBook::Slot;

  // What a walk along a session's chain finds.
  struct Survey {
    SessionState state = SessionState::kDropped;
    SessionTiers tiers;
    bool stored = true;      // all that there is, is on the host
    bool has_pages = false;  // that others do not want
  };
  struct Filling {
    NodeId node = kNoNode;
    bool adopted = false;  // its page is being filled
  };

  // --- Looking.
  absl::StatusOr<Slot> Find(TenantId tenant, const SessionName& name) const;
  absl::StatusOr<Slot> FindIdle(TenantId tenant, const SessionName& name) const;
  Slot SlotOf(uint64_t turn) const;  // kNoSlot if unknown
  NodeId Above(NodeId node) const;   // kNoNode: the root
  NodeId LastBlock(NodeId node, int32_t position) const;
  SessionBook::Wanted MostWantedAt(NodeId node) const;
  bool WantedByOthers(Slot slot, NodeId node) const;
  Survey Look(Slot slot) const;
  SessionInfo InfoOf(Slot slot) const;
  int64_t OffloadTime(const SessionRecord& record, int64_t now_ns) const;
  absl::Status CheckNew(TenantId tenant, const SessionName& name, int64_t tokens) const;
  absl::Status CheckOptions(const SessionOptions& options) const;

  // --- Changing.
  Slot Add(TenantId tenant, const SessionName& name, const SessionOptions& options, int64_t now_ns);
  uint64_t StartTurn(Slot slot, RequestId request = 0);
  void Cut(Slot slot, int32_t position, int64_t now_ns);
  void StoreNow(Slot slot, bool leaving, int64_t now_ns);
  void Use(SessionRecord& record, int64_t now_ns) const;
  void KeepInstead(Slot slot, NodeId node);
  void MovePin(Slot slot, NodeId node);
  void ReleasePin(Slot slot);
  void ReleaseExport(Slot slot);
  void DropBlocks(Slot slot);
  int32_t MakeRoomFor(int32_t pages, const SessionBook::Wanted& wanted);
  int32_t DropPages(Slot slot, int32_t pages);
  void End(Slot slot);
  // Tells the observer, and remembers the state that was told.
  SessionInfo Tell(Slot slot);
  void TellIfChanged(Slot slot);
  void LookAround(int64_t now_ns);

  const SessionConfig config_;
  const int32_t block_size_;
  const int32_t max_pinned_;
  PrefixTree& tree_;
  SessionObserver* observer_ = nullptr;
  SessionBook book_;
  PinnedNodes pinned_;
  std::unordered_map<uint64_t, std::vector<Filling>> imports_;  // by turn: held, the root first
  uint64_t last_turn_ = 0;
  // Looking around: the sessions still to be seen after the last change, from `next_look_` on.
  Slot next_look_ = 0;
  int32_t to_look_at_ = 0;
  int64_t evicted_ = 0;  // by the tree, when that was last read
  int64_t look_ns_ = 0;
  int64_t now_ns_ = 0;        // of the last Expire
  mutable int64_t work_ = 0;  // as work() says; counted by const methods too
};

}  // namespace quire
