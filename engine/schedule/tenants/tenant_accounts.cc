// The table of tenants' accounts, and who contends.
#include "engine/schedule/tenants/tenant_accounts.h"

#include <algorithm>
#include <cmath>

#include "kernels/check.h"

namespace quire {
namespace {

constexpr double kSharesPerWeight = 1000;

}  // namespace

TenantAccounts::TenantAccounts() {
  accounts_.reserve(kMaxIdle);
  contenders_.reserve(kMaxIdle);
  changed_.reserve(kMaxIdle);
  left_.reserve(kMaxIdle);
  NewAccount(0);
}

void TenantAccounts::SetTable(const TenantTable& table) {
  defaults_ = table.defaults;
  named_.clear();
  for (const auto& [tenant, limits] : table.tenants) named_[tenant] = limits;
  for (AccountId id = 0; id < static_cast<AccountId>(accounts_.size()); ++id) {
    TenantAccount& account = accounts_[id];
    if (!account.in_use) continue;
    num_idle_ -= IsIdle(id);
    Apply(account, LimitsOf(account.tenant), named_.contains(account.tenant));
    num_idle_ += IsIdle(id);
    UpdateContender(id);
    Touch(id);
  }
  for (const auto& [tenant, limits] : named_) {
    if (!ids_.contains(tenant)) NewAccount(tenant);
  }
}

const TenantLimits& TenantAccounts::LimitsOf(TenantId tenant) const {
  const auto found = named_.find(tenant);
  return found == named_.end() ? defaults_ : found->second;
}

AccountId TenantAccounts::Open(TenantId tenant) {
  const auto found = ids_.find(tenant);
  const AccountId id = found == ids_.end() ? NewAccount(tenant) : found->second;
  num_idle_ -= IsIdle(id);
  ++accounts_[id].records;
  return id;
}

void TenantAccounts::Close(AccountId id) {
  TenantAccount& account = accounts_[id];
  CHECK_GT(account.records, 0);
  --account.records;
  account.idle_since = ++events_;
  num_idle_ += IsIdle(id);
}

// Neither named nor in use, tenant 0 aside: another tenant may have it.
bool TenantAccounts::IsIdle(AccountId id) const {
  const TenantAccount& account = accounts_[id];
  return id != 0 && !account.named && account.records == 0 && account.host_pages == 0;
}

// Reuses the slot that has been idle longest, once there are many.
AccountId TenantAccounts::NewAccount(TenantId tenant) {
  AccountId id = static_cast<AccountId>(accounts_.size());
  if (num_idle_ >= kMaxIdle) {
    for (AccountId other = 1; other < static_cast<AccountId>(accounts_.size()); ++other) {
      if (!IsIdle(other)) continue;
      if (id == static_cast<AccountId>(accounts_.size()) ||
          accounts_[other].idle_since < accounts_[id].idle_since) {
        id = other;
      }
    }
    ids_.erase(accounts_[id].tenant);
    --num_idle_;
  } else {
    accounts_.emplace_back();
  }
  TenantAccount& account = accounts_[id];
  const bool changed = account.changed;
  account = TenantAccount();
  account.tenant = tenant;
  account.in_use = true;
  account.changed = changed;
  account.idle_since = ++events_;
  Apply(account, LimitsOf(tenant), named_.contains(tenant));
  ids_[tenant] = id;
  num_idle_ += IsIdle(id);
  Touch(id);
  return id;
}

void TenantAccounts::Apply(TenantAccount& account, const TenantLimits& limits, bool named) {
  const bool active = account.waiting + account.running > 0;
  if (active) active_shares_ -= account.share;
  account.limits = limits;
  account.named = named;
  account.share = std::llround(limits.weight * kSharesPerWeight);
  account.units = kTokenUnits * static_cast<int64_t>(kSharesPerWeight) / account.share;
  if (active) active_shares_ += account.share;
}

void TenantAccounts::AddWaiting(AccountId id, int32_t count, int64_t tokens) {
  TenantAccount& account = accounts_[id];
  const bool was_active = account.waiting + account.running > 0;
  account.waiting += count;
  account.waiting_tokens += tokens;
  const bool is_active = account.waiting + account.running > 0;
  num_active_ += is_active - was_active;
  active_shares_ += (is_active - was_active) * account.share;
  UpdateContender(id);
  Touch(id);
}

void TenantAccounts::AddFollowing(AccountId id, int32_t count) {
  accounts_[id].following += count;
  Touch(id);
}

void TenantAccounts::AddRunning(AccountId id, int32_t count) {
  TenantAccount& account = accounts_[id];
  const bool was_active = account.waiting + account.running > 0;
  account.running += count;
  // No step may follow that would count what is left.
  if (account.running == 0) account.prefill_left = 0;
  const bool is_active = account.waiting + account.running > 0;
  num_active_ += is_active - was_active;
  active_shares_ += (is_active - was_active) * account.share;
  UpdateContender(id);
  Touch(id);
}

void TenantAccounts::AddHostPages(AccountId id, int32_t count) {
  num_idle_ -= IsIdle(id);
  accounts_[id].host_pages += count;
  num_idle_ += IsIdle(id);
  Touch(id);
}

void TenantAccounts::Charge(TenantAccount& account, int32_t tokens) {
  account.served += tokens * account.units;
}

void TenantAccounts::ChargePrompt(AccountId id, int32_t tokens) {
  Charge(accounts_[id], tokens);
  accounts_[id].prompt_tokens += static_cast<uint64_t>(tokens);
  Touch(id);
}

void TenantAccounts::ChargeDecode(AccountId id) { Charge(accounts_[id], 1); }

void TenantAccounts::CountGenerated(AccountId id) {
  ++accounts_[id].generated_tokens;
  Touch(id);
}

void TenantAccounts::CountBegun(AccountId id, int32_t prompt_tokens) {
  ++accounts_[id].begun;
  accounts_[id].begun_tokens += static_cast<uint64_t>(prompt_tokens);
  Touch(id);
}

void TenantAccounts::ClearLeft() {
  for (const AccountId id : left_) {
    accounts_[id].prefill_left = 0;
    Touch(id);
  }
  left_.clear();
}

void TenantAccounts::AddLeft(AccountId id, int64_t tokens) {
  if (tokens == 0) return;
  TenantAccount& account = accounts_[id];
  if (account.prefill_left == 0) left_.push_back(id);
  account.prefill_left += tokens;
  Touch(id);
}

int32_t TenantAccounts::PartOf(AccountId id, int32_t total) const {
  if (active_shares_ == 0) return total;
  return std::max<int32_t>(
      1, static_cast<int32_t>(int64_t{total} * accounts_[id].share / active_shares_));
}

int64_t TenantAccounts::WaitingTokens(TenantId tenant) const {
  const auto found = ids_.find(tenant);
  return found == ids_.end() ? 0 : accounts_[found->second].waiting_tokens;
}

bool TenantAccounts::IsWithinPart(TenantId tenant, int64_t tokens, int64_t bound) const {
  const auto found = ids_.find(tenant);
  const TenantAccount* account = found == ids_.end() ? nullptr : &accounts_[found->second];
  const bool active = account != nullptr && account->waiting + account->running > 0;
  const int64_t share = std::llround(LimitsOf(tenant).weight * kSharesPerWeight);
  const int64_t shares = active_shares_ + (active ? 0 : share);
  return share < shares && static_cast<double>(tokens) <= static_cast<double>(bound) *
                                                              static_cast<double>(share) /
                                                              static_cast<double>(shares);
}

bool TenantAccounts::Contends(AccountId id) const {
  const TenantAccount& account = accounts_[id];
  const int32_t most = account.limits.max_running_requests;
  return account.waiting > 0 && (most == 0 || account.running < most);
}

void TenantAccounts::UpdateContender(AccountId id) {
  TenantAccount& account = accounts_[id];
  const bool contends = Contends(id);
  if (contends == (account.contender >= 0)) return;
  if (contends) {
    account.served = std::max(account.served, level_);
    account.contender = static_cast<int32_t>(contenders_.size());
    contenders_.push_back(id);
    return;
  }
  const AccountId last = contenders_.back();
  contenders_[account.contender] = last;
  accounts_[last].contender = account.contender;
  contenders_.pop_back();
  account.contender = -1;
}

void TenantAccounts::RaiseLevel() {
  if (contenders_.empty()) return;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const AccountId id : contenders_) least = std::min(least, accounts_[id].served);
  level_ = std::max(level_, least);
}

void TenantAccounts::Touch(AccountId id) {
  if (accounts_[id].changed) return;
  accounts_[id].changed = true;
  changed_.push_back(id);
}

void TenantAccounts::TakeChanges(std::vector<TenantStats>& figures) {
  for (const AccountId id : changed_) {
    TenantAccount& account = accounts_[id];
    account.changed = false;
    TenantStats& stats = figures.emplace_back();
    stats.tenant = account.tenant;
    stats.named = account.named;
    stats.running = account.running;
    stats.queued = account.waiting + account.following;
    stats.queued_tokens = account.waiting_tokens;
    stats.prefill_tokens_left = account.prefill_left;
    stats.begun = account.begun;
    stats.begun_tokens = account.begun_tokens;
    stats.prompt_tokens = account.prompt_tokens;
    stats.generated_tokens = account.generated_tokens;
    stats.host_pages = account.host_pages;
  }
  changed_.clear();
}

void TenantAccounts::CheckInvariants() const {
  int64_t shares = 0;
  int32_t active = 0, idle = 0, contending = 0;
  for (AccountId id = 0; id < static_cast<AccountId>(accounts_.size()); ++id) {
    const TenantAccount& account = accounts_[id];
    CHECK(account.in_use && account.share > 0);
    CHECK_EQ(ids_.at(account.tenant), id);
    CHECK(account.waiting >= 0 && account.running >= 0 && account.waiting_tokens >= 0);
    CHECK_GE(account.host_pages, 0);
    CHECK_GE(account.following, 0);
    CHECK_LE(account.waiting + account.following + account.running, account.records);
    const bool is_active = account.waiting + account.running > 0;
    active += is_active;
    shares += is_active ? account.share : 0;
    idle += IsIdle(id);
    CHECK_EQ(Contends(id), account.contender >= 0);
    contending += account.contender >= 0;
    CHECK(account.contender < 0 || contenders_[account.contender] == id);
  }
  CHECK_EQ(ids_.size(), accounts_.size());
  CHECK_EQ(active, num_active_);
  CHECK_EQ(shares, active_shares_);
  CHECK_EQ(idle, num_idle_);
  CHECK_EQ(static_cast<size_t>(contending), contenders_.size());
}

}  // namespace quire
