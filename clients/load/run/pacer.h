// Pacer: the thread that sends each request at its time.
//
// It sleeps to absolute times of the steady clock, woken early only by an earlier request or a
// freed slot, and does nothing but start streams that were prepared before they were due.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "clients/load/run/send_queue.h"

namespace quire::load {

// Nanoseconds of the steady clock.
int64_t NowNs();

class Pacer {
 public:
  // Runs on the pacer's thread, one at a time; the times are those of the queue.
  using Send = std::function<void(EligibleSend)>;

  // base_ns is the steady clock's time at the queue's time 0.
  Pacer(SendQueue queue, int64_t base_ns, Send send);
  ~Pacer();  // stops
  Pacer(const Pacer&) = delete;

  // False, and nothing happens, once it is stopped.
  bool Add(DueSend send);
  void Release();
  // No Send begins after this returns, and none is running. Returns the sends that were not made.
  std::vector<DueSend> Stop();

 private:
  class Hold;
  void Loop();
  void WaitUntil(int64_t queue_ns);  // requires mutex_

  const int64_t base_ns_;
  const Send send_;
  // Hands its waiter's priority to its holder: the pacer may be a real-time thread, and must not
  // wait for a holder that the server's threads keep from the processor.
  pthread_mutex_t mutex_;
  pthread_cond_t changed_;  // the queue, or stopped_
  SendQueue queue_;         // guarded by mutex_
  bool stopped_ = false;    // guarded by mutex_
  std::thread thread_;      // last: it uses all of the above
};

}  // namespace quire::load
