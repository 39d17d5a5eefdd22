// HostArena: one rank's pages of host memory for KV that left the device, and a checksum for each
// page. The server creates the arena before the workers start, and they inherit it. It outlives
// them: a page whose copy was acked keeps its bytes when the worker dies.
//
// The scheduler decides which thread may touch which page; the arena takes no lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/values/copy_plan.h"
#include "engine/worker/shm/shared_memory.h"

namespace quire {

class HostArena {
 public:
  struct Shape {
    int32_t num_pages = 0;
    int64_t page_bytes = 0;  // of one block
    bool checksums = true;   // of pages; without, Sign does nothing and Intact must not be called
  };

  // Creates a descriptor that workers inherit, without pages yet: their number is known only once
  // the workers have described their device.
  static absl::StatusOr<HostArena> Create();
  // Gives an arena from Create its pages, once. They take memory when they are first touched.
  absl::Status Allocate(const Shape& shape);
  // An arena with its pages, for ranks that are threads: no process can inherit it.
  static absl::StatusOr<HostArena> CreatePrivate(const Shape& shape);
  // A worker's view of the pages that its server allocated.
  static absl::StatusOr<HostArena> Attach(SharedMemory memory, const Shape& shape);

  int fd() const { return memory_.fd(); }
  const Shape& shape() const { return shape_; }
  // Bytes from one page to the next: a multiple of the system's page, so that no two pages share
  // one.
  int64_t stride() const;
  std::span<std::byte> page(PageId page) const;
  // Lets the system allocate memory for these pages now, so that no copy waits for it later.
  void Touch(PageId first, int32_t count) const;
  // Makes pages that have memory quick to access for this process: of an arena that another process
  // has touched, every access to a new 4 KiB would interrupt otherwise.
  void Map(PageId first, int32_t count) const;

  // Sign stores the checksum of a page's bytes; Intact is true while the bytes still match it. A
  // page that was never signed is not intact.
  void Sign(PageId page);
  bool Intact(PageId page) const;

 private:
  explicit HostArena(SharedMemory memory) : memory_(std::move(memory)) {}
  int64_t TotalBytes() const;
  void AdviseHugePages();
  uint64_t ChecksumOf(PageId page) const;
  uint64_t& checksum(PageId page) const;

  SharedMemory memory_;
  Shape shape_;
};

// Indexed by rank; empty without host memory.
using HostArenas = std::vector<std::shared_ptr<HostArena>>;

}  // namespace quire
