// Takes sessions from the beginnings of the session book's orders.
#include "engine/schedule/sessions/session_pressure.h"

#include <algorithm>
#include <array>

#include "engine/schedule/sessions/session_leases.h"

namespace quire {
namespace {

using Wanted = SessionBook::Wanted;

// The most sessions that one call examines, however many wait.
constexpr int32_t kMaxSessions = 16;
// The most pages above its bound that a tenant loses in one call, beside those asked for: a
// millisecond at 1 us each.
constexpr int32_t kMaxExcess = 1000;
// After a store that failed: 4, 8, ... 512 seconds. Later it is stored under pressure, or after its
// next use; so the number of tries depends on its use, not on how long it is idle.
constexpr int64_t kFirstRetry = 4'000'000'000;
constexpr int32_t kMaxRetries = 8;

}  // namespace

SessionPressure::SessionPressure(SessionRecords& records, SessionLeases& leases)
    : records_(records), leases_(leases), book_(records.book()), tree_(records.tree()) {}

NodeId SessionPressure::NextIdle(int64_t now_ns) {
  for (int32_t i = 0; i < kMaxSessions && !book_.offloads().empty(); ++i) {
    const auto [offload_ns, slot] = *book_.offloads().begin();
    if (offload_ns > now_ns) break;
    const NodeId kept = book_[slot].kept;
    const bool stored = records_.Look(slot).stored;
    book_.Change(slot, [&](SessionRecord& record) {
      const int32_t tries = record.attempts++;
      const bool again = !stored && tries < kMaxRetries;
      record.offload_ns = again ? now_ns + (kFirstRetry << tries) : kNoDeadline;
      record.has_pages = true;
    });
    if (!stored) return kept;
    if (book_[slot].leaving) records_.DropBlocks(slot);
  }
  return kNoNode;
}

NodeId SessionPressure::NextPrefetch() {
  if (book_.prefetches().empty()) return kNoNode;
  const SessionBook::Slot slot = book_.prefetches().begin()->second;
  book_.Change(slot, [](SessionRecord& record) { record.prefetch_ns = kNoDeadline; });
  return book_[slot].kept;
}

int32_t SessionPressure::MakeRoom(int32_t pages, NodeId node) {
  const Wanted wanted = records_.MostWantedAt(node);
  return wanted == Wanted::Lowest() ? 0 : MakeRoomFor(pages, wanted);
}

int32_t SessionPressure::MakeRoomFor(int32_t pages, const Wanted& wanted) {
  const TenantId tenant = book_[wanted.slot].tenant;
  const int32_t room = tree_.host().RoomInShare(tree_.nodes().tree().Root(tenant));
  // No page of another tenant is of use where the bound leaves no room.
  const bool own = room <= 0;
  if (own) pages += std::min(-room, kMaxExcess);
  int32_t dropped = 0;
  for (int32_t i = 0; i < kMaxSessions && dropped < pages; ++i) {
    const Wanted* const first = own ? book_.LeastPaged(tenant) : book_.LeastPaged();
    if (first == nullptr || !(*first < wanted)) break;
    const Wanted least = *first;
    dropped += DropPages(least.slot, pages - dropped);
    if (dropped == pages) break;
    // The remaining pages cannot be dropped now: they are being copied, or a higher-ranked session
    // keeps them.
    book_.Change(least.slot, [](SessionRecord& record) { record.has_pages = false; });
    leases_.LookAgain();
  }
  return dropped;
}

int32_t SessionPressure::DropPages(SessionBook::Slot slot, int32_t pages) {
  NodeId node = book_[slot].kept;
  for (; node != kNoNode && tree_.Kv(node).page == kNoPage; node = records_.Above(node)) {
    records_.CountWork();
    if (records_.WantedByOthers(slot, node)) return 0;
  }
  int32_t dropped = 0;
  while (dropped < pages && node != kNoNode) {
    records_.CountWork();
    const NodeId above = records_.Above(node);
    if (records_.WantedByOthers(slot, node) || !tree_.host().DropPage(node)) break;
    ++dropped;
    node = above;
  }
  return dropped;
}

void SessionPressure::OnTierChange(NodeId node) {
  std::array<SessionBook::Slot, kMaxSessions> slots;
  size_t count = 0;
  for (auto it = book_.keepers().LowerBound({node, Wanted::Lowest()});
       it != book_.keepers().end() && it->first == node && count < slots.size(); ++it) {
    slots[count++] = it->second.slot;
  }
  for (size_t i = 0; i < count; ++i) leases_.TellIfChanged(slots[i]);
  leases_.LookAgain();
}

}  // namespace quire
