// KvFiles: the files of the session directory that have sessions' KV, as a table: whose KV a file
// has, which session's is due to be written, and which file goes first when there is no room. Any
// thread. No lock is held while a file is written, read or removed: a disk that hangs holds up the
// call that removes a file, and no other.
//
// An idle session is due when all of its KV is on the host, more of it than its file has, and it
// was idle several times as long as that takes (kPatience): a conversation that goes on at once
// would make the file old again.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/values/session.h"
#include "server/session/archive/disk.h"
#include "server/session/archive/journals.h"

namespace quire {

class KvFiles {
 public:
  // Multiples of the idle time after which KV is copied to the host.
  static constexpr double kPatience = 4;

  // A file to be written, or to be read.
  struct Task {
    SessionKey key;
    uint64_t number = 0;    // of the file
    int32_t kv_tokens = 0;  // that the file has
    int32_t position = 0;   // of the session
    int64_t bytes = 0;      // of the file
    int64_t used_ns = 0;
  };

  // `disk` outlives this. `on_failure` is called when a file cannot be removed.
  KvFiles(Disk& disk, std::function<void(const absl::Status&)> on_failure);

  // --- What happens to sessions.
  // A file that was there at the start.
  void Adopt(const SessionInfo& info, uint64_t number, int64_t bytes);
  void Note(uint64_t number, const SessionInfo& info);
  // Only the first `kept` tokens of the session are still those of the file.
  void Cut(const SessionKey& key, int32_t kept);
  // The session is gone, with its file.
  void Forget(const SessionKey& key);

  // --- Writing. Waits for a session that is due; nullopt once stopped. EndWrite follows.
  std::optional<Task> AwaitDue();
  // `bytes`: of the new file; nullopt: there is none, and the old one, if any, is as it was.
  // `again_ns`: when to try again; kNoDeadline: not before the session's next use.
  void EndWrite(const Task& task, std::optional<int64_t> bytes, int32_t kv_tokens,
                int64_t again_ns = kNoDeadline);
  // False once the task's session is gone.
  bool Exists(const Task& task) const;
  void Stop();

  // --- Reading. A file that has KV which its idle session lacks; nullopt: there is none. EndRead
  // follows, and until then the file is not removed to make room. `kv_tokens`: as the reader found
  // them, of the session's tokens; 0: the file is not usable, and is removed; nullopt: unknown.
  std::optional<Task> BeginRead(const SessionKey& key);
  void EndRead(const Task& task, std::optional<int32_t> kv_tokens);

  // --- Room. Removes the file of the session that was unused longest, if it was used before
  // `used_ns`; false if there is none.
  bool DropOldest(int64_t used_ns = kNoDeadline);
  int64_t bytes() const;

  // --- Handing over. From now on sessions are due as soon as their KV is on the host.
  void Hurry();
  // Idle sessions whose KV must come to the host first.
  std::vector<SessionKey> OnDeviceAlone() const;
  // Sessions that are due or being written.
  int64_t NumUnsaved() const;

 private:
  struct Entry {
    uint64_t number = 0;
    int64_t bytes = 0;      // of the file; 0: none
    int32_t kv_tokens = 0;  // of the file, as far as they are still the session's
    int32_t position = 0;
    int32_t present = 0;  // tokens whose KV is on the device or on the host
    int32_t on_host = 0;
    bool idle = false;
    int64_t used_ns = 0;
    int64_t patience_ns = 0;
    int64_t due_ns = kNoDeadline;
    bool writing = false;
    bool removing = false;  // no new file takes the old one's name until then
    int32_t readers = 0;
    int32_t unchanged = 0;  // tokens that did not change since the write began
  };

  using Entries = std::map<SessionKey, Entry>;

  // Under mutex_.
  Entry* Find(const SessionKey& key, uint64_t number);
  void Schedule(Entry& entry);
  void TakeFile(Entry& entry);
  Entries::iterator Earliest();
  Entries::iterator LongestUnused(int64_t used_ns);
  // Not under mutex_.
  void RemoveFile(uint64_t number);
  void RemoveTaken(const SessionKey& key, uint64_t number);

  Disk& disk_;
  const std::function<void(const absl::Status&)> on_failure_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  Entries entries_;
  int64_t bytes_ = 0;
  int64_t waits_until_ = 0;  // AwaitDue; 0: it does not wait
  bool hurry_ = false;
  bool stopping_ = false;
};

}  // namespace quire
