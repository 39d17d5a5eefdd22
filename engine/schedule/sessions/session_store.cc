// The operations of clients, and turns.
#include "engine/schedule/sessions/session_store.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "engine/base/status_macros.h"
#include "engine/schedule/sessions/session_book.h"
#include "engine/schedule/sessions/session_leases.h"
#include "engine/schedule/sessions/session_pressure.h"
#include "engine/schedule/sessions/session_records.h"
#include "engine/schedule/sessions/session_snapshots.h"
#include "engine/schedule/sessions/session_transfers.h"
#include "kernels/check.h"

namespace quire {
namespace {

absl::Status BeyondEnd(int64_t position, size_t size) {
  return SessionRefusal(absl::StatusCode::kInvalidArgument, "POSITION_BEYOND_END",
                        "position " + std::to_string(position) + " is not within the session's " +
                            std::to_string(size) + " tokens");
}

}  // namespace

SessionStore::SessionStore(const SessionConfig& config, int32_t block_size, PrefixTree& tree)
    : records_(std::make_unique<SessionRecords>(config, block_size, tree)),
      book_(records_->book()),
      tree_(tree),
      leases_(std::make_unique<SessionLeases>(*records_)),
      pressure_(std::make_unique<SessionPressure>(*records_, *leases_)),
      transfers_(std::make_unique<SessionTransfers>(*records_, *pressure_)),
      snapshots_(std::make_unique<SessionSnapshots>(*records_, *pressure_)) {}

SessionStore::~SessionStore() = default;

void SessionStore::SetAccounts(const TenantAccounts* accounts) { records_->SetAccounts(accounts); }

void SessionStore::SetObserver(SessionObserver* observer) { records_->SetObserver(observer); }

absl::StatusOr<SessionInfo> SessionStore::Create(TenantId tenant, const SessionName& name,
                                                 const SessionOptions& options, int64_t now_ns) {
  RETURN_IF_ERROR(records_->CheckOptions(options));
  RETURN_IF_ERROR(records_->CheckNew(tenant, name, 0));
  return records_->Tell(records_->Add(tenant, name, options, now_ns));
}

absl::StatusOr<SessionInfo> SessionStore::Get(TenantId tenant, const SessionName& name) const {
  ASSIGN_OR_RETURN(const SessionBook::Slot slot, records_->Find(tenant, name));
  return records_->InfoOf(slot);
}

std::vector<SessionInfo> SessionStore::List(TenantId tenant, const SessionName& after,
                                            int32_t limit) const {
  std::vector<SessionInfo> infos;
  for (auto it = book_.names().upper_bound({tenant, after}); it != book_.names().end(); ++it) {
    if (it->first.first != tenant || static_cast<int32_t>(infos.size()) >= limit) break;
    infos.push_back(records_->InfoOf(it->second));
  }
  return infos;
}

absl::StatusOr<SessionInfo> SessionStore::Fork(TenantId tenant, const SessionName& from,
                                               const SessionName& name,
                                               std::optional<int64_t> position, int64_t now_ns) {
  ASSIGN_OR_RETURN(const SessionBook::Slot source, records_->FindIdle(tenant, from));
  const std::vector<int32_t>& tokens = book_[source].tokens;
  const int32_t size = static_cast<int32_t>(tokens.size());
  if (position && (*position < 0 || *position > size)) return BeyondEnd(*position, tokens.size());
  const int32_t end = static_cast<int32_t>(position.value_or(size));
  RETURN_IF_ERROR(records_->CheckNew(tenant, name, end));
  const SessionBook::Slot slot = records_->Add(tenant, name, book_[source].options, now_ns);
  records_->KeepInstead(slot, records_->LastBlock(book_[source].kept, end));
  book_.Change(slot, [&](SessionRecord& record) {
    record.tokens.assign(tokens.begin(), tokens.begin() + end);
    records_->Use(record, now_ns);
  });
  return records_->TellTokens(slot, 0);
}

absl::StatusOr<SessionInfo> SessionStore::Adopt(TenantId tenant, const SessionName& name,
                                                SessionOperation::Adopt left) {
  const auto size = static_cast<int64_t>(left.tokens.size());
  // The server that it was created on may have allowed longer leases.
  double& ttl = left.options.ttl_seconds;
  ttl = std::min(ttl, records_->config().max_ttl_seconds);
  RETURN_IF_ERROR(records_->CheckOptions(left.options));
  RETURN_IF_ERROR(records_->CheckNew(tenant, name, size));
  if (size > records_->config().max_model_len) {
    return absl::InvalidArgumentError("the session is longer than the model's context");
  }
  const SessionBook::Slot slot = records_->Add(tenant, name, left.options, left.used_ns);
  book_.Change(slot, [&](SessionRecord& record) {
    record.tokens = std::move(left.tokens);
    record.turns = left.turns;
    record.created_ns = left.created_ns;
  });
  return records_->Tell(slot);
}

absl::StatusOr<SessionInfo> SessionStore::Truncate(TenantId tenant, const SessionName& name,
                                                   int64_t to, int64_t now_ns) {
  ASSIGN_OR_RETURN(const SessionBook::Slot slot, records_->FindIdle(tenant, name));
  const size_t size = book_[slot].tokens.size();
  if (to < 0 || static_cast<size_t>(to) > size) return BeyondEnd(to, size);
  records_->Cut(slot, static_cast<int32_t>(to), now_ns);
  return records_->TellTokens(slot, static_cast<int32_t>(to));
}

absl::StatusOr<SessionInfo> SessionStore::Touch(TenantId tenant, const SessionName& name,
                                                const SessionOperation::Touch& changes,
                                                int64_t now_ns) {
  ASSIGN_OR_RETURN(const SessionBook::Slot slot, records_->Find(tenant, name));
  SessionOptions options = book_[slot].options;
  options.ttl_seconds = changes.ttl_seconds.value_or(options.ttl_seconds);
  options.idle_offload_after_seconds =
      changes.idle_offload_after_seconds.value_or(options.idle_offload_after_seconds);
  options.retain_priority = changes.retain_priority.value_or(options.retain_priority);
  RETURN_IF_ERROR(records_->CheckOptions(options));
  book_.Change(slot, [&](SessionRecord& record) {
    record.options = options;
    records_->Use(record, now_ns);
  });
  return records_->Tell(slot);
}

absl::StatusOr<SessionInfo> SessionStore::Offload(TenantId tenant, const SessionName& name,
                                                  int64_t now_ns) {
  ASSIGN_OR_RETURN(const SessionBook::Slot slot, records_->FindIdle(tenant, name));
  StoreNow(slot, /*leaving=*/true, now_ns);
  return records_->Tell(slot);
}

absl::StatusOr<SessionInfo> SessionStore::Save(TenantId tenant, const SessionName& name,
                                               int64_t now_ns) {
  ASSIGN_OR_RETURN(const SessionBook::Slot slot, records_->FindIdle(tenant, name));
  StoreNow(slot, /*leaving=*/book_[slot].leaving, now_ns);
  return records_->Tell(slot);
}

void SessionStore::StoreNow(int32_t slot, bool leaving, int64_t now_ns) {
  if (book_[slot].kept == kNoNode || tree_.host().num_pages() == 0) return;
  book_.Change(slot, [&](SessionRecord& record) {
    record.leaving = leaving;
    record.offload_ns = now_ns;
    if (leaving) record.prefetch_ns = kNoDeadline;
    record.attempts = 0;
  });
  if (leaving && records_->Look(slot).stored) records_->DropBlocks(slot);
}

absl::StatusOr<SessionInfo> SessionStore::Prefetch(TenantId tenant, const SessionName& name,
                                                   int64_t now_ns) {
  ASSIGN_OR_RETURN(const SessionBook::Slot slot, records_->FindIdle(tenant, name));
  book_.Change(slot, [&](SessionRecord& record) {
    record.leaving = false;
    record.prefetch_ns = record.kept == kNoNode ? kNoDeadline : now_ns;
  });
  return records_->Tell(slot);
}

absl::StatusOr<SessionInfo> SessionStore::Pin(TenantId tenant, const SessionName& name, int64_t) {
  ASSIGN_OR_RETURN(const SessionBook::Slot slot, records_->Find(tenant, name));
  if (book_[slot].pinned) return records_->Tell(slot);
  NodeId node = book_[slot].kept;
  // A running turn may take the tail over.
  if (node != kNoNode && book_[slot].turn != 0 && tree_.IsTail(node)) node = records_->Above(node);
  RETURN_IF_ERROR(records_->CheckPin(node));
  book_.Change(slot, [](SessionRecord& record) { record.pinned = true; });
  records_->MovePin(slot, node);
  return records_->Tell(slot);
}

int32_t SessionStore::PinnedBeside(NodeId node) const { return records_->PinnedBeside(node); }

absl::StatusOr<SessionInfo> SessionStore::Unpin(TenantId tenant, const SessionName& name, int64_t) {
  ASSIGN_OR_RETURN(const SessionBook::Slot slot, records_->Find(tenant, name));
  records_->ReleasePin(slot);
  book_.Change(slot, [](SessionRecord& record) { record.pinned = false; });
  return records_->Tell(slot);
}

absl::Status SessionStore::Close(TenantId tenant, const SessionName& name) {
  ASSIGN_OR_RETURN(const SessionBook::Slot slot, records_->FindIdle(tenant, name));
  records_->End(slot);
  return absl::OkStatus();
}

absl::StatusOr<std::span<const int32_t>> SessionStore::TokensForTurn(
    TenantId tenant, const SessionName& name, std::optional<int64_t> expected_position) const {
  ASSIGN_OR_RETURN(const SessionBook::Slot slot, records_->FindIdle(tenant, name));
  const int32_t position = static_cast<int32_t>(book_[slot].tokens.size());
  if (expected_position.value_or(position) != position) {
    absl::Status wrong =
        SessionRefusal(absl::StatusCode::kFailedPrecondition, "WRONG_POSITION",
                       "session \"" + name + "\" is at position " + std::to_string(position) +
                           ", not at " + std::to_string(*expected_position));
    wrong.SetPayload(kSessionPosition, absl::Cord(std::to_string(position)));
    return wrong;
  }
  if (position >= records_->config().max_model_len) {
    return SessionRefusal(
        absl::StatusCode::kFailedPrecondition, "SESSION_FULL",
        "session \"" + name + "\" is as long as the model's context; truncate it");
  }
  const int64_t tokens = book_.Use(tenant).tokens;
  if (tokens >= records_->MaxTokens(tenant)) {
    return SessionRefusal(absl::StatusCode::kResourceExhausted, "TOO_MANY_SESSION_TOKENS",
                          "all sessions together have " + std::to_string(tokens) +
                              " tokens already; close or truncate some");
  }
  return book_[slot].tokens;
}

absl::StatusOr<uint64_t> SessionStore::BeginTurn(TenantId tenant, const SessionName& name,
                                                 std::optional<int64_t> expected_position, int64_t,
                                                 RequestId request) {
  RETURN_IF_ERROR(TokensForTurn(tenant, name, expected_position).status());
  ASSIGN_OR_RETURN(const SessionBook::Slot slot, records_->Find(tenant, name));
  const uint64_t turn = records_->StartTurn(slot);
  book_.Change(slot, [request](SessionRecord& record) { record.request = request; });
  records_->Tell(slot);
  return turn;
}

void SessionStore::CutTurn(RequestId request, int32_t num_output, int64_t now_ns) {
  const SessionBook::Slot slot = book_.FindRequest(request);
  if (slot == SessionBook::kNoSlot) return;
  if (book_[slot].turn == 0) {
    records_->CutOutput(slot, num_output, now_ns);
    return;
  }
  // The turn itself runs, or it has ended and the session is being exported.
  book_.Change(slot, [num_output](SessionRecord& record) {
    record.max_output = std::min(record.max_output, num_output);
  });
}

int32_t SessionStore::MaxOutput(uint64_t turn) const {
  const SessionBook::Slot slot = records_->SlotOf(turn);
  return slot == SessionBook::kNoSlot ? kKeepAll : book_[slot].max_output;
}

NodeId SessionStore::KeptBy(uint64_t turn) const {
  const SessionBook::Slot slot = records_->SlotOf(turn);
  return slot == SessionBook::kNoSlot ? kNoNode : book_[slot].kept;
}

std::span<const int32_t> SessionStore::TokensOf(uint64_t turn) const {
  const SessionBook::Slot slot = records_->SlotOf(turn);
  if (slot == SessionBook::kNoSlot) return {};
  return book_[slot].tokens;
}

void SessionStore::CommitTurn(uint64_t turn, std::vector<int32_t> tokens, NodeId node,
                              int64_t now_ns, int32_t num_prompt) {
  const SessionBook::Slot slot = records_->SlotOf(turn);
  if (slot == SessionBook::kNoSlot) return;
  if (node != kNoNode && tree_.Depth(node) == 0) node = kNoNode;
  CHECK_EQ(node, records_->LastBlock(node, static_cast<int32_t>(tokens.size())));
  tokens.shrink_to_fit();  // the session keeps it longer than the turn it was reserved for
  const std::vector<int32_t>& old = book_[slot].tokens;
  const auto kept = static_cast<int32_t>(
      std::mismatch(old.begin(), old.end(), tokens.begin(), tokens.end()).first - old.begin());
  records_->KeepInstead(slot, node);
  book_.Change(slot, [&](SessionRecord& record) {
    record.tokens = std::move(tokens);
    record.num_prompt = num_prompt;
    record.turn = 0;
    ++record.turns;
    records_->Use(record, now_ns);
  });
  if (book_[slot].pinned) records_->MovePin(slot, node);
  records_->TellTokens(slot, kept);
}

void SessionStore::AbortTurn(uint64_t turn, NodeId node, int64_t now_ns) {
  if (transfers_->IsImport(turn)) {
    transfers_->EndImport(turn, false, now_ns).IgnoreError();
    return;
  }
  const SessionBook::Slot slot = records_->SlotOf(turn);
  if (slot == SessionBook::kNoSlot) return;
  const bool exported = transfers_->ReleaseExport(turn);
  if (node != kNoNode) records_->KeepInstead(slot, node);
  book_.Change(slot, [&](SessionRecord& record) {
    record.turn = 0;
    if (!exported) record.request = 0;
    records_->Use(record, now_ns);
  });
  if (book_[slot].pinned) records_->MovePin(slot, book_[slot].kept);
  // A cut of the turn in front of the export has waited for the export's end.
  if (exported && records_->CutOutput(slot, book_[slot].max_output, now_ns)) return;
  records_->Tell(slot);
}

// --- Calls that the parts answer.

void SessionStore::Expire(int64_t now_ns, int32_t limit) { leases_->Expire(now_ns, limit); }

int64_t SessionStore::NextTimer() const { return leases_->NextTimer(); }

absl::StatusOr<SessionTransfer> SessionStore::BeginExport(TenantId tenant, const SessionName& name,
                                                          int64_t now_ns) {
  return transfers_->BeginExport(tenant, name, now_ns);
}

absl::StatusOr<SessionTransfer> SessionStore::BeginImport(TenantId tenant, Import import,
                                                          int64_t now_ns) {
  return transfers_->BeginImport(tenant, std::move(import), now_ns);
}

absl::StatusOr<SessionInfo> SessionStore::EndImport(uint64_t turn, bool ok, int64_t now_ns) {
  return transfers_->EndImport(turn, ok, now_ns);
}

SessionSnapshots& SessionStore::snapshots() { return *snapshots_; }

int64_t SessionStore::num_sessions() const { return book_.size(); }

int64_t SessionStore::num_tokens() const { return book_.num_tokens(); }

const std::vector<int64_t>& SessionStore::CountByState() const { return book_.by_state(); }

int64_t SessionStore::work() const { return records_->work(); }

void SessionStore::CheckInvariants() const {
  records_->CheckInvariants();
  transfers_->CheckInvariants();
  snapshots_->CheckInvariants();
}

}  // namespace quire
