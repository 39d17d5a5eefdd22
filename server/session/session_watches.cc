// One lock, held for a look-up; the scheduler thread reports changes.
#include "server/session/session_watches.h"

#include <vector>

namespace quire {

bool SessionWatches::Add(TenantId tenant, const SessionName& name,
                         std::shared_ptr<SessionWatcher> watcher) {
  const std::lock_guard lock(mutex_);
  if (watchers_.size() >= kMaxWatchers) return false;
  watchers_.emplace(Key(tenant, name), std::move(watcher));
  count_.store(watchers_.size(), std::memory_order_relaxed);
  return true;
}

void SessionWatches::Remove(TenantId tenant, const SessionName& name,
                            const SessionWatcher* watcher) {
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = watchers_.equal_range(Key(tenant, name));
  for (auto at = begin; at != end; ++at) {
    if (at->second.get() != watcher) continue;
    watchers_.erase(at);
    break;
  }
  count_.store(watchers_.size(), std::memory_order_relaxed);
}

void SessionWatches::OnSessionChange(const SessionInfo& info) {
  // The engine's inbox orders Add before the changes that a watcher must hear of.
  if (count_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = watchers_.equal_range(Key(info.tenant, info.name));
  for (auto at = begin; at != end; ++at) at->second->Changed(info);
}

}  // namespace quire
