// SessionLeases: the effect of time on sessions: leases that run out, and changes of state that no
// call reports. One thread.
#pragma once

#include <cstdint>

#include "engine/schedule/sessions/session_records.h"

namespace quire {

class SessionLeases final : public NodeKeeper {
 public:
  // `records` outlives this. This becomes the keeper of its tree.
  explicit SessionLeases(SessionRecords& records);

  // Ends sessions whose lease has run out, at most `limit` a call. Then examines sessions for an
  // unseen change of state, a bounded number of nodes a call, after the tree reported a lost tier.
  void Expire(int64_t now_ns, int32_t limit);
  // The earliest end of a lease or start of an offload that Expire has not seen; kNoDeadline: none.
  int64_t NextTimer() const;
  // Expire is to examine all sessions again.
  void LookAgain() { to_look_at_ = book_.num_slots(); }
  // Reports the session's state if it has changed.
  void TellIfChanged(SessionBook::Slot slot);

  void OnLost(uint64_t keeper, NodeId parent) override;
  void OnTierLost(NodeId node) override;

 private:
  void LookAround(int64_t now_ns);

  SessionRecords& records_;
  SessionBook& book_;
  PrefixTree& tree_;
  // The sessions still to be examined after the last change, from `next_look_` on.
  SessionBook::Slot next_look_ = 0;
  int32_t to_look_at_ = 0;
  int64_t look_ns_ = 0;
  int64_t now_ns_ = 0;  // of the last Expire
};

}  // namespace quire
