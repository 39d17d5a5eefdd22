// KvSaver: writes the KV of idle sessions into files of the session directory, one at a time, on a
// thread of its own: the format of exports, under another name until it is complete. The session is
// read through a snapshot (SessionOperation::BeginSnapshot), so turns go on meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "engine/engine.h"
#include "engine/worker/shm/host_arena.h"
#include "server/metrics/archive_metrics.h"
#include "server/session/archive/kv_files.h"
#include "server/session/session_file.h"

namespace quire {

class KvSaver {
 public:
  struct Parts {
    Disk& disk;
    KvFiles& files;
    Engine& engine;
    HostArenas arenas;
    SessionFileShape shape;
    ArchiveMetrics& metrics;
    // Makes room for so many bytes by removing files of sessions used before `used_ns`; false if
    // that is not enough.
    std::function<bool(int64_t bytes, int64_t used_ns)> make_room;
    std::function<void(const absl::Status&)> on_failure;
  };

  // All of `parts` outlives this.
  explicit KvSaver(Parts parts);
  ~KvSaver();  // as Stop
  // Gives up the file that is being written, then ends the thread. Idempotent.
  void Stop();

 private:
  void Run();
  ArchiveMetrics::Save Save(const KvFiles::Task& task);
  absl::Status Write(const KvFiles::Task& task, const SessionTransfer& bytes, int64_t* written);

  Parts parts_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace quire
