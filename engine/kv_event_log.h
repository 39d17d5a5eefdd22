// KvEventLog: the KV events of each tenant that has subscribers, from the scheduler thread to any
// number of readers. A tenant without subscribers costs nothing.
//
// A reader begins with a snapshot of the tenant's blocks, or behind a batch that it has seen. The
// last batches are kept for both (KvEventLogSize); the readers fold older ones into the state that
// snapshots are made of, on their own threads. The scheduler thread only appends a batch and calls
// on_ready of waiting readers; it waits for no reader. A reader that is further behind than the
// batches that are kept gets OUT_OF_RANGE. Memory is bounded: the kept batches, and some 150 bytes
// for each block of a tenant that has subscribers. Once a tenant has none, its events end after as
// many batches as are kept, so a reader that comes back soon misses none; or sooner, when another
// tenant subscribes and max_tenants have events.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/values/kv_events.h"

namespace quire {

class KvEventSource;

struct KvEventLogSize {
  int64_t max_batches = 4096;    // kept of a tenant
  int64_t max_blocks = 1 << 18;  // named by them, together
  int32_t max_tenants = 64;      // with subscribers
  int32_t max_subscriptions = 256;
  int32_t max_subscriptions_of_tenant = 128;
};

struct KvSubscriptionStart {
  // The first batch that is wanted; 0, or a number whose batch is not kept any more: a snapshot
  // comes first.
  uint64_t sequence = 0;
  // False: a number whose batch is not kept is refused with OUT_OF_RANGE.
  bool snapshot = true;
};

// One reader. Its calls come from one thread at a time; it outlives no engine.
class KvSubscription {
 public:
  virtual ~KvSubscription() = default;
  // The next batch; null: there is none yet, and on_ready will be called once. May take some
  // milliseconds for a snapshot of 100,000 blocks, less than one otherwise. OUT_OF_RANGE: batches
  // are missing, subscribe again; every later call says the same.
  virtual absl::StatusOr<std::shared_ptr<const KvEventBatch>> Next() = 0;
};

class KvEventLog {
 public:
  // `wake` makes the scheduler thread call Serve soon; any thread.
  KvEventLog(int32_t block_size, const KvEventLogSize& size, std::function<void()> wake);
  ~KvEventLog();

  // Any thread. `on_ready` is called on the scheduler thread under a lock: it must hand over, not
  // block, and call nothing here. It is not called after the subscription's end.
  // RESOURCE_EXHAUSTED: too many subscriptions; OUT_OF_RANGE as above.
  absl::StatusOr<std::unique_ptr<KvSubscription>> Subscribe(TenantId tenant,
                                                            KvSubscriptionStart start,
                                                            std::function<void()> on_ready);

  // Scheduler thread, between two steps: takes the events from `source`, which is the same in all
  // calls. A part of a few thousand nodes at most. True: there is more to do at once. Costs one
  // comparison while no tenant has a feed.
  bool Serve(KvEventSource& source);

 private:
  struct Feed;
  class Reader;
  struct Shared;
  const std::shared_ptr<Shared> shared_;  // subscriptions may end after the log
};

}  // namespace quire
