// A steady clock sets the pace, so a jump of the machine's clock does not stop the watch.
#include "server/watch/watch_thread.h"

#include <chrono>
#include <utility>

namespace quire {
namespace {

constexpr std::chrono::seconds kPace(1);

}  // namespace

WatchThread::WatchThread(std::function<void()> look)
    : look_(std::move(look)), thread_([this] { Run(); }) {}

WatchThread::~WatchThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WatchThread::Run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kPace, [this] { return stopping_; })) {
    lock.unlock();
    look_();
    lock.lock();
  }
}

}  // namespace quire
