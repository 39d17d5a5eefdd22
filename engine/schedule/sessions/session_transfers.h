// SessionTransfers: sessions on their way out of the server as bytes, and in. Each is busy
// meanwhile, as if a turn ran. One thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/schedule/sessions/host_filling.h"
#include "engine/schedule/sessions/session_records.h"
#include "engine/schedule/sessions/session_store.h"
#include "engine/values/session_operation.h"

namespace quire {

class SessionPressure;

class SessionTransfers {
 public:
  using Import = SessionStore::Import;

  // Both outlive this.
  SessionTransfers(SessionRecords& records, SessionPressure& pressure);

  // The pages keep their bytes until ReleaseExport, whatever happens to the KV of their nodes: a
  // page may turn out to be corrupt, and its node and those below then lose theirs.
  absl::StatusOr<SessionTransfer> BeginExport(TenantId tenant, const SessionName& name,
                                              int64_t now_ns);
  // False, and nothing done, if this is no export.
  bool ReleaseExport(uint64_t turn);
  // Makes a session, busy until EndImport; the caller fills the pages by then.
  absl::StatusOr<SessionTransfer> BeginImport(TenantId tenant, Import import, int64_t now_ns);
  bool IsImport(uint64_t turn) const { return imports_.contains(turn); }
  // Not ok: the session is gone again.
  absl::StatusOr<SessionInfo> EndImport(uint64_t turn, bool ok, int64_t now_ns);

  void CheckInvariants() const;

 private:
  struct Export {
    NodeId held = kNoNode;
    std::vector<std::pair<NodeId, PageId>> read;  // the deepest first
  };

  SessionRecords& records_;
  SessionPressure& pressure_;
  SessionBook& book_;
  PrefixTree& tree_;
  // By turn.
  std::unordered_map<uint64_t, Export> exports_;
  std::unordered_map<uint64_t, HostFilling> imports_;
};

}  // namespace quire
