// An owner for each page, and a count in each account.
#include "engine/schedule/kv/host_shares.h"

#include <algorithm>
#include <utility>

#include "engine/schedule/tenants/tenant_accounts.h"
#include "kernels/check.h"

namespace quire {

HostShares::HostShares(int32_t num_pages, int32_t block_size)
    : block_size_(block_size), owners_(num_pages, kNoAccount) {}

AccountId HostShares::Open(RootKey tenant) {
  return accounts_ == nullptr ? 0 : accounts_->Open(tenant);
}

void HostShares::Close(AccountId account) {
  if (accounts_ != nullptr) accounts_->Close(account);
}

void HostShares::Add(AccountId account, PageId page) {
  CHECK(account != kNoAccount && owners_[page] == kNoAccount);
  owners_[page] = account;
  if (accounts_ != nullptr) accounts_->AddHostPages(account, 1);
}

void HostShares::Remove(PageId page) {
  const AccountId account = std::exchange(owners_[page], kNoAccount);
  CHECK(account != kNoAccount);
  if (accounts_ != nullptr) accounts_->AddHostPages(account, -1);
}

int64_t HostShares::Left(AccountId account) const {
  if (accounts_ == nullptr) return kUnbounded;
  const TenantAccount& own = (*accounts_)[account];
  const int64_t most = own.limits.max_host_kv_tokens;
  return most == 0 ? kUnbounded : std::min(kUnbounded, most / block_size_ - own.host_pages);
}

void HostShares::CheckInvariants() const {
  if (accounts_ == nullptr) return;
  std::vector<int64_t> pages(accounts_->size());
  for (const AccountId owner : owners_) {
    if (owner != kNoAccount) ++pages[owner];
  }
  for (size_t id = 0; id < pages.size(); ++id) {
    CHECK_EQ((*accounts_)[static_cast<AccountId>(id)].host_pages, pages[id]);
  }
}

void HostShares::CheckRoot(RootKey tenant, AccountId root_account) const {
  if (accounts_ == nullptr) return;
  CHECK_EQ((*accounts_)[root_account].tenant, tenant);
  CHECK_GT((*accounts_)[root_account].records, 0);
}

}  // namespace quire
