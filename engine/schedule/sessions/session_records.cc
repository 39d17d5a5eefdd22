// Looking sessions up, and the steps that change them.
#include "engine/schedule/sessions/session_records.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "engine/base/status_macros.h"
#include "kernels/check.h"

namespace quire {
namespace {

using Wanted = SessionBook::Wanted;

constexpr size_t kMaxNameBytes = 128;
constexpr double kMaxIdleSeconds = 86400;

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

absl::Status SessionRefusal(absl::StatusCode code, const char* reason, const std::string& message) {
  absl::Status status(code, message);
  status.SetPayload(kSessionReason, absl::Cord(reason));
  return status;
}

SessionRecords::SessionRecords(const SessionConfig& config, int32_t block_size, PrefixTree& tree)
    : config_(config),
      block_size_(block_size),
      max_pinned_(static_cast<int32_t>(config.max_pinned_share * tree.pool().total())),
      tree_(tree),
      book_(config.max_sessions),
      pinned_(tree) {}

absl::StatusOr<SessionRecords::Slot> SessionRecords::Find(TenantId tenant,
                                                          const SessionName& name) const {
  const Slot slot = book_.Find(tenant, name);
  if (slot != SessionBook::kNoSlot) return slot;
  return SessionRefusal(absl::StatusCode::kNotFound, "SESSION_NOT_FOUND",
                        "there is no session \"" + name + "\"");
}

absl::StatusOr<SessionRecords::Slot> SessionRecords::FindIdle(TenantId tenant,
                                                              const SessionName& name) const {
  ASSIGN_OR_RETURN(const Slot slot, Find(tenant, name));
  if (book_[slot].turn == 0) return slot;
  return SessionRefusal(absl::StatusCode::kFailedPrecondition, "SESSION_BUSY",
                        "session \"" + name +
                            "\" is busy with a turn, an export or an import; ask again "
                            "when that has ended");
}

SessionRecords::Slot SessionRecords::SlotOf(uint64_t turn) const {
  if (turn == 0 || book_.capacity() == 0) return SessionBook::kNoSlot;
  const Slot slot = static_cast<Slot>(turn % book_.capacity());
  return book_.InUse(slot) && book_[slot].turn == turn ? slot : SessionBook::kNoSlot;
}

NodeId SessionRecords::Above(NodeId node) const {
  const NodeId parent = tree_.Parent(node);
  return tree_.Depth(parent) == 0 ? kNoNode : parent;
}

// The block of the chain in which the first `position` tokens end, or the last if they pass it.
NodeId SessionRecords::LastBlock(NodeId node, int32_t position) const {
  while (node != kNoNode && (tree_.Depth(node) - 1) * block_size_ >= position) {
    node = Above(node);
    ++work_;
  }
  return node;
}

SessionRecords::Survey SessionRecords::Look(Slot slot) const {
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

SessionInfo SessionRecords::InfoOf(Slot slot) const {
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

// The highest-ranked session whose deepest node this is; Wanted::Lowest() if there is none.
SessionBook::Wanted SessionRecords::MostWantedAt(NodeId node) const {
  auto it = book_.keepers().LowerBound({node, Wanted::Highest()});
  if (it == book_.keepers().begin()) return Wanted::Lowest();
  --it;
  return it->first == node ? it->second : Wanted::Lowest();
}

// Whether, in the session's chain, another session branches off below the node, or a higher-ranked
// one ends there.
bool SessionRecords::WantedByOthers(Slot slot, NodeId node) const {
  const int32_t own = node == book_[slot].kept ? 1 : 0;
  if (tree_.NumKeptChildren(node) > 1 - own) return true;
  return tree_.NumKeepers(node) > own && book_.WantedOf(slot) < MostWantedAt(node);
}

int64_t SessionRecords::OffloadTime(const SessionRecord& record, int64_t now_ns) const {
  if (record.kept == kNoNode || tree_.host().num_pages() == 0) return kNoDeadline;
  return now_ns + static_cast<int64_t>(record.options.idle_offload_after_seconds * 1e9);
}

int64_t SessionRecords::MaxSessions(TenantId tenant) const {
  const int64_t own = accounts_ == nullptr ? 0 : accounts_->LimitsOf(tenant).max_sessions;
  return own == 0 ? config_.max_sessions_per_tenant
                  : std::min<int64_t>(own, config_.max_sessions_per_tenant);
}

int64_t SessionRecords::MaxTokens(TenantId tenant) const {
  const int64_t own = accounts_ == nullptr ? 0 : accounts_->LimitsOf(tenant).max_session_tokens;
  return own == 0 ? config_.max_session_tokens : std::min(own, config_.max_session_tokens);
}

absl::Status SessionRecords::CheckNew(TenantId tenant, const SessionName& name,
                                      int64_t tokens) const {
  if (!IsName(name)) {
    return absl::InvalidArgumentError(
        "a session's name is 1 to 128 characters of A-Z, a-z, 0-9 and ._:-");
  }
  if (book_.Find(tenant, name) != SessionBook::kNoSlot) {
    return SessionRefusal(absl::StatusCode::kAlreadyExists, "SESSION_EXISTS",
                          "there is a session \"" + name + "\" already");
  }
  const SessionBook::TenantUse use = book_.Use(tenant);
  if (book_.size() >= config_.max_sessions || use.sessions >= MaxSessions(tenant)) {
    return SessionRefusal(absl::StatusCode::kResourceExhausted, "TOO_MANY_SESSIONS",
                          "there are as many sessions as may be; close one");
  }
  if (use.tokens + tokens <= MaxTokens(tenant)) return absl::OkStatus();
  return SessionRefusal(absl::StatusCode::kResourceExhausted, "TOO_MANY_SESSION_TOKENS",
                        "all sessions together may have " + std::to_string(MaxTokens(tenant)) +
                            " tokens, and have " + std::to_string(use.tokens));
}

absl::Status SessionRecords::CheckOptions(const SessionOptions& options) const {
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

void SessionRecords::Use(SessionRecord& record, int64_t now_ns) const {
  record.used_ns = now_ns;
  record.expires_ns = now_ns + Nanoseconds(record.options.ttl_seconds);
  record.offload_ns = OffloadTime(record, now_ns);
  record.attempts = 0;
}

SessionRecords::Slot SessionRecords::Add(TenantId tenant, const SessionName& name,
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

void SessionRecords::KeepInstead(Slot slot, NodeId node) {
  const NodeId old = book_[slot].kept;
  if (node == old) return;
  if (old != kNoNode) tree_.Unkeep(old, slot);
  book_.Change(slot, [node](SessionRecord& record) { record.SetKept(node); });
  if (node != kNoNode) tree_.Keep(node, slot);
}

// Pins the chain to `node`, or as much of it as there is room for, instead of the previous one.
void SessionRecords::MovePin(Slot slot, NodeId node) {
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

void SessionRecords::ReleasePin(Slot slot) {
  const NodeId pin = book_[slot].pin;
  if (pin == kNoNode) return;
  book_.Change(slot, [](SessionRecord& record) { record.pin = kNoNode; });
  pinned_.Remove(pin);
  tree_.Release(pin);
}

void SessionRecords::Cut(Slot slot, int32_t position, int64_t now_ns) {
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

bool SessionRecords::CutOutput(Slot slot, int32_t num_output, int64_t now_ns) {
  const int64_t position = int64_t{book_[slot].num_prompt} + num_output;
  if (position >= static_cast<int64_t>(book_[slot].tokens.size())) return false;
  Cut(slot, static_cast<int32_t>(position), now_ns);
  TellTokens(slot, static_cast<int32_t>(position));
  return true;
}

uint64_t SessionRecords::StartTurn(Slot slot) {
  const uint64_t turn = ++last_turn_ * book_.capacity() + slot;
  book_.Change(slot, [turn](SessionRecord& record) {
    record.turn = turn;
    record.max_output = kKeepAll;
    record.offload_ns = record.prefetch_ns = kNoDeadline;
    record.leaving = false;
  });
  // The sequence takes the tail over unless it is held.
  const NodeId pin = book_[slot].pin;
  if (pin != kNoNode && tree_.IsTail(pin)) MovePin(slot, Above(pin));
  return turn;
}

void SessionRecords::End(Slot slot) {
  ReleasePin(slot);
  SessionInfo info = InfoOf(slot);
  KeepInstead(slot, kNoNode);
  book_.Remove(slot);
  info.state = SessionState::kClosed;
  if (observer_ != nullptr) observer_->OnSessionChange(info);
}

SessionInfo SessionRecords::Tell(Slot slot) { return Tell(slot, InfoOf(slot)); }

SessionInfo SessionRecords::Tell(Slot slot, const SessionInfo& info) {
  if (book_[slot].shown != info.state) {
    book_.Change(slot, [&](SessionRecord& record) { record.shown = info.state; });
  }
  if (observer_ != nullptr) observer_->OnSessionChange(info);
  return info;
}

SessionInfo SessionRecords::TellTokens(Slot slot, int32_t kept) {
  const SessionInfo info = InfoOf(slot);
  if (observer_ != nullptr) {
    observer_->OnTokens(info, kept, std::span(book_[slot].tokens).subspan(kept));
  }
  return Tell(slot, info);
}

// Takes the blocks off the device from the end of the chain up to the first that another session
// keeps.
void SessionRecords::DropBlocks(Slot slot) {
  book_.Change(slot, [](SessionRecord& record) { record.leaving = false; });
  for (NodeId node = book_[slot].kept; node != kNoNode; node = Above(node)) {
    ++work_;
    if (tree_.NumKeepers(node) + tree_.NumKeptChildren(node) > 1) break;
    if (tree_.Kv(node).block != kNullBlock && !tree_.host().DropBlock(node)) break;
  }
}

absl::Status SessionRecords::CheckPin(NodeId node) const {
  const int32_t cost = pinned_.Cost(node);
  if (pinned_.size() + cost > max_pinned_) {
    return SessionRefusal(absl::StatusCode::kResourceExhausted, "PIN_QUOTA",
                          "pins may hold " + std::to_string(max_pinned_) + " blocks, hold " +
                              std::to_string(pinned_.size()) + ", and this one needs " +
                              std::to_string(cost) + " more");
  }
  if (node == kNoNode || tree_.HoldCost(node) <= tree_.pool().available()) {
    return absl::OkStatus();
  }
  return SessionRefusal(
      absl::StatusCode::kResourceExhausted, "PIN_QUOTA",
      "running requests need all blocks that are not pinned yet; try again later");
}

void SessionRecords::CheckInvariants() const {
  book_.CheckInvariants();
  std::vector<NodeId> chain, all;
  for (const auto& [key, slot] : book_.names()) {
    const SessionRecord& record = book_[slot];
    if (record.kept != kNoNode) {
      CHECK(tree_.Depth(record.kept) > 0 && tree_.NumKeepers(record.kept) > 0);
      const auto size = static_cast<int32_t>(record.tokens.size());
      CHECK_EQ(record.kept, LastBlock(record.kept, size));
      const Survey survey = Look(slot);
      CHECK(!survey.has_pages || tree_.host().num_pages() > 0);
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
}

}  // namespace quire
