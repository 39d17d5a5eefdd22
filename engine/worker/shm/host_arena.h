// HostArena: one rank's pages of host memory for KV that is not on the device, and a checksum for
// each. The server makes it before the workers start and they inherit it, so it outlives them: what
// a page held when its copy was acked it holds after a worker's death.
//
// Who may touch a page is the scheduler's business; nothing here locks.
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
    int64_t page_bytes = 0;  // a block's
  };

  // A descriptor to be inherited, without pages yet: how many is known only once the workers have
  // described their device.
  static absl::StatusOr<HostArena> Create();
  // Gives what Create made its pages, for good. They take memory when they are first touched.
  absl::Status Allocate(const Shape& shape);
  // One with its pages at once, for ranks that are threads: nobody can inherit it.
  static absl::StatusOr<HostArena> CreatePrivate(const Shape& shape);
  // A worker's view of what its server allocated.
  static absl::StatusOr<HostArena> Attach(SharedMemory memory, const Shape& shape);

  int fd() const { return memory_.fd(); }
  const Shape& shape() const { return shape_; }
  // From one page to the next: whole pages of the system, so that no two share one.
  int64_t stride() const;
  std::span<std::byte> page(PageId page) const;
  // Has the system find memory for these pages now, so that nobody waits for it later.
  void Touch(PageId first, int32_t count) const;

  // Remembers the checksum of what a page holds; whether it still holds that. A page that was
  // never signed is not intact.
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

// By rank; empty: there is no host memory.
using HostArenas = std::vector<std::shared_ptr<HostArena>>;

}  // namespace quire
