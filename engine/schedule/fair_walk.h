// FairWalk: goes through the waiting sequences in the order of admission while a step is planned.
// Of the tenants whose next sequence has the highest priority, the one that was served least comes
// first, as TenantAccounts counts at that moment; within a tenant the queue's order applies. One
// tenant alone is walked in exactly the queue's order.
//
// A sequence that cannot begin is passed over: its tenant's next one comes only after the other
// tenants' next ones of that priority. Costs O(log tenants) a sequence, and O(tenants) a restart.
// Tenants at their max_running_requests are left out.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/schedule/request_queue.h"
#include "engine/schedule/tenants/tenant_accounts.h"

namespace quire {

class FairWalk {
 public:
  // Both outlive the walk.
  FairWalk(const RequestQueue& queue, const TenantAccounts& accounts);

  // Back to the beginning; needed after the queue has changed other than by the walk's own
  // sequences.
  void Restart();
  // The sequence that comes next; null at the end.
  Sequence* Peek();
  // Sequences of Peek()'s tenant that this walk has passed over.
  int32_t passed() const { return heap_.front().passed; }
  // Goes behind Peek(), before it is admitted or passed over. Exactly one of Took and Passed
  // follows.
  void Leave();
  void Took() { Return(0); }
  void Passed() { Return(1); }

 private:
  struct Cursor {
    AccountId account = 0;
    int32_t passed = 0;
    // Copies of the account's figures when it was placed; both only grow while a step is planned.
    int64_t served = 0;
    int32_t running = 0;
    RequestQueue::const_iterator next;
  };
  // Whether `a` comes after `b`: the heap's order.
  static bool After(const Cursor& a, const Cursor& b);
  bool AtEnd(const Cursor& cursor) const;
  void Return(int32_t passed);

  const RequestQueue& queue_;
  const TenantAccounts& accounts_;
  std::vector<Cursor> heap_;  // the least first
  Cursor left_;
};

}  // namespace quire
