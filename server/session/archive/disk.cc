// System calls, one each.
#include "server/session/archive/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/base/status_macros.h"
#include "kernels/check.h"

namespace quire {
namespace {

// Abseil gives a lack of descriptors or of memory the code that no space has here. Files that are
// removed would help against neither.
absl::Status Failed(const char* operation, const std::string& name) {
  const bool no_space = errno == ENOSPC || errno == EDQUOT;
  absl::Status status = absl::ErrnoToStatus(errno, std::string(operation) + " " + name);
  if (absl::IsResourceExhausted(status) == no_space) return status;
  return no_space ? absl::ResourceExhaustedError(status.message())
                  : absl::UnavailableError(status.message());
}

class SystemFile final : public DiskFile {
 public:
  SystemFile(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  ~SystemFile() override { close(fd_); }

  absl::StatusOr<size_t> Append(std::string_view bytes) override {
    for (;;) {
      const ssize_t count = write(fd_, bytes.data(), bytes.size());
      if (count > 0) return static_cast<size_t>(count);
      if (count < 0 && errno != EINTR) return Failed("write", name_);
    }
  }
  absl::Status Read(int64_t offset, std::span<std::byte> out) override {
    while (!out.empty()) {
      const ssize_t count = pread(fd_, out.data(), out.size(), offset);
      if (count == 0) return absl::OutOfRangeError(name_ + " ends too early");
      if (count < 0 && errno != EINTR) return Failed("read", name_);
      if (count < 0) continue;
      out = out.subspan(static_cast<size_t>(count));
      offset += count;
    }
    return absl::OkStatus();
  }
  // One system call reads all pieces, and Read reads the rest of a call that ended early.
  absl::Status ReadPieces(int64_t offset, std::span<const std::span<std::byte>> pieces) override {
    CHECK_LE(pieces.size(), kMaxPieces);
    if (pieces.size() == 1) return Read(offset, pieces.front());  // faster than preadv
    std::vector<iovec> places;
    places.reserve(pieces.size());
    for (const std::span<std::byte> piece : pieces) places.push_back({piece.data(), piece.size()});
    const ssize_t count = preadv(fd_, places.data(), static_cast<int>(pieces.size()), offset);
    if (count < 0 && errno != EINTR) return Failed("read", name_);
    auto done = static_cast<size_t>(std::max<ssize_t>(count, 0));
    for (const std::span<std::byte> piece : pieces) {
      const size_t read = std::min(done, piece.size());
      RETURN_IF_ERROR(Read(offset + static_cast<int64_t>(read), piece.subspan(read)));
      done -= read;
      offset += static_cast<int64_t>(piece.size());
    }
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> Size() override {
    struct stat facts {};
    if (fstat(fd_, &facts) != 0) return Failed("stat", name_);
    return facts.st_size;
  }
  absl::Status Truncate(int64_t size) override {
    return ftruncate(fd_, size) == 0 ? absl::OkStatus() : Failed("truncate", name_);
  }

 private:
  const int fd_;
  const std::string name_;
};

class SystemDisk final : public Disk {
 public:
  explicit SystemDisk(std::string folder) : folder_(std::move(folder) + "/") {}

  absl::StatusOr<std::vector<Entry>> List() override {
    DIR* const folder = opendir(folder_.c_str());
    if (folder == nullptr) return Failed("list", folder_);
    std::vector<Entry> entries;
    absl::Status fault;
    for (;;) {
      errno = 0;
      const dirent* const entry = readdir(folder);
      if (entry == nullptr) {
        if (errno != 0) fault = Failed("list", folder_);
        break;
      }
      struct stat facts {};
      const std::string name = entry->d_name;
      const bool found = stat((folder_ + name).c_str(), &facts) == 0;
      if (!found && errno != ENOENT) fault = Failed("stat", name);
      if (found && S_ISREG(facts.st_mode)) entries.push_back({name, facts.st_size});
    }
    closedir(folder);
    if (!fault.ok()) return fault;
    return entries;
  }
  absl::StatusOr<std::unique_ptr<DiskFile>> Open(const std::string& name, Mode mode) override {
    const int flags = mode == Mode::kRead     ? O_RDONLY
                      : mode == Mode::kAppend ? O_RDWR | O_APPEND
                                              : O_RDWR | O_APPEND | O_CREAT | O_TRUNC;
    const int fd = open((folder_ + name).c_str(), flags | O_CLOEXEC, 0600);
    if (fd < 0) return Failed("open", name);
    return std::make_unique<SystemFile>(fd, name);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    const int result = rename((folder_ + from).c_str(), (folder_ + to).c_str());
    return result == 0 ? absl::OkStatus() : Failed("rename", from);
  }
  absl::Status Remove(const std::string& name) override {
    const bool gone = unlink((folder_ + name).c_str()) == 0 || errno == ENOENT;
    return gone ? absl::OkStatus() : Failed("remove", name);
  }

 private:
  const std::string folder_;  // with a slash
};

}  // namespace

absl::Status DiskFile::ReadPieces(int64_t offset, std::span<const std::span<std::byte>> pieces) {
  for (const std::span<std::byte> piece : pieces) {
    RETURN_IF_ERROR(Read(offset, piece));
    offset += static_cast<int64_t>(piece.size());
  }
  return absl::OkStatus();
}

std::unique_ptr<Disk> OpenDisk(const std::string& folder) {
  return std::make_unique<SystemDisk>(folder);
}

absl::Status AppendAll(DiskFile& file, std::string_view bytes) {
  while (!bytes.empty()) {
    ASSIGN_OR_RETURN(const size_t count, file.Append(bytes));
    bytes.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadAll(Disk& disk, const std::string& name) {
  ASSIGN_OR_RETURN(const std::unique_ptr<DiskFile> file, disk.Open(name, Disk::Mode::kRead));
  ASSIGN_OR_RETURN(const int64_t size, file->Size());
  std::string bytes(static_cast<size_t>(size), '\0');
  RETURN_IF_ERROR(file->Read(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

}  // namespace quire
