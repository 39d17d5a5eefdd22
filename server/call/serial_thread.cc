// Two vectors, swapped: posting takes one lock.
#include "server/call/serial_thread.h"

#include <utility>

namespace quire {

SerialThread::SerialThread() : thread_([this] { Run(); }) {}

SerialThread::~SerialThread() { Stop(); }

void SerialThread::Post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void SerialThread::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void SerialThread::Run() {
  std::vector<std::function<void()>> turn;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    turn.swap(jobs_);
    lock.unlock();
    for (std::function<void()>& job : turn) job();
    turn.clear();  // what the jobs hold goes outside the lock
    lock.lock();
  }
}

}  // namespace quire
