// A queue with threads.
#include "engine/masks/mask_pool.h"

#include <chrono>
#include <utility>

#include "engine/base/clock.h"
#include "kernels/check.h"

namespace quire {

MaskPool::MaskPool(int threads, std::function<void()> on_done) : on_done_(std::move(on_done)) {
  CHECK_GT(threads, 0);
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

MaskPool::~MaskPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void MaskPool::Make(std::unique_ptr<OutputGuide> guide) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(guide));
  }
  wake_.notify_one();
}

std::unique_ptr<OutputGuide> MaskPool::Take() {
  const std::lock_guard lock(mutex_);
  if (done_.empty()) return nullptr;
  std::unique_ptr<OutputGuide> guide = std::move(done_.front());
  done_.pop_front();
  return guide;
}

void MaskPool::Await(int64_t ns) {
  std::unique_lock lock(mutex_);
  idle_.wait_for(lock, std::chrono::nanoseconds(ns),
                 [this] { return waiting_.empty() && making_ == 0; });
}

MaskStats MaskPool::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void MaskPool::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    std::unique_ptr<OutputGuide> guide = std::move(waiting_.front());
    waiting_.pop_front();
    ++making_;
    lock.unlock();
    const int64_t began_ns = SteadyNowNs();
    guide->Make();
    const int64_t ns = SteadyNowNs() - began_ns;
    lock.lock();
    stats_.Add(ns);
    done_.push_back(std::move(guide));
    --making_;
    lock.unlock();
    idle_.notify_all();
    on_done_();
    lock.lock();
  }
}

}  // namespace quire
