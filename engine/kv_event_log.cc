// Feeds of batches, and readers with a position in them.
#include "engine/kv_event_log.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/kv_block_set.h"
#include "engine/schedule/kv/kv_event_source.h"
#include "kernels/check.h"

namespace quire {
namespace {

// Nodes looked at in one call of Serve: some 0.5 ms of hashing.
constexpr int32_t kPartNodes = 4096;
// A feed that begins waits for its readers when so many blocks were told and not folded.
constexpr int64_t kMaxUnfolded = 4 * kPartNodes;
// Batches folded under one look at the feed.
constexpr size_t kFoldedAtOnce = 64;

int64_t UnixNowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// An event without blocks takes memory too.
int64_t SizeOf(const KvEventBatch& batch) {
  auto size = static_cast<int64_t>(batch.events.size());
  for (const KvEvent& event : batch.events) size += static_cast<int64_t>(event.blocks.size());
  return size;
}

absl::Status TooFarBehind() {
  return absl::OutOfRangeError(
      "KV events that this subscriber has not seen are not kept any more; subscribe again");
}

using BatchPointer = std::shared_ptr<const KvEventBatch>;

}  // namespace

// The events of a tenant, from its first subscriber on.
struct KvEventLog::Feed {
  Feed(TenantId tenant_in, int32_t block_size, uint64_t first_sequence)
      : tenant(tenant_in), blocks(block_size), next(first_sequence), folded(first_sequence) {}

  // The number of the oldest batch that is kept; `next` if there is none.
  uint64_t first() const { return next - batches.size(); }

  const TenantId tenant;
  // Readers alone take it, before the log's mutex: the scheduler thread never waits for a fold.
  std::mutex fold_mutex;
  KvBlockSet blocks;  // under fold_mutex: with all batches before `folded`
  // Under the log's mutex.
  std::deque<BatchPointer> batches;  // the last ones
  int64_t size = 0;                  // of `batches`
  int64_t unfolded_size = 0;         // of those from `folded` on
  uint64_t next;                     // number of the next batch
  uint64_t folded;
  bool begun = false;        // the source tells of the tenant
  uint64_t complete_at = 0;  // batches before it tell all blocks of the beginning; 0: not yet
  bool ended = false;
  std::vector<Reader*> readers;
  uint64_t alone_since = 0;  // a count of readers' ends; of a feed without readers
};

// The log and its readers share it.
struct KvEventLog::Shared {
  Shared(int32_t block_size_in, const KvEventLogSize& size_in, std::function<void()> wake_in)
      : block_size(block_size_in), size(size_in), wake(std::move(wake_in)) {}

  absl::Status Admit(Reader& reader, TenantId tenant, const KvSubscriptionStart& start);
  void Remove(Reader& reader);
  void Fold(Feed& feed);
  bool EndOneWithoutReaders();
  // The scheduler thread's.
  struct Changes {
    std::vector<TenantId> ended, begun;  // in this order: a tenant may be in both
    bool backlog = false;
  };
  Changes TakeChanges();
  bool Append(KvEventSource::Change change);
  bool Trim(Feed& feed);
  void WakeReaders(Feed& feed);

  const int32_t block_size;
  const KvEventLogSize size;
  const std::function<void()> wake;
  std::atomic<int32_t> num_feeds{0};
  std::mutex mutex;
  // Under the mutex.
  std::map<TenantId, std::shared_ptr<Feed>> feeds;
  std::vector<TenantId> ended;  // of feeds that the source still tells of
  uint64_t last_sequence = 0;   // of the feeds that have ended
  int32_t num_readers = 0;
  uint64_t departures = 0;  // readers' ends
};

class KvEventLog::Reader final : public KvSubscription {
 public:
  Reader(std::shared_ptr<Shared> log, std::function<void()> on_ready)
      : log_(std::move(log)), on_ready_(std::move(on_ready)) {}
  ~Reader() override {
    if (feed != nullptr) log_->Remove(*this);
  }

  absl::StatusOr<BatchPointer> Next() override;

  // Under the log's mutex.
  void WakeIfWaiting() {
    if (std::exchange(waiting_, false)) on_ready_();
  }

  std::shared_ptr<Feed> feed;  // constant once admitted
  uint64_t position = 0;       // of the next batch; 0: a snapshot comes first

 private:
  absl::StatusOr<bool> TakeSnapshot();

  const std::shared_ptr<Shared> log_;
  const std::function<void()> on_ready_;
  std::deque<BatchPointer> parts_;  // of the snapshot
  bool waiting_ = false;            // under the log's mutex
};

// --- Readers.

absl::Status KvEventLog::Shared::Admit(Reader& reader, TenantId tenant,
                                       const KvSubscriptionStart& start) {
  std::lock_guard lock(mutex);
  if (num_readers >= size.max_subscriptions) {
    return absl::ResourceExhaustedError("too many subscriptions to KV events");
  }
  const auto found = feeds.find(tenant);
  if (found != feeds.end() &&
      static_cast<int32_t>(found->second->readers.size()) >= size.max_subscriptions_of_tenant) {
    return absl::ResourceExhaustedError("too many subscriptions of this tenant to KV events");
  }
  const bool kept = found != feeds.end() && start.sequence > 0 && found->second->complete_at > 0 &&
                    start.sequence >= found->second->first() &&
                    start.sequence <= found->second->next;
  if (!kept && !start.snapshot) return TooFarBehind();
  if (found == feeds.end()) {
    if (static_cast<int32_t>(feeds.size()) >= size.max_tenants && !EndOneWithoutReaders()) {
      return absl::ResourceExhaustedError("too many tenants subscribe to KV events");
    }
    const auto now_us = static_cast<uint64_t>(UnixNowNs() / 1000);
    feeds[tenant] = std::make_shared<Feed>(tenant, block_size, std::max(now_us, last_sequence + 1));
    num_feeds.store(static_cast<int32_t>(feeds.size()));
  }
  reader.feed = feeds[tenant];
  reader.feed->readers.push_back(&reader);
  if (kept) reader.position = start.sequence;
  ++num_readers;
  return absl::OkStatus();
}

// The feed stays until its batches are more than are kept, or its place is needed.
void KvEventLog::Shared::Remove(Reader& reader) {
  std::lock_guard lock(mutex);
  std::erase(reader.feed->readers, &reader);
  reader.feed->alone_since = ++departures;
  --num_readers;
}

// Ends the feed that has been without readers for longest. False: all have readers.
bool KvEventLog::Shared::EndOneWithoutReaders() {
  auto first = feeds.end();
  for (auto feed = feeds.begin(); feed != feeds.end(); ++feed) {
    if (!feed->second->readers.empty()) continue;
    if (first == feeds.end() || feed->second->alone_since < first->second->alone_since) {
      first = feed;
    }
  }
  if (first == feeds.end()) return false;
  if (first->second->begun) ended.push_back(first->first);
  last_sequence = std::max(last_sequence, first->second->next);
  feeds.erase(first);
  return true;
}

// Applies all batches that are there. Requires the feed's fold_mutex.
void KvEventLog::Shared::Fold(Feed& feed) {
  std::vector<BatchPointer> taken;
  bool begins = false;
  do {
    int64_t taken_size = 0;
    for (const BatchPointer& batch : taken) {
      feed.blocks.Apply(*batch);
      taken_size += SizeOf(*batch);
    }
    std::lock_guard lock(mutex);
    feed.folded += taken.size();
    feed.unfolded_size -= taken_size;
    taken.clear();
    const size_t offset = feed.folded - feed.first();
    const size_t count = std::min(feed.batches.size() - offset, kFoldedAtOnce);
    if (!feed.ended) {
      const auto begin = feed.batches.begin() + static_cast<ptrdiff_t>(offset);
      taken.assign(begin, begin + static_cast<ptrdiff_t>(count));
    }
    begins = feed.complete_at == 0;
  } while (!taken.empty());
  if (begins) wake();
}

// False: not all blocks were told yet; the reader waits.
absl::StatusOr<bool> KvEventLog::Reader::TakeSnapshot() {
  std::lock_guard folding(feed->fold_mutex);
  for (bool complete = false; !complete;) {
    log_->Fold(*feed);
    std::lock_guard lock(log_->mutex);
    if (feed->ended) return TooFarBehind();
    complete = feed->complete_at > 0 && feed->folded >= feed->complete_at;
    if (complete) {
      position = feed->folded;
    } else if (feed->folded == feed->next) {
      waiting_ = true;
      return false;
    }
  }
  const int64_t now_ns = UnixNowNs();
  for (KvEventBatch& batch : feed->blocks.Snapshot(feed->tenant)) {
    batch.sequence = position - 1;
    batch.unix_ns = now_ns;
    parts_.push_back(std::make_shared<const KvEventBatch>(std::move(batch)));
  }
  return true;
}

absl::StatusOr<BatchPointer> KvEventLog::Reader::Next() {
  if (position == 0) {
    const absl::StatusOr<bool> taken = TakeSnapshot();
    if (!taken.ok()) return taken.status();
    if (!*taken) return nullptr;
  }
  if (!parts_.empty()) {
    BatchPointer part = std::move(parts_.front());
    parts_.pop_front();
    return part;
  }
  {
    std::lock_guard lock(log_->mutex);
    if (feed->ended || position < feed->first()) return TooFarBehind();
    const bool folds = feed->next - feed->folded >= kFoldedAtOnce;
    if (position < feed->next && !folds) return feed->batches[position++ - feed->first()];
  }
  // The feed may forget only batches that are folded.
  std::lock_guard folding(feed->fold_mutex);
  log_->Fold(*feed);
  std::lock_guard lock(log_->mutex);
  if (feed->ended || position < feed->first()) return TooFarBehind();
  if (position < feed->next) return feed->batches[position++ - feed->first()];
  waiting_ = true;
  return nullptr;
}

// --- The scheduler thread.

KvEventLog::Shared::Changes KvEventLog::Shared::TakeChanges() {
  Changes changes;
  std::lock_guard lock(mutex);
  changes.ended.swap(ended);
  for (const auto& [tenant, feed] : feeds) {
    if (!std::exchange(feed->begun, true)) changes.begun.push_back(tenant);
    // Without readers the feed ends when it has told too much.
    changes.backlog |=
        feed->complete_at == 0 && !feed->readers.empty() && feed->unfolded_size > kMaxUnfolded;
  }
  return changes;
}

// False: the feed has ended, and the source is to be told.
bool KvEventLog::Shared::Append(KvEventSource::Change change) {
  auto batch = std::make_shared<KvEventBatch>();
  batch->tenant = change.tenant;
  batch->unix_ns = UnixNowNs();
  batch->block_size = block_size;
  batch->events = std::move(change.events);
  std::lock_guard lock(mutex);
  const auto found = feeds.find(change.tenant);
  // Ended since TakeChanges, and perhaps a new one is there: the next call tells the source.
  if (found == feeds.end() || !found->second->begun) return true;
  Feed& feed = *found->second;
  if (!batch->events.empty()) {
    batch->sequence = feed.next++;
    const int64_t batch_size = SizeOf(*batch);
    feed.size += batch_size;
    feed.unfolded_size += batch_size;
    feed.batches.push_back(std::move(batch));
  }
  if (change.complete) feed.complete_at = feed.next;
  const bool lives = Trim(feed);
  WakeReaders(feed);
  if (!lives) {
    feeds.erase(change.tenant);
    num_feeds.store(static_cast<int32_t>(feeds.size()));
  }
  return lives;
}

// Forgets the oldest batches. False: one of them is not folded, so the feed ends.
bool KvEventLog::Shared::Trim(Feed& feed) {
  while (static_cast<int64_t>(feed.batches.size()) > size.max_batches ||
         (feed.size > size.max_blocks && feed.batches.size() > 1)) {
    if (feed.first() >= feed.folded) {
      feed.ended = true;
      last_sequence = std::max(last_sequence, feed.next);
      feed.batches.clear();
      return false;
    }
    feed.size -= SizeOf(*feed.batches.front());
    feed.batches.pop_front();
  }
  return true;
}

void KvEventLog::Shared::WakeReaders(Feed& feed) {
  for (Reader* reader : feed.readers) reader->WakeIfWaiting();
}

// --- The log.

KvEventLog::KvEventLog(int32_t block_size, const KvEventLogSize& size, std::function<void()> wake)
    : shared_(std::make_shared<Shared>(block_size, size, std::move(wake))) {}

KvEventLog::~KvEventLog() = default;

absl::StatusOr<std::unique_ptr<KvSubscription>> KvEventLog::Subscribe(
    TenantId tenant, KvSubscriptionStart start, std::function<void()> on_ready) {
  auto reader = std::make_unique<Reader>(shared_, std::move(on_ready));
  const absl::Status status = shared_->Admit(*reader, tenant, start);
  if (!status.ok()) return status;
  shared_->wake();
  return reader;
}

bool KvEventLog::Serve(KvEventSource& source) {
  if (shared_->num_feeds.load(std::memory_order_relaxed) == 0) return false;
  const Shared::Changes changes = shared_->TakeChanges();
  for (const TenantId tenant : changes.ended) source.End(tenant);
  for (const TenantId tenant : changes.begun) source.Begin(tenant);
  const bool more = !changes.backlog && source.Continue(kPartNodes);
  for (KvEventSource::Change& change : source.Take()) {
    const TenantId tenant = change.tenant;
    if (!shared_->Append(std::move(change))) source.End(tenant);
  }
  return more;
}

}  // namespace quire
