// StreamTable: the live calls, by their tenant and the request id that their client knows. Any
// thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "engine/values/request.h"
#include "server/call/tenant_quota.h"
#include "server/identity/caller.h"
#include "server/request_ids/early_aborts.h"

namespace quire {

class GenerationStream;

using TenantFilter = std::optional<TenantId>;  // nullopt: all tenants

// The tenants whose requests a caller may end: his own, or all for an administrator.
TenantFilter MayEnd(const Caller& caller);

// Names a request in logs and Abort when its client did not. The key differs between processes, so
// that ids of two servers do not meet in one log.
std::string MakeRequestId(uint64_t key, RequestId id);

class StreamTable {
 public:
  // Open calls that are kept for tenants below their part of `max_open`.
  static constexpr int kReserved = 1024;

  explicit StreamTable(int max_open);

  // Numbers never repeat within a process.
  RequestId NextId() { return next_id_.fetch_add(1, std::memory_order_relaxed); }

  // Counts a tenant's call in, or refuses with UNAVAILABLE, as TenantQuota says. Every call that
  // came in leaves once, refused calls included.
  absl::Status Enter(TenantId tenant);
  void Leave(TenantId tenant);
  int open() const { return quota_.open(); }
  // True if no call is open before the time is up.
  bool WaitEmpty(double seconds);

  // ALREADY_EXISTS while another live request of the stream's tenant has the id. CANCELLED if the
  // id was aborted before it came; then nothing is claimed.
  absl::Status Claim(const std::string& request_id, std::shared_ptr<GenerationStream> stream);
  // The same for a further answer to a live request, which has claimed the id.
  void Join(const std::string& request_id, std::shared_ptr<GenerationStream> stream);
  void Release(const std::string& request_id, const GenerationStream& stream);
  std::vector<std::shared_ptr<GenerationStream>> Find(const std::vector<std::string>& request_ids,
                                                      TenantFilter whose);
  std::vector<std::shared_ptr<GenerationStream>> All(TenantFilter whose);
  // As Find. Ids that no live request of `caller` has are remembered (EarlyAborts), and counted in
  // `remembered`.
  std::vector<std::shared_ptr<GenerationStream>> FindToAbort(
      const std::vector<std::string>& request_ids, const Caller& caller, uint32_t* remembered);

 private:
  // Under mutex_.
  bool IsLive(const std::string& request_id, TenantId tenant) const;
  std::vector<std::shared_ptr<GenerationStream>> FindLocked(
      const std::vector<std::string>& request_ids, TenantFilter whose) const;

  std::atomic<RequestId> next_id_{1};
  TenantQuota quota_;
  std::mutex mutex_;
  std::condition_variable empty_;
  // Under mutex_. Tenants may use the same id, and do not learn of each other's.
  std::unordered_multimap<std::string, std::shared_ptr<GenerationStream>> by_id_;
  EarlyAborts early_aborts_;
};

}  // namespace quire
