// A scan of the table finds the next due session: it is done once for each file that is written,
// and when a session becomes due sooner than the thread would wake.
#include "server/session/archive/kv_files.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "engine/base/clock.h"

namespace quire {

KvFiles::KvFiles(Disk& disk, std::function<void(const absl::Status&)> on_failure)
    : disk_(disk), on_failure_(std::move(on_failure)) {}

// --- What happens to sessions.

// How much KV the file has is known when it is read.
void KvFiles::Adopt(const SessionInfo& info, uint64_t number, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  entries_[{info.tenant, info.name}] = {.number = number,
                                        .bytes = bytes,
                                        .kv_tokens = std::numeric_limits<int32_t>::max(),
                                        .position = info.position,
                                        .idle = true,
                                        .used_ns = info.used_ns};
  bytes_ += bytes;
}

void KvFiles::Note(uint64_t number, const SessionInfo& info) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[{info.tenant, info.name}];
  entry.number = number;
  entry.position = info.position;
  entry.present = info.position - info.tiers.absent_tokens;
  entry.on_host = info.tiers.host_tokens;
  entry.idle = info.state != SessionState::kActive;
  entry.used_ns = info.used_ns;
  entry.patience_ns =
      static_cast<int64_t>(kPatience * info.options.idle_offload_after_seconds * 1e9);
  Schedule(entry);
  if (entry.due_ns < waits_until_) changed_.notify_all();
}

void KvFiles::Schedule(Entry& entry) {
  const bool wanted = entry.idle && entry.on_host == entry.present && entry.on_host > 0 &&
                      entry.on_host > entry.kv_tokens;
  entry.due_ns = !wanted ? kNoDeadline : hurry_ ? 0 : entry.used_ns + entry.patience_ns;
}

void KvFiles::Cut(const SessionKey& key, int32_t kept) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  found->second.kv_tokens = std::min(found->second.kv_tokens, kept);
  found->second.unchanged = std::min(found->second.unchanged, kept);
}

void KvFiles::Forget(const SessionKey& key) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    if (found->second.bytes > 0) number = found->second.number;
    TakeFile(found->second);
    entries_.erase(found);
    changed_.notify_all();
  }
  // No other session gets the number.
  if (number != 0) RemoveFile(number);
}

// Its bytes count no longer, though the file is there until it is removed: else a second thread
// that needs room would drop another file for the same bytes.
void KvFiles::TakeFile(Entry& entry) {
  bytes_ -= std::exchange(entry.bytes, 0);
  entry.kv_tokens = 0;
}

// A reader has the file open and reads on.
void KvFiles::RemoveFile(uint64_t number) {
  const absl::Status status = disk_.Remove(KvFile(number));
  if (!status.ok()) on_failure_(status);
}

void KvFiles::RemoveTaken(const SessionKey& key, uint64_t number) {
  RemoveFile(number);
  const std::lock_guard lock(mutex_);
  if (Entry* const entry = Find(key, number); entry != nullptr) entry->removing = false;
  changed_.notify_all();
}

// --- Writing.

KvFiles::Entries::iterator KvFiles::Earliest() {
  auto earliest = entries_.end();
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    const Entry& entry = at->second;
    if (entry.due_ns == kNoDeadline || entry.writing || entry.removing) continue;
    if (earliest == entries_.end() || entry.due_ns < earliest->second.due_ns) earliest = at;
  }
  return earliest;
}

std::optional<KvFiles::Task> KvFiles::AwaitDue() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto earliest = Earliest();
    waits_until_ = earliest == entries_.end() ? kNoDeadline : earliest->second.due_ns;
    if (earliest == entries_.end()) {
      changed_.wait(lock);
      continue;
    }
    Entry& entry = earliest->second;
    if (const int64_t left_ns = entry.due_ns - SteadyNowNs(); left_ns > 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(left_ns));
      continue;
    }
    waits_until_ = 0;
    entry.writing = true;
    entry.due_ns = kNoDeadline;
    entry.unchanged = std::numeric_limits<int32_t>::max();
    return Task{.key = earliest->first,
                .number = entry.number,
                .kv_tokens = entry.kv_tokens,
                .position = entry.position,
                .bytes = entry.bytes,
                .used_ns = entry.used_ns};
  }
  return std::nullopt;
}

// Another session may have got the name meanwhile.
KvFiles::Entry* KvFiles::Find(const SessionKey& key, uint64_t number) {
  const auto found = entries_.find(key);
  const bool same = found != entries_.end() && found->second.number == number;
  return same ? &found->second : nullptr;
}

void KvFiles::EndWrite(const Task& task, std::optional<int64_t> bytes, int32_t kv_tokens,
                       int64_t again_ns) {
  const std::lock_guard lock(mutex_);
  Entry* const found = Find(task.key, task.number);
  if (found == nullptr) return;
  Entry& entry = *found;
  entry.writing = false;
  if (bytes.has_value()) {
    bytes_ += *bytes - std::exchange(entry.bytes, *bytes);
    entry.kv_tokens = std::min(kv_tokens, entry.unchanged);
    Schedule(entry);  // the session may have been used meanwhile
  } else {
    entry.due_ns = again_ns;
  }
  changed_.notify_all();
}

bool KvFiles::Exists(const Task& task) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(task.key);
  return found != entries_.end() && found->second.number == task.number;
}

void KvFiles::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

// --- Reading.

std::optional<KvFiles::Task> KvFiles::BeginRead(const SessionKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  Entry& entry = found->second;
  if (!entry.idle || entry.bytes == 0 || entry.kv_tokens <= entry.present) return std::nullopt;
  ++entry.readers;
  return Task{.key = key,
              .number = entry.number,
              .kv_tokens = entry.kv_tokens,
              .position = entry.position,
              .bytes = entry.bytes,
              .used_ns = entry.used_ns};
}

void KvFiles::EndRead(const Task& task, std::optional<int32_t> kv_tokens) {
  {
    const std::lock_guard lock(mutex_);
    Entry* const entry = Find(task.key, task.number);
    if (entry == nullptr) return;
    entry->readers = std::max(0, entry->readers - 1);
    // A file that was written meanwhile is another one.
    if (!kv_tokens.has_value() || entry->writing || entry->bytes != task.bytes) return;
    entry->kv_tokens = std::min(entry->kv_tokens, *kv_tokens);
    if (*kv_tokens != 0) return;
    TakeFile(*entry);
    entry->removing = true;
  }
  RemoveTaken(task.key, task.number);
}

// --- Room.

KvFiles::Entries::iterator KvFiles::LongestUnused(int64_t used_ns) {
  auto oldest = entries_.end();
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    const Entry& entry = at->second;
    if (entry.bytes == 0 || entry.readers > 0 || entry.writing) continue;
    if (entry.used_ns >= (oldest == entries_.end() ? used_ns : oldest->second.used_ns)) continue;
    oldest = at;
  }
  return oldest;
}

bool KvFiles::DropOldest(int64_t used_ns) {
  SessionKey key;
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto oldest = LongestUnused(used_ns);
    if (oldest == entries_.end()) return false;
    key = oldest->first;
    number = oldest->second.number;
    TakeFile(oldest->second);
    oldest->second.removing = true;
  }
  RemoveTaken(key, number);
  return true;
}

int64_t KvFiles::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

// --- Handing over.

void KvFiles::Hurry() {
  const std::lock_guard lock(mutex_);
  hurry_ = true;
  for (auto& [key, entry] : entries_) {
    if (!entry.writing) Schedule(entry);
  }
  changed_.notify_all();
}

std::vector<SessionKey> KvFiles::OnDeviceAlone() const {
  const std::lock_guard lock(mutex_);
  std::vector<SessionKey> keys;
  for (const auto& [key, entry] : entries_) {
    const bool more = entry.present > std::max(entry.on_host, entry.kv_tokens);
    if (entry.idle && more) keys.push_back(key);
  }
  return keys;
}

int64_t KvFiles::NumUnsaved() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::count_if(entries_, [](const auto& entry) {
    return entry.second.writing || entry.second.due_ns != kNoDeadline;
  });
}

}  // namespace quire
