// SessionSnapshots: sessions as bytes, out and in, beside whatever else happens to them. Neither a
// snapshot nor a recall makes a session busy: turns run, and may take over, cut or close the
// session's KV meanwhile. One thread.
//
// A snapshot is read from the host's pages. It holds no node and no block, so it delays no
// allocation on the device: full blocks never change, and a page that is read is given to no other
// node until the reading ends, even when its own node has given it up (NodePages). So a snapshot
// costs host memory alone, at most its own pages, and only if they are dropped in that time.
//
// A recall fills pages with KV that a file has. It holds the nodes that it fills, and with them the
// blocks of their ancestors that are on the device.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/schedule/sessions/host_filling.h"
#include "engine/schedule/sessions/session_records.h"
#include "engine/values/session_operation.h"

namespace quire {

class SessionPressure;

class SessionSnapshots {
 public:
  // Both outlive this.
  SessionSnapshots(SessionRecords& records, SessionPressure& pressure);

  // Requires that there is such a session. Its tokens, and with pages those of its KV that is on
  // the host, from the first block on; they keep their bytes until End.
  SessionTransfer Begin(TenantId tenant, const SessionName& name, bool with_pages);
  // Ignores unknown snapshots.
  void End(uint64_t snapshot);

  // The pages to be filled with the KV of the tokens that `tokens` and the session have in common.
  // NOT_FOUND if there is no such session.
  absl::StatusOr<SessionTransfer> BeginRecall(TenantId tenant, const SessionName& name,
                                              std::span<const int32_t> tokens, int64_t now_ns);
  // Complete: an idle session that still begins with these tokens keeps the KV. Ignores unknown
  // recalls.
  void EndRecall(uint64_t recall, bool complete);

  void CheckInvariants() const;

 private:
  struct Recall {
    TenantId tenant = 0;
    SessionName name;
    std::vector<int32_t> tokens;  // of the pages
    HostFilling filling;
  };

  void Keep(const Recall& recall, NodeId node);

  SessionRecords& records_;
  SessionPressure& pressure_;
  SessionBook& book_;
  PrefixTree& tree_;
  uint64_t last_ = 0;
  // The nodes and pages that are read, the deepest first.
  std::unordered_map<uint64_t, std::vector<std::pair<NodeId, PageId>>> snapshots_;
  std::unordered_map<uint64_t, Recall> recalls_;
};

}  // namespace quire
