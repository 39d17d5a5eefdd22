// What time and tiers do to sessions, and sessions as bytes: the rest of SessionStore.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/status_macros.h"
#include "engine/schedule/sessions/session_store.h"
#include "kernels/check.h"

namespace quire {
namespace {

using Wanted = SessionBook::Wanted;

// What one call looks at, at most: so that none is long, however many wait.
constexpr int32_t kMaxSessions = 16;
constexpr int64_t kMaxWork = 64;
// Between two looks around: at 64 nodes of 100 ns each under a hundredth of a core.
constexpr int64_t kLookInterval = 1'000'000;
// After a store that came to nothing: 4, 8, ... 512 seconds. From then on it is stored under
// pressure, or when it was used again; so its tries are those of its use, however long it is idle.
constexpr int64_t kFirstRetry = 4'000'000'000;
constexpr int32_t kMaxRetries = 8;

constexpr Wanted kLeast{std::numeric_limits<int32_t>::min(), 0, 0};
constexpr Wanted kMost{std::numeric_limits<int32_t>::max(), 0, 0};

}  // namespace

// The most wanted session whose deepest node this is; kLeast: none.
SessionBook::Wanted SessionStore::MostWantedAt(NodeId node) const {
  auto it = book_.keepers().LowerBound({node, kMost});
  if (it == book_.keepers().begin()) return kLeast;
  --it;
  return it->first == node ? it->second : kLeast;
}

// Of the session's chain: whether others branch off below it, or a more wanted one ends there.
bool SessionStore::WantedByOthers(Slot slot, NodeId node) const {
  const int32_t own = node == book_[slot].kept ? 1 : 0;
  if (tree_.NumKeptChildren(node) > 1 - own) return true;
  return tree_.NumKeepers(node) > own && book_.WantedOf(slot) < MostWantedAt(node);
}

int64_t SessionStore::OffloadTime(const SessionRecord& record, int64_t now_ns) const {
  if (record.kept == kNoNode || tree_.num_pages() == 0) return kNoDeadline;
  return now_ns + static_cast<int64_t>(record.options.idle_offload_after_seconds * 1e9);
}

void SessionStore::OnLost(uint64_t keeper, NodeId parent) {
  if (parent != kNoNode && tree_.Depth(parent) == 0) parent = kNoNode;
  book_.Change(static_cast<Slot>(keeper),
               [parent](SessionRecord& record) { record.SetKept(parent); });
  to_look_at_ = book_.num_slots();
}

// --- Time.

void SessionStore::Expire(int64_t now_ns, int32_t limit) {
  now_ns_ = now_ns;
  for (; limit > 0 && !book_.leases().empty(); --limit) {
    const auto [expires_ns, slot] = *book_.leases().begin();
    if (expires_ns > now_ns) break;
    End(slot);
  }
  LookAround(now_ns);
}

void SessionStore::LookAround(int64_t now_ns) {
  if (std::exchange(evicted_, tree_.num_evicted()) != tree_.num_evicted()) {
    to_look_at_ = book_.num_slots();
  }
  if (to_look_at_ == 0 || now_ns < look_ns_) return;
  look_ns_ = now_ns + kLookInterval;
  for (const int64_t end = work_ + kMaxWork; to_look_at_ > 0 && work_ < end; --to_look_at_) {
    next_look_ = (next_look_ + 1) % book_.num_slots();
    ++work_;
    if (book_.InUse(next_look_)) TellIfChanged(next_look_);
  }
}

void SessionStore::TellIfChanged(Slot slot) {
  const SessionRecord& record = book_[slot];
  if (record.leaving && Look(slot).stored) DropBlocks(slot);
  const Survey survey = Look(slot);
  if (survey.has_pages != record.has_pages) {
    book_.Change(slot, [&](SessionRecord& changed) { changed.has_pages = survey.has_pages; });
  }
  if (survey.state != record.shown) Tell(slot);
}

int64_t SessionStore::NextTimer() const {
  int64_t next = kNoDeadline;
  if (!book_.leases().empty()) next = book_.leases().begin()->first;
  const auto offload = book_.offloads().UpperBound({now_ns_, book_.capacity()});
  if (offload != book_.offloads().end()) next = std::min(next, offload->first);
  if (to_look_at_ > 0) next = std::min(next, look_ns_);
  return next;
}

// --- Tiering's.

NodeId SessionStore::NextIdle(int64_t now_ns) {
  for (int32_t i = 0; i < kMaxSessions && !book_.offloads().empty(); ++i) {
    const auto [offload_ns, slot] = *book_.offloads().begin();
    if (offload_ns > now_ns) break;
    const NodeId kept = book_[slot].kept;
    const bool stored = Look(slot).stored;
    book_.Change(slot, [&](SessionRecord& record) {
      const int32_t tries = record.attempts++;
      const bool again = !stored && tries < kMaxRetries;
      record.offload_ns = again ? now_ns + (kFirstRetry << tries) : kNoDeadline;
      record.has_pages = true;
    });
    if (!stored) return kept;
    if (book_[slot].leaving) DropBlocks(slot);
  }
  return kNoNode;
}

NodeId SessionStore::NextPrefetch() {
  if (book_.prefetches().empty()) return kNoNode;
  const Slot slot = book_.prefetches().begin()->second;
  book_.Change(slot, [](SessionRecord& record) { record.prefetch_ns = kNoDeadline; });
  return book_[slot].kept;
}

// Off the device, but for what others keep there: from the end to where they join.
void SessionStore::DropBlocks(Slot slot) {
  book_.Change(slot, [](SessionRecord& record) { record.leaving = false; });
  for (NodeId node = book_[slot].kept; node != kNoNode; node = Above(node)) {
    ++work_;
    if (tree_.NumKeepers(node) + tree_.NumKeptChildren(node) > 1) break;
    if (tree_.Kv(node).block != kNullBlock && !tree_.DropBlock(node)) break;
  }
}

int32_t SessionStore::MakeRoom(int32_t pages, NodeId node) {
  return MakeRoomFor(pages, MostWantedAt(node));
}

int32_t SessionStore::MakeRoomFor(int32_t pages, const Wanted& wanted) {
  int32_t dropped = 0;
  for (int32_t i = 0; i < kMaxSessions && dropped < pages && !book_.paged().empty(); ++i) {
    const Wanted least = *book_.paged().begin();
    if (!(least < wanted)) break;
    dropped += DropPages(least.slot, pages - dropped);
    if (dropped == pages) break;
    // What is left cannot be dropped now: it is being copied, or others want it more.
    book_.Change(least.slot, [](SessionRecord& record) { record.has_pages = false; });
    to_look_at_ = book_.num_slots();
  }
  return dropped;
}

int32_t SessionStore::DropPages(Slot slot, int32_t pages) {
  NodeId node = book_[slot].kept;
  for (; node != kNoNode && tree_.Kv(node).page == kNoPage; node = Above(node)) ++work_;
  int32_t dropped = 0;
  while (dropped < pages && node != kNoNode) {
    ++work_;
    const NodeId above = Above(node);
    if (WantedByOthers(slot, node) || !tree_.DropPage(node)) break;
    ++dropped;
    node = above;
  }
  return dropped;
}

void SessionStore::OnTierChange(NodeId node) {
  std::array<Slot, kMaxSessions> slots;
  size_t count = 0;
  for (auto it = book_.keepers().LowerBound({node, kLeast});
       it != book_.keepers().end() && it->first == node && count < slots.size(); ++it) {
    slots[count++] = it->second.slot;
  }
  for (size_t i = 0; i < count; ++i) TellIfChanged(slots[i]);
  to_look_at_ = book_.num_slots();
}

// --- Sessions as bytes.

absl::StatusOr<SessionTransfer> SessionStore::BeginExport(TenantId tenant, const SessionName& name,
                                                          int64_t) {
  ASSIGN_OR_RETURN(const Slot slot, FindIdle(tenant, name));
  // From the first block on to the first that is not there: copies may end in any order.
  std::vector<NodeId> chain;
  if (book_[slot].kept != kNoNode) tree_.Chain(book_[slot].kept, chain);
  size_t count = 0;
  while (count < chain.size() && tree_.Kv(chain[count]).on_host()) ++count;
  while (count > 0 && tree_.HoldCost(chain[count - 1]) > tree_.pool().available()) --count;
  SessionTransfer bytes{.turn = StartTurn(slot), .tokens = book_[slot].tokens};
  if (count > 0) {
    const NodeId node = chain[count - 1];
    tree_.Hold(node);
    book_.Change(slot, [node](SessionRecord& record) { record.exported = node; });
    bytes.kv_tokens = std::min(tree_.NumTokens(node), static_cast<int32_t>(bytes.tokens.size()));
    for (size_t i = 0; i < count; ++i) bytes.pages.push_back(tree_.Kv(chain[i]).page);
  }
  Tell(slot);
  return bytes;
}

void SessionStore::ReleaseExport(Slot slot) {
  const NodeId node = book_[slot].exported;
  if (node == kNoNode) return;
  book_.Change(slot, [](SessionRecord& record) { record.exported = kNoNode; });
  tree_.Release(node);
}

absl::StatusOr<SessionTransfer> SessionStore::BeginImport(TenantId tenant, Import import,
                                                          int64_t now_ns) {
  const int32_t size = static_cast<int32_t>(import.tokens.size());
  RETURN_IF_ERROR(CheckOptions(import.options));
  RETURN_IF_ERROR(CheckNew(tenant, import.name, size));
  if (size > config_.max_model_len || import.kv_tokens < 0 || import.kv_tokens > size) {
    return absl::InvalidArgumentError(
        "a session has KV of its own tokens alone, and no more "
        "tokens than the model's context");
  }
  const Slot slot = Add(tenant, import.name, import.options, now_ns);
  SessionTransfer start{.turn = StartTurn(slot)};
  std::vector<Filling>& filling = imports_[start.turn];
  NodeId node = tree_.Find(tenant, {});
  tree_.Hold(node);
  filling.push_back({node, false});
  for (int32_t begin = 0; begin < import.kv_tokens; begin += block_size_) {
    const int32_t count = std::min(block_size_, import.kv_tokens - begin);
    if (tree_.num_free_pages() == 0) {
      MakeRoomFor((import.kv_tokens - begin - 1) / block_size_ + 1, book_.WantedOf(slot));
    }
    const PrefixTree::Inserted inserted = tree_.InsertOnHost(
        node, std::span(import.tokens).subspan(begin, count), count < block_size_);
    if (inserted.node == kNoNode) break;
    node = inserted.node;
    filling.push_back({node, inserted.adopted});
    start.pages.push_back(inserted.adopted ? tree_.Kv(node).page : kNoPage);
  }
  book_.Change(slot, [&](SessionRecord& record) { record.tokens = std::move(import.tokens); });
  start.pages.resize((import.kv_tokens + block_size_ - 1) / block_size_, kNoPage);
  Tell(slot);
  return start;
}

absl::StatusOr<SessionInfo> SessionStore::EndImport(uint64_t turn, bool ok, int64_t now_ns) {
  const auto found = imports_.find(turn);
  if (found == imports_.end()) return absl::NotFoundError("no import of that number is under way");
  const std::vector<Filling> filling = std::move(found->second);
  imports_.erase(found);
  const Slot slot = SlotOf(turn);
  for (const Filling& each : filling) {
    if (each.adopted) tree_.EndStore(each.node, ok);
  }
  const NodeId deepest = filling.back().node;
  if (ok && tree_.Depth(deepest) > 0) KeepInstead(slot, deepest);
  for (const Filling& each : filling) tree_.Release(each.node);
  book_.Change(slot, [&](SessionRecord& record) {
    record.turn = 0;
    Use(record, now_ns);
  });
  if (ok) return Tell(slot);
  End(slot);
  return absl::CancelledError("the import was given up");
}

void SessionStore::CheckInvariants() const {
  book_.CheckInvariants();
  std::vector<NodeId> chain, all;
  for (const auto& [key, slot] : book_.names()) {
    const SessionRecord& record = book_[slot];
    if (record.kept != kNoNode) {
      CHECK(tree_.Depth(record.kept) > 0 && tree_.NumKeepers(record.kept) > 0);
      const auto size = static_cast<int32_t>(record.tokens.size());
      CHECK_EQ(record.kept, LastBlock(record.kept, size));
      const Survey survey = Look(slot);
      CHECK(!survey.has_pages || tree_.num_pages() > 0);
    }
    CHECK(record.pin == kNoNode || (record.pinned && tree_.Held(record.pin)));
    if (record.pin != kNoNode) {
      tree_.Chain(record.pin, chain);
      all.insert(all.end(), chain.begin(), chain.end());
    }
  }
  std::sort(all.begin(), all.end());
  const auto pinned = std::unique(all.begin(), all.end()) - all.begin();
  CHECK(pinned == pinned_.size() && pinned <= max_pinned_);
  for (const auto& [turn, filling] : imports_) CHECK(SlotOf(turn) != SessionBook::kNoSlot);
}

}  // namespace quire
