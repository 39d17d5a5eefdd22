// TextPool: threads for work that is linear in a client's text (templates, tokenising), so that
// gRPC's threads do none of it. The queue is bounded by jobs and by the bytes of text they hold: a
// chat waits as it came, and becomes values, which take up to 60 times its memory, when its job
// runs. So that memory is bounded by the number of threads.
//
// Tenants share it by bytes (start-time fair queueing): a job comes after those that began their
// turn before it, and its tenant's next one comes later by its bytes. So a tenant with one job
// waits for the jobs that run, and not for another tenant's queue.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/values/request.h"

namespace quire {

class TextPool {
 public:
  TextPool(int threads, size_t max_jobs, size_t max_bytes);
  ~TextPool() { Stop(); }

  // Runs the queued jobs, then joins; the pool takes no more. Idempotent, not thread-safe.
  void Stop();

  // Queues `job`, which holds `bytes` of a text of `tenant`; UNAVAILABLE when the queue is full. A
  // tenant below its part of the queue may fill it to twice its bounds. Any thread.
  absl::Status Run(TenantId tenant, size_t bytes, std::function<void()> job);
  // Jobs that wait or run.
  int64_t unfinished() const;

 private:
  struct Job {
    TenantId tenant;
    size_t bytes;
    std::function<void()> run;
  };
  // Of a tenant with jobs that wait or run.
  struct Share {
    size_t waiting = 0;     // jobs
    size_t unfinished = 0;  // jobs, the running ones too
    size_t bytes = 0;       // of the unfinished ones
    uint64_t next_turn = 0;
  };
  // A place in the order: the turn, then the number of the job.
  using Place = std::pair<uint64_t, uint64_t>;

  void Work(int thread);
  bool HasRoom(const Share& share, size_t bytes) const;
  void Forget(TenantId tenant, size_t bytes);

  const size_t max_jobs_;
  const size_t max_bytes_;
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable wake_;
  std::map<Place, Job> jobs_;
  std::unordered_map<TenantId, Share> shares_;
  uint64_t turn_ = 0;     // of the job that began last
  uint64_t numbers_ = 0;  // jobs so far
  size_t bytes_ = 0;      // of the unfinished ones
  int64_t unfinished_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire
