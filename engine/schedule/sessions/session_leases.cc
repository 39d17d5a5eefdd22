// The ends of leases, and the rounds along all sessions.
#include "engine/schedule/sessions/session_leases.h"

#include <algorithm>

namespace quire {
namespace {

// The most nodes and sessions that one call examines.
constexpr int64_t kMaxWork = 64;
// The time between two looks: at 64 nodes of 100 ns each under a hundredth of a core.
constexpr int64_t kLookInterval = 1'000'000;

}  // namespace

SessionLeases::SessionLeases(SessionRecords& records)
    : records_(records), book_(records.book()), tree_(records.tree()) {
  tree_.SetKeeper(this);
}

void SessionLeases::OnLost(uint64_t keeper, NodeId parent) {
  if (parent != kNoNode && tree_.Depth(parent) == 0) parent = kNoNode;
  book_.Change(static_cast<SessionBook::Slot>(keeper),
               [parent](SessionRecord& record) { record.SetKept(parent); });
  LookAgain();
}

void SessionLeases::OnTierLost(NodeId) { LookAgain(); }

void SessionLeases::Expire(int64_t now_ns, int32_t limit) {
  now_ns_ = now_ns;
  for (; limit > 0 && !book_.leases().empty(); --limit) {
    const auto [expires_ns, slot] = *book_.leases().begin();
    if (expires_ns > now_ns) break;
    records_.End(slot);
  }
  LookAround(now_ns);
}

void SessionLeases::LookAround(int64_t now_ns) {
  if (to_look_at_ == 0 || now_ns < look_ns_) return;
  look_ns_ = now_ns + kLookInterval;
  for (const int64_t end = records_.work() + kMaxWork; to_look_at_ > 0 && records_.work() < end;
       --to_look_at_) {
    next_look_ = (next_look_ + 1) % book_.num_slots();
    records_.CountWork();
    if (book_.InUse(next_look_)) TellIfChanged(next_look_);
  }
}

void SessionLeases::TellIfChanged(SessionBook::Slot slot) {
  const SessionRecord& record = book_[slot];
  if (record.leaving && records_.Look(slot).stored) records_.DropBlocks(slot);
  const SessionRecords::Survey survey = records_.Look(slot);
  if (survey.has_pages != record.has_pages) {
    book_.Change(slot, [&](SessionRecord& changed) { changed.has_pages = survey.has_pages; });
  }
  if (survey.state != record.shown) records_.Tell(slot);
}

int64_t SessionLeases::NextTimer() const {
  int64_t next = kNoDeadline;
  if (!book_.leases().empty()) next = book_.leases().begin()->first;
  const auto offload = book_.offloads().UpperBound({now_ns_, book_.capacity()});
  if (offload != book_.offloads().end()) next = std::min(next, offload->first);
  if (to_look_at_ > 0) next = std::min(next, look_ns_);
  return next;
}

}  // namespace quire
