// Two queues: of requests that need a slot, and of requests that need none.
#include "clients/load/run/send_queue.h"

#include <algorithm>
#include <utility>

namespace quire::load {

SendQueue::SendQueue(const std::vector<int64_t>& slots_free_ns)
    : limited_(true), slots_free_ns_(slots_free_ns.begin(), slots_free_ns.end()) {}

void SendQueue::Add(DueSend send) {
  Entries& entries = limited_ && send.takes_slot ? slotted_ : unslotted_;
  entries.push(Entry{std::move(send), next_order_++});
}

int64_t SendQueue::EligibleNs(const Entries& entries, bool takes_slot) const {
  if (entries.empty()) return kNever;
  if (!takes_slot) return entries.top().send.due_ns;
  if (slots_free_ns_.empty()) return kNever;
  return std::max(entries.top().send.due_ns, slots_free_ns_.top());
}

std::optional<EligibleSend> SendQueue::Take(int64_t now_ns) {
  const int64_t slotted = EligibleNs(slotted_, true);
  const int64_t unslotted = EligibleNs(unslotted_, false);
  const int64_t eligible = std::min(slotted, unslotted);
  if (eligible == kNever || eligible > now_ns) return std::nullopt;
  const bool takes_slot = slotted < unslotted;
  Entries& entries = takes_slot ? slotted_ : unslotted_;
  // The top is popped at once, so that moving out of it breaks no order.
  EligibleSend taken{std::move(const_cast<Entry&>(entries.top()).send), eligible};
  entries.pop();
  if (takes_slot) slots_free_ns_.pop();
  return taken;
}

int64_t SendQueue::NextNs() const {
  return std::min(EligibleNs(slotted_, true), EligibleNs(unslotted_, false));
}

void SendQueue::Release(int64_t now_ns) {
  if (limited_) slots_free_ns_.push(now_ns);
}

std::vector<DueSend> SendQueue::TakeAll() {
  std::vector<DueSend> all;
  for (Entries* entries : {&slotted_, &unslotted_}) {
    for (; !entries->empty(); entries->pop()) all.push_back(entries->top().send);
  }
  return all;
}

}  // namespace quire::load
