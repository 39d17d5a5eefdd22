// SessionBook: the records of all sessions, in each order that look-ups need: by name, by the end
// of the lease, by the next offload or prefetch, by rank (Wanted), by the node they keep. Change is
// the only way to change a record. It takes the record out of all orders and files it again, so no
// order can disagree with a record. Allocates only for names and tokens. One thread.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/schedule/containers/recycling_set.h"
#include "engine/schedule/kv/prefix_tree.h"
#include "engine/values/session.h"

namespace quire {

struct SessionRecord {
  SessionName name;
  TenantId tenant = 0;
  SessionOptions options;  // effective
  std::vector<int32_t> tokens;
  uint64_t turn = 0;   // running; 0: none
  uint64_t turns = 0;  // appended
  // Of the running turn, or of the last one while nothing has changed the tokens since.
  RequestId request = 0;
  int32_t num_prompt = 0;         // its prompt's tokens, once it is appended
  int32_t max_output = kKeepAll;  // of its output that the session keeps
  int64_t created_ns = 0;
  int64_t used_ns = 0;
  int64_t expires_ns = kNoDeadline;
  int64_t offload_ns = kNoDeadline;                  // when to check whether it is on the host
  int64_t prefetch_ns = kNoDeadline;                 // when a client asked for it
  NodeId kept = kNoNode;                             // the deepest node
  NodeId pin = kNoNode;                              // held
  SessionState shown = SessionState::kResidentIdle;  // as the observer was last told
  bool pinned = false;
  bool leaving = false;    // drop its blocks as soon as they are on the host
  bool has_pages = false;  // it may have pages to drop
  uint8_t attempts = 0;    // to store it, since its last use

  // kNoNode: there is nothing left to move.
  void SetKept(NodeId node);
};

class SessionBook {
 public:
  using Slot = int32_t;
  static constexpr Slot kNoSlot = -1;

  // The rank of a session's pages: the lowest are dropped first.
  struct Wanted {
    int32_t priority = 0;
    int64_t used_ns = 0;
    Slot slot = kNoSlot;
    auto operator<=>(const Wanted&) const = default;

    // Bounds that no session's rank reaches.
    static constexpr Wanted Lowest() { return {std::numeric_limits<int32_t>::min(), 0, 0}; }
    static constexpr Wanted Highest() { return {std::numeric_limits<int32_t>::max(), 0, 0}; }
  };
  using Timer = std::pair<int64_t, Slot>;
  using Keeper = std::pair<NodeId, Wanted>;
  using Key = std::pair<TenantId, SessionName>;

  struct TenantUse {
    int32_t sessions = 0;
    int64_t tokens = 0;
  };

  explicit SessionBook(int32_t max_sessions);

  // kNoSlot if there is none of that name.
  Slot Find(TenantId tenant, const SessionName& name) const;
  // The session whose turn runs as this request; kNoSlot if there is none.
  Slot FindRequest(RequestId request) const;
  // Requires that the name is new and that size() < capacity().
  Slot Add(TenantId tenant, const SessionName& name);
  void Remove(Slot slot);

  const SessionRecord& operator[](Slot slot) const { return records_[slot]; }
  // Calls `edit(record)`. It must not touch the tree, because the tree could call Change itself.
  template <typename Edit>
  void Change(Slot slot, Edit edit) {
    Unfile(slot);
    edit(records_[slot]);
    File(slot);
  }

  int32_t capacity() const { return capacity_; }
  // Slots that were ever in use: 0 to num_slots() - 1.
  int32_t num_slots() const { return static_cast<int32_t>(records_.size()); }
  int32_t size() const { return static_cast<int32_t>(names_.size()); }
  int64_t num_tokens() const { return num_tokens_; }
  bool InUse(Slot slot) const;
  TenantUse Use(TenantId tenant) const;
  const std::vector<int64_t>& by_state() const { return by_state_; }
  Wanted WantedOf(Slot slot) const;

  const std::map<Key, Slot>& names() const { return names_; }

  // Idle sessions by the time at which their lease ends, their store and their prefetch are due.
  const RecyclingSet<Timer>& leases() const { return leases_; }
  const RecyclingSet<Timer>& offloads() const { return offloads_; }
  const RecyclingSet<Timer>& prefetches() const { return prefetches_; }
  // The idle session with pages in host memory that loses them first, of all sessions or of the
  // tenant's; null: there is none. Valid until the next change.
  const Wanted* LeastPaged() const { return paged_.empty() ? nullptr : &*paged_.begin(); }
  const Wanted* LeastPaged(TenantId tenant) const;
  // Sessions by the deepest node they keep.
  const RecyclingSet<Keeper>& keepers() const { return keepers_; }

  void CheckInvariants() const;

 private:
  void File(Slot slot);
  void Unfile(Slot slot);
  void Count(const SessionRecord& record, int sign);

  const int32_t capacity_;
  std::vector<SessionRecord> records_;  // by slot; grows to `capacity_`, and stays where it is
  std::vector<Slot> free_;
  std::map<Key, Slot> names_;
  std::unordered_map<TenantId, TenantUse> tenants_;  // that have sessions
  RecyclingSet<Timer> leases_;
  RecyclingSet<Timer> offloads_;
  RecyclingSet<Timer> prefetches_;
  RecyclingSet<Wanted> paged_;
  RecyclingSet<std::pair<TenantId, Wanted>> own_paged_;  // the same, by tenant
  RecyclingSet<Keeper> keepers_;
  RecyclingSet<std::pair<RequestId, Slot>> requests_;
  std::vector<int64_t> by_state_;
  int64_t num_tokens_ = 0;
};

}  // namespace quire
