// SessionWorld: the pool, the tree, the sessions and Tiering over an emulated device and host, in
// which every slot of KV is a hash of the tokens up to it. Every read of a block checks it, so that
// stale, foreign or lost KV, and KV read too early or overwritten too early, fails at once. Copies
// are executed and end as the test says.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/schedule/sessions/session_store.h"
#include "engine/schedule/tenants/tenant_accounts.h"
#include "engine/schedule/tiering/tiering.h"

namespace quire {

struct WorldConfig {
  int32_t num_blocks = 65;  // the null block included
  int32_t num_pages = 64;
  int32_t block_size = 4;
  SessionConfig sessions = {.max_sessions = 64,
                            .max_sessions_per_tenant = 64,
                            .max_session_tokens = 1 << 20,
                            .max_model_len = 1 << 16,
                            .default_ttl_seconds = 1000,
                            .max_ttl_seconds = 10000,
                            .default_idle_offload_seconds = 2,
                            .max_pinned_share = 0.25};
  TieringConfig tiering = {.block_bytes = 1 << 20};
};

// A turn under way.
struct WorldTurn {
  uint64_t turn = 0;
  TenantId tenant = 0;
  std::vector<int32_t> tokens;  // known: of the session, and of the prompt
  NodeId node = kNoNode;        // held, the deepest that is used
  bool has_tail = false;        // which is its session's tail
  uint64_t ticket = 0;          // of a restore; 0: none
  int32_t found = 0;            // tokens whose KV was on the device when it was admitted
  int32_t tail_end = 0;         // tokens whose KV is there, with a tail that was continued
  bool took_tail = false;       // its session lost the tail by that
  std::vector<BlockId> own;     // blocks that the tree did not adopt
  BlockId partial = kNullBlock;
};

class SessionWorld {
 public:
  explicit SessionWorld(const WorldConfig& config = WorldConfig());

  // --- Turns. Begins one with `added` new tokens behind the session's; nullopt if it was refused
  // or there is no room. It may wait for a restore.
  std::optional<WorldTurn> Begin(TenantId tenant, const SessionName& name,
                                 const std::vector<int32_t>& added);
  // True once the turn's KV is restored: then it has been computed as well. False too if
  // there was no room to compute it; `turn.turn` is 0 then, and the turn aborted.
  bool Advance(WorldTurn& turn);
  // Ends it with these output tokens; the last one has no KV.
  void Commit(WorldTurn& turn, const std::vector<int32_t>& output);
  void Abort(WorldTurn& turn);
  // A whole turn, copies included; false if there was no room.
  bool Converse(TenantId tenant, const SessionName& name, const std::vector<int32_t>& added,
                const std::vector<int32_t>& output);

  // --- Bytes. CheckPages: pages of an export must have the KV of these tokens. FillPages: pages of
  // an import get it.
  void CheckPages(TenantId tenant, const std::vector<int32_t>& tokens, int32_t kv_tokens,
                  const std::vector<PageId>& pages);
  void FillPages(TenantId tenant, const std::vector<int32_t>& tokens,
                 const std::vector<PageId>& pages);

  // From now on the tenant's KV may have this many pages of host memory; 0: as many as there are.
  void SetPages(TenantId tenant, int32_t pages);
  // The pages that hold KV of the tenant, by a look at every node.
  int32_t CountPages(TenantId tenant) const;

  // --- Copies. Takes the next job from Tiering; false if there is none.
  bool Send();
  // Copies the bytes of the i-th job in flight; a broken one writes garbage.
  void Execute(size_t i, bool broken = false);
  // Executes the job, if that was not done, and ends it with `status`; copies from `num_good` on
  // are garbage.
  void Ack(size_t i, CopyStatus status = CopyStatus::kOk, int32_t num_good = 0);
  // Sends and acks until nothing is left to do.
  void Pump();
  // The workers die: all blocks and all jobs in flight are lost. Requires that no turn is under
  // way.
  void LoseDevice();

  // Checks the KV of every block and page that Find leads to.
  void CheckKv(TenantId tenant, const std::vector<int32_t>& tokens);
  void CheckInvariants() const;

  struct Job {
    CopyJob job;
    bool executed = false;
  };

  const WorldConfig config;
  TenantAccounts accounts;
  BlockPool pool;
  PrefixTree tree;
  SessionStore sessions;
  Tiering tiering;
  int64_t now_ns = 1'000'000'000;
  std::deque<Job> jobs;

 private:
  using Kv = std::vector<uint64_t>;  // by slot

  std::vector<uint64_t> Hashes(TenantId tenant, const std::vector<int32_t>& tokens) const;
  void CheckSlots(const Kv& kv, const std::vector<uint64_t>& hashes, int32_t begin, int32_t end);
  NodeId DeepestOnDevice(NodeId node) const;
  void ContinueTail(WorldTurn& turn);
  NodeId GiveBackTail(WorldTurn& turn);
  bool Compute(WorldTurn& turn);
  bool Grow(WorldTurn& turn);
  void Release(WorldTurn& turn);

  TenantTable tenants_;
  std::vector<Kv> blocks_, pages_;
  uint64_t rubbish_ = 0;
};

// `count` tokens that depend on `seed`.
std::vector<int32_t> SomeTokens(int32_t count, int32_t seed);

}  // namespace quire
