// Every order is derived from the record, in File and in Unfile alike.
#include "engine/schedule/sessions/session_book.h"

#include "kernels/check.h"

namespace quire {
namespace {

constexpr size_t kNumStates = static_cast<size_t>(SessionState::kClosed) + 1;

}  // namespace

void SessionRecord::SetKept(NodeId node) {
  kept = node;
  has_pages = node != kNoNode;
  if (node != kNoNode) return;
  leaving = false;
  offload_ns = prefetch_ns = kNoDeadline;
}

SessionBook::SessionBook(int32_t max_sessions) : capacity_(max_sessions), by_state_(kNumStates) {
  CHECK_GE(max_sessions, 0);
  records_.reserve(max_sessions);
  free_.reserve(max_sessions);
  leases_.Reserve(max_sessions);
  offloads_.Reserve(max_sessions);
  prefetches_.Reserve(max_sessions);
  paged_.Reserve(max_sessions);
  own_paged_.Reserve(max_sessions);
  keepers_.Reserve(max_sessions);
  requests_.Reserve(max_sessions);
}

SessionBook::Slot SessionBook::Find(TenantId tenant, const SessionName& name) const {
  const auto found = names_.find(Key(tenant, name));
  return found == names_.end() ? kNoSlot : found->second;
}

SessionBook::Slot SessionBook::FindRequest(RequestId request) const {
  const auto found = requests_.LowerBound({request, 0});
  return request == 0 || found == requests_.end() || found->first != request ? kNoSlot
                                                                             : found->second;
}

SessionBook::Slot SessionBook::Add(TenantId tenant, const SessionName& name) {
  CHECK_LT(size(), capacity_);
  if (free_.empty()) {
    free_.push_back(static_cast<Slot>(records_.size()));
    records_.emplace_back();
  }
  const Slot slot = free_.back();
  free_.pop_back();
  CHECK(names_.emplace(Key(tenant, name), slot).second);
  records_[slot].name = name;
  records_[slot].tenant = tenant;
  ++tenants_[tenant].sessions;
  File(slot);
  return slot;
}

void SessionBook::Remove(Slot slot) {
  Unfile(slot);
  const SessionRecord record = std::exchange(records_[slot], SessionRecord());
  CHECK(names_.erase(Key(record.tenant, record.name)) == 1);
  const auto use = tenants_.find(record.tenant);
  if (--use->second.sessions == 0) tenants_.erase(use);
  free_.push_back(slot);
}

bool SessionBook::InUse(Slot slot) const {
  return slot >= 0 && slot < static_cast<Slot>(records_.size()) && !records_[slot].name.empty();
}

SessionBook::TenantUse SessionBook::Use(TenantId tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? TenantUse() : found->second;
}

SessionBook::Wanted SessionBook::WantedOf(Slot slot) const {
  const SessionRecord& record = records_[slot];
  return {record.options.retain_priority, record.used_ns, slot};
}

const SessionBook::Wanted* SessionBook::LeastPaged(TenantId tenant) const {
  const auto least = own_paged_.LowerBound({tenant, Wanted::Lowest()});
  return least == own_paged_.end() || least->first != tenant ? nullptr : &least->second;
}

void SessionBook::Count(const SessionRecord& record, int sign) {
  const int64_t tokens = sign * static_cast<int64_t>(record.tokens.size());
  num_tokens_ += tokens;
  tenants_.at(record.tenant).tokens += tokens;
  by_state_[static_cast<size_t>(record.shown)] += sign;
}

void SessionBook::File(Slot slot) {
  const SessionRecord& record = records_[slot];
  Count(record, 1);
  if (record.kept != kNoNode) keepers_.Insert({record.kept, WantedOf(slot)});
  if (record.request != 0) requests_.Insert({record.request, slot});
  if (record.turn != 0) return;
  leases_.Insert({record.expires_ns, slot});
  if (record.offload_ns != kNoDeadline) offloads_.Insert({record.offload_ns, slot});
  if (record.prefetch_ns != kNoDeadline) prefetches_.Insert({record.prefetch_ns, slot});
  if (!record.has_pages) return;
  paged_.Insert(WantedOf(slot));
  own_paged_.Insert({record.tenant, WantedOf(slot)});
}

void SessionBook::Unfile(Slot slot) {
  const SessionRecord& record = records_[slot];
  Count(record, -1);
  if (record.kept != kNoNode) keepers_.Erase({record.kept, WantedOf(slot)});
  if (record.request != 0) requests_.Erase({record.request, slot});
  if (record.turn != 0) return;
  leases_.Erase({record.expires_ns, slot});
  if (record.offload_ns != kNoDeadline) offloads_.Erase({record.offload_ns, slot});
  if (record.prefetch_ns != kNoDeadline) prefetches_.Erase({record.prefetch_ns, slot});
  if (!record.has_pages) return;
  paged_.Erase(WantedOf(slot));
  own_paged_.Erase({record.tenant, WantedOf(slot)});
}

void SessionBook::CheckInvariants() const {
  std::unordered_map<TenantId, TenantUse> tenants;
  std::vector<int64_t> by_state(kNumStates);
  size_t idle = 0, offloads = 0, prefetches = 0, paged = 0, kept = 0, requests = 0;
  int64_t tokens = 0;
  for (const auto& [name, slot] : names_) {
    const SessionRecord& record = records_[slot];
    CHECK(record.tenant == name.first && record.name == name.second);
    const int64_t size = static_cast<int64_t>(record.tokens.size());
    ++tenants[record.tenant].sessions;
    tenants[record.tenant].tokens += size;
    tokens += size;
    ++by_state[static_cast<size_t>(record.shown)];
    const bool is_idle = record.turn == 0;
    idle += is_idle;
    offloads += is_idle && record.offload_ns != kNoDeadline;
    prefetches += is_idle && record.prefetch_ns != kNoDeadline;
    paged += is_idle && record.has_pages;
    kept += record.kept != kNoNode;
    requests += record.request != 0;
    if (is_idle) CHECK(leases_.Contains({record.expires_ns, slot}));
    if (record.kept != kNoNode) CHECK(keepers_.Contains({record.kept, WantedOf(slot)}));
    if (is_idle && record.has_pages) {
      CHECK(paged_.Contains(WantedOf(slot)));
      CHECK(own_paged_.Contains({record.tenant, WantedOf(slot)}));
    }
  }
  CHECK(idle == leases_.size() && offloads == offloads_.size());
  CHECK(prefetches == prefetches_.size() && paged == paged_.size() && kept == keepers_.size());
  CHECK(requests == requests_.size() && paged == own_paged_.size());
  CHECK(tokens == num_tokens_ && by_state == by_state_ && tenants.size() == tenants_.size());
  for (const auto& [tenant, use] : tenants) {
    CHECK(use.sessions == Use(tenant).sessions && use.tokens == Use(tenant).tokens);
  }
  CHECK_EQ(names_.size() + free_.size(), records_.size());
}

}  // namespace quire
