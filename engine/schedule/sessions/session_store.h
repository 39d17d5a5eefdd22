// SessionStore: every session of every tenant, for clients and turns. The scheduler thread alone
// uses it, between two steps; other threads send operations (Engine::Run). Every call is O(log idle
// sessions); List is paginated. Its parts: records (look-up and basic changes), leases (time),
// pressure (copies between device and host), transfers (sessions as bytes).
//
// A turn is a transaction; engine/schedule/turns.h runs it. BeginTurn makes the session busy.
// CommitTurn replaces its tokens by the prompt and the tokens delivered; AbortTurn leaves the
// session as it was.
//
// Errors are those of engine/values/session_operation.h; the session is unharmed by each.
//
// Memory: kBytesPerSession and 4 bytes a token for each idle session, beside its nodes in the tree.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/schedule/kv/prefix_tree.h"
#include "engine/values/scheduler_config.h"
#include "engine/values/session.h"
#include "engine/values/session_operation.h"

namespace quire {

class SessionBook;
class SessionLeases;
class SessionPressure;
class SessionRecords;
class SessionSnapshots;
class SessionTransfers;
class TenantAccounts;

class SessionStore {
 public:
  // Upper bound, without the session's tokens, its name beyond 15 bytes and its nodes.
  static constexpr int64_t kBytesPerSession = 832;

  // `tree` outlives this; its keeper is a part of this.
  SessionStore(const SessionConfig& config, int32_t block_size, PrefixTree& tree);
  ~SessionStore();
  // Null: none. The observer outlives this.
  void SetObserver(SessionObserver* observer);
  // Where the limits of tenants are; null: none have any. It outlives this.
  void SetAccounts(const TenantAccounts* accounts);

  // --- Operations of clients.
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
  // A session as another server left it, without KV. Its lease and its rank go by `left.used_ns`.
  absl::StatusOr<SessionInfo> Adopt(TenantId tenant, const SessionName& name,
                                    SessionOperation::Adopt left);
  // Forgets the tokens from `position` on.
  absl::StatusOr<SessionInfo> Truncate(TenantId tenant, const SessionName& name, int64_t position,
                                       int64_t now_ns);
  // Renews the lease, and changes the options that are given.
  absl::StatusOr<SessionInfo> Touch(TenantId tenant, const SessionName& name,
                                    const SessionOperation::Touch& changes, int64_t now_ns);
  // Asks for the KV to go to the host and off the device, except for blocks that another session
  // keeps. Tiering does it.
  absl::StatusOr<SessionInfo> Offload(TenantId tenant, const SessionName& name, int64_t now_ns);
  // Asks for a copy on the host, and leaves the device's where it is.
  absl::StatusOr<SessionInfo> Save(TenantId tenant, const SessionName& name, int64_t now_ns);
  // Asks for the KV to come back to the device.
  absl::StatusOr<SessionInfo> Prefetch(TenantId tenant, const SessionName& name, int64_t now_ns);
  // Keeps the KV that is on the device there, and as much of the KV of later turns as the quota
  // allows.
  absl::StatusOr<SessionInfo> Pin(TenantId tenant, const SessionName& name, int64_t now_ns);
  absl::StatusOr<SessionInfo> Unpin(TenantId tenant, const SessionName& name, int64_t now_ns);
  // Blocks that pins hold beside those of the chain to `node`; kNoNode: no chain.
  int32_t PinnedBeside(NodeId node) const;
  absl::Status Close(TenantId tenant, const SessionName& name);

  // --- Turns. `expected_position`: where the client believes the session to be; nullopt: anywhere.
  // The session's tokens, if a turn could begin now; changes nothing. Valid until the session's
  // next change.
  absl::StatusOr<std::span<const int32_t>> TokensForTurn(
      TenantId tenant, const SessionName& name, std::optional<int64_t> expected_position) const;
  // Makes the session busy; returns the number of the turn. CutTurn finds the turn by `request`.
  absl::StatusOr<uint64_t> BeginTurn(TenantId tenant, const SessionName& name,
                                     std::optional<int64_t> expected_position, int64_t now_ns,
                                     RequestId request = 0);
  // The session keeps at most `num_output` tokens of the output of this request's turn, which runs
  // or was the last to change the session's tokens. Other requests are ignored.
  void CutTurn(RequestId request, int32_t num_output, int64_t now_ns);
  // The bound that CutTurn gave a running turn; kKeepAll: none.
  int32_t MaxOutput(uint64_t turn) const;
  // Ends a turn without a change; also ends an export or an import. All calls ignore unknown turns.
  void AbortTurn(uint64_t turn, int64_t now_ns) { AbortTurn(turn, kNoNode, now_ns); }

  // --- The scheduler's.
  // The deepest node that the session of a turn keeps, a tail or not; kNoNode: none. Another
  // session may keep it too; its last block may hold more tokens than the session. The tokens that
  // node, prompt and TokensOf have in common are valid.
  NodeId KeptBy(uint64_t turn) const;
  // The tokens of the turn's session, while the turn runs; the tokens of the prompt behind them are
  // new.
  std::span<const int32_t> TokensOf(uint64_t turn) const;
  // Ends the turn: the session's tokens are now `tokens`, its KV is the chain to `node`, a tail or
  // not (held by the caller; kNoNode or a root: none). The last block may hold more tokens than the
  // session. The output begins behind `num_prompt` tokens.
  void CommitTurn(uint64_t turn, std::vector<int32_t> tokens, NodeId node, int64_t now_ns,
                  int32_t num_prompt = 0);
  // The turn failed: its session keeps `node` as above, or with kNoNode the node it kept before.
  void AbortTurn(uint64_t turn, NodeId node, int64_t now_ns);

  // --- Time. Ends sessions whose lease has run out, at most `limit` a call. Then examines sessions
  // for an unseen change of state, a bounded number of nodes a call.
  void Expire(int64_t now_ns, int32_t limit);
  // The earliest end of a lease or start of an offload that Expire has not seen; kNoDeadline: none.
  int64_t NextTimer() const;

  // --- Sessions as bytes. Busy until AbortTurn(turn); until then the pages keep their bytes:
  // page i has the KV of block i.
  absl::StatusOr<SessionTransfer> BeginExport(TenantId tenant, const SessionName& name,
                                              int64_t now_ns);
  // Makes a session, busy until EndImport; by then the caller has filled the pages. Page i is for
  // the KV of block i; kNoPage: it is there already, or there is no room for it and all behind it.
  struct Import {
    SessionName name;
    SessionOptions options;
    std::vector<int32_t> tokens;
    int32_t kv_tokens = 0;
  };
  absl::StatusOr<SessionTransfer> BeginImport(TenantId tenant, Import import, int64_t now_ns);
  // Not ok: the session is gone again.
  absl::StatusOr<SessionInfo> EndImport(uint64_t turn, bool ok, int64_t now_ns);

  // Sessions as bytes that are not busy meanwhile.
  SessionSnapshots& snapshots();

  // For Tiering.
  SessionPressure& pressure() { return *pressure_; }

  int64_t num_sessions() const;
  int64_t num_tokens() const;  // of all sessions
  // Sessions by state, indexed by SessionState, as far as Expire has examined them.
  const std::vector<int64_t>& CountByState() const;
  // Sessions and nodes examined since the beginning.
  int64_t work() const;

  void CheckInvariants() const;

 private:
  void StoreNow(int32_t slot, bool leaving, int64_t now_ns);

  const std::unique_ptr<SessionRecords> records_;
  SessionBook& book_;
  PrefixTree& tree_;
  const std::unique_ptr<SessionLeases> leases_;
  const std::unique_ptr<SessionPressure> pressure_;
  const std::unique_ptr<SessionTransfers> transfers_;
  const std::unique_ptr<SessionSnapshots> snapshots_;
};

}  // namespace quire
