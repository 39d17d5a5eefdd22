// KvFileReader: a KV file of the session directory, read into host pages by several threads at
// once. Each block is verified by its checksum as it is read, and the whole file at its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/worker/shm/host_arena.h"
#include "server/session/archive/disk.h"
#include "server/session/session_file.h"

namespace quire {

class KvFileReader {
 public:
  // Reads header and tokens. INVALID_ARGUMENT if the file is damaged, FAILED_PRECONDITION if it
  // does not fit this server; others if the disk fails.
  static absl::StatusOr<std::unique_ptr<KvFileReader>> Open(Disk& disk, const std::string& name,
                                                            const SessionFileReader::Limits& here);

  int32_t kv_tokens() const { return head_.header().kv_tokens; }
  int32_t num_blocks() const { return head_.header().num_blocks(); }
  // The tokens that the KV is of.
  std::vector<int32_t> tokens() const;

  // Before Read: block i goes to page i of the arenas, to each rank its heads; behind the last
  // page, or with kNoPage, it is skipped.
  void SetPages(HostArenas arenas, std::vector<PageId> pages);
  // `threads` threads will call Read once each. They read together until no block is left, or
  // `stop` is true. Read is true for the thread that ends last.
  void Expect(int threads, const std::atomic<bool>* stop);
  bool Read();
  // Requires that Read has returned true. As of Open; CANCELLED if it was stopped.
  absl::Status Finish();
  int64_t bytes_read() const { return bytes_read_.load(); }

 private:
  KvFileReader(std::unique_ptr<DiskFile> file, const SessionFileReader::Limits& here)
      : file_(std::move(file)), head_(here) {}

  absl::Status ReadHead();
  absl::Status ReadBlock(int32_t block);
  absl::Status ReadPages(int64_t offset, PageId page, RunningHash* hash);
  std::vector<KvRun> SliceAt(int64_t begin) const;
  absl::Status ReadSlice(int64_t offset, const std::vector<KvRun>& slice, PageId page,
                         RunningHash* hash);
  int64_t stride() const;  // bytes from a block to the next

  const std::unique_ptr<DiskFile> file_;
  SessionFileReader head_;
  int64_t head_bytes_ = 0;
  HostArenas arenas_;
  std::optional<KvRuns> runs_;  // from SetPages on
  std::vector<PageId> pages_;
  std::vector<uint64_t> sums_;  // by block; each is written by one thread
  const std::atomic<bool>* stop_ = nullptr;
  std::atomic<int32_t> next_{0};
  std::atomic<int32_t> expected_{0};  // threads that have not ended
  std::atomic<int64_t> bytes_read_{0};
  std::atomic<bool> failed_{false};
  absl::Status failure_;  // of the thread that set failed_
};

}  // namespace quire
