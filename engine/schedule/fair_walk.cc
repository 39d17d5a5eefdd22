// A heap of cursors, one for each tenant that may run more.
#include "engine/schedule/fair_walk.h"

#include <algorithm>

namespace quire {

FairWalk::FairWalk(const RequestQueue& queue, const TenantAccounts& accounts)
    : queue_(queue), accounts_(accounts) {
  heap_.reserve(TenantAccounts::kMaxIdle);
}

bool FairWalk::After(const Cursor& a, const Cursor& b) {
  const RequestQueue::Entry& x = *a.next;
  const RequestQueue::Entry& y = *b.next;
  if (x.priority != y.priority) return x.priority < y.priority;
  if (a.passed != b.passed) return a.passed > b.passed;
  if (a.served != b.served) return a.served > b.served;
  if (a.running != b.running) return a.running > b.running;
  if (x.place_ns != y.place_ns) return x.place_ns > y.place_ns;
  return x.order > y.order;
}

void FairWalk::Restart() {
  heap_.clear();
  for (const AccountId id : accounts_.contenders()) {
    heap_.push_back({id, 0, accounts_[id].served, accounts_[id].running, queue_.FirstOf(id)});
  }
  std::make_heap(heap_.begin(), heap_.end(), After);
}

bool FairWalk::AtEnd(const Cursor& cursor) const {
  return cursor.next == queue_.end() || cursor.next->account != cursor.account;
}

// A cursor's figures may have grown since it was placed: then it is placed again.
Sequence* FairWalk::Peek() {
  while (!heap_.empty()) {
    const TenantAccount& account = accounts_[heap_.front().account];
    Cursor& first = heap_.front();
    const bool current = first.served == account.served && first.running == account.running;
    if (current) return first.next->sequence;
    std::pop_heap(heap_.begin(), heap_.end(), After);
    if (accounts_.Contends(heap_.back().account)) {
      heap_.back().served = account.served;
      heap_.back().running = account.running;
      std::push_heap(heap_.begin(), heap_.end(), After);
    } else {
      heap_.pop_back();
    }
  }
  return nullptr;
}

void FairWalk::Leave() {
  std::pop_heap(heap_.begin(), heap_.end(), After);
  left_ = heap_.back();
  heap_.pop_back();
  ++left_.next;
}

void FairWalk::Return(int32_t passed) {
  const TenantAccount& account = accounts_[left_.account];
  if (AtEnd(left_) || !accounts_.Contends(left_.account)) return;
  left_.passed += passed;
  left_.served = account.served;
  left_.running = account.running;
  heap_.push_back(left_);
  std::push_heap(heap_.begin(), heap_.end(), After);
}

}  // namespace quire
