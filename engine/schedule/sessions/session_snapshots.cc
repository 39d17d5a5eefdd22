// Pages that are read, and pages that are filled.
#include "engine/schedule/sessions/session_snapshots.h"

#include <algorithm>

#include "engine/base/status_macros.h"
#include "engine/schedule/sessions/session_pressure.h"
#include "kernels/check.h"

namespace quire {

SessionSnapshots::SessionSnapshots(SessionRecords& records, SessionPressure& pressure)
    : records_(records), pressure_(pressure), book_(records.book()), tree_(records.tree()) {}

SessionTransfer SessionSnapshots::Begin(TenantId tenant, const SessionName& name, bool with_pages) {
  const SessionBook::Slot slot = book_.Find(tenant, name);
  CHECK(slot != SessionBook::kNoSlot);
  const SessionRecord& record = book_[slot];
  SessionTransfer bytes{.turn = ++last_, .tokens = record.tokens};
  if (!with_pages || record.kept == kNoNode) return bytes;
  std::vector<NodeId> chain;
  tree_.Chain(record.kept, chain);
  size_t count = 0;
  while (count < chain.size() && tree_.Kv(chain[count]).on_host()) ++count;
  if (count == 0) return bytes;
  const auto size = static_cast<int32_t>(bytes.tokens.size());
  bytes.kv_tokens = std::min(tree_.NumTokens(chain[count - 1]), size);
  bytes.pages.resize(count);
  std::vector<std::pair<NodeId, PageId>>& read = snapshots_[bytes.turn];
  for (size_t i = count; i-- > 0;) {
    bytes.pages[i] = tree_.host().BeginRead(chain[i]);
    read.emplace_back(chain[i], bytes.pages[i]);
  }
  return bytes;
}

void SessionSnapshots::End(uint64_t snapshot) {
  const auto found = snapshots_.find(snapshot);
  if (found == snapshots_.end()) return;
  for (const auto& [node, page] : found->second) tree_.host().EndRead(node, page);
  snapshots_.erase(found);
}

absl::StatusOr<SessionTransfer> SessionSnapshots::BeginRecall(TenantId tenant,
                                                              const SessionName& name,
                                                              std::span<const int32_t> tokens,
                                                              int64_t now_ns) {
  ASSIGN_OR_RETURN(const SessionBook::Slot slot, records_.Find(tenant, name));
  const std::vector<int32_t>& own = book_[slot].tokens;
  const auto end = std::mismatch(tokens.begin(), tokens.end(), own.begin(), own.end()).first;
  SessionTransfer start{.turn = ++last_, .kv_tokens = static_cast<int32_t>(end - tokens.begin())};
  Recall recall{tenant, name, {tokens.begin(), end}, HostFilling(tree_)};
  // It ranks as the session will with the turn that it is recalled for.
  SessionBook::Wanted wanted = book_.WantedOf(slot);
  wanted.used_ns = now_ns;
  start.pages = recall.filling.Begin(tenant, recall.tokens, records_.block_size(),
                                     [&](int32_t pages) { pressure_.MakeRoomFor(pages, wanted); });
  recalls_.emplace(start.turn, std::move(recall));
  return start;
}

void SessionSnapshots::EndRecall(uint64_t number, bool complete) {
  const auto found = recalls_.find(number);
  if (found == recalls_.end()) return;
  Recall recall = std::move(found->second);
  recalls_.erase(found);
  const NodeId deepest = recall.filling.End(complete);
  if (complete && deepest != kNoNode) Keep(recall, deepest);
  recall.filling.Release();
}

// A turn that runs meanwhile finds full blocks by their tokens, and decides itself what its session
// keeps.
void SessionSnapshots::Keep(const Recall& recall, NodeId node) {
  const SessionBook::Slot slot = book_.Find(recall.tenant, recall.name);
  if (slot == SessionBook::kNoSlot || book_[slot].turn != 0) return;
  const SessionRecord& record = book_[slot];
  if (record.kept != kNoNode && tree_.NumTokens(record.kept) >= tree_.NumTokens(node)) return;
  const std::vector<int32_t>& tokens = record.tokens;
  const auto end =
      std::mismatch(recall.tokens.begin(), recall.tokens.end(), tokens.begin(), tokens.end());
  if (end.first != recall.tokens.end()) return;
  records_.KeepInstead(slot, node);
  records_.Tell(slot);
}

void SessionSnapshots::CheckInvariants() const {
  for (const auto& [number, recall] : recalls_) CHECK_LE(number, last_);
  for (const auto& [number, read] : snapshots_) CHECK(!read.empty());
}

}  // namespace quire
