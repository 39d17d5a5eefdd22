// StorePauses: the tenants whose stores under pressure wait, because their share of host memory has
// no room for them. Without it a tenant at its bound would use up every try of the others. Tenants
// are known by their accounts. One thread. Allocates only for new tenants.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/schedule/tenants/account_id.h"

namespace quire {

class StorePauses {
 public:
  // The longest pause.
  static constexpr int64_t kPauseNs = 100'000'000;

  // Pauses end together, kPauseNs after the first of them began.
  void Add(AccountId account, int64_t now_ns) {
    if (now_ns >= end_ns_) {
      ++round_;
      end_ns_ = now_ns + kPauseNs;
    }
    if (account >= static_cast<AccountId>(rounds_.size())) {
      rounds_.resize(std::max<size_t>(account + 1, 2 * rounds_.size()));
    }
    rounds_[account] = round_;
  }
  bool Contains(AccountId account, int64_t now_ns) const {
    return now_ns < end_ns_ && account < static_cast<AccountId>(rounds_.size()) &&
           rounds_[account] == round_;
  }
  int64_t end_ns() const { return end_ns_; }  // of the pauses begun last; 0: there were none

 private:
  int64_t end_ns_ = 0;
  uint64_t round_ = 0;
  std::vector<uint64_t> rounds_;  // by account: the round of its last pause
};

}  // namespace quire
