// A queue of streams by the time of their next check.
#include "server/generate/stall_watch.h"

#include <algorithm>
#include <chrono>
#include <limits>

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

void StallWatch::LookAt(GenerationStream* stream, int64_t at_ns) {
  {
    std::lock_guard lock(mutex_);
    const auto found = streams_.find(stream);
    if (found == streams_.end() || found->second.check_ns <= at_ns) return;
    Move(found->second, stream, at_ns);
  }
  wake_.notify_one();
}

void StallWatch::Move(Entry& entry, GenerationStream* stream, int64_t check_ns) {
  by_time_.erase({entry.check_ns, stream});
  entry.check_ns = check_ns;
  by_time_.emplace(check_ns, stream);
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
    // Whatever LookAt asks for during the check counts beside its result.
    Move(streams_[key], key, std::numeric_limits<int64_t>::max());
    lock.unlock();
    const int64_t next_ns = stream->CheckStall(SteadyNowNs());
    lock.lock();
    const auto found = streams_.find(key);
    if (found == streams_.end()) continue;
    Move(found->second, key, std::min(next_ns, found->second.check_ns));
  }
}

}  // namespace quire
