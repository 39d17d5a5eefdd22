// SessionArchive: the session directory (--session-dir). Sessions survive the server there: their
// tokens, in one journal each (session_journal.h), and their KV, in the format of exports.
//
// It hears of each change of a session on the scheduler thread, copies the new tokens once, and
// hands them to a thread of its own, which writes them. The end of a turn waits until they are
// written, so every turn whose end a client has seen is there after the death of the server. A disk
// that is slow, full or broken delays the end of a turn by at most kPatienceNs; then the turn ends
// unsaved, which a metric counts, and the session is written whole when the disk works again.
//
// Any thread may call it; no call from the scheduler thread or a text thread touches the disk.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/call/turn_archive.h"
#include "server/metrics/archive_metrics.h"
#include "server/session/archive/change_queue.h"
#include "server/session/archive/deadline_thread.h"
#include "server/session/archive/journals.h"
#include "server/session/archive/kv_files.h"
#include "server/session/archive/kv_recalls.h"
#include "server/session/archive/kv_saver.h"
#include "server/session/archive/session_directory.h"

namespace quire {

class SessionArchive final : public TurnArchive, public SessionObserver {
 public:
  struct Settings {
    std::string folder;
    int64_t max_bytes = 0;
    std::string model;
    uint64_t model_identity = 0;
    SessionFileReader::Limits limits;  // of files with KV; the vocabulary holds for all
  };
  // How long the end of a turn waits for the disk.
  static constexpr int64_t kPatienceNs = 200'000'000;

  // Locks the directory and reads what is there. Errors: those of DirectoryLock and ReadDirectory.
  // `metrics` outlives this. `disk`: instead of the folder's; the tests' own.
  static absl::StatusOr<std::unique_ptr<SessionArchive>> Open(const Settings& settings,
                                                              ArchiveMetrics* metrics,
                                                              std::shared_ptr<Disk> disk = nullptr);
  ~SessionArchive() override;  // as Stop

  // Becomes the engine's session observer and makes the sessions that the directory has. Returns
  // when all are there. `arenas` are by rank; empty: there is no host memory, and KV is neither
  // written nor read. The engine lives until Stop. Call it once.
  void Adopt(Engine* engine, HostArenas arenas);
  // Writes the KV of all idle sessions that the directory lacks, as much as `seconds` allow: for a
  // server that is ending.
  void HandOver(double seconds);
  // Writes what is queued, then ends the threads. No turn may begin afterwards. Idempotent.
  void Stop();

  void BeforeTurn(TenantId tenant, const SessionName& name, std::function<void()> submit) override;
  void AfterTurn(TenantId tenant, const SessionName& name, bool cut,
                 std::function<void()> done) override;
  void Tell(SessionObserver* observer) override { next_.store(observer); }
  void OnSessionChange(const SessionInfo& info) override;
  void OnTokens(const SessionInfo& info, int32_t kept, std::span<const int32_t> added) override;

 private:
  using Event = ChangeQueue::Event;

  SessionArchive(const Settings& settings, ArchiveMetrics* metrics, DirectoryLock lock,
                 std::shared_ptr<Disk> disk, DirectoryContents contents);

  void TakeOver(LeftSession left, const SessionInfo& info);
  void StartKv(HostArenas arenas);
  void Push(Event event);
  void Run();
  void ShowUse();
  void Handle(const Event& event);
  void EndTurn(const Event& event);
  void MendIncomplete();
  void KeepWithin();
  bool MakeRoom(int64_t bytes, int64_t used_ns);
  void CountFailure(const char* operation, const absl::Status& status);

  const Settings settings_;
  ArchiveMetrics& metrics_;
  const DirectoryLock lock_;
  const std::shared_ptr<Disk> disk_;
  const int64_t epoch_ns_;         // time since 1970 minus the steady clock
  std::vector<LeftSession> left_;  // until Adopt
  Engine* engine_ = nullptr;
  std::atomic<SessionObserver*> next_{nullptr};
  DeadlineThread deadlines_;
  // The writing thread's, from Adopt on.
  Journals journals_;
  int64_t mend_ns_ = 0;  // not before

  std::atomic<int64_t> last_warning_ns_{0};
  KvFiles kv_files_;
  std::unique_ptr<KvSaver> saver_;      // null without host memory
  std::unique_ptr<KvRecalls> recalls_;  // null without host memory

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable hand_over_;  // never notified: the wait is the time between two looks
  ChangeQueue queue_;                  // under mutex_
  bool stopping_ = false;              // under mutex_
  std::thread thread_;
};

}  // namespace quire
