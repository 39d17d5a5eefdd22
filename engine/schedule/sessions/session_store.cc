// What clients ask for, and turns. session_tiers.cc has what time and tiers do to sessions.
#include "engine/schedule/sessions/session_store.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "engine/base/status_macros.h"
#include "kernels/check.h"

namespace quire {
namespace {

constexpr size_t kMaxNameBytes = 128;
constexpr double kMaxIdleSeconds = 86400;
constexpr int32_t kMaxPriority = 100;

absl::Status Refusal(absl::StatusCode code, const char* reason, const std::string& message) {
  absl::Status status(code, message);
  status.SetPayload(kSessionReason, absl::Cord(reason));
  return status;
}

absl::Status BeyondEnd(int64_t position, size_t size) {
  return Refusal(absl::StatusCode::kInvalidArgument, "POSITION_BEYOND_END",
                 "position " + std::to_string(position) + " is not within the session's " +
                     std::to_string(size) + " tokens");
}

bool IsName(const SessionName& name) {
  const auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == ':' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), allowed);
}

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

SessionStore::SessionStore(const SessionConfig& config, int32_t block_size, PrefixTree& tree)
    : config_(config),
      block_size_(block_size),
      max_pinned_(static_cast<int32_t>(config.max_pinned_share * tree.pool().total())),
      tree_(tree),
      book_(config.max_sessions),
      pinned_(tree) {
  tree_.SetKeeper(this);
}

// --- Looking.

absl::StatusOr<SessionStore::Slot> SessionStore::Find(TenantId tenant,
                                                      const SessionName& name) const {
  const Slot slot = book_.Find(tenant, name);
  if (slot != SessionBook::kNoSlot) return slot;
  return Refusal(absl::StatusCode::kNotFound, "SESSION_NOT_FOUND",
                 "there is no session \"" + name + "\"");
}

absl::StatusOr<SessionStore::Slot> SessionStore::FindIdle(TenantId tenant,
                                                          const SessionName& name) const {
  ASSIGN_OR_RETURN(const Slot slot, Find(tenant, name));
  if (book_[slot].turn == 0) return slot;
  return Refusal(absl::StatusCode::kFailedPrecondition, "SESSION_BUSY",
                 "session \"" + name +
                     "\" is busy with a turn, an export or an import; ask again "
                     "when that has ended");
}

SessionStore::Slot SessionStore::SlotOf(uint64_t turn) const {
  if (turn == 0 || book_.capacity() == 0) return SessionBook::kNoSlot;
  const Slot slot = static_cast<Slot>(turn % book_.capacity());
  return book_.InUse(slot) && book_[slot].turn == turn ? slot : SessionBook::kNoSlot;
}

NodeId SessionStore::Above(NodeId node) const {
  const NodeId parent = tree_.Parent(node);
  return tree_.Depth(parent) == 0 ? kNoNode : parent;
}

// The block of the chain in which the first `position` tokens end, or the last if they pass it.
NodeId SessionStore::LastBlock(NodeId node, int32_t position) const {
  while (node != kNoNode && (tree_.Depth(node) - 1) * block_size_ >= position) {
    node = Above(node);
    ++work_;
  }
  return node;
}

SessionStore::Survey SessionStore::Look(Slot slot) const {
  const SessionRecord& record = book_[slot];
  const int32_t size = static_cast<int32_t>(record.tokens.size());
  Survey survey;
  int32_t present = 0;
  bool loading = false, storing = false, own = true;
  ++work_;
  for (NodeId node = record.kept; node != kNoNode; node = Above(node)) {
    const NodeKv& kv = tree_.Kv(node);
    const int32_t count =
        std::min(size, tree_.NumTokens(node)) - (tree_.Depth(node) - 1) * block_size_;
    if (kv.on_device()) survey.tiers.device_tokens += count;
    if (kv.on_host()) survey.tiers.host_tokens += count;
    if (kv.on_device() || kv.on_host()) present += count;
    survey.stored = survey.stored && kv.on_host();
    loading |= kv.loading;
    storing |= kv.storing;
    own = own && !WantedByOthers(slot, node);
    survey.has_pages |= own && kv.page != kNoPage;
    ++work_;
  }
  survey.tiers.absent_tokens = size - present;
  const bool dropped = survey.tiers.absent_tokens > 1;  // the last sampled token's KV never was
  survey.state = record.turn != 0                        ? SessionState::kActive
                 : loading                               ? SessionState::kRestoring
                 : storing                               ? SessionState::kOffloading
                 : dropped                               ? SessionState::kDropped
                 : survey.tiers.device_tokens == present ? SessionState::kResidentIdle
                                                         : SessionState::kHost;
  return survey;
}

SessionInfo SessionStore::InfoOf(Slot slot) const {
  const SessionRecord& record = book_[slot];
  const Survey survey = Look(slot);
  return {.name = record.name,
          .tenant = record.tenant,
          .state = survey.state,
          .options = record.options,
          .position = static_cast<int32_t>(record.tokens.size()),
          .turns = record.turns,
          .pinned = record.pinned,
          .tiers = survey.tiers,
          .created_ns = record.created_ns,
          .used_ns = record.used_ns,
          .expires_ns = record.expires_ns};
}

absl::Status SessionStore::CheckNew(TenantId tenant, const SessionName& name,
                                    int64_t tokens) const {
  if (!IsName(name)) {
    return absl::InvalidArgumentError(
        "a session's name is 1 to 128 characters of A-Z, a-z, 0-9 and ._:-");
  }
  if (book_.Find(tenant, name) != SessionBook::kNoSlot) {
    return Refusal(absl::StatusCode::kAlreadyExists, "SESSION_EXISTS",
                   "there is a session \"" + name + "\" already");
  }
  const SessionBook::TenantUse use = book_.Use(tenant);
  if (book_.size() >= config_.max_sessions || use.sessions >= config_.max_sessions_per_tenant) {
    return Refusal(absl::StatusCode::kResourceExhausted, "TOO_MANY_SESSIONS",
                   "there are as many sessions as may be; close one");
  }
  if (use.tokens + tokens <= config_.max_session_tokens) return absl::OkStatus();
  return Refusal(absl::StatusCode::kResourceExhausted, "TOO_MANY_SESSION_TOKENS",
                 "all sessions together may have " + std::to_string(config_.max_session_tokens) +
                     " tokens, and have " + std::to_string(use.tokens));
}

absl::Status SessionStore::CheckOptions(const SessionOptions& options) const {
  if (!(options.ttl_seconds >= 0 && options.ttl_seconds <= config_.max_ttl_seconds)) {
    return absl::InvalidArgumentError("ttl_seconds must be within (0, " +
                                      std::to_string(config_.max_ttl_seconds) + "]");
  }
  if (!(options.idle_offload_after_seconds <= kMaxIdleSeconds)) {
    return absl::InvalidArgumentError("idle_offload_after_seconds must be within [0, 86400]");
  }
  if (std::abs(int64_t{options.retain_priority}) > kMaxPriority) {
    return absl::InvalidArgumentError("retain_priority must be within [-100, 100]");
  }
  return absl::OkStatus();
}

// --- Changing.

void SessionStore::Use(SessionRecord& record, int64_t now_ns) const {
  record.used_ns = now_ns;
  record.expires_ns = now_ns + Nanoseconds(record.options.ttl_seconds);
  record.offload_ns = OffloadTime(record, now_ns);
  record.attempts = 0;
}

SessionStore::Slot SessionStore::Add(TenantId tenant, const SessionName& name,
                                     const SessionOptions& options, int64_t now_ns) {
  const Slot slot = book_.Add(tenant, name);
  book_.Change(slot, [&](SessionRecord& record) {
    record.options = options;
    if (options.ttl_seconds == 0) record.options.ttl_seconds = config_.default_ttl_seconds;
    if (options.idle_offload_after_seconds < 0) {
      record.options.idle_offload_after_seconds = config_.default_idle_offload_seconds;
    }
    record.created_ns = now_ns;
    Use(record, now_ns);
  });
  return slot;
}

void SessionStore::KeepInstead(Slot slot, NodeId node) {
  const NodeId old = book_[slot].kept;
  if (node == old) return;
  if (old != kNoNode) tree_.Unkeep(old, slot);
  book_.Change(slot, [node](SessionRecord& record) { record.SetKept(node); });
  if (node != kNoNode) tree_.Keep(node, slot);
}

// Pins the chain to `node`, or as much of it as there is room for, instead of what was pinned.
void SessionStore::MovePin(Slot slot, NodeId node) {
  for (int32_t excess = pinned_.size() + pinned_.Cost(node) - max_pinned_; excess > 0; --excess) {
    node = Above(node);
  }
  if (node != kNoNode && tree_.HoldCost(node) > tree_.pool().available()) return;
  if (node != kNoNode) {
    tree_.Hold(node);
    pinned_.Add(node);
  }
  ReleasePin(slot);
  book_.Change(slot, [&](SessionRecord& record) { record.pin = node; });
}

void SessionStore::ReleasePin(Slot slot) {
  const NodeId pin = book_[slot].pin;
  if (pin == kNoNode) return;
  book_.Change(slot, [](SessionRecord& record) { record.pin = kNoNode; });
  pinned_.Remove(pin);
  tree_.Release(pin);
}

void SessionStore::End(Slot slot) {
  ReleasePin(slot);
  SessionInfo info = InfoOf(slot);
  KeepInstead(slot, kNoNode);
  book_.Remove(slot);
  info.state = SessionState::kClosed;
  if (observer_ != nullptr) observer_->OnSessionChange(info);
}

SessionInfo SessionStore::Tell(Slot slot) {
  SessionInfo info = InfoOf(slot);
  if (book_[slot].shown != info.state) {
    book_.Change(slot, [&](SessionRecord& record) { record.shown = info.state; });
  }
  if (observer_ != nullptr) observer_->OnSessionChange(info);
  return info;
}

// --- What clients ask for.

absl::StatusOr<SessionInfo> SessionStore::Create(TenantId tenant, const SessionName& name,
                                                 const SessionOptions& options, int64_t now_ns) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(CheckNew(tenant, name, 0));
  return Tell(Add(tenant, name, options, now_ns));
}

absl::StatusOr<SessionInfo> SessionStore::Get(TenantId tenant, const SessionName& name) const {
  ASSIGN_OR_RETURN(const Slot slot, Find(tenant, name));
  return InfoOf(slot);
}

std::vector<SessionInfo> SessionStore::List(TenantId tenant, const SessionName& after,
                                            int32_t limit) const {
  std::vector<SessionInfo> infos;
  for (auto it = book_.names().upper_bound({tenant, after}); it != book_.names().end(); ++it) {
    if (it->first.first != tenant || static_cast<int32_t>(infos.size()) >= limit) break;
    infos.push_back(InfoOf(it->second));
  }
  return infos;
}

absl::StatusOr<SessionInfo> SessionStore::Fork(TenantId tenant, const SessionName& from,
                                               const SessionName& name,
                                               std::optional<int64_t> position, int64_t now_ns) {
  ASSIGN_OR_RETURN(const Slot source, FindIdle(tenant, from));
  const std::vector<int32_t>& tokens = book_[source].tokens;
  const int32_t size = static_cast<int32_t>(tokens.size());
  if (position && (*position < 0 || *position > size)) return BeyondEnd(*position, tokens.size());
  const int32_t end = static_cast<int32_t>(position.value_or(size));
  RETURN_IF_ERROR(CheckNew(tenant, name, end));
  const Slot slot = Add(tenant, name, book_[source].options, now_ns);
  KeepInstead(slot, LastBlock(book_[source].kept, end));
  book_.Change(slot, [&](SessionRecord& record) {
    record.tokens.assign(tokens.begin(), tokens.begin() + end);
    Use(record, now_ns);
  });
  return Tell(slot);
}

absl::StatusOr<SessionInfo> SessionStore::Truncate(TenantId tenant, const SessionName& name,
                                                   int64_t to, int64_t now_ns) {
  ASSIGN_OR_RETURN(const Slot slot, FindIdle(tenant, name));
  const size_t size = book_[slot].tokens.size();
  if (to < 0 || static_cast<size_t>(to) > size) return BeyondEnd(to, size);
  Cut(slot, static_cast<int32_t>(to), now_ns);
  return Tell(slot);
}

void SessionStore::Cut(Slot slot, int32_t position, int64_t now_ns) {
  const NodeId kept = LastBlock(book_[slot].kept, position);
  KeepInstead(slot, kept);
  if (book_[slot].pinned) MovePin(slot, kept);
  book_.Change(slot, [&](SessionRecord& record) {
    record.tokens.resize(position);
    record.tokens.shrink_to_fit();
    record.request = 0;
    record.offload_ns = OffloadTime(record, now_ns);
  });
}

absl::StatusOr<SessionInfo> SessionStore::Touch(TenantId tenant, const SessionName& name,
                                                const SessionOperation::Touch& changes,
                                                int64_t now_ns) {
  ASSIGN_OR_RETURN(const Slot slot, Find(tenant, name));
  SessionOptions options = book_[slot].options;
  options.ttl_seconds = changes.ttl_seconds.value_or(options.ttl_seconds);
  options.idle_offload_after_seconds =
      changes.idle_offload_after_seconds.value_or(options.idle_offload_after_seconds);
  options.retain_priority = changes.retain_priority.value_or(options.retain_priority);
  RETURN_IF_ERROR(CheckOptions(options));
  book_.Change(slot, [&](SessionRecord& record) {
    record.options = options;
    Use(record, now_ns);
  });
  return Tell(slot);
}

absl::StatusOr<SessionInfo> SessionStore::Offload(TenantId tenant, const SessionName& name,
                                                  int64_t now_ns) {
  ASSIGN_OR_RETURN(const Slot slot, FindIdle(tenant, name));
  StoreNow(slot, /*leaving=*/true, now_ns);
  return Tell(slot);
}

absl::StatusOr<SessionInfo> SessionStore::Save(TenantId tenant, const SessionName& name,
                                               int64_t now_ns) {
  ASSIGN_OR_RETURN(const Slot slot, FindIdle(tenant, name));
  StoreNow(slot, /*leaving=*/book_[slot].leaving, now_ns);
  return Tell(slot);
}

void SessionStore::StoreNow(Slot slot, bool leaving, int64_t now_ns) {
  if (book_[slot].kept == kNoNode || tree_.num_pages() == 0) return;
  book_.Change(slot, [&](SessionRecord& record) {
    record.leaving = leaving;
    record.offload_ns = now_ns;
    if (leaving) record.prefetch_ns = kNoDeadline;
    record.attempts = 0;
  });
  if (leaving && Look(slot).stored) DropBlocks(slot);
}

absl::StatusOr<SessionInfo> SessionStore::Prefetch(TenantId tenant, const SessionName& name,
                                                   int64_t now_ns) {
  ASSIGN_OR_RETURN(const Slot slot, FindIdle(tenant, name));
  book_.Change(slot, [&](SessionRecord& record) {
    record.leaving = false;
    record.prefetch_ns = record.kept == kNoNode ? kNoDeadline : now_ns;
  });
  return Tell(slot);
}

absl::StatusOr<SessionInfo> SessionStore::Pin(TenantId tenant, const SessionName& name, int64_t) {
  ASSIGN_OR_RETURN(const Slot slot, Find(tenant, name));
  if (book_[slot].pinned) return Tell(slot);
  NodeId node = book_[slot].kept;
  // A running turn may take the tail over.
  if (node != kNoNode && book_[slot].turn != 0 && tree_.IsTail(node)) node = Above(node);
  const int32_t cost = pinned_.Cost(node);
  if (pinned_.size() + cost > max_pinned_) {
    return Refusal(absl::StatusCode::kResourceExhausted, "PIN_QUOTA",
                   "pins may hold " + std::to_string(max_pinned_) + " blocks, hold " +
                       std::to_string(pinned_.size()) + ", and this one needs " +
                       std::to_string(cost) + " more");
  }
  if (node != kNoNode && tree_.HoldCost(node) > tree_.pool().available()) {
    return Refusal(absl::StatusCode::kResourceExhausted, "PIN_QUOTA",
                   "running requests need all blocks that are not pinned yet; try again later");
  }
  book_.Change(slot, [](SessionRecord& record) { record.pinned = true; });
  MovePin(slot, node);
  return Tell(slot);
}

absl::StatusOr<SessionInfo> SessionStore::Unpin(TenantId tenant, const SessionName& name, int64_t) {
  ASSIGN_OR_RETURN(const Slot slot, Find(tenant, name));
  ReleasePin(slot);
  book_.Change(slot, [](SessionRecord& record) { record.pinned = false; });
  return Tell(slot);
}

absl::Status SessionStore::Close(TenantId tenant, const SessionName& name) {
  ASSIGN_OR_RETURN(const Slot slot, FindIdle(tenant, name));
  End(slot);
  return absl::OkStatus();
}

// --- Turns.

uint64_t SessionStore::StartTurn(Slot slot, RequestId request) {
  const uint64_t turn = ++last_turn_ * book_.capacity() + slot;
  book_.Change(slot, [turn, request](SessionRecord& record) {
    record.turn = turn;
    record.request = request;
    record.max_output = kKeepAll;
    record.offload_ns = record.prefetch_ns = kNoDeadline;
    record.leaving = false;
  });
  // The sequence takes the tail over unless others hold it.
  const NodeId pin = book_[slot].pin;
  if (pin != kNoNode && tree_.IsTail(pin)) MovePin(slot, Above(pin));
  return turn;
}

absl::StatusOr<SessionStore::BegunTurn> SessionStore::BeginTurn(
    TenantId tenant, const SessionName& name, std::optional<int64_t> expected_position, int64_t,
    RequestId request) {
  ASSIGN_OR_RETURN(const Slot slot, FindIdle(tenant, name));
  const int32_t position = static_cast<int32_t>(book_[slot].tokens.size());
  if (expected_position.value_or(position) != position) {
    absl::Status wrong =
        Refusal(absl::StatusCode::kFailedPrecondition, "WRONG_POSITION",
                "session \"" + name + "\" is at position " + std::to_string(position) +
                    ", not at " + std::to_string(*expected_position));
    wrong.SetPayload(kSessionPosition, absl::Cord(std::to_string(position)));
    return wrong;
  }
  if (position >= config_.max_model_len) {
    return Refusal(absl::StatusCode::kFailedPrecondition, "SESSION_FULL",
                   "session \"" + name + "\" is as long as the model's context; truncate it");
  }
  const int64_t tokens = book_.Use(tenant).tokens;
  if (tokens >= config_.max_session_tokens) {
    return Refusal(absl::StatusCode::kResourceExhausted, "TOO_MANY_SESSION_TOKENS",
                   "all sessions together have " + std::to_string(tokens) +
                       " tokens already; close or truncate some");
  }
  BegunTurn begun{.turn = StartTurn(slot, request), .tokens = book_[slot].tokens};
  Tell(slot);
  return begun;
}

void SessionStore::CutTurn(RequestId request, int32_t num_output, int64_t now_ns) {
  const Slot slot = book_.FindRequest(request);
  if (slot == SessionBook::kNoSlot) return;
  const SessionRecord& record = book_[slot];
  if (record.turn != 0) {
    return book_.Change(slot, [num_output](SessionRecord& changed) {
      changed.max_output = std::min(changed.max_output, num_output);
    });
  }
  const int64_t position = int64_t{record.num_prompt} + num_output;
  if (position >= static_cast<int64_t>(record.tokens.size())) return;
  Cut(slot, static_cast<int32_t>(position), now_ns);
  Tell(slot);
}

int32_t SessionStore::MaxOutput(uint64_t turn) const {
  const Slot slot = SlotOf(turn);
  return slot == SessionBook::kNoSlot ? kKeepAll : book_[slot].max_output;
}

NodeId SessionStore::KeptBy(uint64_t turn) const {
  const Slot slot = SlotOf(turn);
  return slot == SessionBook::kNoSlot ? kNoNode : book_[slot].kept;
}

std::span<const int32_t> SessionStore::TokensOf(uint64_t turn) const {
  const Slot slot = SlotOf(turn);
  if (slot == SessionBook::kNoSlot) return {};
  return book_[slot].tokens;
}

void SessionStore::CommitTurn(uint64_t turn, std::vector<int32_t> tokens, NodeId node,
                              int64_t now_ns, int32_t num_prompt) {
  const Slot slot = SlotOf(turn);
  if (slot == SessionBook::kNoSlot) return;
  if (node != kNoNode && tree_.Depth(node) == 0) node = kNoNode;
  CHECK_EQ(node, LastBlock(node, static_cast<int32_t>(tokens.size())));
  tokens.shrink_to_fit();  // it lives longer now than what it was reserved for
  KeepInstead(slot, node);
  book_.Change(slot, [&](SessionRecord& record) {
    record.tokens = std::move(tokens);
    record.num_prompt = num_prompt;
    record.turn = 0;
    ++record.turns;
    Use(record, now_ns);
  });
  if (book_[slot].pinned) MovePin(slot, node);
  Tell(slot);
}

void SessionStore::AbortTurn(uint64_t turn, NodeId node, int64_t now_ns) {
  if (imports_.contains(turn)) {
    const auto gone = EndImport(turn, false, now_ns);
    return;
  }
  const Slot slot = SlotOf(turn);
  if (slot == SessionBook::kNoSlot) return;
  ReleaseExport(slot);
  if (node != kNoNode) KeepInstead(slot, node);
  book_.Change(slot, [&](SessionRecord& record) {
    record.turn = 0;
    record.request = 0;
    Use(record, now_ns);
  });
  if (book_[slot].pinned) MovePin(slot, book_[slot].kept);
  Tell(slot);
}

}  // namespace quire
