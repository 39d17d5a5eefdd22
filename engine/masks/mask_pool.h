// MaskPool: the threads that make masks while the workers run the step before. A sequence has at
// most one mask in the making, and they are made in the order of arrival, so that a grammar whose
// masks take long delays its own request first.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/masks/mask_stats.h"
#include "engine/masks/output_guide.h"

namespace quire {

class MaskPool {
 public:
  // `on_done` is called on a thread of the pool after each mask; it must not block. `threads` > 0.
  MaskPool(int threads, std::function<void()> on_done);
  // Drops the masks that wait, and joins.
  ~MaskPool();

  // Queues a guide whose mask is to be made. Any thread; never blocks for long.
  void Make(std::unique_ptr<OutputGuide> guide);
  // The next guide whose mask is made; null if there is none. Any thread.
  std::unique_ptr<OutputGuide> Take();
  // Returns when no mask is in the making, and at the latest after `ns`. Any thread.
  void Await(int64_t ns);
  MaskStats stats() const;

 private:
  void Work();

  const std::function<void()> on_done_;
  mutable std::mutex mutex_;  // guards the rest, the threads aside
  std::condition_variable wake_, idle_;
  std::deque<std::unique_ptr<OutputGuide>> waiting_, done_;
  int making_ = 0;  // by a thread right now
  MaskStats stats_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire
