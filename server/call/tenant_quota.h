// TenantQuota: how many calls of a kind are open, and who may open one more. Beyond the bound, some
// places are reserved for tenants that hold less than their part of it, so that one tenant cannot
// shut out the others. Any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "engine/values/request.h"

namespace quire {

class TenantQuota {
 public:
  TenantQuota(int max_open, int reserved) : max_open_(max_open), reserved_(reserved) {}

  // Counts a call in. False: it must be refused, because max_open calls were open, and its tenant
  // has its part of them (max_open divided by the tenants with open calls), or no reserved place is
  // left. Refused calls leave too.
  bool Enter(TenantId tenant) {
    std::lock_guard lock(mutex_);
    const int open = open_.fetch_add(1, std::memory_order_relaxed) + 1;
    const int mine = ++open_of_[tenant];
    const int part = max_open_ / static_cast<int>(open_of_.size());
    return open <= max_open_ || (mine <= part && open <= max_open_ + reserved_);
  }
  // Counts it out.
  void Leave(TenantId tenant) {
    std::lock_guard lock(mutex_);
    const auto mine = open_of_.find(tenant);
    if (--mine->second == 0) open_of_.erase(mine);
    open_.fetch_sub(1, std::memory_order_relaxed);
  }
  int open() const { return open_.load(std::memory_order_relaxed); }
  int max_open() const { return max_open_; }

 private:
  const int max_open_;
  const int reserved_;
  std::atomic<int> open_{0};
  std::mutex mutex_;
  std::unordered_map<TenantId, int> open_of_;  // under mutex_
};

}  // namespace quire
