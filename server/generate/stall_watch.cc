// A queue of streams by the time of their next check.
#include "server/generate/stall_watch.h"

#include <chrono>

#include "engine/base/clock.h"
#include "server/generate/generation_stream.h"

namespace quire {

StallWatch::StallWatch(int64_t timeout_ns) : timeout_ns_(timeout_ns), thread_([this] { Run(); }) {}

StallWatch::~StallWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void StallWatch::Watch(std::shared_ptr<GenerationStream> stream) {
  const int64_t check_ns = SteadyNowNs() + timeout_ns_;
  GenerationStream* key = stream.get();
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    streams_[key] = {std::move(stream), check_ns};
    by_time_.emplace(check_ns, key);
    first = by_time_.begin()->second == key;
  }
  if (first) wake_.notify_one();
}

void StallWatch::Forget(GenerationStream* stream) {
  std::shared_ptr<GenerationStream> last;  // destroyed outside the lock
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  by_time_.erase({found->second.check_ns, stream});
  last = std::move(found->second.stream);
  streams_.erase(found);
}

void StallWatch::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (by_time_.empty()) {
      wake_.wait(lock);
      continue;
    }
    const auto [check_ns, key] = *by_time_.begin();
    if (check_ns > SteadyNowNs()) {
      wake_.wait_until(lock,
                       std::chrono::steady_clock::time_point(std::chrono::nanoseconds(check_ns)));
      continue;
    }
    const std::shared_ptr<GenerationStream> stream = streams_[key].stream;
    lock.unlock();
    const int64_t next_ns = stream->CheckStall(SteadyNowNs());
    lock.lock();
    if (const auto found = streams_.find(key); found != streams_.end()) {
      by_time_.erase({found->second.check_ns, key});
      found->second.check_ns = next_ns;
      by_time_.emplace(next_ns, key);
    }
  }
}

}  // namespace quire
