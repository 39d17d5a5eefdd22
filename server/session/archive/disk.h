// Disk: the file operations of the session directory; everything that can fail there fails here.
// Tests replace it by disks that are full, slow or broken.
//
// Files are flat in one folder and named without a path. Errors carry the system's reason;
// RESOURCE_EXHAUSTED: no space. Nothing is flushed to the medium: what Append has written survives
// the death of the process, not a loss of power.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire {

class DiskFile {
 public:
  static constexpr size_t kMaxPieces = 512;

  virtual ~DiskFile() = default;
  // Returns how many of the bytes were appended: at least one, possibly not all.
  virtual absl::StatusOr<size_t> Append(std::string_view bytes) = 0;
  // Fills `out`; OUT_OF_RANGE if the file ends before. Any number of threads at once.
  virtual absl::Status Read(int64_t offset, std::span<std::byte> out) = 0;
  // Fills the pieces, which are at most kMaxPieces, in their order; as Read.
  virtual absl::Status ReadPieces(int64_t offset, std::span<const std::span<std::byte>> pieces);
  virtual absl::StatusOr<int64_t> Size() = 0;
  virtual absl::Status Truncate(int64_t size) = 0;
};

class Disk {
 public:
  enum class Mode : uint8_t { kRead, kAppend, kCreate };  // kCreate: empty, also if it was there
  struct Entry {
    std::string name;
    int64_t bytes = 0;
  };

  virtual ~Disk() = default;
  virtual absl::StatusOr<std::vector<Entry>> List() = 0;
  virtual absl::StatusOr<std::unique_ptr<DiskFile>> Open(const std::string& name, Mode mode) = 0;
  // Replaces `to` if it exists, at once or not at all.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // OK if there is no such file.
  virtual absl::Status Remove(const std::string& name) = 0;
};

// The files of `folder`, which exists. Any thread.
std::unique_ptr<Disk> OpenDisk(const std::string& folder);

// Appends all of `bytes`, or fails with a part of them written.
absl::Status AppendAll(DiskFile& file, std::string_view bytes);
// The bytes of a whole file.
absl::StatusOr<std::string> ReadAll(Disk& disk, const std::string& name);

}  // namespace quire
