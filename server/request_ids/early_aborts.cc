// Two small memories with an end.
#include "server/request_ids/early_aborts.h"

#include <iterator>
#include <utility>

namespace quire {

std::string EarlyAborts::Key(TenantId tenant, const std::string& request_id) {
  return std::to_string(tenant) + ":" + request_id;
}

void EarlyAborts::Trim(std::deque<Note>& notes, Times& times, size_t most, int64_t now_ns) {
  while (!notes.empty() && (notes.size() > most || notes.front().at_ns + kKeptNs <= now_ns)) {
    const auto found = times.find(notes.front().key);
    if (found != times.end() && found->second == notes.front().at_ns) times.erase(found);
    notes.pop_front();
  }
}

void EarlyAborts::TrimAll(int64_t now_ns) {
  for (auto tenant = notes_.begin(); tenant != notes_.end();) {
    Trim(tenant->second, aborted_, kMaxOfTenant, now_ns);
    tenant = tenant->second.empty() ? notes_.erase(tenant) : std::next(tenant);
  }
}

bool EarlyAborts::Remember(TenantId tenant, const std::string& request_id, int64_t now_ns) {
  if (request_id.empty() || request_id.size() > kMaxIdBytes) return false;
  const std::string key = Key(tenant, request_id);
  const auto ended = ended_.find(key);
  if (ended != ended_.end() && ended->second + kKeptNs > now_ns) return false;
  std::deque<Note>& notes = notes_[tenant];
  notes.push_back({key, now_ns});
  aborted_[key] = now_ns;
  Trim(notes, aborted_, kMaxOfTenant, now_ns);
  if (aborted_.size() > kMaxIds) TrimAll(now_ns);
  if (aborted_.size() <= kMaxIds) return true;
  aborted_.erase(key);
  notes.pop_back();
  return false;
}

bool EarlyAborts::Take(TenantId tenant, const std::string& request_id, int64_t now_ns) {
  if (aborted_.empty()) return false;
  const auto found = aborted_.find(Key(tenant, request_id));
  if (found == aborted_.end()) return false;
  const bool fresh = found->second + kKeptNs > now_ns;
  aborted_.erase(found);
  return fresh;
}

void EarlyAborts::Ended(TenantId tenant, const std::string& request_id, int64_t now_ns) {
  std::string key = Key(tenant, request_id);
  ended_[key] = now_ns;
  ended_notes_.push_back({std::move(key), now_ns});
  Trim(ended_notes_, ended_, kMaxEnded, now_ns);
}

}  // namespace quire
