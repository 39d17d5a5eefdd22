// SessionWatches: who is to be told when a session changes. The session store tells this of every
// change of every session; unless somebody watches, that costs one look at a counter.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "engine/values/session.h"

namespace quire {

class SessionWatcher {
 public:
  virtual ~SessionWatcher() = default;
  // On the scheduler thread; must not block.
  virtual void Changed(const SessionInfo& info) = 0;
};

class SessionWatches {
 public:
  // More watchers than this are refused.
  static constexpr size_t kMaxWatchers = 4096;

  // False when there are too many. On the scheduler thread, so that no change is missed between the
  // look at the session and this; Remove on any.
  bool Add(TenantId tenant, const SessionName& name, std::shared_ptr<SessionWatcher> watcher);
  void Remove(TenantId tenant, const SessionName& name, const SessionWatcher* watcher);
  // The store's observer.
  void Tell(const SessionInfo& info);

 private:
  using Key = std::pair<TenantId, SessionName>;

  std::atomic<size_t> count_{0};
  std::mutex mutex_;
  std::multimap<Key, std::shared_ptr<SessionWatcher>> watchers_;  // under mutex_
};

}  // namespace quire
