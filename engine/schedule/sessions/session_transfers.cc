// The chain of pages of an export, and the nodes that an import fills.
#include "engine/schedule/sessions/session_transfers.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/status_macros.h"
#include "engine/schedule/sessions/session_pressure.h"
#include "kernels/check.h"

namespace quire {

SessionTransfers::SessionTransfers(SessionRecords& records, SessionPressure& pressure)
    : records_(records), pressure_(pressure), book_(records.book()), tree_(records.tree()) {}

absl::StatusOr<SessionTransfer> SessionTransfers::BeginExport(TenantId tenant,
                                                              const SessionName& name, int64_t) {
  ASSIGN_OR_RETURN(const SessionBook::Slot slot, records_.FindIdle(tenant, name));
  // From the first block to the first without a page: copies may end in any order.
  std::vector<NodeId> chain;
  if (book_[slot].kept != kNoNode) tree_.Chain(book_[slot].kept, chain);
  size_t count = 0;
  while (count < chain.size() && tree_.Kv(chain[count]).on_host()) ++count;
  while (count > 0 && tree_.HoldCost(chain[count - 1]) > tree_.pool().available()) --count;
  SessionTransfer bytes{.turn = records_.StartTurn(slot), .tokens = book_[slot].tokens};
  Export& out = exports_[bytes.turn];
  if (count > 0) {
    out.held = chain[count - 1];
    tree_.Hold(out.held);
    const auto size = static_cast<int32_t>(bytes.tokens.size());
    bytes.kv_tokens = std::min(tree_.NumTokens(out.held), size);
    bytes.pages.resize(count);
    for (size_t i = count; i-- > 0;) {
      bytes.pages[i] = tree_.host().BeginRead(chain[i]);
      out.read.emplace_back(chain[i], bytes.pages[i]);
    }
  }
  records_.Tell(slot);
  return bytes;
}

bool SessionTransfers::ReleaseExport(uint64_t turn) {
  const auto found = exports_.find(turn);
  if (found == exports_.end()) return false;
  const Export out = std::move(found->second);
  exports_.erase(found);
  for (const auto& [node, page] : out.read) tree_.host().EndRead(node, page);
  if (out.held != kNoNode) tree_.Release(out.held);
  return true;
}

absl::StatusOr<SessionTransfer> SessionTransfers::BeginImport(TenantId tenant, Import import,
                                                              int64_t now_ns) {
  const int32_t size = static_cast<int32_t>(import.tokens.size());
  RETURN_IF_ERROR(records_.CheckOptions(import.options));
  RETURN_IF_ERROR(records_.CheckNew(tenant, import.name, size));
  if (size > records_.config().max_model_len || import.kv_tokens < 0 || import.kv_tokens > size) {
    return absl::InvalidArgumentError(
        "a session has KV of its own tokens alone, and no more "
        "tokens than the model's context");
  }
  const SessionBook::Slot slot = records_.Add(tenant, import.name, import.options, now_ns);
  SessionTransfer start{.turn = records_.StartTurn(slot)};
  HostFilling& filling = imports_.try_emplace(start.turn, tree_).first->second;
  start.pages =
      filling.Begin(tenant, std::span(import.tokens).first(import.kv_tokens), records_.block_size(),
                    [&](int32_t pages) { pressure_.MakeRoomFor(pages, book_.WantedOf(slot)); });
  book_.Change(slot, [&](SessionRecord& record) { record.tokens = std::move(import.tokens); });
  records_.Tell(slot);
  return start;
}

absl::StatusOr<SessionInfo> SessionTransfers::EndImport(uint64_t turn, bool ok, int64_t now_ns) {
  const auto found = imports_.find(turn);
  if (found == imports_.end()) return absl::NotFoundError("no import of that number is under way");
  HostFilling filling = std::move(found->second);
  imports_.erase(found);
  const SessionBook::Slot slot = records_.SlotOf(turn);
  const NodeId deepest = filling.End(ok);
  if (ok && deepest != kNoNode) records_.KeepInstead(slot, deepest);
  filling.Release();
  book_.Change(slot, [&](SessionRecord& record) {
    record.turn = 0;
    records_.Use(record, now_ns);
  });
  if (ok) return records_.TellTokens(slot, 0);
  records_.End(slot);
  return absl::CancelledError("the import was given up");
}

void SessionTransfers::CheckInvariants() const {
  for (const auto& [turn, filling] : imports_) {
    CHECK(records_.SlotOf(turn) != SessionBook::kNoSlot);
  }
  for (const auto& [turn, out] : exports_) {
    CHECK(records_.SlotOf(turn) != SessionBook::kNoSlot);
  }
}

}  // namespace quire
