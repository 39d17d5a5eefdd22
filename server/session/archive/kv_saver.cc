// Snapshot, write, rename.
#include "server/session/archive/kv_saver.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "server/session/archive/engine_call.h"

namespace quire {
namespace {

// One write: long enough that calls cost nothing beside the copy.
constexpr size_t kPieceBytes = size_t{4} << 20;
// After a failed write.
constexpr int64_t kAgainNs = 10'000'000'000;

}  // namespace

KvSaver::KvSaver(Parts parts) : parts_(std::move(parts)), thread_([this] { Run(); }) {}

KvSaver::~KvSaver() { Stop(); }

void KvSaver::Stop() {
  stopping_.store(true);
  parts_.files.Stop();
  if (thread_.joinable()) thread_.join();
}

void KvSaver::Run() {
  while (const std::optional<KvFiles::Task> task = parts_.files.AwaitDue()) {
    const ArchiveMetrics::Save outcome = Save(*task);
    parts_.metrics.Ended(outcome);
    parts_.metrics.SetBytes(ArchiveMetrics::File::kKv, parts_.files.bytes());
  }
}

ArchiveMetrics::Save KvSaver::Save(const KvFiles::Task& task) {
  using enum ArchiveMetrics::Save;
  const auto& [tenant, name] = task.key;
  std::optional<SessionAnswer> answer = RunAndWait(
      parts_.engine, {.tenant = tenant, .name = name, .action = SessionOperation::BeginSnapshot()},
      stopping_);
  if (!answer.has_value() || !answer->status.ok()) {
    parts_.files.EndWrite(task, std::nullopt, 0);
    return kOvertaken;
  }
  const SessionTransfer& bytes = answer->transfer;
  int64_t written = 0;
  absl::Status status = absl::CancelledError("less KV than the file has");
  if (bytes.kv_tokens > task.kv_tokens) status = Write(task, bytes, &written);
  parts_.engine.Run({.action = SessionOperation::EndSnapshot{bytes.turn}},
                    [](const SessionAnswer&) {});
  if (status.ok()) {
    parts_.files.EndWrite(task, written, bytes.kv_tokens);
    // A session that was closed meanwhile has no file.
    if (!parts_.files.Exists(task)) parts_.disk.Remove(KvFile(task.number)).IgnoreError();
    return kSaved;
  }
  parts_.disk.Remove(KvFile(task.number) + kUnfinishedSuffix).IgnoreError();
  const bool failed = !absl::IsCancelled(status) && !absl::IsFailedPrecondition(status);
  parts_.files.EndWrite(task, std::nullopt, 0, failed ? SteadyNowNs() + kAgainNs : kNoDeadline);
  if (absl::IsResourceExhausted(status)) parts_.files.DropOldest(task.used_ns);
  if (failed) parts_.on_failure(status);
  return absl::IsCancelled(status) ? kOvertaken : failed ? kFailed : kNoRoom;
}

// CANCELLED: it is not wanted any more. FAILED_PRECONDITION: there is no room for it.
absl::Status KvSaver::Write(const KvFiles::Task& task, const SessionTransfer& bytes,
                            int64_t* written) {
  const SessionFileHeader header{.shape = parts_.shape,
                                 .num_tokens = static_cast<int32_t>(bytes.tokens.size()),
                                 .kv_tokens = bytes.kv_tokens};
  const int64_t kv_bytes = header.num_blocks() * parts_.shape.block_bytes;
  const int64_t token_bytes = header.num_tokens * static_cast<int64_t>(sizeof(int32_t));
  if (!parts_.make_room(kv_bytes + token_bytes, task.used_ns)) {
    return absl::FailedPreconditionError("no room");
  }
  const std::string unfinished = KvFile(task.number) + kUnfinishedSuffix;
  ASSIGN_OR_RETURN(const std::unique_ptr<DiskFile> file,
                   parts_.disk.Open(unfinished, Disk::Mode::kCreate));
  const auto page_of = [&](int32_t block, int32_t rank) {
    return parts_.arenas[static_cast<size_t>(rank)]->page(bytes.pages[static_cast<size_t>(block)]);
  };
  SessionFileWriter writer(
      header, bytes.tokens,
      {.ranks = static_cast<int32_t>(parts_.arenas.size()), .page_of = page_of});
  std::string piece;
  piece.reserve(kPieceBytes);
  for (; writer.Next(kPieceBytes, &piece); piece.clear()) {
    if (stopping_.load() || !parts_.files.Exists(task)) return absl::CancelledError("ended");
    RETURN_IF_ERROR(AppendAll(*file, piece));
    *written += static_cast<int64_t>(piece.size());
    parts_.metrics.Moved(ArchiveMetrics::Operation::kWrite, static_cast<int64_t>(piece.size()));
  }
  return parts_.disk.Rename(unfinished, KvFile(task.number));
}

}  // namespace quire
