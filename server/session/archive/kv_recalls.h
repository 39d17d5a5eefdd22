// KvRecalls: KV of the session directory on its way back into host memory, for a turn that is about
// to begin. Several threads read one file together: from the page cache a single thread would be
// slower than the copy to the device behind it.
//
// A recall is a bargain: it is begun only if reading is expected to take less time than computing
// the KV again, by the speeds measured so far, and the turn goes on without it when it takes
// longer. Neither way can a turn fail because of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/engine.h"
#include "engine/worker/shm/host_arena.h"
#include "server/metrics/archive_metrics.h"
#include "server/session/archive/deadline_thread.h"
#include "server/session/archive/kv_file_reader.h"
#include "server/session/archive/kv_files.h"
#include "server/session/archive/work_threads.h"

namespace quire {

class KvRecalls {
 public:
  struct Parts {
    Disk& disk;
    KvFiles& files;
    Engine& engine;
    HostArenas arenas;
    SessionFileReader::Limits limits;
    ArchiveMetrics& metrics;
    DeadlineThread& deadlines;
    std::function<void(const absl::Status&)> on_failure;
  };

  // All of `parts` outlives this.
  explicit KvRecalls(Parts parts);
  ~KvRecalls();  // as Stop
  // Calls `submit` once: at once if the session needs nothing of its file, else when it has it, or
  // when that takes too long. Any thread; never blocks.
  void Before(const SessionKey& key, std::function<void()> submit);
  // Gives up the recalls under way and calls all that wait. Idempotent.
  void Stop();

 private:
  struct Recall;
  using Held = std::shared_ptr<Recall>;
  using Outcome = ArchiveMetrics::Recall;

  Held Begin(const SessionKey& key);  // under mutex_
  bool IsWorthIt(const KvFiles::Task& task, double compute_seconds);
  double ComputeSeconds(int32_t tokens) const;
  void Open(const Held& recall);
  void Fill(const Held& recall, SessionTransfer start);
  void Read(const Held& recall);
  void Finish(const Held& recall, Outcome outcome);
  void Fail(const Held& recall, const absl::Status& status);
  void Submit(const Held& recall);

  Parts parts_;
  std::atomic<int32_t> declined_{0};         // in a row
  std::atomic<double> bytes_per_second_{0};  // of the last recalls; 0: not measured yet
  std::mutex mutex_;
  std::map<SessionKey, Held> recalls_;  // under mutex_
  bool stopping_ = false;               // under mutex_
  WorkThreads threads_;
};

}  // namespace quire
