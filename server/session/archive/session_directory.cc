// Reading comes first: a directory of another model stays as it is.
#include "server/session/archive/session_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/session/archive/journals.h"
#include "server/session/little_endian.h"

namespace quire {
namespace {

// Enough for a disk that answers several reads at once.
constexpr unsigned kReaders = 8;

struct ReadFile {
  uint64_t number = 0;
  int64_t bytes = 0;
  absl::StatusOr<Journal> journal = absl::UnknownError("not read");
};

absl::Status CannotUse(const std::string& folder, const std::string& why) {
  return absl::InvalidArgumentError("--session-dir: " + folder + " " + why);
}

absl::Status CannotList(const absl::Status& fault) {
  return absl::UnavailableError("--session-dir: its files cannot be listed (" +
                                std::string(fault.message()) +
                                "); mend the disk, or give a directory on another one");
}

void ReadJournals(Disk& disk, std::vector<ReadFile>* files) {
  std::atomic<size_t> next{0};
  const auto read = [&] {
    for (size_t i = next++; i < files->size(); i = next++) {
      ReadFile& file = (*files)[i];
      const absl::StatusOr<std::string> bytes = ReadAll(disk, TokensFile(file.number));
      file.journal =
          bytes.ok() ? ReadJournal(*bytes) : absl::UnavailableError(bytes.status().message());
    }
  };
  std::vector<std::thread> threads;
  const unsigned count =
      std::min<unsigned>(kReaders, std::max(1u, std::thread::hardware_concurrency()));
  for (unsigned i = 1; i < count && i < files->size(); ++i) threads.emplace_back(read);
  read();
  for (std::thread& thread : threads) thread.join();
}

void PutAside(Disk& disk, const ReadFile& file, DirectoryContents* contents) {
  const absl::Status& fault = file.journal.status();
  const std::string name = TokensFile(file.number);
  const bool damaged = absl::IsDataLoss(fault);
  ++(damaged ? contents->damaged : contents->unreadable);
  Log(Severity::kError,
      damaged ? "a session's journal is damaged: the session is lost"
              : "a session's journal cannot be read: the session is not adopted",
      {{"file", name}, {"fault", std::string(fault.message())}});
  if (damaged) disk.Rename(name, BrokenFile(file.number)).IgnoreError();
}

void CutOff(Disk& disk, const ReadFile& file) {
  const auto opened = disk.Open(TokensFile(file.number), Disk::Mode::kAppend);
  const absl::Status status =
      opened.ok() ? (*opened)->Truncate(file.journal->bytes) : opened.status();
  if (status.ok()) return;
  Log(Severity::kWarning, "the torn end of a journal could not be cut off",
      {{"file", TokensFile(file.number)}, {"fault", std::string(status.message())}});
}

}  // namespace

absl::Status CheckSessionDirectory(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) {
    const bool usable = access(folder.c_str(), R_OK | W_OK | X_OK) == 0;
    return usable ? absl::OkStatus() : CannotUse(folder, "cannot be written by this user");
  }
  if (std::filesystem::exists(folder, error)) return CannotUse(folder, "is not a directory");
  std::filesystem::path parent = std::filesystem::absolute(folder, error);
  while (!parent.empty() && !std::filesystem::exists(parent, error)) {
    if (parent == parent.parent_path()) break;
    parent = parent.parent_path();
  }
  const bool can_make =
      std::filesystem::is_directory(parent, error) && access(parent.c_str(), W_OK | X_OK) == 0;
  return can_make ? absl::OkStatus()
                  : CannotUse(folder, "cannot be made: " + parent.string() +
                                          " is not a directory that this user can write");
}

absl::StatusOr<DirectoryLock> DirectoryLock::Take(const std::string& folder) {
  RETURN_IF_ERROR(CheckSessionDirectory(folder));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return CannotUse(folder, "cannot be made: " + error.message());
  const std::string path = folder + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return CannotUse(folder, "cannot be locked: " + std::string(strerror(errno)));
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return DirectoryLock(fd);
  const bool taken = errno == EWOULDBLOCK;
  const std::string why = strerror(errno);
  close(fd);
  if (!taken) return CannotUse(folder, "cannot be locked: " + why);
  return absl::FailedPreconditionError("--session-dir: another server uses " + folder +
                                       "; stop it, or give this server a directory of its own");
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) close(fd_);
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

absl::StatusOr<DirectoryContents> ReadDirectory(Disk& disk, const std::string& model,
                                                uint64_t identity) {
  const absl::StatusOr<std::vector<Disk::Entry>> entries = disk.List();
  // A part of the list would do harm: new sessions would get the numbers of files that it lacks.
  if (!entries.ok()) return CannotList(entries.status());
  std::vector<ReadFile> files;
  std::map<uint64_t, int64_t> kv_bytes;
  std::vector<std::string> unfinished;
  DirectoryContents contents;
  for (const Disk::Entry& entry : *entries) {
    const uint64_t tokens = NumberIn(entry.name, kTokensSuffix);
    const uint64_t kv = NumberIn(entry.name, kKvSuffix);
    if (tokens > 0) files.push_back({.number = tokens, .bytes = entry.bytes});
    if (kv > 0) kv_bytes[kv] = entry.bytes;
    if (entry.name.ends_with(kUnfinishedSuffix)) unfinished.push_back(entry.name);
    // A damaged journal keeps its number.
    contents.next_number =
        std::max({contents.next_number, tokens + 1, kv + 1, NumberIn(entry.name, ".damaged") + 1});
  }
  ReadJournals(disk, &files);
  for (const ReadFile& file : files) {
    if (!file.journal.ok() || file.journal->header.model_identity == identity) continue;
    const JournalHeader& header = file.journal->header;
    return absl::FailedPreconditionError("--session-dir: its sessions are of model '" +
                                         header.model + "' (" + Hex(header.model_identity) +
                                         "), this server has '" + model + "' (" + Hex(identity) +
                                         "); give each model a directory of its own");
  }
  for (const std::string& name : unfinished) disk.Remove(name).IgnoreError();
  // A session that was closed and made again may have two files, if the first was not removed.
  std::sort(files.begin(), files.end(),
            [](const ReadFile& a, const ReadFile& b) { return a.number > b.number; });
  std::set<SessionKey> names;
  for (ReadFile& file : files) {
    if (!file.journal.ok()) {
      PutAside(disk, file, &contents);
      continue;
    }
    const JournalHeader& header = file.journal->header;
    if (!names.emplace(header.tenant, header.name).second) {
      disk.Remove(TokensFile(file.number)).IgnoreError();
      continue;
    }
    if (file.journal->torn) CutOff(disk, file);
    contents.torn += file.journal->torn;
    const auto kv = kv_bytes.find(file.number);
    contents.sessions.push_back({file.number, *std::move(file.journal), 0});
    if (kv == kv_bytes.end()) continue;
    contents.sessions.back().kv_bytes = kv->second;
    kv_bytes.erase(kv);
  }
  for (const auto& [number, bytes] : kv_bytes) disk.Remove(KvFile(number)).IgnoreError();
  return contents;
}

}  // namespace quire
