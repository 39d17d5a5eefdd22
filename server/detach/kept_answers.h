// KeptAnswers: the answers of requests that may outlive their calls, by tenant and request id, and
// the memory that they take. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "engine/values/request.h"
#include "server/detach/detach_metrics.h"

namespace quire {

class KeptAnswer;

class KeptAnswers {
 public:
  // The memory of an answer beside its output: its stream, its text's state, its parameters.
  static constexpr int64_t kAnswerBytes = 16 << 10;

  // `max_bytes`: of all answers. A quarter more is there for tenants below their part of it, which
  // is the same for each tenant that has answers. `metrics` outlive this.
  KeptAnswers(int64_t max_bytes, MetricRegistry& metrics);
  ~KeptAnswers();

  DetachMetrics& metrics() { return metrics_; }
  // Answers without a reader, of requests that run or have ended.
  int detached() const { return metrics_.detached(); }

  // OK, or RESOURCE_EXHAUSTED if the tenant may keep no further answer now. Drops answers that
  // were read to their end to make room.
  absl::Status CheckRoom(TenantId tenant);
  // From now until Remove. An older answer of the same name, which was read to its end, is dropped.
  void Add(const std::shared_ptr<KeptAnswer>& answer);
  // Null if there is none.
  std::shared_ptr<KeptAnswer> Find(TenantId tenant, const std::string& request_id);
  void Remove(const KeptAnswer& answer);
  // Whether the answer was read to its end: then it is among the first to go when room is needed.
  void Settle(const KeptAnswer& answer, bool settled);

  // An answer of the tenant takes so many bytes more, or fewer.
  void Count(TenantId tenant, int64_t bytes);
  // Whether the tenant's answers take more than its part while all take more than there is: they
  // should keep less.
  bool Crowded(TenantId tenant) const;

  // Drops all: the server ends.
  void DropAll();

 private:
  static std::string Key(TenantId tenant, const std::string& request_id);
  // Under mutex_: whether a tenant with so many bytes is within its part.
  bool WithinPart(int64_t bytes, size_t tenants) const;

  const int64_t max_bytes_;
  DetachMetrics metrics_;
  mutable std::mutex mutex_;
  // Under mutex_.
  struct Entry {
    std::shared_ptr<KeptAnswer> answer;
    uint64_t settled = 0;  // its number in settled_; 0: not in there
  };
  std::unordered_map<std::string, Entry> answers_;
  std::map<uint64_t, std::shared_ptr<KeptAnswer>> settled_;  // the oldest first
  uint64_t num_settled_ = 0;                                 // ever
  std::unordered_map<TenantId, int64_t> bytes_of_;
  int64_t bytes_ = 0;
};

}  // namespace quire
