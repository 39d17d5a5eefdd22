// SessionDirectory: --session-dir at the server's start: whether it can be used, the lock that
// keeps a second server out, and the sessions that the last server left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/session/archive/disk.h"
#include "server/session/archive/session_journal.h"

namespace quire {

// Whether the directory is there, or can be made, and can be written. Makes nothing.
absl::Status CheckSessionDirectory(const std::string& folder);

// Makes the directory if needed, and locks it until the lock is destroyed or the process is gone.
// FAILED_PRECONDITION if another server has it.
class DirectoryLock {
 public:
  static absl::StatusOr<DirectoryLock> Take(const std::string& folder);
  ~DirectoryLock();
  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&&) = delete;

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  int fd_;
};

// A session that an earlier server left.
struct LeftSession {
  uint64_t number = 0;  // of its files
  Journal journal;
  int64_t kv_bytes = 0;  // of its KV file; 0: none
};

struct DirectoryContents {
  std::vector<LeftSession> sessions;
  uint64_t next_number = 1;
  int64_t torn = 0;        // journals whose last record was cut off
  int64_t damaged = 0;     // journals that were refused and renamed
  int64_t unreadable = 0;  // journals that the disk did not give
};

// Reads all journals, several at a time, and tidies up: cuts off torn records, renames damaged
// journals, removes unfinished files and KV without tokens. FAILED_PRECONDITION, naming both
// models, if a session is of another model than `identity`; then nothing has changed.
absl::StatusOr<DirectoryContents> ReadDirectory(Disk& disk, const std::string& model,
                                                uint64_t identity);

}  // namespace quire
