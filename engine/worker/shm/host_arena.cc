// The pages, then their checksums.
#include "engine/worker/shm/host_arena.h"

#include <sys/mman.h>

#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "kernels/ceil_div.h"
#include "kernels/check.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace quire {
namespace {

constexpr int64_t kSystemPage = 4096;

int64_t WholePages(int64_t bytes) { return RoundUp(bytes, kSystemPage); }

}  // namespace

absl::StatusOr<HostArena> HostArena::Create() {
  ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Create("quire kv"));
  return HostArena(std::move(memory));
}

absl::Status HostArena::Allocate(const Shape& shape) {
  CHECK(shape.num_pages > 0 && shape.page_bytes > 0);
  shape_ = shape;
  RETURN_IF_ERROR(memory_.Allocate(TotalBytes()));
  AdviseHugePages();
  return absl::OkStatus();
}

absl::StatusOr<HostArena> HostArena::CreatePrivate(const Shape& shape) {
  CHECK(shape.num_pages > 0 && shape.page_bytes > 0);
  HostArena arena{SharedMemory()};
  arena.shape_ = shape;
  ASSIGN_OR_RETURN(arena.memory_, SharedMemory::Private(arena.TotalBytes()));
  arena.AdviseHugePages();
  return arena;
}

absl::StatusOr<HostArena> HostArena::Attach(SharedMemory memory, const Shape& shape) {
  HostArena arena(std::move(memory));
  arena.shape_ = shape;
  if (arena.memory_.bytes() != arena.TotalBytes()) {
    return absl::InternalError("the host's memory for KV has " +
                               std::to_string(arena.memory_.bytes()) + " bytes, not the " +
                               std::to_string(arena.TotalBytes()) + " of its shape");
  }
  arena.AdviseHugePages();
  return arena;
}

// Fewer faults and translations, where the system has such pages; nothing depends on it.
void HostArena::AdviseHugePages() {
  madvise(memory_.data(), static_cast<size_t>(memory_.bytes()), MADV_HUGEPAGE);
}

int64_t HostArena::stride() const { return WholePages(shape_.page_bytes); }

int64_t HostArena::TotalBytes() const {
  return shape_.num_pages * stride() +
         WholePages(shape_.num_pages * static_cast<int64_t>(sizeof(uint64_t)));
}

std::span<std::byte> HostArena::page(PageId page) const {
  CHECK(0 <= page && page < shape_.num_pages);
  return {memory_.data() + page * stride(), static_cast<size_t>(shape_.page_bytes)};
}

// An optimisation: without this system call, or without free memory, it does nothing.
void HostArena::Touch(PageId first, int32_t count) const {
  madvise(page(first).data(), static_cast<size_t>(count * stride()), MADV_POPULATE_WRITE);
}

// Read, not write: the system then maps 16 of its pages at a time. An optimisation, as above.
void HostArena::Map(PageId first, int32_t count) const {
  madvise(page(first).data(), static_cast<size_t>(count * stride()), MADV_POPULATE_READ);
}

uint64_t& HostArena::checksum(PageId page) const {
  CHECK(0 <= page && page < shape_.num_pages);
  return reinterpret_cast<uint64_t*>(memory_.data() + shape_.num_pages * stride())[page];
}

// Seeded by the page number, so that the bytes of another page do not match. Never 0, the checksum
// of a page that was never signed.
uint64_t HostArena::ChecksumOf(PageId page) const {
  const std::span<const std::byte> bytes = this->page(page);
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), static_cast<uint64_t>(page)) | 1;
}

void HostArena::Sign(PageId page) {
  if (shape_.checksums) checksum(page) = ChecksumOf(page);
}

bool HostArena::Intact(PageId page) const {
  CHECK(shape_.checksums);
  return checksum(page) == ChecksumOf(page);
}

}  // namespace quire
