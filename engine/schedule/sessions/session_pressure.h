// SessionPressure: chooses for tiering the session whose KV is stored or loaded next, and the
// sessions that lose pages. One thread.
#pragma once

#include <cstdint>

#include "engine/schedule/sessions/session_records.h"

namespace quire {

class SessionLeases;

class SessionPressure {
 public:
  // Both outlive this.
  SessionPressure(SessionRecords& records, SessionLeases& leases);

  // The deepest node (a tail included) of the idle session that is due to be stored; kNoNode: none.
  // Each call gives another session. A session that was not stored comes again, each time after a
  // longer pause.
  NodeId NextIdle(int64_t now_ns);
  // The deepest node that a client asked to fetch; likewise.
  NodeId NextPrefetch();
  // Frees host pages, to store `node`: drops at most `pages`, of sessions with a lower priority
  // than the keepers of `node`, or with the same and an earlier last use, from their ends. Of a
  // tenant whose own bound has no room (HostTier::RoomInShare), the tenant's own sessions alone; at
  // first the pages that it has above its bound. Returns the number dropped.
  int32_t MakeRoom(int32_t pages, NodeId node);
  // The same for a session of this rank.
  int32_t MakeRoomFor(int32_t pages, const SessionBook::Wanted& wanted);
  // Copies of the chain to `node`, the deepest of a session, have begun or ended.
  void OnTierChange(NodeId node);

 private:
  int32_t DropPages(SessionBook::Slot slot, int32_t pages);

  SessionRecords& records_;
  SessionLeases& leases_;
  SessionBook& book_;
  PrefixTree& tree_;
};

}  // namespace quire
