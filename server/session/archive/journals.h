// Journals: the tokens of all sessions in the session directory, one file each. Every change of a
// session is one write at the end of its file; a file that has grown to several times its session
// is written anew. One thread, except for the counts.
//
// A write that fails leaves the session's journal incomplete: it still has an earlier state of the
// session, and Append refuses until Rewrite has written the whole session.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/values/session.h"
#include "server/session/archive/disk.h"
#include "server/session/archive/session_journal.h"

namespace quire {

using SessionKey = std::pair<TenantId, SessionName>;

class Journals {
 public:
  struct Settings {
    std::string model;
    uint64_t model_identity = 0;
    int64_t epoch_ns = 0;  // time since 1970 minus the steady clock
    // Called when a write found no space on the disk: makes some, or returns false.
    std::function<bool()> make_room;
    // Called with the operation that failed: "write", "remove".
    std::function<void(const char* operation, const absl::Status&)> on_failure;
  };

  // `disk` outlives this. New files are numbered from `next_number` on.
  Journals(Disk& disk, Settings settings, uint64_t next_number);

  // Takes over a session whose file was there at the start.
  void Adopt(uint64_t number, const Journal& journal);
  // The session has its first `kept` tokens as before, and `added` behind them. False: the journal
  // is not complete, or not complete any more.
  bool Append(const SessionInfo& info, int32_t kept, std::span<const int32_t> added);
  // Writes the options and the lease if they have changed.
  bool Renew(const SessionInfo& info);
  // Writes the whole session into a new file.
  bool Rewrite(const SessionInfo& info, std::span<const int32_t> tokens);
  // The session is gone, with its file.
  void Remove(const SessionKey& key);
  // Frees at least `bytes` by removing the files of the longest unused sessions, which are not
  // complete from then on, and not to be written again before they change.
  void DropOldest(int64_t bytes);

  // The number of the session's files; 0: it has none.
  uint64_t NumberOf(const SessionKey& key) const;
  bool Complete(const SessionKey& key) const;
  // Incomplete sessions that are to be written whole, at most `limit`, in turn: those that follow
  // the last one of the call before come first.
  std::vector<SessionKey> NextIncomplete(size_t limit);

  // Of all files. Any thread.
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  int64_t sessions() const { return sessions_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    uint64_t number = 0;
    int64_t created_ns = 0;  // since 1970
    JournalRecord last;
    int32_t position = 0;
    int64_t bytes = 0;
    uint64_t checksum = 0;
    bool complete = false;
    bool dropped = false;  // to make room, and the session has not changed since
  };

  Entry& Open(const SessionInfo& info);
  JournalRecord RecordOf(const SessionInfo& info, int32_t kept) const;
  bool Write(const SessionKey& key, Entry& entry, const JournalRecord& record,
             std::span<const int32_t> added);
  absl::Status AppendTo(Entry& entry, const std::string& bytes);
  absl::Status Create(const Entry& entry, const std::string& bytes);
  void Compact(Entry& entry);
  void SetBytes(Entry& entry, int64_t bytes);

  Disk& disk_;
  const Settings settings_;
  uint64_t next_number_;
  std::map<SessionKey, Entry> entries_;
  SessionKey last_incomplete_;  // that NextIncomplete gave
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> sessions_{0};
};

// The names of the files of a session, and the number in such a name (0: it is no such name).
std::string TokensFile(uint64_t number);
std::string KvFile(uint64_t number);
std::string BrokenFile(uint64_t number);  // a journal that was refused
uint64_t NumberIn(const std::string& file, const std::string& suffix);

inline constexpr char kTokensSuffix[] = ".tokens";
inline constexpr char kKvSuffix[] = ".kv";
inline constexpr char kUnfinishedSuffix[] = ".unfinished";

}  // namespace quire
