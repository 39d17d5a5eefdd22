// SessionWatches: the watchers of each session. The engine reports every change of every session
// here; without watchers a report costs one read of a counter.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "engine/values/session_operation.h"

namespace quire {

class SessionWatcher {
 public:
  virtual ~SessionWatcher() = default;
  // On the scheduler thread; must not block.
  virtual void Changed(const SessionInfo& info) = 0;
};

class SessionWatches final : public SessionObserver {
 public:
  // More watchers than this are refused.
  static constexpr size_t kMaxWatchers = 4096;

  // False when there are too many. A watcher that is added before an operation is sent to the
  // engine hears of every change after that operation. Any thread.
  bool Add(TenantId tenant, const SessionName& name, std::shared_ptr<SessionWatcher> watcher);
  void Remove(TenantId tenant, const SessionName& name, const SessionWatcher* watcher);
  void OnSessionChange(const SessionInfo& info) override;

 private:
  using Key = std::pair<TenantId, SessionName>;

  std::atomic<size_t> count_{0};
  std::mutex mutex_;
  std::multimap<Key, std::shared_ptr<SessionWatcher>> watchers_;  // under mutex_
};

}  // namespace quire
