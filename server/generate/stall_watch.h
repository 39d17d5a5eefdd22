// StallWatch: one thread that checks each live stream about once per slow-reader timeout and sheds
// the streams whose oldest unsent output is older, or whose time without a reader is over. One
// timer serves all streams: no timer is armed or disarmed per token.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

namespace quire {

class GenerationStream;

class StallWatch {
 public:
  explicit StallWatch(int64_t timeout_ns);
  ~StallWatch();

  int64_t timeout_ns() const { return timeout_ns_; }
  // From now until Forget. Any thread.
  void Watch(std::shared_ptr<GenerationStream> stream);
  void Forget(GenerationStream* stream);
  // Looks at a watched stream no later than at that time.
  void LookAt(GenerationStream* stream, int64_t at_ns);

 private:
  struct Entry {
    std::shared_ptr<GenerationStream> stream;
    int64_t check_ns = 0;
  };

  void Run();
  // Under mutex_.
  void Move(Entry& entry, GenerationStream* stream, int64_t check_ns);

  const int64_t timeout_ns_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  // Under mutex_. The streams by the time of their next check.
  std::set<std::pair<int64_t, GenerationStream*>> by_time_;
  std::unordered_map<GenerationStream*, Entry> streams_;
  std::thread thread_;
};

}  // namespace quire
