// TenantAccounts: what each tenant has waiting, running, computed and in host memory, and its
// limits. The fair order (fair_walk.h), the shares of rows and blocks, and the bounds of host
// memory (kv/host_shares.h) come from here. One thread.
//
// Fairness: computed tokens divided by the weight are a tenant's *served* tokens, in units. Of the
// tenants that contend (they wait, and may run more), the one that was served least comes first.
// The *level* is the least that a contender was served when the last step was planned; it never
// sinks. A tenant that begins to contend is lifted to the level: nothing is saved up while idle.
//
// Accounts are slots of a dense table. Named tenants and tenant 0 keep theirs; of the others, idle
// accounts are reused, the longest idle first, once there are kMaxIdle. So the table is bounded by
// the named tenants, kMaxIdle, and the sequences and roots of the prefix tree that exist at once.
// Allocates only for new tenants.
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "engine/schedule/tenants/account_id.h"
#include "engine/values/request.h"
#include "engine/values/tenant_limits.h"

namespace quire {

struct TenantAccount {
  TenantId tenant = 0;
  TenantLimits limits;  // effective
  bool named = false;
  bool in_use = false;
  int64_t share = 0;    // the weight, in thousandths
  int64_t units = 0;    // served units of one token
  int32_t records = 0;  // sequences that exist, paused and finishing ones included, and a root
  int32_t waiting = 0;
  int32_t following = 0;  // that wait for another sequence's prompt, beside the queue
  int32_t running = 0;    // with a row and running, or restoring
  int64_t waiting_tokens = 0;
  int64_t host_pages = 0;                // pages of host memory that hold its KV
  int64_t served = 0;                    // in units
  uint64_t begun = 0, begun_tokens = 0;  // sequences with a first row, and their prompts
  uint64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t prefill_left = 0;  // tokens of running sequences that the last step left
  uint64_t idle_since = 0;   // a count of events
  int32_t contender = -1;    // the place among the contenders; -1: none
  bool changed = false;      // since TakeChanges
  // Of the step being planned, for the planner.
  int32_t shortest_prefill = 0;
  int64_t backlog = 0;  // tokens that wait, or are left of running prefills
  int32_t rows = 0;
  int32_t blocks = 0;
  int32_t prefills = 0;
};

class TenantAccounts {
 public:
  // Served units of one token at weight 1. At the lowest weight 2^63 units are 1.4 * 10^12 tokens.
  static constexpr int64_t kTokenUnits = 65536;
  static constexpr int32_t kMaxIdle = 1024;  // accounts of tenants without name, records and pages

  TenantAccounts();

  // Replaces all limits. Requires a valid table.
  void SetTable(const TenantTable& table);
  // Of a tenant, with an account or without.
  const TenantLimits& LimitsOf(TenantId tenant) const;

  // The tenant's account, for one more sequence, or for its root in the prefix tree; Close ends
  // that.
  AccountId Open(TenantId tenant);
  void Close(AccountId id);
  // `count` sequences more wait or run, or -1 each; `tokens`: known tokens that wait.
  void AddWaiting(AccountId id, int32_t count, int64_t tokens);
  // The same of sequences that wait for another's prompt: they do not contend.
  void AddFollowing(AccountId id, int32_t count);
  void AddRunning(AccountId id, int32_t count);
  // `count` pages of host memory more hold its KV.
  void AddHostPages(AccountId id, int32_t count);
  // A step is being planned: the level rises to the least served contender.
  void RaiseLevel();
  // Tokens that a step computes: of prompts, or one of a decoding sequence.
  void ChargePrompt(AccountId id, int32_t tokens);
  void ChargeDecode(AccountId id);
  void CountGenerated(AccountId id);
  void CountBegun(AccountId id, int32_t prompt_tokens);
  // Behind each step: the tokens that it left of prompts, once for each sequence. ClearLeft comes
  // before the first.
  void ClearLeft();
  void AddLeft(AccountId id, int64_t tokens);

  const TenantAccount& operator[](AccountId id) const { return accounts_[id]; }
  TenantAccount& Scratch(AccountId id) { return accounts_[id]; }
  // Accounts that wait and may run more, in no order.
  const std::vector<AccountId>& contenders() const { return contenders_; }
  // More than one tenant waits or runs.
  bool several() const { return num_active_ > 1; }
  // The account's part of `total` rows or blocks among all that wait or run, at least 1.
  int32_t PartOf(AccountId id, int32_t total) const;
  bool Contends(AccountId id) const;
  // Of a tenant, with an account or without: its tokens that wait, and whether `tokens` are within
  // its part of `bound` tokens while other tenants wait or run.
  int64_t WaitingTokens(TenantId tenant) const;
  bool IsWithinPart(TenantId tenant, int64_t tokens, int64_t bound) const;

  // Appends the figures of every account that changed since the last call. `refused` is not known
  // here.
  void TakeChanges(std::vector<TenantStats>& figures);

  // Aborts when a derived count is wrong. O(accounts).
  void CheckInvariants() const;
  size_t size() const { return accounts_.size(); }

 private:
  AccountId NewAccount(TenantId tenant);
  void Apply(TenantAccount& account, const TenantLimits& limits, bool named);
  void Charge(TenantAccount& account, int32_t tokens);
  void Touch(AccountId id);
  bool IsIdle(AccountId id) const;
  void UpdateContender(AccountId id);

  std::vector<TenantAccount> accounts_;  // [0]: tenant 0
  std::unordered_map<TenantId, AccountId> ids_;
  std::unordered_map<TenantId, TenantLimits> named_;
  TenantLimits defaults_;
  std::vector<AccountId> contenders_;
  std::vector<AccountId> changed_;
  std::vector<AccountId> left_;  // with prefill_left
  int32_t num_active_ = 0;
  int64_t active_shares_ = 0;  // of all that wait or run
  int64_t level_ = 0;
  uint64_t events_ = 0;
  int32_t num_idle_ = 0;  // that IsIdle
};

}  // namespace quire
