// HostShares: whose KV each page of host memory holds, and how many pages each tenant may have. A
// page counts for its tenant from the moment it is taken until it is free, also while a copy or a
// reader delays that. The counts and the limits are in the tenants' accounts; a root of the prefix
// tree has one as long as it exists, and its nodes know it, so counting a page takes constant time.
// One thread. Allocates only for new tenants.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/schedule/kv/node_record.h"

namespace quire {

class TenantAccounts;

class HostShares {
 public:
  static constexpr int64_t kUnbounded = std::numeric_limits<int32_t>::max();

  // All pages are free.
  HostShares(int32_t num_pages, int32_t block_size);
  // Has the limits, and counts the pages; null: all tenants share account 0, without a limit. It
  // outlives the last change. Requires that no root has an account yet.
  void SetAccounts(TenantAccounts* accounts) { accounts_ = accounts; }

  // The account of a new root; Close when the root is gone.
  AccountId Open(RootKey tenant);
  void Close(AccountId account);

  // The page is taken for the tenant, or free again.
  void Add(AccountId account, PageId page);
  void Remove(PageId page);
  AccountId OwnerOf(PageId page) const { return owners_[page]; }  // kNoAccount: it is free

  // The pages that the tenant may take beside those it has; negative: it has more than its limit,
  // which was lowered; kUnbounded: it has no limit. A limit in tokens counts whole blocks.
  int64_t Left(AccountId account) const;

  // Aborts when a tenant's count is not that of its pages, or when `root_account` is not the
  // account of `tenant`. O(pages + accounts).
  void CheckInvariants() const;
  void CheckRoot(RootKey tenant, AccountId root_account) const;

 private:
  const int32_t block_size_;
  TenantAccounts* accounts_ = nullptr;
  std::vector<AccountId> owners_;  // by page
};

}  // namespace quire
